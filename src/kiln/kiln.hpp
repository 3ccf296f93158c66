// kiln: fuse a chain of array operations into one kernel, compile it at run time, cache it, launch
// it.
//
//   kiln::Function swiglu = kiln::fuse("swiglu", [](kiln::Value gate, kiln::Value up) {
//     return kiln::silu(gate) * up;
//   });
//   swiglu(stream, {gate, up}, {out});
#pragma once

#include "kiln/cache.hpp"          // IWYU pragma: export
#include "kiln/copy.hpp"           // IWYU pragma: export
#include "kiln/dtype.hpp"          // IWYU pragma: export
#include "kiln/error.hpp"          // IWYU pragma: export
#include "kiln/function.hpp"       // IWYU pragma: export
#include "kiln/graph.hpp"          // IWYU pragma: export
#include "kiln/kernel.hpp"         // IWYU pragma: export
#include "kiln/library_call.hpp"   // IWYU pragma: export
#include "kiln/options.hpp"        // IWYU pragma: export
#include "kiln/prepare.hpp"        // IWYU pragma: export
#include "kiln/program.hpp"        // IWYU pragma: export
#include "kiln/reduction.hpp"      // IWYU pragma: export
#include "kiln/shape.hpp"          // IWYU pragma: export
#include "kiln/specification.hpp"  // IWYU pragma: export
#include "kiln/value.hpp"          // IWYU pragma: export
#include "kiln/view.hpp"           // IWYU pragma: export
