// A list of operations that is submitted as one: a graph of the driver where there is one, the same
// list run in order where there is not. What must wait for what is given (dependencies.hpp finds
// it).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <type_traits>
#include <variant>
#include <vector>

#include "jit/device/backend.hpp"

namespace kiln::jit {

/// The values of a kernel's parameters, owned: a graph needs them for as long as it lives.
class Arguments {
 public:
  Arguments() = default;
  Arguments(const Arguments& other);
  Arguments(Arguments&&) noexcept = default;
  Arguments& operator=(const Arguments& other) { return *this = Arguments(other); }
  Arguments& operator=(Arguments&&) noexcept = default;

  /// Appends a parameter of any trivially copyable type; a device pointer is one.
  template <class T>
  requires std::is_trivially_copyable_v<T>
  void add(const T& value) { add(&value, sizeof value); }
  void add(const void* value, std::size_t bytes);

  std::size_t size() const { return pointers_.size(); }
  /// The bytes of parameter `i`.
  std::span<const std::byte> operator[](std::size_t i) const;
  /// Replaces parameter `i`. Throws Error(invalid_argument) unless the size is the old one.
  void set(std::size_t i, const void* value, std::size_t bytes);
  /// What a launch takes: the address of each parameter. Valid until the next add().
  void* const* pointers() const { return pointers_.data(); }

 private:
  struct alignas(16) Slot {
    std::byte bytes[16];
  };
  struct Extent {
    std::size_t slot;
    std::size_t bytes;
  };
  void point();

  std::vector<Slot> storage_;
  std::vector<Extent> extents_;
  std::vector<void*> pointers_;
};

/// A kernel launch. The node keeps its kernel loaded.
struct KernelNode {
  std::shared_ptr<const Kernel> kernel;
  LaunchShape shape;
  Arguments arguments;
  /// Programmatic dependent launch: every block of the kernel waits for the nodes before it to have
  /// ended, so that the kernel may begin before that where the device has such launches.
  bool pdl = false;
};

/// Bytes from device memory to device memory; the two do not overlap.
struct CopyNode {
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
};

/// Sets every byte of a range of device memory.
struct FillNode {
  void* to = nullptr;
  std::uint8_t value = 0;
  std::size_t bytes = 0;
};

/// The caller's own work on a stream, such as library calls. It is captured once, when the graph is
/// made, and must then do the same each time; where there is no graph it is called at each launch.
struct SequenceNode {
  std::function<void(const Stream&)> run;
};

struct GraphNode {
  std::variant<KernelNode, CopyNode, FillNode, SequenceNode> work;
  std::vector<std::uint32_t> after;  ///< nodes, earlier in the list, that must have finished
};

/// Made by Backend::prepare(). Launches of one graph never overlap: they wait for each other, also
/// on different streams. Safe to use from several threads.
class PreparedGraph {
 public:
  virtual ~PreparedGraph() = default;

  /// On a capturing stream the operations become part of that capture, which needs this graph to
  /// live as long as what was captured.
  virtual void launch(const Stream& stream) = 0;

  // What the next launches do; running ones are not affected. Throws Error(invalid_argument) when
  // the node is not of that kind.
  /// The parameters of a kernel. Their number and sizes must be as before.
  virtual void update(std::uint32_t node, const Arguments& arguments) = 0;
  virtual void update(std::uint32_t node, const CopyNode& copy) = 0;
  virtual void update(std::uint32_t node, const FillNode& fill) = 0;

  /// Whether the driver replays it. If not, each launch submits the operations one by one: on the
  /// CPU always, on a GPU when the driver could not make, update or launch the graph, which is
  /// logged once.
  virtual bool is_replayed() const = 0;
};

/// Throws Error(invalid_argument) that names the first node that is not right: `after` names
/// itself, a later node or one twice, a kernel is missing or belongs to another device than
/// `owner`.
void check_nodes(std::span<const GraphNode> nodes, const Backend& owner);

}  // namespace kiln::jit
