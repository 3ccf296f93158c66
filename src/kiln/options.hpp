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
/// why. `fallback`: has it compiled as background does, and meanwhile serves calls at once, one
/// operation after the other, by the precompiled kernels of a base pack for the target (`kiln
/// compile --base-pack`; a bundle in KILN_CACHE_READONLY_DIRS), on the CPU device without one by an
/// interpreter. The fused kernel takes over between two calls. What is exact (numerics.md: + - * /
/// sqrt fma, casts, comparisons, selections, integers, and reductions and running results of them)
/// has the same bits before and after; functions, products with weights and attention are within
/// their bounds. It needs memory for temporaries: Configuration::fallback_memory or what
/// lend_fallback_memory() lends; without it, and for a GPU without a base pack, the call throws
/// would_compile as under background. What is kept is compiled at once, as under `compile`: bound
/// calls, recorded graphs, calls while the stream is being captured; and a kiln::Kernel is, which
/// is no function. Function::prepare compiles in any case, Function::look_up tells which one a call
/// would get. `configured`: what Configuration::on_miss says (kiln/configure.hpp) when the first
/// such call misses, or else `compile`.
enum class OnMiss : std::uint8_t { compile, fail, background, fallback, configured };

struct Options {
  Rounding rounding = Rounding::once;
  Accuracy accuracy = Accuracy::storage;
  OnMiss on_miss = OnMiss::configured;
  friend bool operator==(const Options&, const Options&) = default;
};

}  // namespace kiln

#pragma GCC visibility pop
