// Function::prepare without memory, prepare_all, and the handles that they give.
#include "ahead/prepare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <random>

#include "ahead/compile_only.hpp"
#include "call/custom_kernel.hpp"
#include "call/function_impl.hpp"
#include "call/manifest_log.hpp"
#include "fusion/infer/shapes.hpp"
#include "jit/device/backend.hpp"
#include "kernel/kernel_table.hpp"
#include "kernel/process_cache.hpp"
#include "kernel/target.hpp"
#include "kiln/error.hpp"
#include "program/plan.hpp"
#include "program/program_impl.hpp"

namespace kiln {

struct Preparation::State {
  std::mutex mutex;
  std::condition_variable finished;
  std::vector<KernelResult> kernels;  ///< in the order in which the call runs them
  std::size_t left = 0;               ///< kernels that are not there yet
  bool cancelled = false;
  KernelInfo info;
  std::optional<Failure> error;  ///< of the request itself, or of its first kernel that failed
  std::vector<KernelTable::Ticket> tickets;
  std::function<void()> done;

  bool is_ready() const { return cancelled || left == 0; }

  /// One kernel has come; the last one makes it ready.
  void deliver(std::size_t i, const KernelResult& kernel) {
    std::function<void()> call;
    {
      const std::lock_guard lock(mutex);
      kernels[i] = kernel;
      if (--left > 0 || cancelled) return;
      summarise();
      call = std::move(done);
    }
    finished.notify_all();
    if (call) call();
  }

  void summarise() {
    for (const KernelResult& kernel : kernels) {
      if (kernel.failure && !error) error = kernel.failure;
      add_built(info, kernel.info);
    }
  }

  /// What became of it. `lock` is held.
  std::optional<Error> failure() const {
    if (cancelled) {
      return Error(Code::would_compile,
                   fmt::format("{}: its preparation was cancelled", info.function));
    }
    if (error) return error_of(*error);
    return std::nullopt;
  }

  std::unique_lock<std::mutex> await() {
    std::unique_lock lock(mutex);
    finished.wait(lock, [&] { return is_ready(); });
    return lock;
  }
};

bool Preparation::ready() const {
  const std::lock_guard lock(state_->mutex);
  return state_->is_ready();
}

void Preparation::wait() const {
  if (ready()) return;
  KernelTable& table = KernelTable::instance();
  for (const KernelTable::Ticket& ticket : state_->tickets) table.raise_priority(ticket);
  state_->await();
}

KernelInfo Preparation::get() const {
  wait();
  const std::lock_guard lock(state_->mutex);
  if (const std::optional<Error> failure = state_->failure()) throw Error(*failure);
  return state_->info;
}

std::optional<Error> Preparation::error() const {
  wait();
  const std::lock_guard lock(state_->mutex);
  return state_->failure();
}

void Preparation::cancel() {
  std::function<void()> call;
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->is_ready()) return;
    state_->cancelled = true;
    call = std::move(state_->done);
  }
  KernelTable& table = KernelTable::instance();
  for (const KernelTable::Ticket& ticket : state_->tickets) table.cancel(ticket);
  state_->finished.notify_all();
  if (call) call();
}

namespace {

// A manifest has no shape for outputs but their own.
Specification with_layouts(const Function& function, Specification specification) {
  if (specification.shape.empty() || !specification.layouts.empty()) return specification;
  const OutputTypes types = output_types(function, specification);
  specification.outputs = types.dtypes;
  for (const Dims& shape : types.shapes) specification.layouts.push_back({shape, {}, 0});
  return specification;
}

std::vector<WantedKernel> wanted_of(std::vector<EmittedKernel> kernels, jit::Backend* backend) {
  std::vector<WantedKernel> wanted;
  for (EmittedKernel& kernel : kernels) {
    if (!kernel.is_empty()) wanted.push_back({std::move(kernel.request), backend});
  }
  return wanted;
}

// What is prepared for: a device, or a target alone.
struct Destination {
  jit::Backend* backend = nullptr;
  std::string target;
};

// Each fills in what is known before anything is compiled, and gives the kernels to make.
std::vector<WantedKernel> function_kernels(const Function& function,
                                           const Specification& specification,
                                           const Destination& destination, KernelInfo& info) {
  const Definition& definition = function.impl().definition;
  std::vector<EmittedKernel> kernels = emit_all(function, specification, destination.target);
  if (logs_manifest()) {
    log_function(names_of(definition), definition.expression, definition.options,
                 with_layouts(function, specification));
  }
  info = describe_kernels(definition.name, definition.expression, kernels);
  return wanted_of(std::move(kernels), destination.backend);
}

std::vector<WantedKernel> program_kernels(const Definition& definition,
                                          const Specification& specification,
                                          const Destination& destination, KernelInfo& info) {
  const std::string target = resolve_target(destination.target);
  const CallTypes types = program_types(definition, specification, target);
  std::vector<EmittedKernel> kernels;
  for (const KernelSpec& spec : step_specs(plan_program(definition, types), types)) {
    kernels.push_back(emit_kernel(spec, target));
  }
  if (logs_manifest() && !fusion::has_custom_calls(definition.graph)) {
    log_program(definition, specification);
  }
  info = describe_kernels(definition.name, definition.expression, kernels);
  return wanted_of(std::move(kernels), destination.backend);
}

std::vector<WantedKernel> own_kernel(const Kernel::Impl& kernel, const Destination& destination,
                                     KernelInfo& info) {
  const std::string target = resolve_target(destination.target);
  info = kernel.info(target);
  return {{kernel.request(target), destination.backend}};
}

std::vector<WantedKernel> kernels_wanted(const PrepareRequest& request, KernelInfo& info) {
  Destination destination{nullptr, request.target};
  if (request.target.empty()) {
    destination.backend = &jit::backend(request.device);
    destination.target = destination.backend->target();
  }
  if (const auto* const kernel = std::get_if<const Kernel*>(&request.of)) {
    return own_kernel(*(*kernel)->shared_impl(), destination, info);
  }
  if (const auto* const program = std::get_if<const Program*>(&request.of)) {
    return program_kernels((*program)->impl().definition(), *request.specification, destination,
                           info);
  }
  return function_kernels(*std::get<const Function*>(request.of), *request.specification,
                          destination, info);
}

// What the remote tier has of them, at once rather than as each is built.
void prefetch(std::span<const WantedKernel> wanted) {
  RemoteKeys keys;
  for (const WantedKernel& kernel : wanted) keys.add(kernel.request);
  process_cache().prefetch(keys.find());
}

// Queues them in an order that is another one on each machine: machines that start together and
// need the same kernels then compile a part each, rather than wait for one of them again and again.
std::vector<KernelTable::Ticket> request_in_any_order(
    const std::vector<WantedKernel>& wanted, const std::vector<KernelTable::Done>& deliveries) {
  std::vector<std::size_t> order(wanted.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::shuffle(order, std::minstd_rand(std::random_device{}()));
  std::vector<WantedKernel> shuffled;
  std::vector<KernelTable::Done> done;
  for (const std::size_t i : order) {
    shuffled.push_back(wanted[i]);
    done.push_back(deliveries[i]);
  }
  const std::vector<KernelTable::Ticket> given = KernelTable::instance().request(shuffled, done);
  std::vector<KernelTable::Ticket> tickets(wanted.size());
  for (std::size_t k = 0; k < order.size(); ++k) tickets[order[k]] = given[k];
  return tickets;
}

// Starts `count` of them. `wanted_kernels` gives the kernels of each and fills in what is known of
// them. `done` is called once for each, with its index, from any thread and maybe before this
// returns.
std::vector<Preparation> start_preparations(
    std::size_t count,
    const std::function<std::vector<WantedKernel>(std::size_t, KernelInfo&)>& wanted_kernels,
    const std::function<void(std::size_t)>& done) {
  std::vector<std::shared_ptr<Preparation::State>> states;
  std::vector<WantedKernel> wanted;
  std::vector<KernelTable::Done> deliveries;
  std::vector<std::size_t> first;  // of `wanted`, for each request
  for (std::size_t k = 0; k < count; ++k) {
    auto state = std::make_shared<Preparation::State>();
    first.push_back(wanted.size());
    try {
      for (WantedKernel& kernel : wanted_kernels(k, state->info)) {
        deliveries.push_back(
            [state, i = state->left](const KernelResult& kernel) { state->deliver(i, kernel); });
        ++state->left;
        wanted.push_back(std::move(kernel));
      }
    } catch (const Error& error) {
      state->error = Failure{error.code(), error.what(), false, error.driver_code()};
    }
    state->kernels.resize(state->left);
    if (done) state->done = [done, index = states.size()] { done(index); };
    states.push_back(std::move(state));
  }
  first.push_back(wanted.size());
  // Handles are given out when their tickets are known; `done` may have been called before.
  const bool is_shared = count > 1 && process_cache().remote() != nullptr;
  if (is_shared) prefetch(wanted);
  const std::vector<KernelTable::Ticket> tickets =
      is_shared ? request_in_any_order(wanted, deliveries)
                : KernelTable::instance().request(wanted, deliveries);
  std::vector<Preparation> preparations;
  for (std::size_t i = 0; i < states.size(); ++i) {
    const auto begin = tickets.begin() + static_cast<std::ptrdiff_t>(first[i]);
    const auto end = tickets.begin() + static_cast<std::ptrdiff_t>(first[i + 1]);
    states[i]->tickets.assign(begin, end);
    if (begin == end && done) done(i);  // failed, or nothing to compute
    preparations.emplace_back(std::move(states[i]));
  }
  return preparations;
}

// Of one call, whose types are wrong here and now if they are.
Preparation start_preparation(const PrepareRequest& request) {
  std::vector<Preparation> preparations = start_preparations(
      1, [&](std::size_t, KernelInfo& info) { return kernels_wanted(request, info); }, {});
  Preparation& preparation = preparations.front();
  if (preparation.ready()) {
    const std::optional<Error> error = preparation.error();
    if (error && error->code() == Code::invalid_argument) throw Error(*error);
  }
  return preparation;
}

}  // namespace

Preparation Function::prepare(Device device, const Specification& specification) const {
  return start_preparation({.of = this, .specification = &specification, .device = device});
}

Preparation Program::prepare(Device device, const Specification& specification) const {
  return start_preparation({.of = this, .specification = &specification, .device = device});
}

std::vector<Preparation> prepare_requests(
    std::span<const PrepareRequest> requests,
    const std::function<void(const PrepareProgress&)>& progress) {
  struct Finished {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::size_t> indices;
  };
  const auto finished = std::make_shared<Finished>();
  const std::vector<Preparation> preparations = start_preparations(
      requests.size(),
      [&](std::size_t i, KernelInfo& info) { return kernels_wanted(requests[i], info); },
      [finished](std::size_t index) {
        const std::lock_guard lock(finished->mutex);
        finished->indices.push_back(index);
        finished->changed.notify_one();
      });
  std::exception_ptr thrown;
  for (std::size_t done = 0; done < preparations.size(); ++done) {
    std::unique_lock lock(finished->mutex);
    finished->changed.wait(lock, [&] { return finished->indices.size() > done; });
    const std::size_t index = finished->indices[done];
    lock.unlock();
    if (!progress || thrown) continue;
    try {
      progress({index, done + 1, preparations.size(), preparations[index]});
    } catch (...) {
      thrown = std::current_exception();
    }
  }
  if (thrown) std::rethrow_exception(thrown);
  return preparations;
}

RequestedKeys remote_keys(std::span<const PrepareRequest> requests) {
  RequestedKeys found;
  RemoteKeys keys;
  for (const PrepareRequest& request : requests) {
    std::optional<Error>& error = found.errors.emplace_back();
    try {
      KernelInfo info;
      for (const WantedKernel& kernel : kernels_wanted(request, info)) keys.add(kernel.request);
    } catch (const Error& thrown) {
      error = thrown;
    }
  }
  found.keys = keys.find();
  return found;
}

std::vector<Preparation> prepare_all(std::span<const PrepareItem> items,
                                     const std::function<void(const PrepareProgress&)>& progress) {
  std::vector<PrepareRequest> requests;
  for (const PrepareItem& item : items) {
    requests.push_back(
        {.of = &item.function, .specification = &item.specification, .device = item.device});
  }
  return prepare_requests(requests, progress);
}

}  // namespace kiln
