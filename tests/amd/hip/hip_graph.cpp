// Captures and graphs of the emulated HIP. A launched graph is as many operations as it has nodes,
// which run in any order that its edges allow.
#include <algorithm>
#include <map>
#include <utility>

#include "tests/amd/hip/runtime.hpp"

using kiln::amd::Call;
using kiln::amd::CopyWork;
using kiln::amd::FillWork;
using kiln::amd::find_stream;
using kiln::amd::gpu;
using kiln::amd::GraphWork;
using kiln::amd::is_forbidden;
using kiln::amd::is_valid;
using kiln::amd::KernelWork;
using kiln::amd::Runtime;
using kiln::amd::Work;

namespace kiln::amd {
namespace {

thread_local hipStreamCaptureMode capture_mode = hipStreamCaptureModeGlobal;

/// Its address is the thread's name.
const void* this_thread() {
  thread_local char name;
  return &name;
}

}  // namespace

bool is_forbidden() {
  if (capture_mode == hipStreamCaptureModeRelaxed) return false;
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
  return forbidden;
}

namespace {

// ---- Graphs ------------------------------------------------------------------------------------

/// Gives up the handles of a graph and its nodes.
void forget(const ihipGraph& graph) {
  Runtime& runtime = Runtime::instance();
  runtime.handles.erase(&graph);
  for (const auto& node : graph.nodes) runtime.handles.erase(node.get());
}

hipError_t add_node(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after,
                    std::size_t count, Work work) {
  if (!is_valid(graph)) return hipErrorInvalidValue;
  auto made = std::make_unique<hipGraphNode>();
  made->work = std::move(work);
  for (std::size_t i = 0; i < count; ++i) {
    const auto is_same = [&](const auto& one) { return one.get() == after[i]; };
    if (std::ranges::none_of(graph->nodes, is_same)) return hipErrorInvalidValue;
    if (std::ranges::count(made->after, after[i]) != 0) return hipErrorInvalidValue;
    made->after.push_back(after[i]);
  }
  *node = made.get();
  Runtime::instance().handles.insert(made.get());
  graph->nodes.push_back(std::move(made));
  return hipSuccess;
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

hipError_t launch(const hipGraphExec& executable, ihipStream_t& stream) {
  if (stream.capture != nullptr) {
    stream.capture->invalidated = true;
    return hipErrorStreamCaptureUnsupported;
  }
  if (gpu(stream.device).lost) return hipErrorIllegalAddress;
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
  return hipSuccess;
}

/// The node of an executable, if it does that kind of work.
template <class Kind>
Kind* find_work(hipGraphExec_t executable, hipGraphNode_t node) {
  if (!is_valid(executable) || node == nullptr) return nullptr;
  const auto found = std::ranges::find(executable->nodes, node, &hipGraphExec::Node::original);
  return found == executable->nodes.end() ? nullptr : std::get_if<Kind>(found->work.get());
}

template <class Kind>
Kind* find_work(hipGraphNode_t node) {
  return is_valid(node) ? std::get_if<Kind>(&node->work) : nullptr;
}

/// What HIP refuses of fills that it can do and kiln never asks for.
hipError_t make_fill(const hipMemsetParams& given, FillWork& made) {
  if (given.elementSize != 1 || given.height != 1 || given.width == 0) return hipErrorInvalidValue;
  made = {given.dst, static_cast<std::uint8_t>(given.value), given.width};
  return check(made);
}

hipError_t make_copy(const CopyWork& copy, hipMemcpyKind kind) {
  return copy.bytes == 0 ? hipErrorInvalidValue : check(copy, kind);
}

/// Kernels run where their module is loaded.
hipError_t make_kernel_node(const hipKernelNodeParams& given, KernelWork& made) {
  const auto function = static_cast<hipFunction_t>(given.func);
  if (!is_valid(function)) return hipErrorInvalidDeviceFunction;
  return make_kernel(given, function->device, made);
}

// ---- Captures ----------------------------------------------------------------------------------

hipError_t begin_capture(ihipStream_t& stream, hipStreamCaptureMode mode) {
  if (stream.capture != nullptr) return hipErrorIllegalState;
  auto capture = std::make_shared<Capture>();
  capture->graph = std::make_unique<ihipGraph>();
  capture->origin = &stream;
  capture->mode = mode;
  capture->thread = this_thread();
  Runtime::instance().captures.insert(capture);
  stream.capture = std::move(capture);
  stream.captured_last.clear();
  return hipSuccess;
}

/// Whether some captured work of other streams is not waited for by the stream that ends the
/// capture.
bool is_unjoined(const ihipGraph& graph, const std::vector<hipGraphNode_t>& last) {
  std::set<hipGraphNode_t> followed(last.begin(), last.end());
  for (const auto& node : graph.nodes) followed.insert(node->after.begin(), node->after.end());
  return std::ranges::any_of(graph.nodes,
                             [&](const auto& node) { return followed.count(node.get()) == 0; });
}

hipError_t end_capture(ihipStream_t& stream, hipGraph_t* graph) {
  *graph = nullptr;
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture == nullptr) return hipErrorIllegalState;
  if (capture->origin != &stream) return hipErrorStreamCaptureUnmatched;
  if (capture->mode != hipStreamCaptureModeRelaxed && capture->thread != this_thread()) {
    return hipErrorStreamCaptureWrongThread;
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
    return unjoined ? hipErrorStreamCaptureUnjoined : hipErrorStreamCaptureInvalidated;
  }
  runtime.handles.insert(capture->graph.get());
  *graph = capture->graph.release();
  return hipSuccess;
}

}  // namespace
}  // namespace kiln::amd

extern "C" {

hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode* mode) {
  std::swap(*mode, kiln::amd::capture_mode);
  return hipSuccess;
}
hipError_t hipStreamIsCapturing(hipStream_t on, hipStreamCaptureStatus* status) {
  const Call call;
  const ihipStream_t* const stream = find_stream(on);
  if (stream == nullptr) return call.end(hipErrorInvalidHandle);
  *status = stream->capture == nullptr     ? hipStreamCaptureStatusNone
            : stream->capture->invalidated ? hipStreamCaptureStatusInvalidated
                                           : hipStreamCaptureStatusActive;
  return call.end(hipSuccess);
}
hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode) {
  const Call call;
  if (stream == nullptr) return call.end(hipErrorStreamCaptureUnsupported);
  if (!is_valid(stream)) return call.end(hipErrorInvalidHandle);
  return call.end(kiln::amd::begin_capture(*stream, mode));
}
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph) {
  const Call call;
  if (stream == nullptr || !is_valid(stream)) return call.end(hipErrorInvalidHandle);
  return call.end(kiln::amd::end_capture(*stream, graph));
}

hipError_t hipGraphCreate(hipGraph_t* graph, unsigned) {
  const Call call;
  *graph = new ihipGraph;
  Runtime::instance().handles.insert(*graph);
  return call.end(hipSuccess);
}
hipError_t hipGraphDestroy(hipGraph_t graph) {
  const Call call;
  if (!is_valid(graph)) return call.end(hipErrorInvalidValue);
  kiln::amd::forget(*graph);
  delete graph;
  return call.end(hipSuccess);
}

// ---- Nodes -------------------------------------------------------------------------------------

hipError_t hipGraphAddKernelNode(hipGraphNode_t* node, hipGraph_t graph,
                                 const hipGraphNode_t* after, std::size_t count,
                                 const hipKernelNodeParams* given) {
  const Call call;
  KernelWork work;
  if (hipError_t error = kiln::amd::make_kernel_node(*given, work); error != hipSuccess) {
    return call.end(error);
  }
  return call.end(kiln::amd::add_node(node, graph, after, count, std::move(work)));
}
hipError_t hipGraphAddMemcpyNode1D(hipGraphNode_t* node, hipGraph_t graph,
                                   const hipGraphNode_t* after, std::size_t count, void* to,
                                   const void* from, std::size_t bytes, hipMemcpyKind kind) {
  const Call call;
  const CopyWork work{to, from, bytes};
  if (hipError_t error = kiln::amd::make_copy(work, kind); error != hipSuccess) {
    return call.end(error);
  }
  return call.end(kiln::amd::add_node(node, graph, after, count, work));
}
hipError_t hipGraphAddMemsetNode(hipGraphNode_t* node, hipGraph_t graph,
                                 const hipGraphNode_t* after, std::size_t count,
                                 const hipMemsetParams* given) {
  const Call call;
  FillWork work;
  if (hipError_t error = kiln::amd::make_fill(*given, work); error != hipSuccess) {
    return call.end(error);
  }
  return call.end(kiln::amd::add_node(node, graph, after, count, work));
}
hipError_t hipGraphAddEmptyNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* after,
                                std::size_t count) {
  const Call call;
  return call.end(kiln::amd::add_node(node, graph, after, count, {}));
}
hipError_t hipGraphAddChildGraphNode(hipGraphNode_t* node, hipGraph_t graph,
                                     const hipGraphNode_t* after, std::size_t count,
                                     hipGraph_t child) {
  const Call call;
  if (!is_valid(child)) return call.end(hipErrorInvalidValue);
  return call.end(
      kiln::amd::add_node(node, graph, after, count, GraphWork{kiln::amd::copy(*child)}));
}

// ---- What is in a graph: in no order, so backwards ---------------------------------------------

hipError_t hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t* nodes, std::size_t* count) {
  const Call call;
  if (!is_valid(graph)) return call.end(hipErrorInvalidValue);
  const std::size_t all = graph->nodes.size();
  for (std::size_t i = 0; nodes != nullptr && i < std::min(*count, all); ++i) {
    nodes[i] = graph->nodes[all - 1 - i].get();
  }
  *count = nodes == nullptr ? all : std::min(*count, all);
  return call.end(hipSuccess);
}
hipError_t hipGraphGetEdges(hipGraph_t graph, hipGraphNode_t* from, hipGraphNode_t* to,
                            std::size_t* count) {
  const Call call;
  if (!is_valid(graph)) return call.end(hipErrorInvalidValue);
  std::size_t edges = 0;
  for (auto node = graph->nodes.rbegin(); node != graph->nodes.rend(); ++node) {
    for (const hipGraphNode_t before : (*node)->after) {
      if (from != nullptr && to != nullptr) {
        if (edges == *count) return call.end(hipSuccess);
        from[edges] = before;
        to[edges] = node->get();
      }
      ++edges;
    }
  }
  *count = edges;
  return call.end(hipSuccess);
}
hipError_t hipGraphNodeGetType(hipGraphNode_t node, hipGraphNodeType* type) {
  const Call call;
  if (!is_valid(node)) return call.end(hipErrorInvalidValue);
  constexpr hipGraphNodeType kTypes[] = {hipGraphNodeTypeEmpty, hipGraphNodeTypeKernel,
                                         hipGraphNodeTypeMemcpy, hipGraphNodeTypeMemset,
                                         hipGraphNodeTypeGraph};
  static_assert(std::size(kTypes) == std::variant_size_v<Work>);
  *type = kTypes[node->work.index()];
  return call.end(hipSuccess);
}
hipError_t hipGraphKernelNodeGetParams(hipGraphNode_t node, hipKernelNodeParams* given) {
  const Call call;
  auto* const work = kiln::amd::find_work<KernelWork>(node);
  if (work == nullptr) return call.end(hipErrorInvalidValue);
  work->pointers.clear();
  for (const kiln::amd::KernelArgument& argument : work->function->kernel->arguments) {
    if (!argument.hidden()) work->pointers.push_back(work->arguments.data() + argument.offset);
  }
  *given = {};
  given->func = work->function;
  given->gridDim = work->blocks;
  given->blockDim = work->threads;
  given->sharedMemBytes = work->dynamic_lds;
  given->kernelParams = work->pointers.data();
  return call.end(hipSuccess);
}
hipError_t hipGraphMemsetNodeGetParams(hipGraphNode_t node, hipMemsetParams* given) {
  const Call call;
  const auto* const work = kiln::amd::find_work<FillWork>(node);
  if (work == nullptr) return call.end(hipErrorInvalidValue);
  *given = {};
  given->dst = work->to;
  given->value = work->value;
  given->elementSize = 1;
  given->width = work->bytes;
  given->height = 1;
  return call.end(hipSuccess);
}

#if HIP_VERSION_MAJOR > 5 || HIP_VERSION_MINOR > 2  // HIP 5.2 declares them and does not have them
// No kernel here is launched as a cooperative one.
hipError_t hipGraphKernelNodeGetAttribute(hipGraphNode_t node, hipKernelNodeAttrID attribute,
                                          hipKernelNodeAttrValue* value) {
  const Call call;
  if (kiln::amd::find_work<KernelWork>(node) == nullptr ||
      attribute != hipKernelNodeAttributeCooperative) {
    return call.end(hipErrorInvalidValue);
  }
  value->cooperative = 0;
  return call.end(hipSuccess);
}
hipError_t hipGraphKernelNodeSetAttribute(hipGraphNode_t node, hipKernelNodeAttrID,
                                          const hipKernelNodeAttrValue*) {
  const Call call;
  return call.end(kiln::amd::find_work<KernelWork>(node) == nullptr ? hipErrorInvalidValue
                                                                    : hipErrorNotSupported);
}
#endif

// ---- Executables -------------------------------------------------------------------------------

hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t* executable, hipGraph_t graph,
                                        unsigned long long) {
  const Call call;
  if (!is_valid(graph)) return call.end(hipErrorInvalidValue);
  *executable = new hipGraphExec;
  kiln::amd::append(**executable, *graph, {});
  Runtime::instance().handles.insert(*executable);
  return call.end(hipSuccess);
}
hipError_t hipGraphExecDestroy(hipGraphExec_t executable) {
  const Call call;
  if (Runtime::instance().handles.erase(executable) == 0) return call.end(hipErrorInvalidValue);
  delete executable;
  return call.end(hipSuccess);
}
hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t on) {
  const Call call;
  ihipStream_t* const stream = find_stream(on);
  if (!is_valid(executable) || stream == nullptr) return call.end(hipErrorInvalidValue);
  return call.end(kiln::amd::launch(*executable, *stream));
}
hipError_t hipGraphExecKernelNodeSetParams(hipGraphExec_t executable, hipGraphNode_t node,
                                           const hipKernelNodeParams* given) {
  const Call call;
  auto* const work = kiln::amd::find_work<KernelWork>(executable, node);
  if (work == nullptr) return call.end(hipErrorInvalidValue);
  return call.end(kiln::amd::make_kernel_node(*given, *work));
}
hipError_t hipGraphExecMemcpyNodeSetParams1D(hipGraphExec_t executable, hipGraphNode_t node,
                                             void* to, const void* from, std::size_t bytes,
                                             hipMemcpyKind kind) {
  const Call call;
  auto* const work = kiln::amd::find_work<CopyWork>(executable, node);
  if (work == nullptr) return call.end(hipErrorInvalidValue);
  const CopyWork wanted{to, from, bytes};
  const hipError_t error = kiln::amd::make_copy(wanted, kind);
  if (error == hipSuccess) *work = wanted;
  return call.end(error);
}
hipError_t hipGraphExecMemsetNodeSetParams(hipGraphExec_t executable, hipGraphNode_t node,
                                           const hipMemsetParams* given) {
  const Call call;
  auto* const work = kiln::amd::find_work<FillWork>(executable, node);
  if (work == nullptr) return call.end(hipErrorInvalidValue);
  FillWork wanted;
  const hipError_t error = kiln::amd::make_fill(*given, wanted);
  if (error == hipSuccess) *work = wanted;
  return call.end(error);
}

}  // extern "C"
