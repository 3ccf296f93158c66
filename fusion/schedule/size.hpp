// Numbers that planners compute with: sizes, strides, addresses. While a SizeRecorder lives
// (size_tape.hpp) they remember how they were computed from its inputs, and what was asked of them
// is written down. So no planner has to say for which sizes a schedule holds.
//
// What leaves this arithmetic, by a conversion to a built-in number, is pinned: what was recorded
// holds only where it is the same. A schedule is made of such numbers.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace kiln::fusion {

class Size {
 public:
  constexpr Size() = default;
  template <std::integral T>
  constexpr Size(T value) : value_(static_cast<std::int64_t>(value)) {}

  /// Pins it.
  template <class T>
  requires std::is_arithmetic_v<T>
  explicit operator T() const {
    if (node_ != 0) note_range(value_, value_);
    return static_cast<T>(value_);
  }

  friend Size operator+(Size a, Size b) {
    return is_recorded(a, b) ? record(Op::add, a, b) : wrapped(a.bits() + b.bits());
  }
  friend Size operator-(Size a, Size b) {
    return is_recorded(a, b) ? record(Op::sub, a, b) : wrapped(a.bits() - b.bits());
  }
  friend Size operator*(Size a, Size b) {
    return is_recorded(a, b) ? record(Op::mul, a, b) : wrapped(a.bits() * b.bits());
  }
  friend Size operator/(Size a, Size b) {
    return is_recorded(a, b) ? record(Op::div, a, b) : Size(a.value_ / b.value_);
  }
  friend Size operator%(Size a, Size b) {
    return is_recorded(a, b) ? record(Op::mod, a, b) : Size(a.value_ % b.value_);
  }
  friend Size operator|(Size a, Size b) {
    return is_recorded(a, b) ? record(Op::bit_or, a, b) : Size(a.value_ | b.value_);
  }
  friend Size operator&(Size a, Size b) {
    return is_recorded(a, b) ? record(Op::bit_and, a, b) : Size(a.value_ & b.value_);
  }
  Size operator-() const { return Size(0) - *this; }
  Size& operator+=(Size other) { return *this = *this + other; }
  Size& operator-=(Size other) { return *this = *this - other; }
  Size& operator*=(Size other) { return *this = *this * other; }
  Size& operator/=(Size other) { return *this = *this / other; }
  Size& operator|=(Size other) { return *this = *this | other; }

  friend bool operator==(Size a, Size b) {
    const bool same = a.value_ == b.value_;
    if (is_recorded(a, b)) note_equal(a, b, same);
    return same;
  }
  friend bool operator<(Size a, Size b) {
    const bool less = a.value_ < b.value_;
    if (is_recorded(a, b)) note_less(a, b, less);
    return less;
  }
  friend bool operator>(Size a, Size b) { return b < a; }
  friend bool operator<=(Size a, Size b) { return !(b < a); }
  friend bool operator>=(Size a, Size b) { return !(a < b); }

  friend Size abs(Size a) { return a < 0 ? -a : a; }
  /// The smallest power of two that is not less, the largest that is not greater, and the lowest
  /// bit that is set: pinned, of numbers from 1 on.
  friend std::int64_t bit_ceil(Size a);
  friend std::int64_t bit_floor(Size a);
  friend std::int64_t lowest_bit(Size a);

 private:
  friend class SizeRecorder;
  friend class SizeTape;
  enum class Op : std::uint8_t { add, sub, mul, div, mod, bit_or, bit_and };

  Size(std::int64_t value, std::uint32_t node) : value_(value), node_(node) {}
  // Sums that are too large wrap.
  std::uint64_t bits() const { return static_cast<std::uint64_t>(value_); }
  static Size wrapped(std::uint64_t bits) { return static_cast<std::int64_t>(bits); }

  static bool is_recorded(Size a, Size b) { return (a.node_ | b.node_) != 0; }
  static Size record(Op op, Size a, Size b);
  static void note_equal(Size a, Size b, bool same);
  static void note_less(Size a, Size b, bool less);
  void note_range(std::int64_t low, std::int64_t high) const;
  void note_lowest_bit(std::int64_t bit) const;

  std::int64_t value_ = 0;
  std::uint32_t node_ = 0;  ///< 0: no input decides it
};

}  // namespace kiln::fusion
