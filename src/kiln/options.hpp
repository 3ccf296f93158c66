// The choices of a fused function that are part of its kernels' keys, and what a call does on a
// miss.
#pragma once

#include <cstdint>

#pragma GCC visibility push(default)

namespace kiln {

/// When a value of a type narrower than f32 is rounded. `once`: when it is stored or where a cast
/// is written; everything between is f32. `each`: after every op, bit for bit what op-by-op
/// execution gives.
enum class Rounding : std::uint8_t { once, each };

/// How exact the maths is. `storage`: a 16-bit result is within 0.51 ULP of the exact value, f32
/// and f64 results within the op table's bound. `fast`: hardware approximations and contraction
/// into FMA as well. `strict`: the f32 and f64 library functions.
enum class Accuracy : std::uint8_t { storage, fast, strict };

/// What a call does when its kernel is neither in memory nor on disk. `compile`: compiles and
/// waits. `fail`: throws Error(would_compile). `background`: throws it too, and has the kernel
/// compiled and loaded meanwhile, so that a later call finds it; if that fails, a later call throws
/// why. Function::prepare compiles in any case.
enum class OnMiss : std::uint8_t { compile, fail, background };

struct Options {
  Rounding rounding = Rounding::once;
  Accuracy accuracy = Accuracy::storage;
  OnMiss on_miss = OnMiss::compile;
  friend bool operator==(const Options&, const Options&) = default;
};

}  // namespace kiln

#pragma GCC visibility pop
