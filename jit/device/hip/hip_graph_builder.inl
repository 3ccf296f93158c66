// From a list of operations to a driver graph, written once in HIP. The rules that the releases of
// HIP have taught: the graph outlives its executable, arguments and modules outlive both, no edge
// twice, no empty grid, no child graph where it can be avoided.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "jit/device/graph.hpp"
#include "jit/device/hip/hip_backend.inl"

namespace kiln::jit::KILN_HIP_PLATFORM {
namespace {

/// A driver's handle and, as `*destroy`, the function that gives it back.
template <class Handle, auto destroy>
class Owned {
 public:
  Owned() = default;
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (handle_ != nullptr && (*destroy)(handle_) != hipSuccess) (void)hipGetLastError();
  }

  Handle get() const { return handle_; }
  Handle* out() { return &handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  Handle handle_ = nullptr;
};

using OwnedGraph = Owned<hipGraph_t, &hipGraphDestroy>;
using OwnedExecutable = Owned<hipGraphExec_t, &hipGraphExecDestroy>;
using OwnedStream = Owned<hipStream_t, &hipStreamDestroy>;
using OwnedEvent = Owned<hipEvent_t, &hipEventDestroy>;

/// An instantiated graph. Members are destroyed from the last to the first.
struct DriverGraph {
  std::vector<OwnedGraph> captured;  ///< whose argument storage the copied nodes may still use
  OwnedGraph graph;
  std::vector<hipGraphNode_t> nodes;  ///< of each operation; null where it cannot be updated
  OwnedExecutable executable;
};

// The parameters of driver nodes. A kernel's point into its node's own argument storage.

hipKernelNodeParams parameters(const KernelNode& node, const GridLimits& limits) {
  const auto& kernel = static_cast<const HipKernel&>(*node.kernel);
  kernel.allow(node.shape.shared_bytes);
  hipKernelNodeParams result{};
  result.func = reinterpret_cast<void*>(kernel.function());
  result.gridDim = dim3(grid_blocks(node.shape, limits), node.shape.grid_y, node.shape.grid_z);
  result.blockDim = dim3(node.shape.block, node.shape.block_y, node.shape.block_z);
  result.sharedMemBytes = node.shape.shared_bytes;
  result.kernelParams = const_cast<void**>(node.arguments.pointers());
  return result;
}

hipMemsetParams parameters(const FillNode& node) {
  hipMemsetParams result{};
  result.dst = node.to;
  result.value = node.value;
  result.elementSize = 1;
  result.width = node.bytes;
  result.height = 1;
  return result;
}

/// Whether there is nothing to do. Drivers refuse nodes of size zero.
bool is_empty(const KernelNode& node) { return node.shape.work_items == 0; }
bool is_empty(const CopyNode& node) { return node.bytes == 0; }
bool is_empty(const FillNode& node) { return node.bytes == 0; }

class GraphBuilder {
 public:
  /// `where` is for messages.
  GraphBuilder(Device device, const GridLimits& limits, std::string where)
      : device_(device), limits_(limits), where_(std::move(where)) {}

  /// Throws Error(device), or what a sequence throws.
  DriverGraph build(std::span<const GraphNode> nodes) &&;

 private:
  using Handles = std::vector<hipGraphNode_t>;

  void check(hipError_t error, const char* call) const {
    if (error != hipSuccess) fail(error, call, where_);
  }
  /// What an operation waits for: the last driver nodes of those it comes after, none twice.
  Handles last_nodes_of(std::span<const std::uint32_t> operations) const;

  template <class Node>
  void add(const Node& node, const Handles& after);
  void add(const SequenceNode& node, const Handles& after);
  void add_empty(const Handles& after);
  void append(hipGraphNode_t handle, bool can_be_updated);

  hipError_t make(hipGraphNode_t* handle, const KernelNode& node, const Handles& after);
  hipError_t make(hipGraphNode_t* handle, const CopyNode& node, const Handles& after);
  hipError_t make(hipGraphNode_t* handle, const FillNode& node, const Handles& after);

  OwnedGraph capture(const SequenceNode& node) const;
  struct Edges {
    Handles from;
    Handles to;
  };
  std::optional<Edges> plain_edges(hipGraph_t captured) const;
  bool can_be_copied(const Handles& nodes) const;
  Handles flatten(const Handles& nodes, const Edges& edges, const Handles& after);
  hipGraphNode_t copy_node(hipGraphNode_t node, const Handles& after);

  Device device_;
  GridLimits limits_;
  std::string where_;
  DriverGraph result_;
  std::vector<Handles> last_;  ///< of each operation so far
};

DriverGraph GraphBuilder::build(std::span<const GraphNode> nodes) && {
  check(hipGraphCreate(result_.graph.out(), 0), "hipGraphCreate");
  for (const GraphNode& node : nodes) {
    const Handles after = last_nodes_of(node.after);
    std::visit([&](const auto& work) { add(work, after); }, node.work);
  }
  check(hipGraphInstantiateWithFlags(result_.executable.out(), result_.graph.get(), 0),
        "hipGraphInstantiateWithFlags");
  return std::move(result_);
}

GraphBuilder::Handles GraphBuilder::last_nodes_of(std::span<const std::uint32_t> operations) const {
  Handles all;
  for (std::uint32_t operation : operations) {
    all.insert(all.end(), last_[operation].begin(), last_[operation].end());
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

void GraphBuilder::append(hipGraphNode_t handle, bool can_be_updated) {
  result_.nodes.push_back(can_be_updated ? handle : nullptr);
  last_.push_back({handle});
}

void GraphBuilder::add_empty(const Handles& after) {
  hipGraphNode_t handle = nullptr;
  check(hipGraphAddEmptyNode(&handle, result_.graph.get(), after.data(), after.size()),
        "hipGraphAddEmptyNode");
  append(handle, false);
}

template <class Node>
void GraphBuilder::add(const Node& node, const Handles& after) {
  if (is_empty(node)) return add_empty(after);
  hipGraphNode_t handle = nullptr;
  check(make(&handle, node, after), "hipGraphAdd...Node");
  append(handle, true);
}

hipError_t GraphBuilder::make(hipGraphNode_t* handle, const KernelNode& node,
                              const Handles& after) {
  const hipKernelNodeParams wanted = parameters(node, limits_);
  return add_kernel_node(handle, result_.graph.get(), after, wanted, node.pdl);
}

hipError_t GraphBuilder::make(hipGraphNode_t* handle, const CopyNode& node, const Handles& after) {
  return hipGraphAddMemcpyNode1D(handle, result_.graph.get(), after.data(), after.size(), node.to,
                                 node.from, node.bytes, hipMemcpyDeviceToDevice);
}

hipError_t GraphBuilder::make(hipGraphNode_t* handle, const FillNode& node, const Handles& after) {
  const hipMemsetParams wanted = parameters(node);
  return hipGraphAddMemsetNode(handle, result_.graph.get(), after.data(), after.size(), &wanted);
}

void GraphBuilder::add(const SequenceNode& node, const Handles& after) {
  OwnedGraph captured = capture(node);
  std::size_t count = 0;
  check(hipGraphGetNodes(captured.get(), nullptr, &count), "hipGraphGetNodes");
  if (count == 0) return add_empty(after);
  Handles nodes(count);
  check(hipGraphGetNodes(captured.get(), nodes.data(), &count), "hipGraphGetNodes");
  const std::optional<Edges> edges = plain_edges(captured.get());
  if (edges && can_be_copied(nodes)) {
    last_.push_back(flatten(nodes, *edges, after));
    result_.nodes.push_back(nullptr);
  } else {
    hipGraphNode_t handle = nullptr;
    check(hipGraphAddChildGraphNode(&handle, result_.graph.get(), after.data(), after.size(),
                                    captured.get()),
          "hipGraphAddChildGraphNode");
    append(handle, false);
  }
  result_.captured.push_back(std::move(captured));
}

OwnedGraph GraphBuilder::capture(const SequenceNode& node) const {
  OwnedStream stream;
  check(hipStreamCreateWithFlags(stream.out(), hipStreamNonBlocking), "hipStreamCreateWithFlags");
  check(hipStreamBeginCapture(stream.get(), hipStreamCaptureModeRelaxed), "hipStreamBeginCapture");
  std::exception_ptr failure;
  try {
    node.run({device_, stream.get()});
  } catch (...) {
    failure = std::current_exception();  // the capture must end before the stream does
  }
  OwnedGraph captured;
  const hipError_t ended = hipStreamEndCapture(stream.get(), captured.out());
  if (failure) std::rethrow_exception(failure);
  check(ended, "hipStreamEndCapture");
  return captured;
}

/// Nothing where the driver does not tell them: CUDA refuses it for edges that mean something else
/// than that one node has ended when the other begins.
std::optional<GraphBuilder::Edges> GraphBuilder::plain_edges(hipGraph_t captured) const {
  std::size_t count = 0;
  if (hipGraphGetEdges(captured, nullptr, nullptr, &count) == hipSuccess) {
    Edges edges{Handles(count), Handles(count)};
    if (count == 0 ||
        hipGraphGetEdges(captured, edges.from.data(), edges.to.data(), &count) == hipSuccess) {
      return edges;
    }
  }
  (void)hipGetLastError();
  return std::nullopt;
}

/// Whether copies of the nodes do all that they do; what is not copied is a graph in the graph.
bool GraphBuilder::can_be_copied(const Handles& nodes) const {
  return std::all_of(nodes.begin(), nodes.end(), [&](hipGraphNode_t node) {
    hipGraphNodeType type{};
    check(hipGraphNodeGetType(node, &type), "hipGraphNodeGetType");
    return type == hipGraphNodeTypeMemset || type == hipGraphNodeTypeEmpty ||
           (type == hipGraphNodeTypeKernel && can_copy_kernels());
  });
}

/// Copies the nodes of a captured graph, each once those that it waits for are there. Returns the
/// last ones.
GraphBuilder::Handles GraphBuilder::flatten(const Handles& nodes, const Edges& edges,
                                            const Handles& after) {
  std::map<hipGraphNode_t, Handles> waits_for, followers;
  for (std::size_t i = 0; i < edges.from.size(); ++i) {
    waits_for[edges.to[i]].push_back(edges.from[i]);
    followers[edges.from[i]].push_back(edges.to[i]);
  }
  std::map<hipGraphNode_t, std::size_t> missing;
  std::deque<hipGraphNode_t> ready;
  for (hipGraphNode_t node : nodes) {
    missing[node] = waits_for[node].size();
    if (missing[node] == 0) ready.push_back(node);
  }
  std::map<hipGraphNode_t, hipGraphNode_t> copies;
  Handles last;
  for (; !ready.empty(); ready.pop_front()) {
    const hipGraphNode_t node = ready.front();
    Handles copied_after;
    for (hipGraphNode_t parent : waits_for[node]) copied_after.push_back(copies[parent]);
    copies[node] = copy_node(node, copied_after.empty() ? after : copied_after);
    for (hipGraphNode_t follower : followers[node]) {
      if (--missing[follower] == 0) ready.push_back(follower);
    }
    if (followers[node].empty()) last.push_back(copies[node]);
  }
  return last;
}

hipGraphNode_t GraphBuilder::copy_node(hipGraphNode_t node, const Handles& after) {
  hipGraphNodeType type{};
  check(hipGraphNodeGetType(node, &type), "hipGraphNodeGetType");
  hipGraphNode_t copy = nullptr;
  if (type == hipGraphNodeTypeKernel) {
    hipKernelNodeParams kernel{};
    check(hipGraphKernelNodeGetParams(node, &kernel), "hipGraphKernelNodeGetParams");
    check(hipGraphAddKernelNode(&copy, result_.graph.get(), after.data(), after.size(), &kernel),
          "hipGraphAddKernelNode");
    check(copy_kernel_attributes(node, copy), "hipGraphKernelNodeCopyAttributes");
  } else if (type == hipGraphNodeTypeMemset) {
    hipMemsetParams fill{};
    check(hipGraphMemsetNodeGetParams(node, &fill), "hipGraphMemsetNodeGetParams");
    check(hipGraphAddMemsetNode(&copy, result_.graph.get(), after.data(), after.size(), &fill),
          "hipGraphAddMemsetNode");
  } else {
    check(hipGraphAddEmptyNode(&copy, result_.graph.get(), after.data(), after.size()),
          "hipGraphAddEmptyNode");
  }
  return copy;
}

}  // namespace
}  // namespace kiln::jit::KILN_HIP_PLATFORM
