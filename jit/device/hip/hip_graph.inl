// A prepared graph on a GPU, written once in HIP: replayed where the driver can, run as a list
// where it cannot.
#pragma once

#include <mutex>
#include <optional>

#include "jit/device/hip/hip_graph_builder.inl"
#include "jit/device/operation_list.hpp"

namespace kiln::jit::KILN_HIP_PLATFORM {
namespace {

class HipGraph final : public PreparedGraph {
 public:
  HipGraph(HipBackend& backend, std::vector<GraphNode> nodes);
  ~HipGraph() override;

  void launch(const Stream& stream) override;
  void update(std::uint32_t node, const Arguments& arguments) override { change(node, arguments); }
  void update(std::uint32_t node, const CopyNode& copy) override { change(node, copy); }
  void update(std::uint32_t node, const FillNode& fill) override { change(node, fill); }
  bool is_replayed() const override {
    std::lock_guard lock(mutex_);
    return driver_.has_value();
  }

 private:
  void build();
  void give_up(hipError_t error);
  template <class Change>
  void change(std::uint32_t node, const Change& change);
  hipError_t change_executable(std::uint32_t node);
  void wait_for_launches();

  HipBackend& backend_;
  OperationList list_;  ///< owns the arguments and the kernels, so it goes after the driver's graph
  mutable std::mutex mutex_;
  OwnedEvent done_;  ///< recorded after launches that the driver does not order by itself
  std::optional<DriverGraph> driver_;
  bool launched_ = false;
  bool recorded_ = false;
  bool behind_ = false;  ///< the event is recorded, and behind every launch so far
  hipStream_t last_stream_ = nullptr;
};

HipGraph::HipGraph(HipBackend& backend, std::vector<GraphNode> nodes)
    : backend_(backend), list_(backend, std::move(nodes)) {
  CurrentDevice current(backend_.device().index);
  backend_.check(current.error(), "hipSetDevice");
  backend_.check(hipEventCreateWithFlags(done_.out(), hipEventDisableTiming),
                 "hipEventCreateWithFlags");
  build();
}

HipGraph::~HipGraph() {
  CurrentDevice current(backend_.device().index);
  wait_for_launches();
  driver_.reset();
  done_ = {};
}

void HipGraph::build() {
  RelaxedCapture relaxed;
  driver_.reset();
  try {
    driver_ =
        GraphBuilder(backend_.device(), backend_.limits(), backend_.where()).build(list_.nodes());
  } catch (const std::exception& error) {
    // A sequence that cannot work at all fails again when the list is run.
    const std::string message =
        fmt::format("a graph of {} operations runs as separate launches: {}", list_.nodes().size(),
                    error.what());
    log_once(LogLevel::warning, message, message);
  }
}

/// A running launch may still use the executable, its arguments and its kernels. Where the event
/// tells when it has ended, nothing else on the device is waited for.
void HipGraph::wait_for_launches() {
  if (!launched_) return;
  RelaxedCapture relaxed;
  if (behind_ && hipEventSynchronize(done_.get()) == hipSuccess) return;
  if (hipDeviceSynchronize() != hipSuccess) (void)hipGetLastError();
}

void HipGraph::launch(const Stream& stream) {
  std::lock_guard lock(mutex_);
  // A list puts its operations into the caller's capture one by one: child graphs are best avoided.
  if (backend_.is_capturing(stream)) return list_.run(stream);
  CurrentDevice current(backend_.device().index);
  backend_.check(current.error(), "hipSetDevice");
  if (recorded_ && last_stream_ != native(stream)) {
    backend_.check(hipStreamWaitEvent(native(stream), done_.get(), 0), "hipStreamWaitEvent");
  }
  launched_ = true;
  behind_ = false;
  if (driver_) {
    if (hipError_t error = hipGraphLaunch(driver_->executable.get(), native(stream));
        error != hipSuccess) {
      give_up(error);
    } else if (kGraphLaunchesAreOrdered) {
      return;
    }
  }
  if (!driver_) list_.run(stream);
  backend_.check(hipEventRecord(done_.get(), native(stream)), "hipEventRecord");
  recorded_ = true;
  behind_ = true;
  last_stream_ = native(stream);
}

/// A replay that the driver refuses, for lack of memory perhaps, is run as a list from then on. If
/// the device itself is broken, the list fails too.
void HipGraph::give_up(hipError_t error) {
  (void)hipGetLastError();
  const std::string message = fmt::format(
      "a graph of {} operations runs as separate launches: hipGraphLaunch failed on {}: "
      "{} ({}): {}",
      list_.nodes().size(), backend_.where(), hipGetErrorName(error), static_cast<int>(error),
      hipGetErrorString(error));
  log_once(LogLevel::warning, message, message);
  wait_for_launches();
  driver_.reset();
}

template <class Change>
void HipGraph::change(std::uint32_t node, const Change& change) {
  std::lock_guard lock(mutex_);
  CurrentDevice current(backend_.device().index);
  backend_.check(current.error(), "hipSetDevice");
  if (driver_ && !kGraphUpdatesAreOrdered) wait_for_launches();
  list_.update(node, change);
  if (!driver_) return;
  if (hipError_t error = change_executable(node); error != hipSuccess) {
    (void)hipGetLastError();
    wait_for_launches();
    build();
  }
}

/// Brings one node of the executable up to date with the list.
hipError_t HipGraph::change_executable(std::uint32_t node) {
  const hipGraphExec_t executable = driver_->executable.get();
  const hipGraphNode_t handle = driver_->nodes[node];
  const auto& work = list_.nodes()[node].work;
  if (const auto* kernel = std::get_if<KernelNode>(&work)) {
    if (is_empty(*kernel)) return hipSuccess;
    const hipKernelNodeParams wanted = parameters(*kernel, backend_.limits());
    return hipGraphExecKernelNodeSetParams(executable, handle, &wanted);
  }
  if (const auto* copy = std::get_if<CopyNode>(&work)) {
    if (handle == nullptr || is_empty(*copy)) return hipErrorInvalidValue;  // another kind of node
    return hipGraphExecMemcpyNodeSetParams1D(executable, handle, copy->to, copy->from, copy->bytes,
                                             hipMemcpyDeviceToDevice);
  }
  const auto& fill = std::get<FillNode>(work);
  if (handle == nullptr && is_empty(fill)) return hipSuccess;
  if (handle == nullptr || is_empty(fill)) return hipErrorInvalidValue;
  const hipMemsetParams wanted = parameters(fill);
  return hipGraphExecMemsetNodeSetParams(executable, handle, &wanted);
}

std::unique_ptr<PreparedGraph> HipBackend::prepare(std::vector<GraphNode> nodes) {
  return std::make_unique<HipGraph>(*this, std::move(nodes));
}

}  // namespace
}  // namespace kiln::jit::KILN_HIP_PLATFORM
