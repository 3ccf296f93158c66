// Functions, programs, their preparations and bound calls in Python.
#include "python/calls.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "python/specifications.hpp"

namespace kiln::python {
namespace {

PyObject* call_function(PyObject* self, PyObject* arguments, PyObject* given) {
  try {
    auto& function = *nb::inst_ptr<PyFunction>(self);
    const Operands operands(function, arguments, given);
    {
      const nb::gil_scoped_release released;
      function.function().call(operands.stream(), operands.inputs(), operands.outputs());
    }
    return operands.result();
  } catch (...) {
    set_error();
    return nullptr;
  }
}

PyObject* call_program(PyObject* self, PyObject* arguments, PyObject* given) {
  try {
    auto& program = *nb::inst_ptr<PyProgram>(self);
    Operands operands(program, arguments, given);
    const View workspace = operands.workspace(workspace_bytes(program, operands));
    {
      const nb::gil_scoped_release released;
      program.program.run(operands.stream(), operands.inputs(), operands.outputs(), workspace);
    }
    return operands.result();
  } catch (...) {
    set_error();
    return nullptr;
  }
}

PyType_Slot function_slots[] = {{Py_tp_call, reinterpret_cast<void*>(call_function)}, {0, nullptr}};
PyType_Slot program_slots[] = {{Py_tp_call, reinterpret_cast<void*>(call_program)}, {0, nullptr}};

nb::object explain(Described& callee, const nb::args& arguments, const nb::kwargs& given) {
  const Operands operands(callee, arguments.ptr(), given.ptr());
  ProgramInfo info;
  {
    const nb::gil_scoped_release released;
    info = kiln::program(callee.function())
               .explain(operands.stream(), operands.inputs(), operands.outputs());
  }
  return explanation(info);
}

const Function& called(const PyFunction& self) { return self.function(); }
const Program& called(const PyProgram& self) { return self.program; }

// The kernels that such a call uses, compiled if they are not there.
template <class T>
nb::object info_of(T& self, const nb::args& arguments, const nb::kwargs& given) {
  const Operands operands(self, arguments.ptr(), given.ptr());
  KernelInfo info;
  {
    const nb::gil_scoped_release released;
    info = called(self).prepare(operands.stream(), operands.inputs(), operands.outputs());
  }
  return kernel_info(info);
}

// What it would use now.
template <class T>
nb::object look_up(T& self, const nb::args& arguments, const nb::kwargs& given) {
  const Operands operands(self, arguments.ptr(), given.ptr());
  KernelInfo info;
  {
    const nb::gil_scoped_release released;
    info = called(self).look_up(operands.stream(), operands.inputs(), operands.outputs());
  }
  return kernel_info(info);
}

template <class T>
Preparation prepare(const T& self, const nb::tuple& operands, nb::handle device) {
  const Device on = device_of(device);
  const Specification specification =
      specification_of(operands, self.arguments(), self.function().name());
  const nb::gil_scoped_release released;
  return called(self).prepare(on, specification);
}

// Of (function, operands, device) each.
std::vector<Preparation> prepare_all(const nb::list& calls, const nb::object& progress) {
  std::vector<PrepareItem> items;
  for (nb::handle call : calls) {
    if (!nb::isinstance<PyFunction>(call[0])) {
      fail("prepare_all",
           "expected a Function first in each call, got " + text_of(nb::repr(call[0]).ptr()));
    }
    const auto& callee = nb::cast<const PyFunction&>(call[0]);
    items.push_back({callee.function(), device_of(call[2]),
                     specification_of(nb::cast<nb::tuple>(call[1]), callee.arguments(),
                                      callee.function().name())});
  }
  const auto report = [&](const PrepareProgress& done) {
    if (progress.is_none()) return;
    const nb::gil_scoped_acquire acquired;
    progress(done.index, done.done, done.total);
  };
  const nb::gil_scoped_release released;
  return kiln::prepare_all(items, report);
}

template <class T>
void bind_description(nb::class_<T>& type) {
  type.def_prop_ro("name", [](const T& self) { return self.function().name(); })
      .def_prop_ro("expression", [](const T& self) { return self.function().expression(); })
      .def_prop_ro("arguments", [](const T& self) { return nb::tuple(nb::cast(self.arguments())); })
      .def_prop_ro("outputs", [](const T& self) { return nb::tuple(nb::cast(self.outputs())); })
      .def("explain", [](T& self, const nb::args& arguments,
                         const nb::kwargs& given) { return explain(self, arguments, given); })
      .def("info", info_of<T>)
      .def("look_up", look_up<T>)
      .def("_prepare", prepare<T>);
}

// ---- Bound calls -------------------------------------------------------------------------------

// A bound call, and the arrays that it was bound with.
struct PyLaunch {
  Launch launch;
  Stream stream;
  nb::list operands;  ///< inputs, outputs, workspace
  nb::object first;
  std::vector<std::string> arguments;
  std::vector<View> inputs;  ///< null data where it is a number
  std::vector<View> outputs;

  void run(const nb::object& chosen) const {
    const Stream now = stream_for(stream.device, first.ptr(), chosen.ptr());
    const nb::gil_scoped_release released;
    launch(now);
  }

  std::size_t index_of(const nb::object& operand, std::size_t count) const {
    if (PyUnicode_Check(operand.ptr())) {
      const auto found = std::ranges::find(arguments, text_of(operand.ptr()));
      if (found != arguments.end()) return static_cast<std::size_t>(found - arguments.begin());
      fail("Launch", "there is no argument '" + text_of(operand.ptr()) + "'");
    }
    const auto index = nb::cast<std::size_t>(operand);
    if (index >= count) {
      fail("Launch",
           "expected an index below " + std::to_string(count) + ", got " + std::to_string(index));
    }
    return index;
  }

  // The same layout in other memory.
  View replace(const View& bound, PyObject* array, Access access) const {
    Arrays views("Launch");
    const View view = views.view(array, {"array"}, access);
    if (view.dtype() != bound.dtype() || view.shape() != bound.shape() ||
        view.strides() != bound.strides() || view.device() != bound.device()) {
      fail("Launch",
           "expected an array with the dtype, shape, strides and device that the call "
           "was bound with");
    }
    return view;
  }

  void set_input(const nb::object& operand, const nb::object& value) {
    const std::size_t index = index_of(operand, inputs.size());
    if (const std::optional<Scalar> scalar = scalar_of(value.ptr())) {
      launch.set_scalar(index, *scalar);
    } else {
      launch.set_input(index, replace(inputs[index], value.ptr(), Access::read).data());
    }
    operands[index] = value;
  }

  void set_output(const nb::object& array, std::size_t index) {
    index = index_of(nb::int_(index), outputs.size());
    launch.set_output(index, replace(outputs[index], array.ptr(), Access::write).data());
    operands[inputs.size() + index] = array;
  }
};

PyLaunch bound(Launch launch, const Described& callee, const Operands& operands) {
  std::vector<View> inputs;
  for (const Argument& input : operands.inputs()) {
    inputs.push_back(input.is_scalar() ? View() : input.view());
  }
  return {std::move(launch),
          operands.stream(),
          operands.kept(),
          nb::borrow(operands.first_array()),
          callee.arguments(),
          std::move(inputs),
          {operands.outputs().begin(), operands.outputs().end()}};
}

PyLaunch bind_function(PyFunction& self, const nb::args& arguments, const nb::kwargs& given) {
  const Operands operands(self, arguments.ptr(), given.ptr());
  std::optional<Launch> launch;
  {
    const nb::gil_scoped_release released;
    launch = self.function().bind(operands.stream(), operands.inputs(), operands.outputs());
  }
  return bound(*std::move(launch), self, operands);
}

PyLaunch bind_program(PyProgram& self, const nb::args& arguments, const nb::kwargs& given) {
  Operands operands(self, arguments.ptr(), given.ptr());
  const View workspace = operands.workspace(workspace_bytes(self, operands));
  std::optional<Launch> launch;
  {
    const nb::gil_scoped_release released;
    launch = self.program.bind(operands.stream(), operands.inputs(), operands.outputs(), workspace);
  }
  return bound(*std::move(launch), self, operands);
}

}  // namespace

std::size_t workspace_bytes(const PyProgram& program, const Operands& operands) {
  const nb::gil_scoped_release released;
  return program.program.workspace_bytes(operands.stream(), operands.inputs(), operands.outputs());
}

void bind_calls(nb::module_& module) {
  nb::class_<PyFunction> function(module, "Function", nb::type_slots(function_slots));
  bind_description(function);
  function.def("bind", bind_function).def("__repr__", [](const PyFunction& self) {
    return "<kiln.Function " + self.text() + ">";
  });

  nb::class_<PyProgram> program(module, "Program", nb::type_slots(program_slots));
  bind_description(program);
  program.def("bind", bind_program)
      .def("workspace_bytes",
           [](PyProgram& self, const nb::args& arguments, const nb::kwargs& given) {
             return workspace_bytes(self, Operands(self, arguments.ptr(), given.ptr()));
           })
      .def("__repr__", [](const PyProgram& self) { return "<kiln.Program " + self.text() + ">"; });

  nb::class_<Preparation>(module, "Preparation")
      .def_prop_ro("ready", [](const Preparation& self) { return self.ready(); })
      .def("wait",
           [](const Preparation& self) {
             const nb::gil_scoped_release released;
             self.get();
           })
      .def("cancel", [](Preparation& self) { self.cancel(); });
  module.def("_prepare_all", prepare_all, nb::arg("calls"), nb::arg("progress").none());

  nb::class_<PyLaunch>(module, "Launch")
      .def("__call__", &PyLaunch::run, nb::kw_only(), nb::arg("stream") = nb::none())
      .def("set_input", &PyLaunch::set_input, nb::arg("argument"), nb::arg("value"))
      .def("set_output", &PyLaunch::set_output, nb::arg("array"), nb::arg("index") = 0)
      .def_prop_ro("info", [](const PyLaunch& self) { return kernel_info(self.launch.info()); });
}

}  // namespace kiln::python
