// The conditions of a tape, for people.
#include <fmt/format.h>

#include <bit>
#include <limits>
#include <string>
#include <string_view>

#include "fusion/schedule/size_tape.hpp"

namespace kiln::fusion {
namespace {

constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kHighest = std::numeric_limits<std::int64_t>::max();

}  // namespace

struct SizeTape::Text {
  const SizeTape& tape;
  std::span<const std::string> names;

  static std::string_view sign_of(Size::Op op) {
    switch (op) {
      case Size::Op::add: return "+";
      case Size::Op::sub: return "-";
      case Size::Op::mul: return "*";
      case Size::Op::div: return "/";
      case Size::Op::mod: return "%";
      case Size::Op::bit_or: return "|";
      case Size::Op::bit_and: break;
    }
    return "&";
  }

  bool is_constant(std::size_t value) const { return value < tape.constants_.size(); }
  const Step* step(std::size_t value) const {
    const std::size_t before = tape.constants_.size() + tape.inputs_.size();
    return value < before ? nullptr : &tape.steps_[value - before];
  }

  std::string of(std::size_t value) const {
    if (is_constant(value)) return fmt::format("{}", tape.constants_[value]);
    const Step* const own = step(value);
    if (own == nullptr) return names[tape.inputs_[value - tape.constants_.size()]];
    if (own->op == Size::Op::add && is_constant(own->b) && tape.constants_[own->b] < 0) {
      return fmt::format("{} - {}", part(own->a), -tape.constants_[own->b]);
    }
    return fmt::format("{} {} {}", part(own->a), sign_of(own->op), part(own->b));
  }

  std::string part(std::size_t value) const {
    return step(value) == nullptr ? of(value) : "(" + of(value) + ")";
  }

  std::string condition(const Range& range) const {
    const auto first = static_cast<std::uint64_t>(range.low);
    const auto high = static_cast<std::int64_t>(first + range.span);
    if (range.span == std::numeric_limits<std::uint64_t>::max() - 1 && high < range.low) {
      return fmt::format("{} != {}", of(range.value), range.low - 1);
    }
    if (range.low == high) return is_equal(range.value, range.low);
    if (range.low == kLowest) return fmt::format("{} <= {}", of(range.value), high);
    if (high == kHighest) return fmt::format("{} >= {}", of(range.value), range.low);
    return fmt::format("{} <= {} <= {}", range.low, of(range.value), high);
  }

  // The low bits of a number are what is left of it.
  std::string is_equal(std::size_t value, std::int64_t to) const {
    const Step* const own = step(value);
    const bool masks = own != nullptr && own->op == Size::Op::bit_and && is_constant(own->b);
    const std::int64_t beyond = masks ? tape.constants_[own->b] + 1 : 0;
    if (beyond <= 1 || !std::has_single_bit(static_cast<std::uint64_t>(beyond))) {
      return fmt::format("{} == {}", of(value), to);
    }
    if (to == 0) return fmt::format("{} is a multiple of {}", of(own->a), beyond);
    return fmt::format("{} % {} == {}", part(own->a), beyond, to);
  }
};

std::vector<std::string> SizeTape::conditions(std::span<const std::string> names) const {
  std::vector<std::string> all;
  for (const Range& range : ranges_) all.push_back(Text{*this, names}.condition(range));
  return all;
}

}  // namespace kiln::fusion
