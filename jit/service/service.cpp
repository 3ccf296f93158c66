// The service's requests: what is asked once for many, and the handles that are given out.
#include "jit/service/service.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "jit/service/flight.hpp"
#include "jit/toolchain/toolchain.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

// A program that generates wrong sources without end must not grow without end.
constexpr std::size_t kMostRefused = 256;

std::size_t hash_of(const CompileRequest& request) {
  std::size_t hash = 0;
  const auto mix = [&](const std::string& text) {
    hash = hash * 1099511628211U + std::hash<std::string>{}(text);
  };
  for (const std::string* text :
       {&request.entry, &request.source, &request.target, &request.toolchain})
    mix(*text);
  for (const std::string& option : request.options) mix(option);
  return hash;
}

// Whether both ask the compiler for the same thing, whoever asks and however urgently.
bool same_compile(const CompileRequest& a, const CompileRequest& b) {
  return a.entry == b.entry && a.source == b.source && a.target == b.target &&
         a.toolchain == b.toolchain && a.options == b.options;
}

}  // namespace

struct CompileHandle::State {
  Service* service = nullptr;
  std::shared_ptr<Service::Flight> flight;
  std::atomic<bool> cancelled{false};
};

Service::Service(Settings settings)
    : settings_(std::move(settings)), targets_(settings_.memory_directory) {
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
    const auto found = toolchains_.find(request.toolchain);
    if (found != toolchains_.end()) return found->second;
  }
  Toolchain found = toolchain_at(kind, request.toolchain);
  const std::lock_guard lock(mutex_);
  return toolchains_.emplace(request.toolchain, std::move(found)).first->second;
}

CompileHandle Service::compile_async(CompileRequest request) {
  if (request.entry.empty() || request.source.empty()) {
    throw Error(Code::invalid_argument,
                fmt::format("compile of function '{}': {} is empty", request.function,
                            request.entry.empty() ? "the entry's name" : "the source"));
  }
  Toolchain toolchain = toolchain_of(request);
  const std::size_t hash = hash_of(request);
  const bool background = request.background;
  CompileHandle handle;
  handle.state_ = std::make_shared<CompileHandle::State>();
  handle.state_->service = this;

  std::shared_ptr<Flight> flight;
  bool joined = false;
  {
    const std::lock_guard lock(mutex_);
    if ((handle.state_->flight = find_refused(request, hash))) return handle;
    const auto [first, last] = flights_.equal_range(hash);
    for (auto it = first; it != last && !joined; ++it) {
      joined = it->second->holders > 0 && same_compile(it->second->request, request);
      if (joined) flight = it->second;
    }
    if (!joined) {
      flight = std::make_shared<Flight>();
      flight->request = std::move(request);
      flight->toolchain = std::move(toolchain);
      flight->hash = hash;
      // The flight is held by flights_ until it has landed.
      flight->job = std::make_shared<Job>(
          [this, f = flight.get()](int cancel) { run_compile(*f, cancel); },
          [this, f = flight.get()] {
            land(f->shared_from_this(),
                 Outcome::of([&]() -> CompileResult { throw cancelled_error(f->request); }));
          },
          background);
      flights_.emplace(hash, flight);
    }
    ++flight->holders;
  }
  handle.state_->flight = flight;
  if (!joined) {
    Outcome added = Outcome::of([&] {
      pool_->add(flight->job);
      return CompileResult{};
    });
    if (added.error) land(flight, std::move(added));  // others may have joined it meanwhile
  } else if (!background) {
    pool_->raise_priority(flight->job);
  }
  return handle;
}

std::shared_ptr<Service::Flight> Service::find_refused(const CompileRequest& request,
                                                       std::size_t hash) const {
  const auto found = std::ranges::find_if(refused_, [&](const auto& flight) {
    return flight->hash == hash && same_compile(flight->request, request);
  });
  return found != refused_.end() ? *found : nullptr;
}

// Takes it out before its outcome is seen: whoever asks again then gets a new one.
void Service::land(const std::shared_ptr<Flight>& flight, Outcome outcome) {
  {
    const std::lock_guard lock(mutex_);
    const auto [first, last] = flights_.equal_range(flight->hash);
    const auto own = std::find_if(first, last, [&](const auto& it) { return it.second == flight; });
    if (own != last) flights_.erase(own);
    if (outcome.is_verdict) {
      if (refused_.size() == kMostRefused) refused_.pop_front();
      refused_.push_back(flight);
    }
  }
  flight->promise.set_value(std::move(outcome));
}

bool CompileHandle::ready() const {
  return state_->flight->future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}
void CompileHandle::wait() const { state_->flight->future.wait(); }
CompileResult CompileHandle::get() const { return state_->flight->future.get().get(); }

void CompileHandle::raise_priority() {
  state_->service->pool_->raise_priority(state_->flight->job);
}

void CompileHandle::cancel() {
  if (ready() || state_->cancelled.exchange(true)) return;
  Service& service = *state_->service;
  {
    const std::lock_guard lock(service.mutex_);
    if (--state_->flight->holders > 0) return;
  }
  service.pool_->cancel(state_->flight->job);
}

}  // namespace kiln::jit
