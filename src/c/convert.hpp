// C structures as the C++ types that they stand for, checked; and back.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <string>
#include <vector>

#include "kiln/function.hpp"
#include "kiln/kernel.hpp"
#include "kiln/kiln.h"
#include "kiln/options.hpp"
#include "kiln/specification.hpp"
#include "kiln/view.hpp"

namespace kiln::c {

// Each throws Error(invalid_argument) that begins with the name of the C function.

Device to_device(kiln_device device, const char* function);
kiln_device from_device(Device device);
Stream to_stream(const kiln_stream* stream, const char* function);
DType to_dtype(std::int32_t dtype, const char* function);
std::vector<KernelParameter> to_parameters(const kiln_kernel_parameter* parameters,
                                           std::size_t count, const char* function);
Grid to_grid(const kiln_grid* grid, const char* function);
View to_view(const kiln_view* view, const char* function, const char* argument);
/// NULL: an empty one.
View to_workspace(const kiln_view* workspace, const char* function);
Scalar to_scalar(const kiln_scalar& scalar, const char* function);
Options to_options(const kiln_options* options, const char* function);
/// Not OnMiss::configured.
OnMiss to_on_miss(std::int32_t on_miss, const char* function);
/// What counts of a call where no memory is touched; `names` are the function's arguments.
Specification to_specification(const kiln_call* call, const std::vector<std::string>& names,
                               const char* function);

/// The operands of a call, on the stack: a repeated call allocates nothing.
class Operands {
 public:
  Operands(const kiln_call* call, const char* function);
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;
  std::span<const Argument> inputs() const { return inputs_; }
  std::span<const View> outputs() const { return outputs_; }

 private:
  alignas(std::max_align_t) std::array<std::byte, 8192> memory_;
  std::pmr::monotonic_buffer_resource resource_{memory_.data(), memory_.size()};
  std::pmr::vector<Argument> inputs_{&resource_};
  std::pmr::vector<View> outputs_{&resource_};
};

/// Points into `info`.
kiln_kernel_info from_info(const KernelInfo& info);
/// The same; its texts live until this thread calls it again.
kiln_kernel_info kept_for_thread(KernelInfo info);

}  // namespace kiln::c
