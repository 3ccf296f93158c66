// Values of the reference interpreter: one element of any dtype, wide enough that nothing is lost,
// with its own conversions and its own reading and writing of memory. Operations are in
// operation.hpp.
#pragma once

#include <cstdint>
#include <optional>

#include "kiln/dtype.hpp"

namespace kiln::fusion::reference {

__extension__ typedef __int128 Integer;

/// A float is in `real`, a complex number in `real` and `imag`, an integer or bool in `integer`. A
/// number of one of the formats keeps its `pattern` there, with which NaN its NaN is.
struct Value {
  DType dtype = DType::f32;
  long double real = 0;
  long double imag = 0;
  Integer integer = 0;
  std::optional<std::uint64_t> pattern = {};
};

Value from_real(DType dtype, long double real);
Value from_integer(DType dtype, Integer integer);  ///< wraps to the dtype's width

/// `value` rounded to what the float or complex `dtype` can hold: to nearest even, saturating or
/// infinite above its range as the format says.
long double round_to(long double value, DType dtype);

/// A cast as numerics.md defines it. Without `rounds`, a float result keeps all its digits. To the
/// dtype whose pattern the value has it is the value itself.
Value convert(const Value& value, DType dtype, bool rounds);

/// The value whose bits, in the low end of `bits`, are those of `dtype`; and the reverse.
Value decode(DType dtype, std::uint64_t bits);
std::uint64_t encode(const Value& value);

/// The bits of element `index` of the array at `data`; u4, i4 and f4e2m1 lie two to a byte, the low
/// half first.
std::uint64_t read_bits(const void* data, DType dtype, std::int64_t index);

/// Element `index` of the array at `data`; u4, i4 and f4e2m1 lie two to a byte, the low half first.
Value read(const void* data, DType dtype, std::int64_t index);
void write(void* data, const Value& value, std::int64_t index);

}  // namespace kiln::fusion::reference
