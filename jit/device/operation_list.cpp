// See operation_list.hpp.
#include "jit/device/operation_list.hpp"

#include <fmt/format.h>

#include <mutex>

#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

class PreparedList final : public PreparedGraph {
 public:
  PreparedList(Backend& backend, std::vector<GraphNode> nodes) : list_(backend, std::move(nodes)) {}

  void launch(const Stream& stream) override {
    std::lock_guard lock(mutex_);
    list_.run(stream);
  }
  void update(std::uint32_t node, const Arguments& arguments) override {
    std::lock_guard lock(mutex_);
    list_.update(node, arguments);
  }
  void update(std::uint32_t node, const CopyNode& copy) override {
    std::lock_guard lock(mutex_);
    list_.update(node, copy);
  }
  void update(std::uint32_t node, const FillNode& fill) override {
    std::lock_guard lock(mutex_);
    list_.update(node, fill);
  }
  bool is_replayed() const override { return false; }

 private:
  std::mutex mutex_;
  OperationList list_;
};

}  // namespace

OperationList::OperationList(Backend& backend, std::vector<GraphNode> nodes)
    : backend_(&backend), nodes_(std::move(nodes)) {
  check_nodes(nodes_, backend);
}

void OperationList::run(const Stream& stream) const {
  for (const GraphNode& node : nodes_) {
    std::visit(
        Overloaded{
            [&](const KernelNode& kernel) {
              backend_->launch(*kernel.kernel, kernel.shape, kernel.arguments.pointers(), stream);
            },
            [&](const CopyNode& copy) {
              backend_->copy_on_device(copy.to, copy.from, copy.bytes, stream);
            },
            [&](const FillNode& fill) { backend_->fill(fill.to, fill.value, fill.bytes, stream); },
            [&](const SequenceNode& sequence) { sequence.run(stream); }},
        node.work);
  }
}

template <class Kind>
Kind& OperationList::node_of_kind(std::uint32_t node, const char* kind) {
  Kind* found = node < nodes_.size() ? std::get_if<Kind>(&nodes_[node].work) : nullptr;
  if (found == nullptr) {
    throw Error(Code::invalid_argument,
                fmt::format("graph update: node {} of {} is not a {}", node, nodes_.size(), kind));
  }
  return *found;
}

void OperationList::update(std::uint32_t node, const Arguments& arguments) {
  Arguments& current = node_of_kind<KernelNode>(node, "kernel").arguments;
  bool same = arguments.size() == current.size();
  for (std::size_t i = 0; same && i < arguments.size(); ++i) {
    same = arguments[i].size() == current[i].size();
  }
  if (!same) {
    throw Error(Code::invalid_argument,
                fmt::format("graph update: node {}: its kernel has {} parameters, got {} or others",
                            node, current.size(), arguments.size()));
  }
  // In place: what a driver was given points into this storage.
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    current.set(i, arguments[i].data(), arguments[i].size());
  }
}

void OperationList::update(std::uint32_t node, const CopyNode& copy) {
  node_of_kind<CopyNode>(node, "copy") = copy;
}

void OperationList::update(std::uint32_t node, const FillNode& fill) {
  node_of_kind<FillNode>(node, "fill") = fill;
}

std::unique_ptr<PreparedGraph> prepare_list(Backend& backend, std::vector<GraphNode> nodes) {
  return std::make_unique<PreparedList>(backend, std::move(nodes));
}

}  // namespace kiln::jit
