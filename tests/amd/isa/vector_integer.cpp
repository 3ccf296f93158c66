// Integers and bits: arithmetic, carries, shifts, fields, packed halves, products of bytes.
#include <algorithm>

#include "tests/amd/isa/lanewise.hpp"

namespace kiln::amd {
namespace {

// ---- How unwritten bits pass: compilers use these on registers of which a part holds something.

u32 all_if(bool condition) { return condition ? 0xffffffffU : 0U; }
u32 unset_and(u32 a, u32 unset_a, u32 b, u32 unset_b) {
  return (unset_a & unset_b) | (unset_a & b) | (a & unset_b);
}
u32 unset_or(u32 a, u32 unset_a, u32 b, u32 unset_b) {
  return (unset_a & unset_b) | (unset_a & ~b) | (~a & unset_b);
}

u32 permuted(u32 a, u32 b, u32 selector) {
  const u64 bytes = u64{a} << 32 | b;
  u32 result = 0;
  for (int i = 0; i < 4; ++i) {
    const u32 select = selector >> (8 * i) & 0xff;
    u32 byte = 0;
    if (select >= 13) {
      byte = 0xff;
    } else if (select == 12) {
      byte = 0;
    } else if (select >= 8) {  // the sign of a word: 1, 3, 5, 7
      byte = (bytes >> (8 * (2 * (select - 8) + 1) + 7) & 1) != 0 ? 0xff : 0;
    } else {
      byte = static_cast<u32>(bytes >> (8 * select)) & 0xff;
    }
    result |= byte << (8 * i);
  }
  return result;
}

// Of sums, differences and products: a bit depends on no bit above it. A carry that comes in counts
// as one more source.
u32 upwards(u32 unset) { return unset | (0 - unset); }
constexpr Shadow kArithmetic = [](const u32*, const u32* s) { return upwards(s[0] | s[1] | s[2]); };
constexpr Shadow kProduct24 = [](const u32*, const u32* s) {
  return upwards(((s[0] | s[1]) & 0xffffff) | s[2]);
};
constexpr Shadow kShiftAdd = [](const u32* v, const u32* s) {
  return upwards(s[0] << (v[1] & 31) | s[2]) | all_if((s[1] & 31) != 0);
};
constexpr Shadow kAddShift = [](const u32* v, const u32* s) {
  return upwards(s[0] | s[1]) << (v[2] & 31) | all_if((s[2] & 31) != 0);
};

constexpr Shadow kEach = [](const u32*, const u32* s) { return s[0]; };
constexpr Shadow kEither = [](const u32*, const u32* s) { return s[0] | s[1]; };
constexpr Shadow kAny3 = [](const u32*, const u32* s) { return s[0] | s[1] | s[2]; };
constexpr Shadow kAnd = [](const u32* v, const u32* s) {
  return unset_and(v[0], s[0], v[1], s[1]);
};
constexpr Shadow kOr = [](const u32* v, const u32* s) { return unset_or(v[0], s[0], v[1], s[1]); };
constexpr Shadow kAndOr = [](const u32* v, const u32* s) {
  return unset_or(v[0] & v[1], unset_and(v[0], s[0], v[1], s[1]), v[2], s[2]);
};
constexpr Shadow kShiftLeft = [](const u32* v, const u32* s) {
  return s[1] << (v[0] & 31) | all_if((s[0] & 31) != 0);
};
constexpr Shadow kShiftRight = [](const u32* v, const u32* s) {
  return s[1] >> (v[0] & 31) | all_if((s[0] & 31) != 0);
};
constexpr Shadow kShiftArithmetic = [](const u32* v, const u32* s) {
  return static_cast<u32>(static_cast<i32>(s[1]) >> (v[0] & 31)) | all_if((s[0] & 31) != 0);
};
constexpr Shadow kShiftLeft16 = [](const u32* v, const u32* s) {
  return s[1] << (v[0] & 15) | all_if((s[0] & 15) != 0);
};
constexpr Shadow kShiftRight16 = [](const u32* v, const u32* s) {
  return s[1] >> (v[0] & 15) | all_if((s[0] & 15) != 0);
};
constexpr Shadow kShiftArithmetic16 = [](const u32* v, const u32* s) {
  return static_cast<u32>(static_cast<i16>(s[1]) >> (v[0] & 15)) | all_if((s[0] & 15) != 0);
};
constexpr Shadow kShiftLeftOr = [](const u32* v, const u32* s) {
  const u32 n = v[1] & 31;
  return unset_or(v[0] << n, s[0] << n | all_if(s[1] != 0), v[2], s[2]);
};
constexpr Shadow kField = [](const u32* v, const u32* s) {
  const u32 mask = (u32{1} << (v[2] & 31)) - 1;
  return all_if((s[0] >> (v[1] & 31) & mask) != 0 || s[1] != 0 || s[2] != 0);
};
constexpr Shadow kInsert = [](const u32* v, const u32* s) {
  return s[0] | (v[0] & s[1]) | (~v[0] & s[2]);
};
constexpr Shadow kAlign = [](const u32* v, const u32* s) {
  return static_cast<u32>((u64{s[0]} << 32 | s[1]) >> (v[2] & 31)) | all_if(s[2] != 0);
};
constexpr Shadow kPermute = [](const u32* v, const u32* s) {
  return permuted(s[0], s[1], v[2]) & ~permuted(0, 0, v[2]);
};

// ---- What a lane computes

constexpr auto add = [](auto a, auto b) { return a + b; };
constexpr auto sub = [](auto a, auto b) { return a - b; };
constexpr auto subrev = [](auto a, auto b) { return b - a; };
constexpr auto mul = [](u32 a, u32 b) { return a * b; };
constexpr auto mul16 = [](u16 a, u16 b) { return u32{a} * b; };
constexpr auto mad16 = [](u16 a, u16 b, u16 c) { return u32{a} * b + c; };
constexpr auto least = [](auto a, auto b) { return a < b ? a : b; };
constexpr auto most = [](auto a, auto b) { return a > b ? a : b; };
constexpr auto least3 = [](auto a, auto b, auto c) { return least(least(a, b), c); };
constexpr auto most3 = [](auto a, auto b, auto c) { return most(most(a, b), c); };
constexpr auto middle = [](auto a, auto b, auto c) {
  return most(least(a, b), least(most(a, b), c));
};
constexpr auto minmax = [](auto a, auto b, auto c) { return most(least(a, b), c); };
constexpr auto maxmin = [](auto a, auto b, auto c) { return least(most(a, b), c); };
constexpr auto shl = [](u32 n, u32 a) { return a << (n & 31); };
constexpr auto shr = [](u32 n, u32 a) { return a >> (n & 31); };
constexpr auto sar = [](u32 n, u32 a) { return static_cast<u32>(static_cast<i32>(a) >> (n & 31)); };
constexpr auto shl16 = [](u16 n, u16 a) { return u32{a} << (n & 15); };
constexpr auto shr16 = [](u16 n, u16 a) { return u32{a} >> (n & 15); };
constexpr auto sar16 = [](u16 n, i16 a) { return a >> (n & 15); };
constexpr auto shl_add = [](auto a, u32 n, auto c) {
  return (a << (n & (sizeof a == 8 ? 7 : 31))) + c;
};

constexpr auto add_carry = [](MaskBits& carry, u32 a, u32 b) {
  const u64 wide = u64{a} + b + u64{carry.in};
  carry.out = (wide >> 32 & 1) != 0;
  return static_cast<u32>(wide);
};
constexpr auto sub_carry = [](MaskBits& carry, u32 a, u32 b) {
  const u64 wide = u64{a} - b - u64{carry.in};
  carry.out = (wide >> 32 & 1) != 0;
  return static_cast<u32>(wide);
};
constexpr auto subrev_carry = [](MaskBits& carry, u32 a, u32 b) { return sub_carry(carry, b, a); };

// v_mad_u64_u32 and v_mad_i64_i32.
template <class T>
constexpr auto mad_wide = [](MaskBits& carry, T a, T b, u64 c) {
  using Wide = std::conditional_t<std::is_signed_v<T>, i64, u64>;
  const u64 product = static_cast<u64>(static_cast<Wide>(a) * b);
  const u64 sum = product + c;
  carry.out = sum < product;
  return sum;
};

template <class T>
u32 high_word(T wide) {
  return static_cast<u32>(static_cast<u64>(wide) >> 32);
}
u32 low24(u32 x) { return x & 0xffffff; }
i32 extend24(i32 x) { return static_cast<i32>(static_cast<u32>(x) << 8) >> 8; }
constexpr auto mul24 = [](i32 a, i32 b) { return i64{extend24(a)} * extend24(b); };

constexpr auto field = [](u32 a, u32 at, u32 width) {
  return a >> (at & 31) & ((u32{1} << (width & 31)) - 1);
};
constexpr auto signed_field = [](u32 a, u32 at, u32 width) {
  const u32 bits = width & 31;
  if (bits == 0) return 0U;
  return static_cast<u32>(static_cast<i32>(field(a, at, bits) << (32 - bits)) >> (32 - bits));
};
constexpr auto field_mask = [](u32 width, u32 at) {
  return ((u32{1} << (width & 31)) - 1) << (at & 31);
};
constexpr auto reversed = [](u32 x) {
  u32 result = 0;
  for (int i = 0; i < 32; ++i) result |= (x >> i & 1) << (31 - i);
  return result;
};
constexpr auto leading_zeros = [](u32 a) {
  return a == 0 ? 0xffffffffU : static_cast<u32>(std::countl_zero(a));
};
constexpr auto trailing_zeros = [](u32 a) {
  return a == 0 ? 0xffffffffU : static_cast<u32>(std::countr_zero(a));
};
constexpr auto sign_bits = [](u32 a) { return leading_zeros(static_cast<i32>(a) < 0 ? ~a : a); };
constexpr auto align_bits = [](u32 a, u32 b, u32 n) {
  return static_cast<u32>((u64{a} << 32 | b) >> (n & 31));
};
constexpr auto align_bytes = [](u32 a, u32 b, u32 n) { return align_bits(a, b, 8 * (n & 3)); };
constexpr auto byte_differences = [](u32 a, u32 b, u32 c) {
  for (int i = 0; i < 32; i += 8) {
    const i32 difference = static_cast<i32>(a >> i & 0xff) - static_cast<i32>(b >> i & 0xff);
    c += static_cast<u32>(difference < 0 ? -difference : difference);
  }
  return c;
};

// v_bitop3: the variant is the truth table, whose index has S0 as its highest bit.
constexpr auto bitwise3 = [](u32 table, u32 a, u32 b, u32 c) {
  u32 result = 0;
  for (u32 index = 0; index < 8; ++index) {
    if ((table >> index & 1) == 0) continue;
    result |=
        ((index & 4) != 0 ? a : ~a) & ((index & 2) != 0 ? b : ~b) & ((index & 1) != 0 ? c : ~c);
  }
  return result;
};

// Unwritten are the bits that differ with what unwritten bits of the sources may be.
constexpr Shadow kBitwise3 = [](const u32* v, const u32* s) {
  const auto with = [&](u32 choice) {
    const auto source = [&](int i) { return (v[i] & ~s[i]) | ((choice >> i & 1) != 0 ? s[i] : 0); };
    return bitwise3(v[3], source(0), source(1), source(2));
  };
  u32 unset = 0;
  for (u32 choice = 1; choice < 8; ++choice) unset |= with(choice) ^ with(0);
  return unset;
};

// ---- Products of vectors within a lane

constexpr auto dot2_f16 = [](u32 a, u32 b, u32 c) {
  const float sum = std::fma(half_to_float(a & 0xffff), half_to_float(b & 0xffff), as_float(c));
  return as_bits(std::fma(half_to_float(a >> 16), half_to_float(b >> 16), sum));
};
constexpr auto dot2_bf16 = [](u32 a, u32 b, u32 c) {
  const float sum = std::fma(as_float(a << 16), as_float(b << 16), as_float(c));
  return as_bits(std::fma(as_float(a & 0xffff0000), as_float(b & 0xffff0000), sum));
};
// The variant has a bit for each operand that is signed.
constexpr auto dot4 = [](u32 is_signed, u32 a, u32 b, u32 c) {
  const auto extended = [](u32 byte, bool sign) {
    return sign ? static_cast<i32>(static_cast<std::int8_t>(byte)) : static_cast<i32>(byte & 0xff);
  };
  for (int i = 0; i < 32; i += 8) {
    c += static_cast<u32>(extended(a >> i, (is_signed & 1) != 0) *
                          extended(b >> i, (is_signed & 2) != 0));
  }
  return c;
};
constexpr auto dot8 = [](u32 a, u32 b, u32 c) {
  for (int i = 0; i < 32; i += 4) c += (a >> i & 0xf) * (b >> i & 0xf);
  return c;
};
constexpr auto dot2 = [](u32 a, u32 b, u32 c) {
  return (a & 0xffff) * (b & 0xffff) + (a >> 16) * (b >> 16) + c;
};

template <class F>
constexpr VectorEntry b32_1(F function) {
  return lanewise<B32, B32>(function);
}
template <class F>
constexpr VectorEntry b32_2(F function) {
  return lanewise<B32, B32, B32>(function);
}
template <class F>
constexpr VectorEntry b32_3(F function) {
  return lanewise<B32, B32, B32, B32>(function);
}
template <class F>
constexpr VectorEntry i32_2(F function) {
  return lanewise<I32, I32, I32>(function);
}
template <class F>
constexpr VectorEntry i32_3(F function) {
  return lanewise<I32, I32, I32, I32>(function);
}
template <class F>
constexpr VectorEntry b16_2(F function) {
  return lanewise<B16, B16, B16>(function);
}
template <class F>
constexpr VectorEntry b16_3(F function) {
  return lanewise<B16, B16, B16, B16>(function).keeping_high();
}
template <class F>
constexpr VectorEntry i16_2(F function) {
  return lanewise<I16, I16, I16>(function);
}
template <class F>
constexpr VectorEntry i16_3(F function) {
  return lanewise<I16, I16, I16, I16>(function).keeping_high();
}
template <class F>
constexpr VectorEntry carrying(F function, MaskSource carry = MaskSource::none) {
  return b32_2(function).to_mask().masked(carry).shadowed(kArithmetic);
}

const VectorRow kIntegers[] = {
    {"v_add_u32 v_add_nc_u32 v_add_i32 v_add_nc_i32", b32_2(add).shadowed(kArithmetic)},
    {"v_sub_u32 v_sub_nc_u32 v_sub_i32 v_sub_nc_i32", b32_2(sub).shadowed(kArithmetic)},
    {"v_subrev_u32 v_subrev_nc_u32", b32_2(subrev).shadowed(kArithmetic)},
    {"v_add_u16", b16_2(add).shadowed(kArithmetic)},
    {"v_sub_u16", b16_2(sub).shadowed(kArithmetic)},
    {"v_subrev_u16", b16_2(subrev).shadowed(kArithmetic)},
    {"v_add_nc_u16 v_add_nc_i16 v_add_i16", b16_2(add).keeping_high().shadowed(kArithmetic)},
    {"v_sub_nc_u16 v_sub_nc_i16 v_sub_i16", b16_2(sub).keeping_high().shadowed(kArithmetic)},
    {"v_add_co_u32", carrying(add_carry)},
    {"v_sub_co_u32", carrying(sub_carry)},
    {"v_subrev_co_u32", carrying(subrev_carry)},
    {"v_addc_co_u32 v_add_co_ci_u32", carrying(add_carry, MaskSource::last_operand)},
    {"v_subb_co_u32 v_sub_co_ci_u32", carrying(sub_carry, MaskSource::last_operand)},
    {"v_subbrev_co_u32 v_subrev_co_ci_u32", carrying(subrev_carry, MaskSource::last_operand)},
    {"v_mul_lo_u16", b16_2(mul16).shadowed(kArithmetic)},
    {"v_mad_u16 v_mad_i16", b16_3(mad16).shadowed(kArithmetic)},
    {"v_mad_legacy_u16 v_mad_legacy_i16",
     lanewise<B16, B16, B16, B16>(mad16).shadowed(kArithmetic)},
    {"v_mul_lo_u32", b32_2(mul).shadowed(kArithmetic)},
    {"v_mul_hi_u32", b32_2([](u32 a, u32 b) { return high_word(u64{a} * b); })},
    {"v_mul_hi_i32", lanewise<B32, I32, I32>([](i32 a, i32 b) { return high_word(i64{a} * b); })},
    {"v_mul_u32_u24", b32_2([](u32 a, u32 b) { return low24(a) * low24(b); }).shadowed(kProduct24)},
    {"v_mul_i32_i24", lanewise<B32, I32, I32>([](i32 a, i32 b) {
                        return static_cast<u32>(mul24(a, b));
                      }).shadowed(kProduct24)},
    {"v_mul_hi_u32_u24", b32_2([](u32 a, u32 b) { return high_word(u64{low24(a)} * low24(b)); })},
    {"v_mul_hi_i32_i24",
     lanewise<B32, I32, I32>([](i32 a, i32 b) { return high_word(mul24(a, b)); })},
    {"v_mad_u32_u24",
     b32_3([](u32 a, u32 b, u32 c) { return low24(a) * low24(b) + c; }).shadowed(kProduct24)},
    {"v_mad_i32_i24", lanewise<B32, I32, I32, B32>([](i32 a, i32 b, u32 c) {
                        return static_cast<u32>(mul24(a, b)) + c;
                      }).shadowed(kProduct24)},
    {"v_mad_u32_u16",
     lanewise<B32, B16, B16, B32>([](u16 a, u16 b, u32 c) { return u32{a} * b + c; })},
    {"v_mad_i32_i16", lanewise<B32, I16, I16, B32>(
                          [](i16 a, i16 b, u32 c) { return static_cast<u32>(i32{a} * b) + c; })},
    {"v_mad_u64_u32 v_mad_co_u64_u32",
     lanewise<B64, B32, B32, B64>(mad_wide<u32>).to_mask().low_from(2)},
    {"v_mad_i64_i32 v_mad_co_i64_i32",
     lanewise<B64, I32, I32, B64>(mad_wide<i32>).to_mask().low_from(2)},
    {"v_add3_u32", b32_3([](u32 a, u32 b, u32 c) { return a + b + c; }).shadowed(kArithmetic)},
    {"v_lshl_add_u32", b32_3(shl_add).shadowed(kShiftAdd)},
    {"v_lshl_add_u64", lanewise<B64, B64, B32, B64>(shl_add)},
    {"v_add_lshl_u32",
     b32_3([](u32 a, u32 b, u32 n) { return (a + b) << (n & 31); }).shadowed(kAddShift)},
    {"v_xad_u32", b32_3([](u32 a, u32 b, u32 c) { return (a ^ b) + c; }).shadowed(kArithmetic)},
    {"v_add_nc_u64 v_add_u64", lanewise<B64, B64, B64>(add)},
    {"v_sub_nc_u64 v_sub_u64", lanewise<B64, B64, B64>(sub)},
    {"v_lshl_or_b32",
     b32_3([](u32 a, u32 n, u32 c) { return a << (n & 31) | c; }).shadowed(kShiftLeftOr)},
    {"v_and_or_b32", b32_3([](u32 a, u32 b, u32 c) { return (a & b) | c; }).shadowed(kAndOr)},
    {"v_or3_b32", b32_3([](u32 a, u32 b, u32 c) { return a | b | c; }).shadowed(kAny3)},
    {"v_xor3_b32", b32_3([](u32 a, u32 b, u32 c) { return a ^ b ^ c; }).shadowed(kAny3)},
    {"v_and_b32", b32_2([](u32 a, u32 b) { return a & b; }).shadowed(kAnd)},
    {"v_or_b32", b32_2([](u32 a, u32 b) { return a | b; }).shadowed(kOr)},
    {"v_xor_b32", b32_2([](u32 a, u32 b) { return a ^ b; }).shadowed(kEither)},
    {"v_xnor_b32", b32_2([](u32 a, u32 b) { return ~(a ^ b); }).shadowed(kEither)},
    {"v_not_b32", b32_1([](u32 a) { return ~a; }).shadowed(kEach)},
    {"v_and_b16", b16_2([](u16 a, u16 b) { return a & b; }).shadowed(kAnd)},
    {"v_or_b16", b16_2([](u16 a, u16 b) { return a | b; }).shadowed(kOr)},
    {"v_xor_b16", b16_2([](u16 a, u16 b) { return a ^ b; }).shadowed(kEither)},
    {"v_not_b16", lanewise<B16, B16>([](u16 a) { return ~a; }).shadowed(kEach)},
    {"v_bitop3_b32", b32_3(bitwise3).shadowed(kBitwise3)},
    {"v_bitop3_b16", lanewise<B16, B16, B16, B16>(
                         [](u32 table, u16 a, u16 b, u16 c) { return bitwise3(table, a, b, c); })
                         .keeping_high()
                         .shadowed(kBitwise3)},
    {"v_lshlrev_b32", b32_2(shl).shadowed(kShiftLeft)},
    {"v_lshrrev_b32", b32_2(shr).shadowed(kShiftRight)},
    {"v_ashrrev_i32", b32_2(sar).shadowed(kShiftArithmetic)},
    {"v_lshlrev_b16", b16_2(shl16).shadowed(kShiftLeft16)},
    {"v_lshrrev_b16", b16_2(shr16).shadowed(kShiftRight16)},
    {"v_ashrrev_i16", lanewise<I16, B16, I16>(sar16).shadowed(kShiftArithmetic16)},
    // What is shifted up leaves the low word as written as it was.
    {"v_lshlrev_b64",
     lanewise<B64, B32, B64>([](u32 n, u64 a) { return a << (n & 63); }).low_from(1)},
    {"v_lshrrev_b64", lanewise<B64, B32, B64>([](u32 n, u64 a) { return a >> (n & 63); })},
    {"v_ashrrev_i64", lanewise<I64, B32, I64>([](u32 n, i64 a) { return a >> (n & 63); })},
    {"v_bfe_u32", b32_3(field).shadowed(kField)},
    {"v_bfe_i32", b32_3(signed_field).shadowed(kField)},
    {"v_bfi_b32", b32_3([](u32 m, u32 a, u32 b) { return (m & a) | (~m & b); }).shadowed(kInsert)},
    {"v_bfm_b32", b32_2(field_mask)},
    {"v_bcnt_u32_b32", b32_2([](u32 a, u32 b) { return static_cast<u32>(std::popcount(a)) + b; })},
    {"v_bfrev_b32", b32_1(reversed)},
    {"v_ffbh_u32 v_clz_i32_u32", b32_1(leading_zeros)},
    {"v_ffbl_b32 v_ctz_i32_b32", b32_1(trailing_zeros)},
    {"v_ffbh_i32 v_cls_i32", b32_1(sign_bits)},
    {"v_alignbit_b32", b32_3(align_bits).shadowed(kAlign)},
    {"v_alignbyte_b32", b32_3(align_bytes)},
    {"v_perm_b32", b32_3([](u32 a, u32 b, u32 s) { return permuted(a, b, s); }).shadowed(kPermute)},
    {"v_sad_u8", b32_3(byte_differences)},
    {"v_max_u32", b32_2(most)},
    {"v_min_u32", b32_2(least)},
    {"v_max_i32", i32_2(most)},
    {"v_min_i32", i32_2(least)},
    {"v_max_u16", b16_2(most)},
    {"v_min_u16", b16_2(least)},
    {"v_max_i16", i16_2(most)},
    {"v_min_i16", i16_2(least)},
    {"v_max3_u32", b32_3(most3)},
    {"v_min3_u32", b32_3(least3)},
    {"v_med3_u32", b32_3(middle)},
    {"v_max3_i32", i32_3(most3)},
    {"v_min3_i32", i32_3(least3)},
    {"v_med3_i32", i32_3(middle)},
    {"v_max3_i16", i16_3(most3)},
    {"v_min3_i16", i16_3(least3)},
    {"v_med3_i16", i16_3(middle)},
    {"v_max3_u16", b16_3(most3)},
    {"v_min3_u16", b16_3(least3)},
    {"v_med3_u16", b16_3(middle)},
    {"v_maxmin_u32", b32_3(maxmin)},
    {"v_minmax_u32", b32_3(minmax)},
    {"v_maxmin_i32", i32_3(maxmin)},
    {"v_minmax_i32", i32_3(minmax)},

    {"v_pk_add_u16 v_pk_add_i16", packed(b16_2(add).shadowed(kArithmetic))},
    {"v_pk_sub_u16 v_pk_sub_i16", packed(b16_2(sub).shadowed(kArithmetic))},
    {"v_pk_mul_lo_u16", packed(b16_2(mul16).shadowed(kArithmetic))},
    {"v_pk_mad_u16 v_pk_mad_i16", packed(b16_3(mad16).shadowed(kArithmetic))},
    {"v_pk_lshlrev_b16", packed(b16_2(shl16).shadowed(kShiftLeft16))},
    {"v_pk_lshrrev_b16", packed(b16_2(shr16).shadowed(kShiftRight16))},
    {"v_pk_ashrrev_i16", packed(lanewise<I16, B16, I16>(sar16).shadowed(kShiftArithmetic16))},
    {"v_pk_max_u16", packed(b16_2(most))},
    {"v_pk_min_u16", packed(b16_2(least))},
    {"v_pk_max_i16", packed(i16_2(most))},
    {"v_pk_min_i16", packed(i16_2(least))},

    {"v_dot2_f32_f16", b32_3(dot2_f16)},
    {"v_dot2c_f32_f16 v_dot2acc_f32_f16", b32_3(dot2_f16).accumulating()},
    {"v_dot2_f32_bf16", b32_3(dot2_bf16)},
    {"v_dot2c_f32_bf16", b32_3(dot2_bf16).accumulating()},
    {"v_dot4_i32_i8", b32_3(dot4).with(3)},
    {"v_dot4c_i32_i8", b32_3(dot4).with(3).accumulating()},
    {"v_dot4_i32_iu8", b32_3(dot4)},
    {"v_dot4_u32_u8", b32_3(dot4)},
    {"v_dot8_u32_u4", b32_3(dot8)},
    {"v_dot2_u32_u16", b32_3(dot2)},
};

}  // namespace

std::span<const VectorRow> integer_rows() { return kIntegers; }

}  // namespace kiln::amd
