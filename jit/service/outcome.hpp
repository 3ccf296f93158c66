// A job of the service, and what came of it: between its parts, for none else.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "jit/service/service.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {

// A result, or an error as its parts: every caller throws an exception of its own, since one that
// is shared between threads is shared with whatever they do to it.
struct Service::Outcome {
  CompileResult result;
  std::optional<std::pair<Code, std::string>> error;
  bool is_verdict = false;  // the compiler's, which it would give again

  static Outcome of(const std::function<CompileResult()>& action) {
    try {
      return {action(), std::nullopt};
    } catch (const CompileRefused& error) {
      return {{}, std::pair(error.code(), std::string(error.what())), true};
    } catch (const Error& error) {
      return {{}, std::pair(error.code(), std::string(error.what()))};
    } catch (const std::exception& error) {
      return {{}, std::pair(Code::internal, fmt::format("compile: {}", error.what()))};
    }
  }
  const CompileResult& get() const {
    if (is_verdict) throw CompileRefused(error->second);
    if (error) throw Error(error->first, error->second);
    return result;
  }
};

// A job of the pool: what will come of it, and the job itself while it is queued or runs.
struct Service::Posted {
  std::shared_future<Outcome> outcome;
  std::weak_ptr<Job> job;
};

inline Error cancelled_error(const CompileRequest& request) {
  return Error(Code::compile_failed,
               fmt::format("compile of function '{}' (module {}) for {} was cancelled",
                           request.function, request.entry, request.target));
}

}  // namespace kiln::jit
