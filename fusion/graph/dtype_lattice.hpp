// Which dtype values have together (numerics.md): the lattice of promotion, literals beside a
// partner, and what storage-only dtypes are computed in.
#pragma once

#include "kiln/dtype.hpp"

namespace kiln::fusion {

/// The dtype of two operands, by the JAX lattice (numerics.md). Symmetric.
DType promote(DType a, DType b);

/// The dtype in which a value of `dtype` is computed: f32 for the narrow floats, i32 for u4 and i4.
DType compute_dtype(DType dtype);

/// The dtype of a weak literal beside a partner, and alone.
DType weak_dtype(Kind literal, DType partner);
DType weak_dtype(Kind literal);

/// A float that is narrower than what it is computed in.
bool is_narrow_float(DType dtype);

}  // namespace kiln::fusion
