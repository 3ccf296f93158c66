// What a program may give: for every element of every output the numbers between which the result
// of any kernels lies that keep to the contract, however they share the work. Errors are taken
// through the graph op by op in interval arithmetic: each op adds the bound that the op table
// promises, each sum one rounding for every term. What cannot be said (a float beside its own
// bound's pole, an integer that may have wrapped or not) is `unknown`, and is counted.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "fusion/infer/shapes.hpp"
#include "fusion/reference/value.hpp"
#include "kiln/options.hpp"
#include "tests/support/devices.hpp"

namespace kiln::testing {

/// One element. Integers and bools lie between two, too.
struct Range {
  fusion::reference::Value low;
  fusion::reference::Value high;
  bool unknown = false;
};

/// The elements of each output, in C order. `arguments` are all arrays.
std::vector<std::vector<Range>> enclose(const fusion::ShapedGraph& graph,
                                        std::span<const HostArray> arguments,
                                        const Options& options, DeviceType device);

/// How much was compared.
struct Compared {
  std::size_t elements = 0;
  std::size_t unknown = 0;
  std::size_t wide = 0;  ///< by more than a hundredth of their size, or of 1

  Compared& operator+=(const Compared& other);
};

/// The first element of `got` that is not what it may be, in words; nothing if there is none.
std::string outside(std::span<const Range> ranges, const HostArray& got, Compared& compared);

}  // namespace kiln::testing
