// What a planner computes and decides, as a list of operations: recorded for the numbers of one
// call, and run with those of others. It computes the numbers that the planner would, and tells
// whether the planner would decide the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fusion/schedule/size.hpp"

namespace kiln::fusion {

class SizeTape {
 public:
  static constexpr std::size_t kMostValues = 512;
  static constexpr std::uint16_t kFixed = 0xffff;  ///< the place of what no input decides

  /// Numbers of a run come one after the other: constants, inputs, and what is computed. Writes the
  /// constants, and returns where the inputs have to be written.
  std::int64_t* begin(std::int64_t* values) const;
  /// Computes the others. False where the planner would decide something else, or something is
  /// divided by a number that is not positive; then some are not computed.
  bool run(std::int64_t* values) const;

  std::size_t size() const { return constants_.size() + inputs_.size() + steps_.size(); }
  /// Of the recorder's inputs, those that it reads, in the order in which a run takes them.
  std::span<const std::uint32_t> inputs() const { return inputs_; }
  std::size_t bytes() const;

  /// For people: what has to hold for a run, such as "513 <= n <= 1024". `names`: of the recorder's
  /// inputs.
  std::vector<std::string> conditions(std::span<const std::string> names) const;

 private:
  friend class Size;
  friend class SizeRecorder;
  struct Step {
    Size::Op op;
    std::uint16_t a;
    std::uint16_t b;
  };
  struct Range {
    std::uint16_t value;
    std::int64_t low;
    std::uint64_t span;  ///< from there to the last one
  };

  struct Text;

  static bool apply(Size::Op op, std::int64_t a, std::int64_t b, std::int64_t& result);

  std::vector<std::int64_t> constants_;
  std::vector<std::uint32_t> inputs_;
  std::vector<Step> steps_;
  std::vector<Range> ranges_;  ///< in the order of their values
};

/// Records what the thread's Sizes are computed from while it lives; no other may live by then.
class SizeRecorder {
 public:
  SizeRecorder();
  ~SizeRecorder();
  SizeRecorder(const SizeRecorder&) = delete;
  SizeRecorder& operator=(const SizeRecorder&) = delete;

  /// A number that differs from run to run.
  Size input(std::int64_t value);
  /// What was recorded, as far as decisions and `results` need it; nothing may be recorded after.
  /// `places`: of each result among the numbers of a run. Nothing if those are more than
  /// SizeTape::kMostValues.
  std::optional<SizeTape> finish(std::span<const Size> results, std::vector<std::uint16_t>& places);

 private:
  friend class Size;
  struct Nodes;
  Nodes* nodes_;
};

}  // namespace kiln::fusion
