#include "kiln/graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "base/profiler_ranges.hpp"
#include "call/function_impl.hpp"
#include "graph/recorded.hpp"
#include "jit/device/dependencies.hpp"
#include "jit/device/graph.hpp"
#include "kernel/kernel_table.hpp"
#include "kiln/error.hpp"

namespace kiln {
namespace {

using Changes = std::map<std::uint32_t, Recorded>;

bool same_edges(const std::vector<jit::Dependency>& a, const std::vector<jit::Dependency>& b) {
  return std::ranges::equal(a, b, [](const jit::Dependency& x, const jit::Dependency& y) {
    return x.from == y.from && x.to == y.to;
  });
}

}  // namespace

/// The list and what the driver made of it. An operation may be several nodes, which run one after
/// the other; what waits for it waits for the last.
struct Recorder::Impl {
  explicit Impl(Device on) : device(on), backend(jit::backend(on)) {}

  std::size_t add(Recorded recorded) {
    operations.push_back(std::move(recorded));
    return operations.size() - 1;
  }

  Stream stream() const { return {device, nullptr}; }

  // What was recorded lacks no kernel then.
  void build_missing() {
    if (missing.size() > 1) build_together(missing);
    for (Recorded& recorded : operations) complete(recorded, stream());
    missing.clear();
  }

  void prepare() {
    accesses.clear();
    for (const Recorded& recorded : operations) accesses.push_back(access_of(recorded));
    order = jit::dependencies(accesses);
    early = jit::may_begin_early(accesses);
    build();
  }

  void build() {
    std::vector<jit::GraphNode> nodes;
    std::vector<std::uint32_t> firsts;
    for (std::size_t i = 0; i < operations.size(); ++i) {
      firsts.push_back(static_cast<std::uint32_t>(nodes.size()));
      for (Work& work : works_of(operations[i], stream())) {
        if (auto* kernel = std::get_if<jit::KernelNode>(&work)) {
          kernel->pdl = kernel->pdl && early[i];
        }
        nodes.push_back({std::move(work), {}});
        const auto at = static_cast<std::uint32_t>(nodes.size() - 1);
        if (at != firsts.back()) nodes.back().after.push_back(at - 1);
      }
    }
    firsts.push_back(static_cast<std::uint32_t>(nodes.size()));
    for (const jit::Dependency& dependency : order) {
      nodes[firsts[dependency.to]].after.push_back(firsts[dependency.from + 1] - 1);
    }
    prepared = backend.prepare(std::move(nodes));
    first = std::move(firsts);
  }

  // Takes over changed operations: node by node if no more than parameters changed, else as a new
  // graph. What could throw comes before anything is changed.
  void replace(Changes changes) {
    bool same = true;
    std::vector<jit::Access> new_accesses = accesses;
    std::map<std::uint32_t, std::vector<Work>> works;
    for (const auto& [i, changed] : changes) {
      same = same && same_kernels(operations[i], changed);
      new_accesses[i] = access_of(changed);
      works[i] = works_of(changed, stream());
    }
    std::vector<jit::Dependency> new_order = jit::dependencies(new_accesses);
    std::vector<bool> new_early = jit::may_begin_early(new_accesses);
    same = same && same_edges(order, new_order) && early == new_early;
    for (auto& [i, changed] : changes) operations[i] = std::move(changed);
    accesses = std::move(new_accesses);
    order = std::move(new_order);
    early = std::move(new_early);
    if (!same) return build();
    for (const auto& [i, list] : works) update(i, list);
  }

  // For a number, which touches no memory.
  void replace_scalar(std::uint32_t i, Recorded changed) {
    const std::vector<Work> works = works_of(changed, stream());
    operations[i] = std::move(changed);
    update(i, works);
  }

  void update(std::uint32_t i, const std::vector<Work>& works) {
    for (std::uint32_t k = 0; k < works.size(); ++k) {
      const std::uint32_t node = first[i] + k;
      if (const auto* kernel = std::get_if<jit::KernelNode>(&works[k]))
        prepared->update(node, kernel->arguments);
      if (const auto* copy = std::get_if<jit::CopyNode>(&works[k])) prepared->update(node, *copy);
      if (const auto* fill = std::get_if<jit::FillNode>(&works[k])) prepared->update(node, *fill);
    }
  }

  Device device;
  jit::Backend& backend;
  mutable std::mutex mutex;  ///< launches and changes, which may come from different threads
  std::vector<Recorded> operations;
  std::vector<WantedKernel> missing;  ///< of them, while they are recorded
  std::vector<jit::Access> accesses;
  std::vector<jit::Dependency> order;
  std::vector<bool> early;  ///< of each operation, whether it may begin before others have ended
  std::vector<std::uint32_t> first;  ///< node of each operation, and the number of nodes
  std::unique_ptr<jit::PreparedGraph> prepared;
};

// ---- Recording ---------------------------------------------------------------------------------

std::size_t Recorder::call(const Function& function, std::span<const Argument> inputs,
                           std::span<const View> outputs) {
  return call(function.shared_impl(), inputs, outputs);
}

std::size_t Recorder::call(std::shared_ptr<Callable> callable, std::span<const Argument> inputs,
                           std::span<const View> outputs) {
  return impl_.add(
      record_call(std::move(callable), impl_.stream(), inputs, outputs, impl_.missing));
}

std::size_t Recorder::call(const Function& function, std::initializer_list<Argument> inputs,
                           std::initializer_list<View> outputs) {
  return call(function, std::span(inputs.begin(), inputs.size()),
              std::span(outputs.begin(), outputs.size()));
}

std::size_t Recorder::call(const Kernel& kernel, const Grid& grid,
                           std::span<const Argument> arguments) {
  return impl_.add(record_kernel(kernel, impl_.stream(), grid, arguments, impl_.missing));
}

std::size_t Recorder::call(const Kernel& kernel, const Grid& grid,
                           std::initializer_list<Argument> arguments) {
  return call(kernel, grid, std::span(arguments.begin(), arguments.size()));
}

std::size_t Recorder::copy(const Copy& copy) {
  return impl_.add(record_copy(copy, impl_.stream(), impl_.missing));
}

std::size_t Recorder::fill(const View& to, std::uint8_t byte) {
  return impl_.add(record_fill(to, byte, impl_.device));
}

std::size_t Recorder::sequence(std::string_view name, std::span<const View> reads,
                               std::span<const View> writes,
                               std::function<void(const Stream&)> body) {
  return impl_.add(record_sequence(name, impl_.device, reads, writes, std::move(body)));
}

Graph record(Device device, const std::function<void(Recorder&)>& body) {
  auto impl = std::make_unique<Recorder::Impl>(device);
  Recorder recorder(*impl);
  body(recorder);
  impl->build_missing();
  impl->prepare();
  return Graph(std::move(impl));
}

// ---- The graph ---------------------------------------------------------------------------------

Graph::Graph(std::unique_ptr<Recorder::Impl> impl) : impl_(std::move(impl)) {}
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;
Graph::~Graph() = default;

void Graph::launch(const Stream& stream) {
  const base::ProfilerRange range([] { return "kiln::Graph"; });
  const std::lock_guard lock(impl_->mutex);
  impl_->prepared->launch(stream);
}

std::size_t Graph::rebind(const void* old, void* now) { return rebind(old, now, 1); }

std::size_t Graph::rebind(const void* old, void* now, std::size_t bytes) {
  const Move move{old, now, bytes};
  const std::lock_guard lock(impl_->mutex);
  Changes changes;
  std::size_t count = 0;
  for (std::uint32_t i = 0; i < impl_->operations.size(); ++i) {
    if (!uses(impl_->operations[i], move)) continue;
    Moved moved = move_operands(impl_->operations[i], move, impl_->stream());
    count += moved.operands;
    changes.emplace(i, std::move(moved.recorded));
  }
  if (!changes.empty()) impl_->replace(std::move(changes));
  return count;
}

void Graph::set_scalar(std::size_t operation, std::size_t input, Scalar value) {
  const std::lock_guard lock(impl_->mutex);
  if (operation >= impl_->operations.size()) {
    throw Error(Code::invalid_argument,
                fmt::format("Graph::set_scalar: there is no operation {}, only {}", operation,
                            impl_->operations.size()));
  }
  impl_->replace_scalar(static_cast<std::uint32_t>(operation),
                        with_scalar(impl_->operations[operation], operation, input, value));
}

std::vector<Graph::Operation> Graph::operations() const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<Operation> result;
  for (const Recorded& recorded : impl_->operations) {
    result.push_back({name_of(recorded), entry_of(recorded)});
  }
  return result;
}

std::vector<Graph::Edge> Graph::edges() const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<Edge> result;
  for (const jit::Dependency& dependency : impl_->order) {
    result.push_back({dependency.from, dependency.to, jit::name(dependency.hazard),
                      dependency.bytes.begin, dependency.bytes.end});
  }
  return result;
}

bool Graph::is_replayed() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->prepared->is_replayed();
}

}  // namespace kiln
