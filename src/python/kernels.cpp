#include "python/kernels.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/calls.hpp"

namespace kiln::python {
namespace {

Grid::Extent extent_of(nb::handle given) {
  if (PyLong_Check(given.ptr())) return {nb::cast<std::uint32_t>(given)};
  const auto sizes = nb::cast<std::vector<std::uint32_t>>(given);
  if (sizes.empty() || sizes.size() > 3) {
    fail("grid", "expected one to three numbers, got " + std::to_string(sizes.size()));
  }
  return {sizes[0], sizes.size() > 1 ? sizes[1] : 1, sizes.size() > 2 ? sizes[2] : 1};
}

KernelParameter parameter_of(const std::string& text) {
  using enum KernelParameter::Kind;
  const std::size_t space = text.find(' ');
  const std::string_view word = std::string_view(text).substr(0, space);
  const auto dtype = parse_dtype(space == std::string::npos ? word : text.substr(space + 1));
  const auto kind = space == std::string::npos ? std::optional(scalar)
                    : word == "reads"          ? std::optional(reads)
                    : word == "writes"         ? std::optional(writes)
                    : word == "updates"        ? std::optional(reads_and_writes)
                                               : std::nullopt;
  if (dtype && kind) return {*kind, *dtype};
  fail("kernel",
       "parameters: expected \"reads f32\", \"writes f32\", \"updates f32\" or, for a "
       "number, \"f32\", with any dtype; got \"" +
           text + "\"");
}

PyKernel make_kernel(const std::string& name, const std::string& source,
                     const std::vector<std::string>& parameters, const std::string& accuracy,
                     const std::string& on_miss) {
  std::vector<KernelParameter> list;
  for (const std::string& text : parameters) list.push_back(parameter_of(text));
  Kernel made = kiln::kernel(name, source, list, options_of("once", accuracy, on_miss));
  return {std::move(made), std::move(list)};
}

void call_kernel(const PyKernel& self, const nb::args& arguments, nb::handle grid,
                 nb::handle stream) {
  const KernelOperands operands(self, arguments);
  const Stream chosen = stream_for(operands.device, operands.first, stream.ptr());
  const Grid size = grid_of(grid);
  const nb::gil_scoped_release released;
  self.kernel.call(chosen, size, operands.arguments);
}

nb::object prepare_kernel(const PyKernel& self, nb::handle device) {
  const Stream stream{device_of(device), nullptr};
  KernelInfo info;
  {
    const nb::gil_scoped_release released;
    info = self.kernel.prepare(stream);
  }
  return kernel_info(info);
}

}  // namespace

Grid grid_of(nb::handle given) {
  if (PyLong_Check(given.ptr())) return Grid::covering(nb::cast<std::uint64_t>(given));
  const auto parts = nb::cast<std::vector<nb::object>>(given);
  if (parts.size() < 2 || parts.size() > 3) {
    fail("grid",
         "expected a number of work items, (blocks, threads) or (blocks, threads, "
         "shared_bytes)");
  }
  return {extent_of(parts[0]), extent_of(parts[1]),
          parts.size() == 3 ? nb::cast<std::uint32_t>(parts[2]) : 0};
}

KernelOperands::KernelOperands(const PyKernel& callee, const nb::args& given)
    : views(callee.kernel.name()) {
  for (std::size_t i = 0; i < given.size(); ++i) {
    const nb::object value = given[i];
    if (std::optional<Scalar> scalar = scalar_of(value.ptr())) {
      arguments.emplace_back(*scalar);
      continue;
    }
    const bool writes =
        i < callee.parameters.size() && callee.parameters[i].kind != KernelParameter::Kind::reads;
    arguments.emplace_back(
        views.view(value.ptr(), {"argument", i}, writes ? Access::write : Access::read));
    if (first == nullptr) {
      first = value.ptr();
      device = arguments.back().view().device();
    }
  }
  if (first == nullptr) fail(callee.kernel.name(), "expected an array among the arguments");
}

void bind_kernels(nb::module_& module) {
  nb::class_<PyKernel>(module, "Kernel")
      .def_prop_ro("name", [](const PyKernel& self) { return self.kernel.name(); })
      .def("__call__", call_kernel, nb::arg("arguments"), nb::kw_only(), nb::arg("grid"),
           nb::arg("stream") = nb::none())
      .def("prepare", prepare_kernel, nb::arg("device"));
  module.def("kernel", make_kernel, nb::arg("name"), nb::arg("source"), nb::arg("parameters"),
             nb::kw_only(), nb::arg("accuracy") = "storage", nb::arg("on_miss") = "configured");
}

}  // namespace kiln::python
