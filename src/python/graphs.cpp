// Graphs of recorded calls, and copies, in Python.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <utility>
#include <vector>

#include "kiln/copy.hpp"
#include "kiln/graph.hpp"
#include "python/calls.hpp"
#include "python/kernels.hpp"

namespace kiln::python {
namespace {

// What a graph refers to, and the stream of its launches.
class Recorded {
 public:
  void keep(const void* address, PyObject* array) {
    if (first_.ptr() == nullptr) first_ = nb::borrow(array);
    arrays_.emplace_back(address, nb::borrow(array));
  }
  /// Operands at `old` are at `now` from now on, in `array`.
  void replace(const void* old, const void* now, PyObject* array) {
    std::erase_if(arrays_, [&](const auto& kept) { return kept.first == old; });
    arrays_.emplace_back(now, nb::borrow(array));
  }
  PyObject* first() const { return first_.ptr(); }

 private:
  std::vector<std::pair<const void*, nb::object>> arrays_;
  nb::object first_;
};

struct PyRecorder {
  Recorder* recorder = nullptr;  ///< null once the body has returned
  Device device;
  std::shared_ptr<Recorded> recorded;

  Recorder& open() const {
    if (recorder == nullptr) fail("Recorder", "it is used after the body of record() has returned");
    return *recorder;
  }
  nb::object call(nb::handle callee, const nb::args& arguments, const nb::kwargs& given) {
    Recorder& into = open();
    if (nb::isinstance<PyKernel>(callee)) {
      auto& kernel = nb::cast<PyKernel&>(callee);
      const KernelOperands operands(kernel, arguments);
      if (!given.contains("grid")) fail(kernel.kernel.name(), "the argument grid= is missing");
      const Grid grid = grid_of(given["grid"]);
      for (std::size_t i = 0; i < operands.arguments.size(); ++i) {
        const Argument& argument = operands.arguments[i];
        if (!argument.is_scalar()) recorded->keep(argument.view().data(), arguments[i].ptr());
      }
      const nb::gil_scoped_release released;
      into.call(kernel.kernel, grid, operands.arguments);
      return nb::none();
    }
    if (nb::isinstance<PyProgram>(callee)) {
      auto& program = nb::cast<PyProgram&>(callee);
      Operands operands(program, arguments.ptr(), given.ptr());
      const View workspace = operands.workspace(workspace_bytes(program, operands));
      {
        const nb::gil_scoped_release released;
        program.program.record(into, device, operands.inputs(), operands.outputs(), workspace);
      }
      return kept(operands);
    }
    auto& function = nb::cast<PyFunction&>(callee);
    const Operands operands(function, arguments.ptr(), given.ptr());
    {
      const nb::gil_scoped_release released;
      into.call(function.function(), operands.inputs(), operands.outputs());
    }
    return kept(operands);
  }

  nb::object kept(const Operands& operands) const {
    for (const auto& [address, array] : operands.memory()) recorded->keep(address, array.ptr());
    return nb::steal(operands.result());
  }

  void copy(nb::handle from, nb::handle to) {
    Arrays views("copy");
    const Copy copied{views.view(from.ptr(), {"source"}, Access::read),
                      views.view(to.ptr(), {"to"}, Access::write)};
    Recorder& into = open();
    {
      const nb::gil_scoped_release released;
      into.copy(copied);
    }
    recorded->keep(copied.from.data(), from.ptr());
    recorded->keep(copied.to.data(), to.ptr());
  }

  void fill(nb::handle to, std::uint8_t byte) {
    Arrays views("fill");
    const View view = views.view(to.ptr(), {"to"}, Access::write);
    open().fill(view, byte);
    recorded->keep(view.data(), to.ptr());
  }

  void sequence(const std::string& name, const nb::object& body, const nb::iterable& reads,
                const nb::iterable& writes) {
    Arrays views(name);
    std::vector<View> read;
    std::vector<View> written;
    for (nb::handle array : reads) {
      read.push_back(views.view(array.ptr(), {"reads", read.size()}, Access::read));
      recorded->keep(read.back().data(), array.ptr());
    }
    for (nb::handle array : writes) {
      written.push_back(views.view(array.ptr(), {"writes", written.size()}, Access::write));
      recorded->keep(written.back().data(), array.ptr());
    }
    Recorder& into = open();
    const auto run = [body = shared(body)](const Stream& stream) {
      const nb::gil_scoped_acquire acquired;
      nb::handle(body.get())(reinterpret_cast<std::uintptr_t>(stream.native));
    };
    const nb::gil_scoped_release released;
    into.sequence(name, read, written, run);
  }
};

struct PyGraph {
  Graph graph;
  Device device;
  std::shared_ptr<Recorded> recorded;

  void launch(const nb::object& chosen) {
    const Stream stream = stream_for(device, recorded->first(), chosen.ptr());
    const nb::gil_scoped_release released;
    graph.launch(stream);
  }

  std::size_t rebind(const nb::object& old, const nb::object& now) {
    Arrays views("rebind");
    const View before = views.view(old.ptr(), {"old"}, Access::read);
    const View after = views.view(now.ptr(), {"now"}, Access::read);
    if (before.dtype() != after.dtype() || before.shape() != after.shape() ||
        before.strides() != after.strides() || before.device() != after.device()) {
      fail("rebind", "expected arrays of one dtype, shape, strides and device");
    }
    std::size_t count = 0;
    {
      const nb::gil_scoped_release released;
      count = graph.rebind(before.data(), after.data());
    }
    if (count != 0) recorded->replace(before.data(), after.data(), now.ptr());
    return count;
  }

  void set_scalar(std::size_t operation, std::size_t input, const nb::object& value) {
    const std::optional<Scalar> scalar = scalar_of(value.ptr());
    if (!scalar) fail("set_scalar", "expected a number");
    graph.set_scalar(operation, input, *scalar);
  }

  std::vector<std::string> operations() const {
    std::vector<std::string> names;
    for (const Graph::Operation& operation : graph.operations()) names.push_back(operation.name);
    return names;
  }

  nb::list edges() const {
    nb::list list;
    for (const Graph::Edge& edge : graph.edges()) {
      list.append(nb::make_tuple(edge.from, edge.to, std::string(edge.reason)));
    }
    return list;
  }
};

PyGraph record(nb::handle device, const nb::object& body) {
  const Device on = device_of(device);
  const auto recorded = std::make_shared<Recorded>();
  const nb::gil_scoped_release released;
  Graph graph = kiln::record(on, [&](Recorder& recorder) {
    const nb::gil_scoped_acquire acquired;
    nb::object into = nb::cast(PyRecorder{&recorder, on, recorded});
    // The body may keep the recorder, which is of no use to it any more then.
    struct Close {
      PyRecorder& recorder;
      ~Close() { recorder.recorder = nullptr; }
    } close{nb::cast<PyRecorder&>(into)};
    body(into);
  });
  return {std::move(graph), on, recorded};
}

void copy_array(const nb::object& from, const nb::object& to, nb::handle chosen) {
  Arrays views("copy");
  const Copy copied{views.view(from.ptr(), {"source"}, Access::read),
                    views.view(to.ptr(), {"to"}, Access::write)};
  const Stream stream = stream_for(copied.to.device(), to.ptr(), chosen.ptr());
  const nb::gil_scoped_release released;
  kiln::copy(stream, copied);
}

}  // namespace

void bind_graphs(nb::module_& module) {
  nb::class_<PyRecorder>(module, "Recorder")
      .def("call", &PyRecorder::call, nb::arg("callee"), nb::arg("arguments"), nb::arg("given"))
      .def("copy", &PyRecorder::copy, nb::arg("source"), nb::arg("to"))
      .def("fill", &PyRecorder::fill, nb::arg("to"), nb::arg("byte") = 0)
      .def("sequence", &PyRecorder::sequence, nb::arg("name"), nb::arg("body"),
           nb::arg("reads") = nb::tuple(), nb::arg("writes") = nb::tuple());
  nb::class_<PyGraph>(module, "Graph")
      .def("__call__", &PyGraph::launch, nb::kw_only(), nb::arg("stream") = nb::none())
      .def("rebind", &PyGraph::rebind, nb::arg("old"), nb::arg("now"))
      .def("set_scalar", &PyGraph::set_scalar, nb::arg("operation"), nb::arg("argument"),
           nb::arg("value"))
      .def_prop_ro("operations", &PyGraph::operations)
      .def_prop_ro("edges", &PyGraph::edges)
      .def_prop_ro("replayed", [](const PyGraph& self) { return self.graph.is_replayed(); });
  module.def("_record", record, nb::arg("device"), nb::arg("body"));
  module.def("copy", copy_array, nb::arg("source"), nb::arg("to"), nb::kw_only(),
             nb::arg("stream") = nb::none());
}

}  // namespace kiln::python
