// kiln: fuse a chain of array operations into one kernel, compile it at run time, cache it, launch
// it.
//
//   kiln::Function swiglu = kiln::fuse("swiglu", [](kiln::Value gate, kiln::Value up) {
//     return kiln::silu(gate) * up;
//   });
//   swiglu(stream, {gate, up}, {out});
//
// Threads: functions outside classes are safe from any thread, and so is what the description of a
// class says is. Every other class is a value: several threads may read one at a time, or one
// thread change it.
#pragma once

#include "kiln/cache.hpp"          // IWYU pragma: export
#include "kiln/configure.hpp"      // IWYU pragma: export
#include "kiln/copy.hpp"           // IWYU pragma: export
#include "kiln/devices.hpp"        // IWYU pragma: export
#include "kiln/dtype.hpp"          // IWYU pragma: export
#include "kiln/dynamic.hpp"        // IWYU pragma: export
#include "kiln/error.hpp"          // IWYU pragma: export
#include "kiln/fallback.hpp"       // IWYU pragma: export
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
#include "kiln/statistics.hpp"     // IWYU pragma: export
#include "kiln/value.hpp"          // IWYU pragma: export
#include "kiln/version.hpp"        // IWYU pragma: export
#include "kiln/view.hpp"           // IWYU pragma: export
