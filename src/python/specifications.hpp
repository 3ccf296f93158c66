// Calls without memory, as Python writes them: types such as "bf16[63,172]", arrays and numbers.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "kiln/function.hpp"
#include "kiln/specification.hpp"

namespace kiln::python {

ArgumentSpec specification_of(const Argument& argument, const std::string& name);

/// Of operands in the order of `names`. Throws Error(invalid_argument) in the name of `function`.
Specification specification_of(const nanobind::tuple& operands,
                               const std::vector<std::string>& names, const std::string& function);

}  // namespace kiln::python
