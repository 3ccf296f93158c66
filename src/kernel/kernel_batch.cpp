// See kernel_batch.hpp.
#include "kernel/kernel_batch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "fusion/emit/emit.hpp"
#include "kiln/error.hpp"
#include "kernel/named_kernel.hpp"

namespace kiln {
namespace {

// Runs `action`; what it throws becomes the outcome's error.
void attempt(CodeOutcome& outcome, const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    outcome.error.emplace(error.code(), error.what());
  } catch (const std::exception& error) {
    outcome.error.emplace(Code::internal, error.what());
  }
}

class Batch {
 public:
  Batch(std::span<const KernelRequest> requests, BackgroundCompile& compile)
      : requests_(requests), compile_(compile), outcomes_(requests.size()) {}

  std::vector<CodeOutcome> run() {
    if (!name_all()) return std::move(outcomes_);
    const jit::Toolchain& toolchain = named_.front().toolchain;
    if (toolchain.identity.empty()) {
      warn_unidentified(toolchain);
      for (std::size_t i = 0; i < requests_.size(); ++i) missing_.push_back(i);
      compile_missing();
      for (std::size_t i = 0; i < requests_.size(); ++i) {
        outcomes_[i].code = std::move(named_[i]);
        outcomes_[i].code.code = std::move(entries_[i].code);
      }
      return std::move(outcomes_);
    }
    std::vector<cache::Key> keys;
    for (const KernelCode& named : named_) keys.push_back(named.key);
    const Delivery delivery(keys, compile_);
    // In one order everywhere, so that two programs with kernels in common never wait for each
    // other.
    order_.resize(requests_.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::ranges::sort(order_,
                      [&](std::size_t a, std::size_t b) { return keys[a].hex() < keys[b].hex(); });
    fetch_from(0);
    return std::move(outcomes_);
  }

 private:
  // False if there is no compiler, and all is done that can be done without.
  bool name_all() {
    entries_.resize(requests_.size());
    jit::Toolchain toolchain;
    try {
      toolchain = jit::toolchain(jit::toolchain_for(requests_.front().target));
    } catch (const Error& error) {
      for (std::size_t i = 0; i < requests_.size(); ++i) {
        attempt(outcomes_[i], [&] { outcomes_[i].code = make_code(requests_[i]); });
      }
      return false;
    }
    for (const KernelRequest& request : requests_) named_.push_back(name_with(request, toolchain));
    return true;
  }

  // Takes the right to compile each key in turn, compiles once all that are missing are known, and
  // publishes on the way back.
  void fetch_from(std::size_t position) {
    if (position == order_.size()) {
      compile_missing();
      return;
    }
    const std::size_t i = order_[position];
    bool leads = false;
    const auto fetch = [&] {
      cache::Fetched fetched = process_cache().get(named_[i].key, [&] {
        leads = true;
        missing_.push_back(i);
        fetch_from(position + 1);
        if (outcomes_[i].error) throw Error(outcomes_[i].error->first, outcomes_[i].error->second);
        return std::move(entries_[i]);
      });
      outcomes_[i].code = named_[i];
      outcomes_[i].code.state =
          fetched.from == cache::From::disk ? CacheState::disk : CacheState::compiled;
      outcomes_[i].code.code = std::move(fetched.entry.code);
    };
    for (int turn = 0; turn < 3; ++turn) {
      outcomes_[i].error.reset();
      attempt(outcomes_[i], fetch);
      // Another batch led this key and was cancelled; this one was not.
      const bool again =
          !leads && outcomes_[i].error && outcomes_[i].error->first == Code::would_compile;
      if (!again) break;
    }
    if (!leads) fetch_from(position + 1);
  }

  void compile_missing() {
    if (missing_.empty()) return;
    if (missing_.size() > 1 && compile_as_one()) return;
    for (const std::size_t i : missing_) {
      attempt(outcomes_[i], [&] {
        jit::CompileRequest job = compile_request(requests_[i], named_[i]);
        const jit::CompileResult result = compile_.run(job);
        entries_[i] = make_entry(requests_[i], named_[i], result, std::move(job.source));
      });
    }
  }

  // False if they have to be compiled one by one, because one of them may be to blame.
  bool compile_as_one() {
    jit::CompileRequest program =
        compile_request(requests_[missing_.front()], named_[missing_.front()]);
    for (std::size_t k = 1; k < missing_.size(); ++k) {
      program.source += '\n';
      program.source +=
          fusion::with_entry(requests_[missing_[k]].text, named_[missing_[k]].entry_name);
    }
    try {
      jit::CompileResult result = compile_.run(program);
      result.milliseconds /= static_cast<double>(missing_.size());
      for (const std::size_t i : missing_) {
        attempt(outcomes_[i],
                [&] { entries_[i] = make_entry(requests_[i], named_[i], result, program.source); });
      }
      return true;
    } catch (const Error& error) {
      if (error.code() == Code::compile_failed) return false;
      for (const std::size_t i : missing_) {
        outcomes_[i].error.emplace(error.code(), error.what());
      }
      return true;
    }
  }

  const std::span<const KernelRequest> requests_;
  BackgroundCompile& compile_;
  std::vector<CodeOutcome> outcomes_;
  std::vector<KernelCode> named_;
  std::vector<cache::Entry> entries_;
  std::vector<std::size_t> order_;    ///< by key
  std::vector<std::size_t> missing_;  ///< not on disk and ours to compile
};

}  // namespace

bool may_share_program(const KernelRequest& a, const KernelRequest& b) {
  return !a.alone && !b.alone && a.target == b.target && kernel_options(a) == kernel_options(b);
}

std::vector<CodeOutcome> make_codes(std::span<const KernelRequest> requests,
                                    BackgroundCompile& compile) {
  return Batch(requests, compile).run();
}

}  // namespace kiln
