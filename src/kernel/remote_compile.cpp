#include "kernel/remote_compile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <utility>

#include "fusion/emit/emit.hpp"
#include "kernel/named_kernel.hpp"
#include "kernel/process_cache.hpp"
#include "kiln/error.hpp"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;
using cache::RequestQueue;

// Since when this process has seen no compile server for a kind. Who asks next does not wait
// again for what is known.
class Absence {
 public:
  /// How long there has been none, by one look more.
  Clock::duration observe(const std::string& kind, bool has_server, Clock::duration forget) {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    Seen& seen = seen_[kind];
    if (has_server || now - seen.last > forget) seen.since = now;
    seen.last = now;
    return has_server ? Clock::duration(0) : now - seen.since;
  }

 private:
  struct Seen {
    Clock::time_point since, last;
  };
  std::mutex mutex_;
  std::map<std::string, Seen> seen_;
};

Absence& absence() {
  static auto* const one = new Absence;
  return *one;
}

class Wait {
 public:
  Wait(RequestQueue& queue, std::span<const KernelRequest* const> requests, BuildControl& control)
      : queue_(queue),
        requests_(requests),
        control_(control),
        kind_(kind_of(requests.front()->target)),
        results_(requests.size()) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      sources_.push_back(source_key(*requests[i]));
      waiting_.push_back(i);
    }
  }

  std::vector<BuildResult> run() {
    for (int turn = 0;; ++turn) {
      const std::size_t before = waiting_.size();
      const bool has_server = look();
      if (waiting_.empty()) break;
      if (waiting_.size() < before) turn = 0;
      if (control_.is_cancelled()) {
        fail_all(Code::would_compile, "was cancelled");
        break;
      }
      const auto& lease = queue_.settings().lease;
      const auto now = Clock::now();
      const auto absent = absence().observe(kind_, has_server, 2 * lease);
      if (now - began_ > jit::compile_deadline() || absent > lease) {
        const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(
            std::max<Clock::duration>(now - began_, absent));
        fail_all(Code::not_found, why_none(waited));
        break;
      }
      post();
      process_cache().pause_for_others(turn);
    }
    return std::move(results_);
  }

 private:
  std::vector<cache::Key> waiting_sources() const {
    std::vector<cache::Key> sources;
    for (const std::size_t i : waiting_) sources.push_back(sources_[i]);
    return sources;
  }

  // Takes what is there. Whether there is a compile server.
  bool look() {
    const auto answers = queue_.look(waiting_sources(), kind_);
    if (!answers) return false;
    std::size_t next = 0;
    std::erase_if(waiting_, [&](std::size_t i) {
      const RequestQueue::Answer& answer = answers->answers[next++];
      if (answer.entry) {
        if (auto code = find_any_toolchain(*requests_[i], true)) {
          results_[i].code = *std::move(code);
          return true;
        }
      }
      if (!answer.failure) return false;
      const auto code = std::min(answer.failure->code, static_cast<std::uint32_t>(Code::internal));
      results_[i].failure = Failure{static_cast<Code>(code),
                                    fmt::format("on the compile server {}: {}",
                                                answer.failure->host, answer.failure->message),
                                    answer.failure->is_verdict};
      return true;
    });
    return answers->has_server;
  }

  // At first, when somebody waits who did not before, and now and then, so that it is not given up.
  void post() {
    const auto priority = control_.priority() == BuildControl::Priority::foreground
                              ? cache::RequestPriority::foreground
                              : cache::RequestPriority::background;
    const auto now = Clock::now();
    if (posted_ && priority == posted_->first &&
        now - posted_->second < queue_.settings().lease / 3) {
      return;
    }
    state_ = queue_.post(waiting_sources(), kind_, priority, [&](std::size_t k) {
      const std::size_t i = waiting_[k];
      std::string message = queue_.sign(sources_[i], remote_request(*requests_[i]));
      if (message.empty()) too_long_.push_back(i);
      return message;
    });
    for (const std::size_t i : std::exchange(too_long_, {})) {
      std::erase(waiting_, i);
      results_[i].failure = Failure{
          Code::not_found,
          fmt::format("{}: its source is too long for a compile server", requests_[i]->function)};
    }
    if (state_ == RequestQueue::Posted::waiting) posted_ = std::pair(priority, now);
  }

  std::string why_none(std::chrono::milliseconds waited) {
    std::string reason;
    if (const std::string problem = queue_.health().problem; !problem.empty()) {
      reason = fmt::format(" (the server {})", problem);
    } else if (state_ == RequestQueue::Posted::full) {
      reason = " (the queue is full)";
    }
    const std::string_view processor = std::string_view(kind_).substr(0, kind_.find('@'));
    return fmt::format(
        "no compile server for {} answered within {:.1f} s at {}{}; start one of this version of "
        "kiln where there is a compiler: kiln serve --target {}",
        processor, static_cast<double>(waited.count()) / 1000, queue_.settings().display(), reason,
        processor);
  }

  void fail_all(Code code, const std::string& reason) {
    for (const std::size_t i : waiting_) {
      results_[i].failure =
          Failure{code, fmt::format("{}: {}", requests_[i]->function, reason), false};
    }
  }

  RequestQueue& queue_;
  const std::span<const KernelRequest* const> requests_;
  BuildControl& control_;
  const std::string kind_;
  const Clock::time_point began_ = Clock::now();
  std::vector<BuildResult> results_;
  std::vector<cache::Key> sources_;
  std::vector<std::size_t> waiting_;
  std::vector<std::size_t> too_long_;
  std::optional<std::pair<cache::RequestPriority, Clock::time_point>> posted_;
  RequestQueue::Posted state_ = RequestQueue::Posted::waiting;
};

}  // namespace

std::string kind_of(std::string_view target) {
  return fmt::format("{}@{}", target.substr(0, target.find(':')), preamble_digits(target));
}

cache::RemoteRequest remote_request(const KernelRequest& request) {
  cache::RemoteRequest remote;
  remote.text = request.text;
  remote.target = request.target;
  remote.options = kernel_options(request);
  remote.alone = request.alone;
  remote.function = request.function;
  remote.expression = request.expression;
  remote.signature = request.signature;
  remote.form = request.form;
  remote.arguments = request.arguments;
  remote.outputs = request.outputs;
  remote.rounding = static_cast<std::uint16_t>(request.options.rounding);
  remote.accuracy = static_cast<std::uint16_t>(request.options.accuracy);
  return remote;
}

KernelRequest kernel_request(cache::RemoteRequest remote) {
  const auto refuse = [&](std::string_view what) {
    return Error(
        Code::invalid_argument,
        fmt::format("{}: {}; the machines run different versions of kiln", remote.function, what));
  };
  KernelRequest request;
  if (remote.rounding > static_cast<std::uint16_t>(Rounding::each) ||
      remote.accuracy > static_cast<std::uint16_t>(Accuracy::strict)) {
    throw refuse("its options are unknown here");
  }
  request.options.rounding = static_cast<Rounding>(remote.rounding);
  request.options.accuracy = static_cast<Accuracy>(remote.accuracy);
  request.target = std::move(remote.target);
  if (kernel_options(request) != remote.options) {
    throw refuse("the compiler would get other options here");
  }
  if (remote.text.find(fusion::kEntryMarker) == std::string::npos) {
    throw refuse("its source has no place for the kernel's name");
  }
  request.text = std::move(remote.text);
  request.alone = remote.alone;
  request.function = std::move(remote.function);
  request.expression = std::move(remote.expression);
  request.signature = std::move(remote.signature);
  request.form = std::move(remote.form);
  request.arguments = std::move(remote.arguments);
  request.outputs = std::move(remote.outputs);
  return request;
}

std::vector<BuildResult> compile_remotely(std::span<const KernelRequest* const> requests,
                                          BuildControl& control) {
  if (const auto queue = process_cache().requests()) return Wait(*queue, requests, control).run();
  BuildResult none;
  none.failure = Failure{Code::not_found, {}, false};
  return std::vector<BuildResult>(requests.size(), none);
}

}  // namespace kiln
