// The service's requests: how one gets onto the pool, and the handles that are given out.
#include "jit/service/service.hpp"

#include <fmt/format.h>

#include "jit/service/outcome.hpp"
#include "jit/toolchain/toolchain.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {

struct CompileHandle::State {
  Service* service = nullptr;
  Service::Posted posted;
};

Service::Service(Settings settings)
    : settings_(std::move(settings)), targets_(settings_.cache_directory) {
  pool_ = std::make_unique<Pool>(settings_.jobs, [this] { return end_idle_workers(); });
}

Service::~Service() {
  pool_.reset();
  const std::lock_guard lock(mutex_);
  idle_.clear();
}

std::size_t Service::idle_workers() const {
  const std::lock_guard lock(mutex_);
  return idle_.size();
}

Toolchain Service::toolchain_of(const CompileRequest& request) {
  const ToolchainKind kind = toolchain_for(request.target);
  if (request.toolchain.empty()) return toolchain(kind);
  {
    const std::lock_guard lock(mutex_);
    if (const Toolchain* known = toolchains_[request.toolchain].get()) return *known;
  }
  const auto began = FoundToolchain::Clock::now();
  Toolchain found = toolchain_at(kind, request.toolchain);
  const std::lock_guard lock(mutex_);
  return toolchains_[request.toolchain].set(std::move(found), began);
}

CompileHandle Service::compile_async(CompileRequest request) {
  if (request.entry.empty() || request.source.empty()) {
    throw Error(Code::invalid_argument,
                fmt::format("compile of function '{}': {} is empty", request.function,
                            request.entry.empty() ? "the entry's name" : "the source"));
  }
  const bool background = request.background;
  const Error cancelled = cancelled_error(request);
  Toolchain toolchain = toolchain_of(request);
  CompileHandle handle;
  handle.state_ = std::make_shared<CompileHandle::State>();
  handle.state_->service = this;
  handle.state_->posted =
      post([this, request = std::move(request), toolchain = std::move(toolchain)](
               int cancel) { return compile_now(request, toolchain, cancel); },
           cancelled, background);
  return handle;
}

// Whatever needs a worker: they are used by threads of the pool only, see WorkerProcess.
Service::Posted Service::post(std::function<CompileResult(int cancel)> action, const Error& dropped,
                              bool background) {
  const auto promise = std::make_shared<std::promise<Outcome>>();
  const auto job = std::make_shared<Job>(
      [promise, action = std::move(action)](int cancel) {
        promise->set_value(Outcome::of([&] { return action(cancel); }));
      },
      [promise, dropped] {
        promise->set_value(Outcome::of([&]() -> CompileResult { throw dropped; }));
      },
      background);
  Posted posted{promise->get_future().share(), job};
  Outcome added = Outcome::of([&] {
    pool_->add(job);
    return CompileResult{};
  });
  if (added.error) promise->set_value(std::move(added));
  return posted;
}

bool CompileHandle::ready() const {
  return state_->posted.outcome.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}
void CompileHandle::wait() const { state_->posted.outcome.wait(); }
CompileResult CompileHandle::get() const { return state_->posted.outcome.get().get(); }

void CompileHandle::raise_priority() {
  if (const auto job = state_->posted.job.lock()) state_->service->pool_->raise_priority(job);
}

void CompileHandle::cancel() {
  if (const auto job = state_->posted.job.lock()) state_->service->pool_->cancel(job);
}

}  // namespace kiln::jit
