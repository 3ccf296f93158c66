// The parts of a graph that no device is needed for. See graph.hpp.
#include "jit/device/graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kiln/error.hpp"

namespace kiln::jit {

Arguments::Arguments(const Arguments& other) : storage_(other.storage_), extents_(other.extents_) {
  point();
}

void Arguments::add(const void* value, std::size_t bytes) {
  const std::size_t slot = storage_.size();
  storage_.resize(slot + (bytes + sizeof(Slot) - 1) / sizeof(Slot));
  if (bytes != 0) std::memcpy(storage_.data() + slot, value, bytes);
  extents_.push_back({slot, bytes});
  point();
}

std::span<const std::byte> Arguments::operator[](std::size_t i) const {
  return {reinterpret_cast<const std::byte*>(storage_.data() + extents_[i].slot),
          extents_[i].bytes};
}

void Arguments::set(std::size_t i, const void* value, std::size_t bytes) {
  if (i >= extents_.size() || extents_[i].bytes != bytes) {
    throw Error(Code::invalid_argument,
                fmt::format("Arguments::set: parameter {} of {} has {} bytes, got {}", i,
                            extents_.size(), i < extents_.size() ? extents_[i].bytes : 0, bytes));
  }
  if (bytes != 0) std::memcpy(storage_.data() + extents_[i].slot, value, bytes);
}

void Arguments::point() {
  pointers_.clear();
  for (const Extent& extent : extents_) pointers_.push_back(storage_.data() + extent.slot);
}

void check_nodes(std::span<const GraphNode> nodes, const Backend& owner) {
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const auto refuse = [&](const std::string& why) {
      throw Error(Code::invalid_argument,
                  fmt::format("graph on {}: node {} of {}: {}", to_string(owner.device()), i,
                              nodes.size(), why));
    };
    std::vector<std::uint32_t> after = nodes[i].after;
    std::sort(after.begin(), after.end());
    if (!after.empty() && after.back() >= i) {
      refuse(fmt::format("it waits for node {}, which is not an earlier one", after.back()));
    }
    if (auto twice = std::adjacent_find(after.begin(), after.end()); twice != after.end()) {
      refuse(fmt::format("it waits for node {} twice", *twice));
    }
    if (const auto* kernel = std::get_if<KernelNode>(&nodes[i].work)) {
      if (kernel->kernel == nullptr) refuse("it has no kernel");
      if (&kernel->kernel->owner() != &owner) {
        refuse("its kernel is loaded on " + to_string(kernel->kernel->owner().device()));
      }
    }
    if (const auto* sequence = std::get_if<SequenceNode>(&nodes[i].work)) {
      if (!sequence->run) refuse("it has nothing to run");
    }
  }
}

}  // namespace kiln::jit
