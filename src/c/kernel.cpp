// Kernels of the caller's own in C.
#include "kiln/kernel.hpp"

#include "c/boundary.hpp"
#include "c/convert.hpp"
#include "c/handles.hpp"

namespace c = kiln::c;

kiln_status kiln_kernel_create(const char* name, const char* source,
                               const kiln_kernel_parameter* parameters, size_t parameter_count,
                               const kiln_options* options, kiln_kernel** kernel) {
  return c::guard(__func__, [&](const char* called) {
    c::require(kernel, called, "kernel");
    *kernel = new kiln_kernel{kiln::kernel(
        c::require_text(name, called, "name"), c::require_text(source, called, "source"),
        c::to_parameters(parameters, parameter_count, called), c::to_options(options, called))};
  });
}

void kiln_kernel_destroy(kiln_kernel* kernel) { delete kernel; }

kiln_status kiln_kernel_prepare(const kiln_kernel* kernel, const kiln_stream* stream) {
  return c::guard(__func__, [&](const char* called) {
    c::require(kernel, called, "kernel").kernel.prepare(c::to_stream(stream, called));
  });
}

kiln_status kiln_kernel_launch(const kiln_kernel* kernel, const kiln_stream* stream,
                               const kiln_grid* grid, const kiln_argument* arguments,
                               size_t argument_count) {
  return c::guard(__func__, [&](const char* called) {
    const kiln_call call{arguments, argument_count, nullptr, 0};
    const c::Operands operands(&call, called);
    c::require(kernel, called, "kernel")
        .kernel.call(c::to_stream(stream, called), c::to_grid(grid, called), operands.inputs());
  });
}
