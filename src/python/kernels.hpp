// Kernels of the caller's own in Python, and what a call of one is given.
#pragma once

#include <vector>

#include "kiln/kernel.hpp"
#include "python/arrays.hpp"
#include "python/objects.hpp"

namespace kiln::python {

struct PyKernel {
  Kernel kernel;
  std::vector<KernelParameter> parameters;
};

/// How many work items; or (blocks, threads) or (blocks, threads, shared_bytes). Throws Error.
Grid grid_of(nb::handle given);

/// The operands of a call of a kernel, valid while this and Python's arguments live.
struct KernelOperands {
  Arrays views;
  std::vector<Argument> arguments;
  PyObject* first = nullptr;  ///< the first array
  Device device;

  /// Throws Error, also where there is no array.
  KernelOperands(const PyKernel& callee, const nb::args& given);
};

}  // namespace kiln::python
