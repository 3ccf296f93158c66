// How a kernel is launched with numbers of its own, without planning: a tape (fusion::SizeTape) of
// one call of plan_kernel(). Run with the numbers of another call, it says whether that call has
// the same schedule, and computes the parameters' values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "fusion/emit/emit.hpp"
#include "fusion/schedule/size_tape.hpp"
#include "kernel/kernel_spec.hpp"
#include "kernel/target.hpp"

namespace kiln {

/// A number of those that plan_kernel() takes.
struct CallNumber {
  enum class Kind : std::uint8_t {
    extent,  ///< of the kernel's space along `axis`
    stride,  ///< and those of an operand: fusion::Operand
    offset,
    split_stride,
    place,
    place_stride,
    place_count,
    address,
  };
  Kind kind = Kind::extent;
  std::uint16_t operand = 0;
  std::uint16_t axis = 0;
};

class KernelTape {
 public:
  /// A value of a parameter.
  struct Value {
    std::uint16_t place;   ///< among the numbers of a run
    std::uint16_t bytes;   ///< that the parameter takes
    std::uint32_t offset;  ///< of the parameter in the block of all of them
  };
  /// A number that differs from run to run, or does not.
  struct Number {
    std::int64_t of(const std::int64_t* values) const {
      return place == fusion::SizeTape::kFixed ? fixed : values[place];
    }
    std::uint16_t place = fusion::SizeTape::kFixed;
    std::int64_t fixed = 0;
  };
  /// A parameter that is a pointer.
  struct Pointer {
    /// From its operand's data.
    std::int64_t bytes(const std::int64_t* values) const {
      return elements.of(values) * element_bits >> 3;
    }
    std::uint32_t offset;   ///< of the parameter in the block
    std::uint32_t operand;  ///< of the layout
    std::int64_t element_bits;
    Number elements;
  };

  /// Of a call with these numbers. `parameters`: of the kernel that has this layout's schedule,
  /// with their offsets; `varies`: whether a number may differ from call to call. Nothing where the
  /// kernel has nothing to compute, or a tape would be too long. Throws as plan_kernel() does.
  static std::optional<KernelTape> record(const TypedFunction& function, const KernelForm& form,
                                          const Dims& shape,
                                          std::span<const fusion::Operand> operands,
                                          const TargetFeatures& target,
                                          std::span<const fusion::Parameter> parameters,
                                          const fusion::ParameterBlock& block,
                                          const std::function<bool(const CallNumber&)>& varies);

  const fusion::SizeTape& tape() const { return tape_; }
  /// What a run takes, in this order.
  std::span<const CallNumber> inputs() const { return inputs_; }
  /// Of parameters that differ from call to call, but for pointers.
  std::span<const Value> values() const { return values_; }
  std::span<const Pointer> pointers() const { return pointers_; }
  /// The parameters' bytes with all others in them; scalars and pointers are left zero.
  std::span<const std::byte> bytes() const { return bytes_; }
  /// Layout::threads() and Layout::block(), where `values` are those of a run.
  std::uint64_t threads(const std::int64_t* values) const {
    return static_cast<std::uint64_t>(threads_.of(values));
  }
  std::uint32_t block(const std::int64_t* values) const {
    return static_cast<std::uint32_t>(block_.of(values));
  }

  std::size_t size() const;

 private:
  fusion::SizeTape tape_;
  std::vector<CallNumber> inputs_;
  std::vector<Value> values_;
  std::vector<Pointer> pointers_;
  std::vector<std::byte> bytes_;
  Number threads_;
  Number block_;
};

}  // namespace kiln
