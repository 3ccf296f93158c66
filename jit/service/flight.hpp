// One compile and everyone who waits for it: between the parts of the service, for none else.
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

struct Service::Flight : std::enable_shared_from_this<Service::Flight> {
  CompileRequest request;
  Toolchain toolchain;
  std::size_t hash = 0;
  std::promise<Outcome> promise;
  std::shared_future<Outcome> future = promise.get_future().share();
  std::shared_ptr<Job> job;
  int holders = 0;  // requests that have not been cancelled; guarded by the service's mutex
};

inline Error cancelled_error(const CompileRequest& request) {
  return Error(Code::compile_failed,
               fmt::format("compile of function '{}' (module {}) for {} was cancelled",
                           request.function, request.entry, request.target));
}

}  // namespace kiln::jit
