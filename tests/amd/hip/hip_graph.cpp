// Captures and graphs of the emulated HIP. A launched graph is as many operations as it has nodes,
// which run in any order that its edges allow.
#include <algorithm>
#include <map>
#include <utility>

#include "tests/amd/hip/runtime.hpp"

namespace kiln::amd {
namespace {

thread_local hipStreamCaptureMode capture_mode = hipStreamCaptureModeGlobal;

/// Its address is the thread's name.
const void* this_thread() {
  thread_local char name;
  return &name;
}

}  // namespace

void refuse_while_capturing() {
  if (capture_mode == hipStreamCaptureModeRelaxed) return;
  bool forbidden = false;
  for (const std::shared_ptr<Capture>& capture : Runtime::instance().captures) {
    const bool everywhere =
        capture_mode == hipStreamCaptureModeGlobal && capture->mode == hipStreamCaptureModeGlobal;
    const bool here =
        capture->thread == this_thread() && capture->mode != hipStreamCaptureModeRelaxed;
    if (!everywhere && !here) continue;
    capture->invalidated = true;
    forbidden = true;
  }
  if (forbidden) throw Refusal{hipErrorStreamCaptureUnsupported};
}

namespace {

// ---- Graphs ------------------------------------------------------------------------------------

/// Gives up the handles of a graph and its nodes.
void forget(const ihipGraph& graph) {
  Runtime& runtime = Runtime::instance();
  runtime.handles.erase(&graph);
  for (const auto& node : graph.nodes) runtime.handles.erase(node.get());
}

void add_node(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after,
              std::size_t count, Work work) {
  valid(graph, hipErrorInvalidValue);
  auto made = std::make_unique<hipGraphNode>();
  made->work = std::move(work);
  for (std::size_t i = 0; i < count; ++i) {
    const auto is_same = [&](const auto& one) { return one.get() == after[i]; };
    if (std::ranges::none_of(graph->nodes, is_same)) throw Refusal{};
    if (std::ranges::count(made->after, after[i]) != 0) throw Refusal{};
    made->after.push_back(after[i]);
  }
  *node = made.get();
  Runtime::instance().handles.insert(made.get());
  graph->nodes.push_back(std::move(made));
}

std::shared_ptr<ihipGraph> copy(const ihipGraph& graph) {
  auto result = std::make_shared<ihipGraph>();
  std::map<hipGraphNode_t, hipGraphNode_t> copies;
  for (const auto& node : graph.nodes) {
    auto made = std::make_unique<hipGraphNode>();
    made->work = node->work;
    for (const hipGraphNode_t before : node->after) made->after.push_back(copies.at(before));
    copies[node.get()] = made.get();
    result->nodes.push_back(std::move(made));
  }
  return result;
}

/// The nodes of the graph, after those of `before` where they come after none of their own, and
/// then the position of one that comes after all of them.
std::size_t append(hipGraphExec& executable, const ihipGraph& graph,
                   const std::vector<std::size_t>& before) {
  std::map<hipGraphNode_t, std::size_t> positions;
  std::vector<std::size_t> all = before;
  for (const auto& node : graph.nodes) {
    std::vector<std::size_t> after;
    for (const hipGraphNode_t parent : node->after) after.push_back(positions.at(parent));
    if (after.empty()) after = before;
    if (const auto* inner = std::get_if<GraphWork>(&node->work)) {
      positions[node.get()] = append(executable, *inner->graph, after);
    } else {
      positions[node.get()] = executable.nodes.size();
      executable.nodes.push_back(
          {node.get(), std::make_shared<Work>(node->work), std::move(after)});
    }
    all.push_back(positions[node.get()]);
  }
  executable.nodes.push_back({nullptr, std::make_shared<Work>(), std::move(all)});
  return executable.nodes.size() - 1;
}

void launch(const hipGraphExec& executable, ihipStream_t& stream) {
  if (stream.capture != nullptr) {
    stream.capture->invalidated = true;
    throw Refusal{hipErrorStreamCaptureUnsupported};
  }
  require_healthy(stream.device);
  const std::vector<Submitted> before = order(stream);
  std::vector<Submitted> submitted;
  for (const hipGraphExec::Node& node : executable.nodes) {
    std::vector<Submitted> after;
    for (const std::size_t position : node.after) after.push_back(submitted[position]);
    const auto run_node = [device = stream.device, shared = std::weak_ptr(node.work)] {
      const auto work = shared.lock();
      if (work == nullptr) {
        report(device, "a graph's executable was destroyed before its launch had run");
      } else {
        run(device, *work);
      }
    };
    submitted.push_back(
        Runtime::instance().queue.submit(stream.device, after.empty() ? before : after, run_node));
  }
  stream.last = submitted.back();
}

/// Of a node that does that kind of work.
template <class Kind>
Kind& work_of(hipGraphNode_t node) {
  Kind* const work = std::get_if<Kind>(&valid(node, hipErrorInvalidValue).work);
  if (work == nullptr) throw Refusal{};
  return *work;
}
/// The same of an executable, whose graph need not live any more.
template <class Kind>
Kind& work_of(hipGraphExec_t executable, hipGraphNode_t node) {
  auto& nodes = valid(executable, hipErrorInvalidValue).nodes;
  const auto found = std::ranges::find(nodes, node, &hipGraphExec::Node::original);
  if (node == nullptr || found == nodes.end()) throw Refusal{};
  Kind* const work = std::get_if<Kind>(found->work.get());
  if (work == nullptr) throw Refusal{};
  return *work;
}

/// Refuses what HIP can do and kiln never asks for.
FillWork fill_of(const hipMemsetParams& given) {
  if (given.elementSize != 1 || given.height != 1 || given.width == 0) throw Refusal{};
  const FillWork fill{given.dst, static_cast<std::uint8_t>(given.value), given.width};
  check(fill);
  return fill;
}

CopyWork copy_of(void* to, const void* from, std::size_t bytes, hipMemcpyKind kind) {
  const CopyWork copy{to, from, bytes};
  if (bytes == 0) throw Refusal{};
  check(copy, kind);
  return copy;
}

/// Kernels run where their module is loaded.
KernelWork kernel_of(const hipKernelNodeParams& given) {
  const auto function = static_cast<hipFunction_t>(given.func);
  return kernel_work(given, valid(function, hipErrorInvalidDeviceFunction).device);
}

// ---- Captures ----------------------------------------------------------------------------------

void begin_capture(ihipStream_t& stream, hipStreamCaptureMode mode) {
  if (stream.capture != nullptr) throw Refusal{hipErrorIllegalState};
  auto capture = std::make_shared<Capture>();
  capture->graph = std::make_unique<ihipGraph>();
  capture->origin = &stream;
  capture->mode = mode;
  capture->thread = this_thread();
  Runtime::instance().captures.insert(capture);
  stream.capture = std::move(capture);
  stream.captured_last.clear();
}

/// Whether some captured work of other streams is not waited for by the stream that ends the
/// capture.
bool is_unjoined(const ihipGraph& graph, const std::vector<hipGraphNode_t>& last) {
  std::set<hipGraphNode_t> followed(last.begin(), last.end());
  for (const auto& node : graph.nodes) followed.insert(node->after.begin(), node->after.end());
  return std::ranges::any_of(graph.nodes,
                             [&](const auto& node) { return followed.count(node.get()) == 0; });
}

void end_capture(ihipStream_t& stream, hipGraph_t* graph) {
  *graph = nullptr;
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture == nullptr) throw Refusal{hipErrorIllegalState};
  if (capture->origin != &stream) throw Refusal{hipErrorStreamCaptureUnmatched};
  if (capture->mode != hipStreamCaptureModeRelaxed && capture->thread != this_thread()) {
    throw Refusal{hipErrorStreamCaptureWrongThread};
  }
  const bool unjoined = is_unjoined(*capture->graph, stream.captured_last);
  Runtime& runtime = Runtime::instance();
  runtime.captures.erase(capture);
  for (ihipStream_t* other : runtime.streams) {
    if (other->capture != capture) continue;
    other->capture = nullptr;
    other->captured_last.clear();
  }
  if (capture->invalidated || unjoined) {
    forget(*capture->graph);
    throw Refusal{unjoined ? hipErrorStreamCaptureUnjoined : hipErrorStreamCaptureInvalidated};
  }
  runtime.handles.insert(capture->graph.get());
  *graph = capture->graph.release();
}

}  // namespace
}  // namespace kiln::amd

using namespace kiln::amd;  // NOLINT: the functions of HIP's interface are in no namespace

extern "C" {

hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode* mode) {
  std::swap(*mode, capture_mode);
  return hipSuccess;
}
hipError_t hipStreamIsCapturing(hipStream_t on, hipStreamCaptureStatus* status) {
  return call([&] {
    const ihipStream_t& stream = stream_of(on);
    *status = stream.capture == nullptr     ? hipStreamCaptureStatusNone
              : stream.capture->invalidated ? hipStreamCaptureStatusInvalidated
                                            : hipStreamCaptureStatusActive;
  });
}
hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode) {
  return call([&] {
    if (stream == nullptr) throw Refusal{hipErrorStreamCaptureUnsupported};
    begin_capture(valid(stream), mode);
  });
}
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph) {
  return call([&] { end_capture(valid(stream), graph); });
}

hipError_t hipGraphCreate(hipGraph_t* graph, unsigned) {
  return call([&] {
    *graph = new ihipGraph;
    Runtime::instance().handles.insert(*graph);
  });
}
hipError_t hipGraphDestroy(hipGraph_t graph) {
  return call([&] {
    forget(valid(graph, hipErrorInvalidValue));
    delete graph;
  });
}

// ---- Nodes -------------------------------------------------------------------------------------

hipError_t hipGraphAddKernelNode(hipGraphNode_t* node, hipGraph_t graph,
                                 const hipGraphNode_t* after, std::size_t count,
                                 const hipKernelNodeParams* given) {
  return call([&] { add_node(node, graph, after, count, kernel_of(*given)); });
}
hipError_t hipGraphAddMemcpyNode1D(hipGraphNode_t* node, hipGraph_t graph,
                                   const hipGraphNode_t* after, std::size_t count, void* to,
                                   const void* from, std::size_t bytes, hipMemcpyKind kind) {
  return call([&] { add_node(node, graph, after, count, copy_of(to, from, bytes, kind)); });
}
hipError_t hipGraphAddMemsetNode(hipGraphNode_t* node, hipGraph_t graph,
                                 const hipGraphNode_t* after, std::size_t count,
                                 const hipMemsetParams* given) {
  return call([&] { add_node(node, graph, after, count, fill_of(*given)); });
}
hipError_t hipGraphAddEmptyNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after,
                                std::size_t count) {
  return call([&] { add_node(node, graph, after, count, {}); });
}
hipError_t hipGraphAddChildGraphNode(hipGraphNode_t* node, hipGraph_t graph,
                                     const hipGraphNode_t* after, std::size_t count,
                                     hipGraph_t child) {
  return call([&] {
    add_node(node, graph, after, count, GraphWork{copy(valid(child, hipErrorInvalidValue))});
  });
}

// ---- What is in a graph: in no order, so backwards ---------------------------------------------

hipError_t hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t* nodes, std::size_t* count) {
  return call([&] {
    const std::size_t all = valid(graph, hipErrorInvalidValue).nodes.size();
    for (std::size_t i = 0; nodes != nullptr && i < std::min(*count, all); ++i) {
      nodes[i] = graph->nodes[all - 1 - i].get();
    }
    *count = nodes == nullptr ? all : std::min(*count, all);
  });
}
hipError_t hipGraphGetEdges(hipGraph_t graph, hipGraphNode_t* from, hipGraphNode_t* to,
                            std::size_t* count) {
  return call([&] {
    const auto& nodes = valid(graph, hipErrorInvalidValue).nodes;
    std::size_t edges = 0;
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      for (const hipGraphNode_t before : (*node)->after) {
        if (from != nullptr && to != nullptr) {
          if (edges == *count) return;
          from[edges] = before;
          to[edges] = node->get();
        }
        ++edges;
      }
    }
    *count = edges;
  });
}
hipError_t hipGraphNodeGetType(hipGraphNode_t node, hipGraphNodeType* type) {
  return call([&] {
    constexpr hipGraphNodeType kTypes[] = {hipGraphNodeTypeEmpty, hipGraphNodeTypeKernel,
                                           hipGraphNodeTypeMemcpy, hipGraphNodeTypeMemset,
                                           hipGraphNodeTypeGraph};
    static_assert(std::size(kTypes) == std::variant_size_v<Work>);
    *type = kTypes[valid(node, hipErrorInvalidValue).work.index()];
  });
}
hipError_t hipGraphKernelNodeGetParams(hipGraphNode_t node, hipKernelNodeParams* given) {
  return call([&] {
    auto& work = work_of<KernelWork>(node);
    work.pointers.clear();
    for (const KernelArgument& argument : work.function->kernel->arguments) {
      if (!argument.hidden()) work.pointers.push_back(work.arguments.data() + argument.offset);
    }
    *given = {};
    given->func = work.function;
    given->gridDim = work.blocks;
    given->blockDim = work.threads;
    given->sharedMemBytes = work.dynamic_lds;
    given->kernelParams = work.pointers.data();
  });
}
hipError_t hipGraphMemsetNodeGetParams(hipGraphNode_t node, hipMemsetParams* given) {
  return call([&] {
    const auto& work = work_of<FillWork>(node);
    *given = {};
    given->dst = work.to;
    given->value = work.value;
    given->elementSize = 1;
    given->width = work.bytes;
    given->height = 1;
  });
}

#if HIP_VERSION_MAJOR > 5 || HIP_VERSION_MINOR > 2  // HIP 5.2 declares them and does not have them
// No kernel here is launched as a cooperative one.
hipError_t hipGraphKernelNodeGetAttribute(hipGraphNode_t node, hipKernelNodeAttrID attribute,
                                          hipKernelNodeAttrValue* value) {
  return call([&] {
    work_of<KernelWork>(node);
    if (attribute != hipKernelNodeAttributeCooperative) throw Refusal{};
    value->cooperative = 0;
  });
}
hipError_t hipGraphKernelNodeSetAttribute(hipGraphNode_t node, hipKernelNodeAttrID,
                                          const hipKernelNodeAttrValue*) {
  return call([&] {
    work_of<KernelWork>(node);
    throw Refusal{hipErrorNotSupported};
  });
}
#endif

// ---- Executables -------------------------------------------------------------------------------

hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t* executable, hipGraph_t graph,
                                        unsigned long long) {
  return call([&] {
    valid(graph, hipErrorInvalidValue);
    *executable = new hipGraphExec;
    append(**executable, *graph, {});
    Runtime::instance().handles.insert(*executable);
  });
}
hipError_t hipGraphExecDestroy(hipGraphExec_t executable) {
  return call([&] {
    release(executable, hipErrorInvalidValue);
    delete executable;
  });
}
hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t on) {
  return call([&] { launch(valid(executable, hipErrorInvalidValue), stream_of(on)); });
}
hipError_t hipGraphExecKernelNodeSetParams(hipGraphExec_t executable, hipGraphNode_t node,
                                           const hipKernelNodeParams* given) {
  return call([&] { work_of<KernelWork>(executable, node) = kernel_of(*given); });
}
hipError_t hipGraphExecMemcpyNodeSetParams1D(hipGraphExec_t executable, hipGraphNode_t node,
                                             void* to, const void* from, std::size_t bytes,
                                             hipMemcpyKind kind) {
  return call([&] { work_of<CopyWork>(executable, node) = copy_of(to, from, bytes, kind); });
}
hipError_t hipGraphExecMemsetNodeSetParams(hipGraphExec_t executable, hipGraphNode_t node,
                                           const hipMemsetParams* given) {
  return call([&] { work_of<FillWork>(executable, node) = fill_of(*given); });
}

}  // extern "C"
