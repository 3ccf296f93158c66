// Kernels that calls by class launch without planning (kernel/kernel_tape.hpp): what is kept of
// them, and how the tape is found that holds for a call.
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
#include "fusion/schedule/scratch.hpp"
#include "kernel/kernel_tape.hpp"

namespace kiln {

/// A kernel with a tape of one layout of it. `Source` says where a call has a number that the tape
/// takes.
template <class Source>
struct TapedKernel final : CachedPlan {
  TapedKernel(std::shared_ptr<const ScheduledKernel> of, KernelTape recorded,
              std::vector<Source> from)
      : kernel(std::move(of)), tape(std::move(recorded)), sources(std::move(from)) {}
  std::size_t bytes() const override {
    return sizeof *this + 8 * signature.size() + tape.size() + sources.size() * sizeof(Source);
  }
  std::size_t plans() const override { return 0; }
  std::vector<std::shared_ptr<jit::Kernel>> loaded_kernels() const override {
    return {kernel->planned.kernel};
  }

  const std::shared_ptr<const ScheduledKernel> kernel;
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
/// call, in a fusion::ScratchScope: what has no room here takes memory of the thread.
class TapeValues {
 public:
  /// At most fusion::SizeTape::kMostValues.
  std::int64_t* take(std::size_t count) {
    if (count > left_) add_block();
    left_ -= count;
    return std::exchange(next_, next_ + count);
  }
  /// Of what was taken last.
  void give_back(std::size_t count) {
    next_ -= count;
    left_ += count;
  }

 private:
  static constexpr std::size_t kBlock = 2 * fusion::SizeTape::kMostValues;

  void add_block() {
    next_ = more_.emplace_back(kBlock).data();
    left_ = kBlock;
  }

  std::array<std::int64_t, 4096> values_;
  std::int64_t* next_ = values_.data();
  std::size_t left_ = values_.size();
  fusion::ScratchVector<fusion::ScratchVector<std::int64_t>> more_;
};

/// The numbers of a run; null where the tape does not hold. `value_of`: of a source.
template <class Source, class ValueOf>
const std::int64_t* run_tape(const TapedKernel<Source>& taped, TapeValues& memory,
                             const ValueOf& value_of) {
  const fusion::SizeTape& tape = taped.tape.tape();
  std::int64_t* const values = memory.take(tape.size());
  std::int64_t* input = tape.begin(values);
  for (const Source& source : taped.sources) *input++ = value_of(source);
  if (tape.run(values)) return values;
  memory.give_back(tape.size());
  return nullptr;
}

/// The same for sizes that are about equal, with the same powers of two in them: such are likely to
/// be planned alike.
std::size_t size_kind_of(std::span<const std::int64_t> sizes);

/// Which of a kernel's tapes held last for sizes of one kind, and when it gets another one.
class RecentTapes {
 public:
  static constexpr std::uint8_t kMostTapes = 128;
  static constexpr std::size_t kSizeKinds = 64;

  /// The tape that holds, or null. `tape_of`: by number, null if there is none; `holds`: of one.
  /// `wants_tape`: whether the kernel had better get one for the call.
  template <class TapeOf, class Holds>
  auto find(std::size_t size_kind, const TapeOf& tape_of, const Holds& holds,
            bool& wants_tape) const -> decltype(tape_of(0)) {
    wants_tape = false;
    std::atomic<std::uint8_t>& recent = of_[size_kind];
    const std::uint8_t likely = recent.load(std::memory_order_relaxed);
    if (likely > kNone) {
      recent.store(static_cast<std::uint8_t>(likely - 1), std::memory_order_relaxed);
      return nullptr;
    }
    const auto first = tape_of(likely);
    if (first != nullptr && holds(*first)) {
      note_use(likely);
      return first;
    }
    const std::uint8_t count = count_.load(std::memory_order_relaxed);
    for (std::uint8_t number = 0; number < count; ++number) {
      const auto taped = tape_of(number);  // null if it was dropped
      if (taped == nullptr || taped == first || !holds(*taped)) continue;
      recent.store(number, std::memory_order_relaxed);
      note_use(number);
      return taped;
    }
    recent.store(kNone + kPasses, std::memory_order_relaxed);
    wants_tape = is_due();
    return nullptr;
  }

  /// The next calls look at all tapes where none held.
  void look_again() const;
  /// The one that has not held for longest.
  std::uint8_t least_recent() const;
  /// The kernel got that one, for a call with sizes of this kind.
  void note_tape(std::uint8_t number, std::size_t size_kind) const;
  /// It cannot have one for such a call.
  void note_no_tape() const;

 private:
  /// Where none held, so many calls are not tried: looking at all tapes takes its time.
  static constexpr std::uint8_t kPasses = 3;
  static constexpr std::uint8_t kNone = kMostTapes;
  /// Recording takes several times as long as planning. The first kMostTapes are made where they
  /// are wanted, and others too while half of the last ones have held again. Else they are made
  /// only each so many calls for which none holds, and each so many where one could not be had.
  static constexpr std::size_t kLastTapes = 8;
  static constexpr std::uint32_t kCallsForAnother = 16;
  static constexpr std::uint32_t kCallsWithoutTape = 256;

  void note_use(std::uint8_t number) const {
    const std::uint32_t now = made_.load(std::memory_order_relaxed);
    std::atomic<std::uint32_t>& used = used_[number];
    if (used.load(std::memory_order_relaxed) != now) used.store(now, std::memory_order_relaxed);
    std::atomic<bool>& held = held_again_[number];
    if (!held.load(std::memory_order_relaxed)) held.store(true, std::memory_order_relaxed);
  }
  bool is_due() const;
  bool last_ones_held() const;

  mutable std::array<std::atomic<std::uint8_t>, kSizeKinds> of_{};
  mutable std::array<std::atomic<std::uint32_t>, kMostTapes> used_{};  ///< made_, as it was then
  mutable std::array<std::atomic<bool>, kMostTapes> held_again_{};
  mutable std::array<std::atomic<std::uint8_t>, kLastTapes> last_{};  ///< numbers, in turn
  mutable std::atomic<std::uint32_t> made_ = 0;                       ///< since the beginning
  mutable std::atomic<std::uint32_t> wait_ = 0;  ///< calls before another one is wanted
  mutable std::atomic<std::uint8_t> count_ = 0;  ///< tapes have numbers below
};

}  // namespace kiln
