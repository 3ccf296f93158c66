// The constants of one layout among a kernel's parameters, where they were placed before.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "fusion/emit/emit.hpp"

namespace kiln::fusion {

/// Whether a parameter's value is one of the layout: not of a pointer or a scalar.
inline bool has_value(const Parameter& parameter) {
  return parameter.kind != Parameter::Kind::pointer && parameter.kind != Parameter::Kind::scalar;
}

/// That value; of a divisor, what is divided by.
template <class Number>
Number value_of(const Parameter& parameter, const LayoutOf<Number>& layout);

/// Writes a value as a parameter of so many bytes has it.
inline void pack_value(std::int64_t value, std::uint32_t bytes, std::byte* to) {
  static_assert(std::endian::native == std::endian::little,
                "a narrow index is an index's first bytes");
  // Nothing is called to copy a constant number of bytes.
  if (bytes == 8) return void(std::memcpy(to, &value, 8));
  if (bytes == 4) return void(std::memcpy(to, &value, 4));
  // Along an axis without elements nothing is divided.
  const Divisor divisor =
      make_divisor(static_cast<std::uint32_t>(std::max<std::int64_t>(1, value)));
  std::memcpy(to, &divisor, sizeof divisor);
}

/// Writes each parameter's value to `block` at its offset, as pack_parameters() does; pointers and
/// scalars are left as they are. Allocates nothing.
void pack_values(std::span<const Parameter> parameters, const Layout& layout,
                 std::span<const std::uint32_t> offsets, std::byte* block);

}  // namespace kiln::fusion
