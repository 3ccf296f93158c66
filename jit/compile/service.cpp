// See service.hpp.
#include "jit/compile/service.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <future>

#include "jit/compile/diagnostics.hpp"
#include "jit/compile/objdump.hpp"
#include "jit/compile/toolchain.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

using Clock = std::chrono::steady_clock;

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

Error cancelled_error(const CompileRequest& request) {
  return Error(Code::compile_failed,
               fmt::format("compile of function '{}' (module {}) for {} was cancelled",
                           request.function, request.entry, request.target));
}

}  // namespace

// A result, or an error as its parts: every caller throws an exception of its own, since one that
// is shared between threads is shared with whatever they do to it.
struct Service::Outcome {
  CompileResult result;
  std::optional<std::pair<Code, std::string>> error;

  static Outcome of(const std::function<CompileResult()>& action) {
    try {
      return {action(), std::nullopt};
    } catch (const Error& error) {
      return {{}, std::pair(error.code(), std::string(error.what()))};
    } catch (const std::exception& error) {
      return {{}, std::pair(Code::internal, fmt::format("compile: {}", error.what()))};
    }
  }
  const CompileResult& get() const {
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

// --- requests ---

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
            const auto keep = f->shared_from_this();
            release(keep);
            f->promise.set_value(
                Outcome::of([&]() -> CompileResult { throw cancelled_error(f->request); }));
          },
          background);
      flights_.emplace(hash, flight);
    }
    ++flight->holders;
  }
  handle.state_->flight = flight;
  if (!joined) {
    pool_->add(flight->job);
  } else if (!background) {
    pool_->hurry(flight->job);
  }
  return handle;
}

void Service::release(const std::shared_ptr<Flight>& flight) {
  const std::lock_guard lock(mutex_);
  const auto [first, last] = flights_.equal_range(flight->hash);
  for (auto it = first; it != last; ++it) {
    if (it->second == flight) {
      flights_.erase(it);
      return;
    }
  }
}

bool CompileHandle::ready() const {
  return state_->flight->future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}
void CompileHandle::wait() const { state_->flight->future.wait(); }
CompileResult CompileHandle::get() const { return state_->flight->future.get().get(); }

void CompileHandle::cancel() {
  if (ready() || state_->cancelled.exchange(true)) return;
  Service& service = *state_->service;
  {
    const std::lock_guard lock(service.mutex_);
    if (--state_->flight->holders > 0) return;
  }
  service.pool_->cancel(state_->flight->job);
}

// --- one compile, on a thread of the pool ---

void Service::run_compile(Flight& flight, int cancel) {
  const std::shared_ptr<Flight> keep = flight.shared_from_this();
  Outcome outcome =
      Outcome::of([&] { return compile_now(flight.request, flight.toolchain, cancel); });
  release(keep);  // first: whoever asks again after this compile gets a new one
  flight.promise.set_value(std::move(outcome));
}

CompileResult Service::compile_now(const CompileRequest& request, const Toolchain& toolchain,
                                   int cancel) {
  const auto unsupported = [&](std::string_view log) {
    return Error(
        Code::unsupported,
        describe_failure(request, toolchain,
                         fmt::format("{} does not know this target", toolchain.path), log, ""));
  };
  if (targets_.lookup(toolchain, request.target) == false) throw unsupported("");

  const std::string body =
      encode(CompileTask{request.entry, request.source, request.target, request.options});
  Exchange answer = exchange(toolchain, MessageType::compile, body, cancel);
  const bool replied = answer.end == Exchange::End::replied;
  if (replied && answer.reply.type == MessageType::done) {
    CompileOutput output = decode_compile_output(answer.reply.body);
    targets_.learn(toolchain, request.target);
    if (!output.log.empty() && !answer.output.empty()) output.log += '\n';
    output.log += answer.output;
    if (!settings_.dump.empty()) {
      const Exchange isa = exchange(toolchain, MessageType::disassemble,
                                    encode(DisassembleTask{output.code, request.target}), cancel);
      const bool have = isa.end == Exchange::End::replied && isa.reply.type == MessageType::done;
      dump_compile(settings_.dump, settings_.worker, request, toolchain, output.log, output.code,
                   have ? decode_compile_output(isa.reply.body).code : "");
    }
    return {std::move(output.code), std::move(output.log), output.milliseconds};
  }

  if (answer.end == Exchange::End::cancelled) throw cancelled_error(request);
  Failure failure;
  if (replied) {
    failure = decode_failure(answer.reply.body);
  } else {
    failure.message = fmt::format("the compile worker {}", answer.what);
  }
  if (!settings_.dump.empty()) {
    dump_compile(settings_.dump, settings_.worker, request, toolchain, failure.log + answer.output,
                 "", "");
  }
  const bool may_be_the_target = failure.code == Code::compile_failed &&
                                 (replied || answer.end == Exchange::End::died) &&
                                 toolchain.kind != ToolchainKind::host;
  if (may_be_the_target && target_is_unknown(toolchain, request.target, cancel)) {
    throw unsupported(failure.log);
  }
  throw Error(failure.code,
              describe_failure(request, toolchain, failure.message, failure.log, answer.output));
}

// Tries the smallest kernel there is, so that a crash on an unknown target is told from one on a
// source.
bool Service::target_is_unknown(const Toolchain& toolchain, const std::string& target, int cancel) {
  const auto known = targets_.find_out(toolchain, target, [&]() -> std::optional<bool> {
    const CompileRequest probe = probe_request(toolchain, target);
    const Exchange answer = exchange(
        toolchain, MessageType::compile,
        encode(CompileTask{probe.entry, probe.source, probe.target, probe.options}), cancel);
    if (answer.end == Exchange::End::replied) {
      if (answer.reply.type == MessageType::done) return true;
      if (decode_failure(answer.reply.body).code == Code::compile_failed) return false;
      return std::nullopt;
    }
    // The system's killing of a worker says nothing about the target.
    if (answer.end != Exchange::End::died || !answer.accepted ||
        answer.what.find("signal 9 ") != std::string::npos) {
      return std::nullopt;
    }
    return false;
  });
  return known == false;
}

// --- workers ---

Exchange Service::exchange(const Toolchain& toolchain, MessageType type, const std::string& body,
                           int cancel) {
  if (settings_.in_process) return exchange_in_process(toolchain, type, body);
  for (int attempt = 0;; ++attempt) {
    std::unique_ptr<WorkerProcess> worker = take_worker(toolchain);
    ++exchanges_;
    Exchange answer = worker->call(type, body, settings_.deadline, cancel);
    if (answer.end == Exchange::End::replied) keep_worker(std::move(worker));
    // A worker that died before it read the request did not die of it.
    const bool innocent = answer.end == Exchange::End::died && !answer.accepted;
    if (!innocent || attempt > 0) return answer;
  }
}

Exchange Service::exchange_in_process(const Toolchain& toolchain, MessageType type,
                                      const std::string& body) {
  Compiler* compiler = nullptr;
  {
    const std::lock_guard lock(compilers_mutex_);
    auto& slot = compilers_[fmt::format("{} {}", name(toolchain.kind), toolchain.path)];
    if (!slot) slot = open_compiler(toolchain.kind, toolchain.path);
    compiler = slot.get();
  }
  ++exchanges_;
  Exchange answer;
  answer.end = Exchange::End::replied;
  answer.accepted = true;
  answer.reply = answer_request(*compiler, {type, 0, body});
  return answer;
}

std::unique_ptr<WorkerProcess> Service::take_worker(const Toolchain& toolchain) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(idle_.begin(), idle_.end(), [&](const IdleWorker& idle) {
      return idle.worker->kind() == toolchain.kind && idle.worker->path() == toolchain.path;
    });
    if (found != idle_.end()) {
      std::unique_ptr<WorkerProcess> worker = std::move(found->worker);
      idle_.erase(found);
      return worker;
    }
  }
  ++workers_started_;
  return std::make_unique<WorkerProcess>(settings_, toolchain.kind, toolchain.path);
}

// Kept warm, but never more than run at a time: the one that has waited longest makes room.
void Service::keep_worker(std::unique_ptr<WorkerProcess> worker) {
  std::list<IdleWorker> ended;
  const std::lock_guard lock(mutex_);
  idle_.push_front({std::move(worker), Clock::now()});
  if (idle_.size() > static_cast<std::size_t>(settings_.jobs)) {
    ended.splice(ended.begin(), idle_, std::prev(idle_.end()));
  }
}

std::optional<Pool::TimePoint> Service::end_idle_workers() {
  std::list<IdleWorker> ended;  // after the lock, so that nobody waits for their end
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  while (!idle_.empty() && idle_.back().since + settings_.idle <= now) {
    ended.splice(ended.begin(), idle_, std::prev(idle_.end()));
  }
  if (idle_.empty()) return std::nullopt;
  return idle_.back().since + settings_.idle;
}

// --- what is not a compile ---

// Workers are used by threads of the pool only, see WorkerProcess.
std::future<Service::Outcome> Service::post(std::function<void(int cancel)> run) {
  auto promise = std::make_shared<std::promise<Outcome>>();
  std::future<Outcome> future = promise->get_future();
  pool_->add(std::make_shared<Job>(
      [promise, run = std::move(run)](int cancel) {
        promise->set_value(Outcome::of([&] {
          run(cancel);
          return CompileResult{};
        }));
      },
      [promise] {
        promise->set_value(Outcome::of([]() -> CompileResult {
          throw Error(Code::compile_failed, "the compile service is ending");
        }));
      },
      false));
  return future;
}

std::string Service::run_job(const Toolchain& toolchain, MessageType type,
                             const std::string& body) {
  Exchange answer;
  post([&](int cancel) { answer = exchange(toolchain, type, body, cancel); }).get().get();
  const char* what = type == MessageType::disassemble ? "disassemble" : "known_targets";
  if (answer.end != Exchange::End::replied) {
    throw Error(Code::compile_failed,
                fmt::format("{} with {}: the compile worker {}\n{}", what, toolchain.version,
                            answer.what, last_lines(answer.output, 60)));
  }
  if (answer.reply.type == MessageType::failed) {
    const Failure failure = decode_failure(answer.reply.body);
    throw Error(failure.code, fmt::format("{} with {}: {}\n{}", what, toolchain.version,
                                          failure.message, last_lines(failure.log, 60)));
  }
  return decode_compile_output(answer.reply.body).code;
}

std::string Service::disassemble(std::string_view code, std::string_view target) {
  const DisassembleTask task{std::string(code), std::string(target)};
  std::optional<Toolchain> made_by;
  try {
    made_by = toolchain(toolchain_for(target));
  } catch (const Error& error) {  // the compiler need not be where its code is looked at
    if (error.code() != Code::not_found) throw;
  }
  if (!made_by) return disassemble_with_program(task);
  return run_job(*made_by, MessageType::disassemble, encode(task));
}

std::vector<std::string> Service::known_targets(const Toolchain& toolchain) {
  std::vector<std::string> candidates = well_known_amd_targets();
  if (toolchain.kind == ToolchainKind::host) return {host_target()};
  if (toolchain.kind == ToolchainKind::nvrtc) {
    candidates.clear();
    std::string text = run_job(toolchain, MessageType::targets, {});
    for (std::size_t end = 0; (end = text.find('\n')) != std::string::npos;
         text.erase(0, end + 1)) {
      candidates.push_back(text.substr(0, end));
    }
    return candidates;
  }
  std::vector<std::future<Outcome>> probes;
  for (const std::string& candidate : candidates) {
    if (targets_.lookup(toolchain, candidate)) continue;
    probes.push_back(post([&](int cancel) { target_is_unknown(toolchain, candidate, cancel); }));
  }
  for (std::future<Outcome>& probe : probes) probe.wait();  // all, before the first may throw
  for (std::future<Outcome>& probe : probes) probe.get().get();
  targets_.keep(toolchain);
  std::erase_if(candidates, [&](const std::string& candidate) {
    return targets_.lookup(toolchain, candidate) != true;
  });
  return candidates;
}

// --- the service of this process ---

Service& Service::instance() {
  // Never destroyed: when the process ends its workers see their sockets close. A forked child has
  // none of the threads, so it leaves the copy alone and makes a service of its own.
  static std::mutex mutex;
  static std::atomic<Service*> current{nullptr};
  if (Service* service = current.load(std::memory_order_acquire)) return *service;
  const std::lock_guard lock(mutex);
  static const int registered = pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); },
                                               [] {
                                                 current.store(nullptr);
                                                 mutex.unlock();
                                               });
  (void)registered;
  if (current.load() == nullptr) current.store(new Service(settings_from_environment()));
  return *current.load();
}

CompileHandle compile_async(CompileRequest request) {
  return Service::instance().compile_async(std::move(request));
}

CompileResult compile(const CompileRequest& request) { return compile_async(request).get(); }

int compile_jobs() { return Service::instance().jobs(); }

std::vector<std::string> known_targets(ToolchainKind kind) {
  return Service::instance().known_targets(toolchain(kind));
}

std::string disassemble(std::string_view code, std::string_view target) {
  return Service::instance().disassemble(code, target);
}

}  // namespace kiln::jit
