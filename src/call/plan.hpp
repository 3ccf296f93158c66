// A plan: everything about one call of a function that does not change while dtypes, shapes,
// strides and alignments stay the same. Made once (plan.cpp), launched often (launch.cpp).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fusion/emit/emit.hpp"
#include "fusion/graph/graph.hpp"
#include "jit/device/backend.hpp"
#include "kiln/function.hpp"

namespace kiln {

/// What is being called: the immutable part of a Function.
struct Definition {
  std::string name;
  fusion::Graph graph;
  Options options;
  std::string expression;  ///< in the text form
  /// A kernel of a Program: its graph as it was typed there. `graph` then is for names and text.
  std::shared_ptr<const fusion::TypedGraph> typed{};
  /// Of such a kernel: that each row is cut into. Its reductions have that many results for each.
  std::int64_t pieces = 1;
  /// Of such a kernel: where its arguments and then its outputs begin in memories that they share.
  std::vector<fusion::MemoryPlace> places{};

  fusion::MemoryPlace place(std::size_t operand) const {
    return operand < places.size() ? places[operand] : fusion::MemoryPlace();
  }
};

/// One call's arguments, as the caller gave them.
struct Call {
  const Stream& stream;
  std::span<const Argument> inputs;
  std::span<const View> outputs;
};

/// The words that decide the plan: per operand its dtype, device, alignment, shape and strides.
/// Lives on the stack of a call.
class Signature {
 public:
  explicit Signature(const Call& call);
  std::span<const std::uint64_t> words() const;
  std::uint64_t hash() const { return hash_; }

 private:
  void push(std::uint64_t word);
  void push_view(const View& view);

  static constexpr std::size_t kInline = 160;
  std::array<std::uint64_t, kInline> inline_;
  std::vector<std::uint64_t> overflow_;  ///< all words, once there are more than kInline
  std::size_t size_ = 0;
  std::uint64_t hash_ = 0;
};

/// One kernel of a plan, ready to be filled in and launched.
struct PlannedKernel {
  std::shared_ptr<jit::Kernel> kernel;
  jit::LaunchShape shape;
  fusion::ParameterBlock parameters;
  std::string entry;
  bool programmatic = false;  ///< jit::KernelNode::programmatic
  /// Where the parameter is that says whether it is launched so; 0 here.
  std::optional<std::uint32_t> early;

  /// Where a pointer goes, and from which operand: inputs count from 0, outputs go on from there.
  struct PointerSlot {
    std::uint32_t offset;
    std::uint32_t operand;
    std::int64_t bytes;  ///< from the view's data to the first element that the kernel addresses
    bool early;          ///< read before the kernel waits for those before it
  };
  struct ScalarSlot {
    std::uint32_t offset;
    std::uint32_t input;
    DType dtype;
  };
  std::vector<PointerSlot> pointers;
  std::vector<ScalarSlot> scalars;
};

struct Plan {
  std::vector<std::uint64_t> signature;
  std::uint64_t hash = 0;

  jit::Backend* backend = nullptr;
  /// In the order in which they run, one for each shape among the outputs; empty if there is
  /// nothing to compute.
  std::vector<PlannedKernel> kernels;

  /// The bytes that an operand spans around its view's data, [low, high).
  struct Extent {
    std::uint32_t operand;
    std::int64_t low;
    std::int64_t high;
    bool output;
  };
  std::vector<Extent> extents;
  KernelInfo info;
};

/// "input 1 'up'", "output 0": an operand in messages.
std::string operand_label(const Definition& definition, const Call& call, std::uint32_t operand);

/// Throws Error(invalid_argument) that calls the view `what` where it is on another device, or its
/// data is null or not aligned to its elements. A view of nothing has no data.
void check_view(const Definition& definition, const View& view, const Device& device,
                const std::string& what);

/// Checks the call and makes its plan: finds or, as `on_miss` says, compiles its kernels and loads
/// them. Throws Error.
std::unique_ptr<Plan> make_plan(const Definition& definition, const Call& call,
                                const Signature& signature, OnMiss on_miss);

/// Throws Error(invalid_argument) when an output overlaps another operand of the call, unless it is
/// element for element one of the inputs.
void check_overlap(const Definition& definition, const Plan& plan, const Call& call);

/// Writes the parameters' values for this call into `block`, of kernel.parameters.bytes.size()
/// bytes.
void fill_parameters(const Definition& definition, const PlannedKernel& kernel, const Call& call,
                     std::byte* block);

/// Fills in pointers and scalars and launches. No lock, and no allocation unless a kernel's
/// parameters take more than two kilobytes. Throws as check_overlap does.
void launch_plan(const Definition& definition, const Plan& plan, const Call& call);

}  // namespace kiln
