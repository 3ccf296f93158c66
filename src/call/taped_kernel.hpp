// Kernels that calls by class launch without planning (kernel/kernel_tape.hpp): what a class keeps
// of them, and how the one is found that holds for a call.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "call/scheduled_kernel.hpp"
#include "core/plan_table.hpp"
#include "kernel/kernel_tape.hpp"

namespace kiln {

/// A kernel with a tape of one layout of it. `Source` says where a call has a number that the tape
/// takes.
template <class Source>
struct TapedKernel final : CachedPlan {
  TapedKernel(ScheduledKernel of, KernelTape recorded, std::vector<Source> from)
      : kernel(std::move(of)), tape(std::move(recorded)), sources(std::move(from)) {}
  std::size_t bytes() const override {
    return sizeof *this + 8 * signature.size() + bytes_of(kernel) + tape.size() +
           sources.size() * sizeof(Source);
  }
  std::size_t plans() const override { return 0; }
  std::vector<std::shared_ptr<jit::Kernel>> loaded_kernels() const override {
    return {kernel.planned.kernel};
  }

  const ScheduledKernel kernel;
  const KernelTape tape;
  const std::vector<Source> sources;
};

/// What the tapes of a kernel of a class are found by, counting from 0.
struct TapeKey {
  /// `kernel`: of no other one of the table.
  TapeKey(std::uint64_t kernel, std::uint64_t number) : words{kTapesTag, kernel, number} {
    hash = mixed(mixed(kTapesTag, kernel), number);
  }
  static constexpr std::uint64_t kTapesTag = 1ull << 60;
  std::array<std::uint64_t, 3> words;
  std::uint64_t hash = 0;
};

/// The numbers of kernels while their tapes are run, one after the other. Lives on the stack of a
/// call.
class TapeValues {
 public:
  /// Null if there is no room for so many.
  std::int64_t* take(std::size_t count) {
    if (count > values_.size() - used_) return nullptr;
    return values_.data() + std::exchange(used_, used_ + count);
  }
  /// Of what was taken last.
  void give_back(std::size_t count) { used_ -= count; }

 private:
  std::array<std::int64_t, 4096> values_;
  std::size_t used_ = 0;
};

/// The numbers of a run; null where the tape does not hold. `value_of`: of a source.
template <class Source, class ValueOf>
const std::int64_t* run_tape(const TapedKernel<Source>& taped, TapeValues& memory,
                             const ValueOf& value_of) {
  const fusion::SizeTape& tape = taped.tape.tape();
  std::int64_t* const values = memory.take(tape.size());
  if (values == nullptr) return nullptr;
  std::int64_t* input = tape.begin(values);
  for (const Source& source : taped.sources) *input++ = value_of(source);
  if (tape.run(values)) return values;
  memory.give_back(tape.size());
  return nullptr;
}

/// The same for sizes that are about equal, with the same powers of two in them: such are likely to
/// be planned alike.
std::size_t size_kind_of(std::span<const std::int64_t> sizes);

/// Which of a kernel's tapes held last for sizes of one kind.
class RecentTapes {
 public:
  static constexpr std::uint8_t kMostTapes = 128;
  static constexpr std::size_t kSizeKinds = 64;

  /// The tape that holds, or null. `tape_of`: by number, null if there are no more; `holds`: of
  /// one.
  template <class TapeOf, class Holds>
  auto find(std::size_t size_kind, const TapeOf& tape_of, const Holds& holds) const
      -> decltype(tape_of(0)) {
    std::atomic<std::uint8_t>& recent = of_[size_kind];
    const std::uint8_t likely = recent.load(std::memory_order_relaxed);
    if (likely > kNone) {
      recent.store(static_cast<std::uint8_t>(likely - 1), std::memory_order_relaxed);
      return nullptr;
    }
    const auto first = tape_of(likely);
    if (first != nullptr && holds(*first)) return first;
    for (std::uint8_t number = 0; number < kMostTapes; ++number) {
      const auto taped = tape_of(number);
      if (taped == nullptr) break;
      if (taped == first || !holds(*taped)) continue;
      recent.store(number, std::memory_order_relaxed);
      return taped;
    }
    recent.store(kNone + kPasses, std::memory_order_relaxed);
    return nullptr;
  }

  /// The next calls look at all tapes where none held. To be called when the kernel got another
  /// one.
  void look_again() const;

 private:
  /// Where none held, so many calls are not tried: looking at all tapes takes its time.
  static constexpr std::uint8_t kPasses = 3;
  static constexpr std::uint8_t kNone = kMostTapes;
  mutable std::array<std::atomic<std::uint8_t>, kSizeKinds> of_{};
};

/// How a kernel is launched: with the numbers of a tape, or else with a layout.
struct KernelLaunch {
  LaunchBlock block(std::span<char* const> data) const {
    if (tape != nullptr) return {*kernel, *tape, values, data};
    return {*kernel, *layout, data};
  }
  const ScheduledKernel* kernel = nullptr;
  const KernelTape* tape = nullptr;
  const std::int64_t* values = nullptr;
  const fusion::Layout* layout = nullptr;
};

/// Adds a tape of a kernel, unless it has very many.
void add_tape(PlanTable& plans, std::uint64_t kernel, std::shared_ptr<CachedPlan> taped,
              const RecentTapes& recent, const Device& device);

}  // namespace kiln
