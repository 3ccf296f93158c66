#include "fusion/graph/dtype_lattice.hpp"

#include <utility>

namespace kiln::fusion {
namespace {

DType integer_dtype(int width, bool is_signed) {
  switch (width) {
    case 8: return is_signed ? DType::i8 : DType::u8;
    case 16: return is_signed ? DType::i16 : DType::u16;
    case 32: return is_signed ? DType::i32 : DType::u32;
    default: return is_signed ? DType::i64 : DType::u64;
  }
}

}  // namespace

DType compute_dtype(DType dtype) {
  switch (dtype) {
    case DType::f16:
    case DType::bf16:
    case DType::f8e4m3:
    case DType::f8e5m2:
    case DType::f8e4m3fnuz:
    case DType::f8e5m2fnuz:
    case DType::f4e2m1: return DType::f32;
    case DType::u4:
    case DType::i4: return DType::i32;
    default: return dtype;
  }
}

DType promote(DType a, DType b) {
  if (info(a).storage_only) a = compute_dtype(a);
  if (info(b).storage_only) b = compute_dtype(b);
  if (a == b) return a;
  if (kind(a) > kind(b)) std::swap(a, b);
  if (kind(b) == Kind::complex || kind(a) == Kind::boolean) return b;
  if (kind(b) == Kind::floating) {
    if (kind(a) != Kind::floating) return b;
    if (bits(a) == bits(b)) return DType::f32;  // f16 with bf16
    return bits(a) > bits(b) ? a : b;
  }
  if (kind(a) == kind(b)) return bits(a) > bits(b) ? a : b;
  // unsigned a with signed b
  if (a == DType::u64) return DType::f32;
  return bits(b) > bits(a) ? b : integer_dtype(2 * bits(a), true);
}

DType weak_dtype(Kind literal) {
  switch (literal) {
    case Kind::boolean: return DType::boolean;
    case Kind::signed_integer: return DType::i32;
    case Kind::unsigned_integer: return DType::u64;
    case Kind::floating: return DType::f32;
    case Kind::complex: return DType::c64;
  }
  return DType::f32;
}

DType weak_dtype(Kind literal, DType partner) {
  const auto rank = [](Kind k) {
    return k == Kind::unsigned_integer ? static_cast<int>(Kind::signed_integer)
                                       : static_cast<int>(k);
  };
  if (rank(literal) <= rank(kind(partner))) return partner;
  return weak_dtype(literal);
}

bool is_narrow_float(DType dtype) { return is_floating(dtype) && compute_dtype(dtype) != dtype; }

}  // namespace kiln::fusion
