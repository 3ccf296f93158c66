#include "python/calls.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "kiln/copy.hpp"
#include "kiln/graph.hpp"
#include "kiln/kernel.hpp"
#include "python/specifications.hpp"

namespace kiln::python {
namespace {

// Names of Python, interned: keywords of a call are compared by address first.
struct Keywords {
  PyObject* out = PyUnicode_InternFromString("out");
  PyObject* stream = PyUnicode_InternFromString("stream");
  PyObject* workspace = PyUnicode_InternFromString("workspace");
  PyObject* grid = PyUnicode_InternFromString("grid");
};

const Keywords& keywords() {
  static const Keywords made;
  return made;
}

bool is_name(PyObject* given, PyObject* name) {
  return given == name || PyUnicode_Compare(given, name) == 0;
}

PyObject* not_none(PyObject* object) { return object == Py_None ? nullptr : object; }

[[noreturn]] void fail(const std::string& function, const std::string& message) {
  throw Error(Code::invalid_argument, function + ": " + message);
}

}  // namespace

// ---- Operands ----------------------------------------------------------------------------------

Described::Described(Function function)
    : function_(std::move(function)),
      arguments_(argument_names(function_)),
      outputs_(output_names(function_)) {
  for (const std::string& name : arguments_) {
    names_.push_back(taken(PyUnicode_InternFromString(name.c_str())));
  }
}

std::optional<std::size_t> Described::find(PyObject* name) const {
  auto found = std::ranges::find(names_, name, &nb::object::ptr);
  if (found == names_.end()) {
    found = std::ranges::find_if(
        names_, [&](const nb::object& own) { return PyUnicode_Compare(own.ptr(), name) == 0; });
  }
  if (found == names_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - names_.begin());
}

const OutputTypes& Described::types_for(const std::vector<Argument>& inputs) {
  constexpr std::size_t kMost = 1024;
  std::vector<std::int64_t> key;
  for (const Argument& input : inputs) {
    if (input.is_scalar()) {
      key.push_back(-2 * static_cast<std::int64_t>(input.scalar().dtype()) -
                    (input.scalar().weak() ? 1 : 2));
      continue;
    }
    const View& view = input.view();
    key.push_back(static_cast<std::int64_t>(view.dtype()));
    key.push_back(static_cast<std::int64_t>(view.shape().size()));
    key.insert(key.end(), view.shape().begin(), view.shape().end());
  }
  const auto found = types_.find(key);
  if (found != types_.end()) return found->second;
  if (types_.size() >= kMost) types_.clear();
  Specification specification;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    specification.arguments.push_back(specification_of(inputs[i], arguments_.at(i)));
  }
  return types_[std::move(key)] = output_types(function_, specification);
}

std::string Described::text() const {
  std::string text = function_.name() + "(";
  for (std::size_t i = 0; i < arguments_.size(); ++i) text += (i == 0 ? "" : ", ") + arguments_[i];
  return text + "): " + function_.expression();
}

Operands::Operands(Described& callee, PyObject* arguments, PyObject* keywords)
    : callee_(callee), views_(callee.function().name()) {
  take_arguments(arguments, keywords);
  if (chosen_ != nullptr) views_.order_before(stream_address(chosen_));
  inputs_.reserve(given_.size());
  for (std::size_t i = 0; i < given_.size(); ++i) {
    if (std::optional<Scalar> scalar = scalar_of(given_[i])) {
      inputs_.emplace_back(*scalar);
      continue;
    }
    const std::string& name = callee_.arguments()[i];
    inputs_.emplace_back(views_.view(given_[i], {name}, Access::read));
    see(given_[i], inputs_.back().view());
  }
  take_outputs(out_);
}

void Operands::take_arguments(PyObject* arguments, PyObject* keywords) {
  const std::string& name = callee_.function().name();
  const std::size_t arity = callee_.arguments().size();
  const auto positions = static_cast<std::size_t>(PyTuple_Size(arguments));
  if (positions > arity) {
    fail(name,
         "expected " + std::to_string(arity) + " arguments, got " + std::to_string(positions));
  }
  given_.resize(arity, nullptr);
  for (std::size_t i = 0; i < positions; ++i) {
    given_[i] = PyTuple_GetItem(arguments, static_cast<Py_ssize_t>(i));
  }
  if (keywords != nullptr) {
    const Keywords& known = python::keywords();
    PyObject* key = nullptr;
    PyObject* value = nullptr;
    Py_ssize_t position = 0;
    while (PyDict_Next(keywords, &position, &key, &value) != 0) {
      if (is_name(key, known.out)) {
        out_ = not_none(value);
      } else if (is_name(key, known.stream)) {
        chosen_ = not_none(value);
      } else if (is_name(key, known.workspace)) {
        workspace_ = not_none(value);
      } else if (const auto index = callee_.find(key); !index) {
        fail(name, "there is no argument '" + text_of(key) + "'");
      } else if (given_[*index] != nullptr) {
        fail(name, "the argument '" + text_of(key) + "' is given twice");
      } else {
        given_[*index] = value;
      }
    }
  }
  const auto missing = std::ranges::find(given_, nullptr);
  if (missing != given_.end()) {
    fail(name, "the argument '" +
                   callee_.arguments()[static_cast<std::size_t>(missing - given_.begin())] +
                   "' is missing");
  }
}

void Operands::see(PyObject* array, const View& view) {
  if (first_ != nullptr) return;
  first_ = array;
  stream_.device = view.device();
}

void Operands::take_outputs(PyObject* out) {
  const std::size_t count = callee_.outputs().size();
  outputs_.resize(count);
  results_.resize(count);
  if (out != nullptr && (PyTuple_Check(out) || PyList_Check(out))) {
    const auto given = static_cast<std::size_t>(PySequence_Size(out));
    if (given != count) {
      fail(callee_.function().name(),
           "out: expected " + std::to_string(count) + " arrays, got " + std::to_string(given));
    }
    for (std::size_t i = 0; i < count; ++i) {
      nb::object array = taken(PySequence_GetItem(out, static_cast<Py_ssize_t>(i)));
      if (not_none(array.ptr()) != nullptr) results_[i] = std::move(array);
    }
  } else if (out != nullptr) {
    if (count != 1) {
      fail(callee_.function().name(),
           "out: expected a tuple of " + std::to_string(count) + " arrays, got one object");
    }
    results_[0] = nb::borrow(out);
  }
  bool complete = true;
  for (std::size_t i = 0; i < count; ++i) {
    if (results_[i].ptr() == nullptr) {
      complete = false;
      continue;
    }
    const What what{"out", count == 1 ? std::nullopt : std::optional(i)};
    outputs_[i] = views_.view(results_[i].ptr(), what, Access::write);
    see(results_[i].ptr(), outputs_[i]);
  }
  if (first_ == nullptr) {
    fail(callee_.function().name(),
         "expected an array among the arguments or as out=, which says where to compute");
  }
  choose_stream(chosen_);
  if (complete) return;
  const OutputTypes& types = callee_.types_for(inputs_);
  for (std::size_t i = 0; i < count; ++i) {
    if (results_[i].ptr() != nullptr) continue;
    results_[i] = nb::steal(allocated(types.dtypes[i], types.shapes[i]));
    outputs_[i] = views_.view(results_[i].ptr(), {"out"}, Access::fresh);
  }
}

void Operands::choose_stream(PyObject* chosen) {
  if (stream_.device.type == DeviceType::cpu) return;
  void* current = current_stream(*array_type(first_), stream_.device);
  stream_.native = chosen != nullptr ? stream_address(chosen) : current;
  foreign_stream_ = stream_.native != current;
}

PyObject* Operands::allocated(DType dtype, const Dims& shape) {
  if (foreign_stream_) {
    // What a framework allocates, it may have freed on its own stream a moment ago.
    fail(callee_.function().name(),
         "stream: memory can be allocated only for the stream that the framework of the first "
         "array works on now; make this stream the current one, or give out= and workspace=");
  }
  return allocate(*array_type(first_), first_, dtype, shape, stream_.device,
                  callee_.function().name());
}

View Operands::workspace(std::size_t bytes) {
  if (workspace_ != nullptr) return views_.view(workspace_, {"workspace"}, Access::write);
  if (bytes == 0) return {};
  others_.push_back(nb::steal(allocated(DType::u8, Dims{static_cast<std::int64_t>(bytes)})));
  return views_.view(others_.back().ptr(), {"workspace"}, Access::fresh);
}

PyObject* Operands::result() const {
  if (results_.size() == 1) return Py_NewRef(results_[0].ptr());
  nb::object tuple = taken(PyTuple_New(static_cast<Py_ssize_t>(results_.size())));
  for (std::size_t i = 0; i < results_.size(); ++i) {
    check(PyTuple_SetItem(tuple.ptr(), static_cast<Py_ssize_t>(i), Py_NewRef(results_[i].ptr())));
  }
  return tuple.release().ptr();
}

nb::object Operands::arrays() const {
  nb::list all;
  for (PyObject* given : given_) all.append(nb::handle(given));
  for (const nb::object& array : results_) all.append(array);
  for (const nb::object& array : others_) all.append(array);
  if (workspace_ != nullptr) all.append(nb::handle(workspace_));
  return all;
}

Stream stream_for(Device device, PyObject* array, PyObject* chosen) {
  if (device.type == DeviceType::cpu) return {device, nullptr};
  if (chosen != nullptr && chosen != Py_None) return {device, stream_address(chosen)};
  const ArrayType* type = array == nullptr ? nullptr : array_type(array);
  return {device, type == nullptr ? nullptr : current_stream(*type, device)};
}

// ---- Functions and programs --------------------------------------------------------------------

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
    std::size_t bytes = 0;
    {
      const nb::gil_scoped_release released;
      bytes =
          program.program.workspace_bytes(operands.stream(), operands.inputs(), operands.outputs());
    }
    const View workspace = operands.workspace(bytes);
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

// Of what such a call uses, compiled if it is not there, or of what it would use now.
nb::dict kernel_fields(PyFunction& self, bool compile, const nb::args& arguments,
                       const nb::kwargs& given) {
  const Operands operands(self, arguments.ptr(), given.ptr());
  KernelInfo info;
  {
    const nb::gil_scoped_release released;
    const Function& function = self.function();
    const Stream& stream = operands.stream();
    info = compile ? function.prepare(stream, operands.inputs(), operands.outputs())
                   : function.look_up(stream, operands.inputs(), operands.outputs());
  }
  return fields_of(info);
}

template <class T>
void bind_description(nb::class_<T>& type) {
  type.def_prop_ro("name", [](const T& self) { return self.function().name(); })
      .def_prop_ro("expression", [](const T& self) { return self.function().expression(); })
      .def_prop_ro("arguments", [](const T& self) { return nb::tuple(nb::cast(self.arguments())); })
      .def_prop_ro("outputs", [](const T& self) { return nb::tuple(nb::cast(self.outputs())); })
      .def("explain", [](T& self, const nb::args& arguments, const nb::kwargs& given) {
        return explain(self, arguments, given);
      });
}

// ---- Bound calls -------------------------------------------------------------------------------

// A bound call, and the arrays that it was bound with.
struct PyLaunch {
  Launch launch;
  Stream stream;
  nb::object arrays;
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
    arrays.attr("__setitem__")(index, value);
  }

  void set_output(const nb::object& array, std::size_t index) {
    index = index_of(nb::int_(index), outputs.size());
    launch.set_output(index, replace(outputs[index], array.ptr(), Access::write).data());
    arrays.attr("__setitem__")(inputs.size() + index, array);
  }
};

PyLaunch bind(PyFunction& self, const nb::args& arguments, const nb::kwargs& given) {
  const Operands operands(self, arguments.ptr(), given.ptr());
  std::vector<View> inputs;
  for (const Argument& input : operands.inputs()) {
    inputs.push_back(input.is_scalar() ? View() : input.view());
  }
  std::optional<Launch> launch;
  {
    const nb::gil_scoped_release released;
    launch = self.function().bind(operands.stream(), operands.inputs(), operands.outputs());
  }
  return {
      std::move(*launch), operands.stream(), operands.arrays(), nb::borrow(operands.first_array()),
      self.arguments(),   std::move(inputs), operands.outputs()};
}

// ---- Kernels of the caller's own ---------------------------------------------------------------

struct PyKernel {
  Kernel kernel;
  std::vector<KernelParameter> parameters;
};

Grid::Extent extent_of(nb::handle given) {
  if (PyLong_Check(given.ptr())) return {nb::cast<std::uint32_t>(given)};
  const auto sizes = nb::cast<std::vector<std::uint32_t>>(given);
  if (sizes.empty() || sizes.size() > 3) {
    fail("grid", "expected one to three numbers, got " + std::to_string(sizes.size()));
  }
  return {sizes[0], sizes.size() > 1 ? sizes[1] : 1, sizes.size() > 2 ? sizes[2] : 1};
}

// How many work items; or (blocks, threads) or (blocks, threads, shared_bytes).
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

// The operands of a call of a kernel.
struct KernelOperands {
  Arrays views;
  std::vector<Argument> arguments;
  PyObject* first = nullptr;
  Device device;

  KernelOperands(const PyKernel& callee, const nb::args& given) : views(callee.kernel.name()) {
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
};

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

// ---- Graphs ------------------------------------------------------------------------------------

// What a graph refers to, and the stream of its launches.
struct Recorded {
  nb::list arrays;
  nb::object first;
  void keep(PyObject* array) {
    if (first.ptr() == nullptr) first = nb::borrow(array);
    arrays.append(nb::handle(array));
  }
};

struct PyRecorder {
  Recorder* recorder = nullptr;  ///< null once the body has returned
  Device device;
  std::shared_ptr<Recorded> recorded;

  Recorder& open() const {
    if (recorder == nullptr) fail("Recorder", "it is used after the body of record() has returned");
    return *recorder;
  }
  void keep_all(const nb::object& arrays) const {
    for (nb::handle array : arrays) recorded->arrays.append(array);
  }

  nb::object call(nb::handle callee, const nb::args& arguments, const nb::kwargs& given) {
    Recorder& into = open();
    if (nb::isinstance<PyKernel>(callee)) {
      auto& kernel = nb::cast<PyKernel&>(callee);
      const KernelOperands operands(kernel, arguments);
      if (!given.contains("grid")) fail(kernel.kernel.name(), "the argument grid= is missing");
      const Grid grid = grid_of(given["grid"]);
      for (nb::handle argument : arguments) recorded->arrays.append(argument);
      recorded->keep(operands.first);
      const nb::gil_scoped_release released;
      into.call(kernel.kernel, grid, operands.arguments);
      return nb::none();
    }
    if (nb::isinstance<PyProgram>(callee)) {
      auto& program = nb::cast<PyProgram&>(callee);
      Operands operands(program, arguments.ptr(), given.ptr());
      const View workspace = operands.workspace(program.program.workspace_bytes(
          operands.stream(), operands.inputs(), operands.outputs()));
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
    keep_all(operands.arrays());
    recorded->keep(operands.first_array());
    return nb::steal(operands.result());
  }

  void copy(nb::handle from, nb::handle to) {
    Arrays views("copy");
    const Copy copied{views.view(from.ptr(), {"source"}, Access::read),
                      views.view(to.ptr(), {"to"}, Access::write)};
    open().copy(copied);
    recorded->keep(from.ptr());
    recorded->keep(to.ptr());
  }

  void fill(nb::handle to, std::uint8_t byte) {
    Arrays views("fill");
    open().fill(views.view(to.ptr(), {"to"}, Access::write), byte);
    recorded->keep(to.ptr());
  }

  void sequence(const std::string& name, const nb::object& body, const nb::iterable& reads,
                const nb::iterable& writes) {
    Arrays views(name);
    std::vector<View> read;
    std::vector<View> written;
    for (nb::handle array : reads) {
      read.push_back(views.view(array.ptr(), {"reads", read.size()}, Access::read));
      recorded->keep(array.ptr());
    }
    for (nb::handle array : writes) {
      written.push_back(views.view(array.ptr(), {"writes", written.size()}, Access::write));
      recorded->keep(array.ptr());
    }
    open().sequence(name, read, written, [body = shared(body)](const Stream& stream) {
      const nb::gil_scoped_acquire acquired;
      nb::handle(body.get())(reinterpret_cast<std::uintptr_t>(stream.native));
    });
  }
};

struct PyGraph {
  Graph graph;
  Device device;
  std::shared_ptr<Recorded> recorded;

  void launch(const nb::object& chosen) {
    const Stream stream = stream_for(device, recorded->first.ptr(), chosen.ptr());
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
    const std::size_t count = graph.rebind(before.data(), after.data());
    recorded->arrays.append(now);
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
  Graph graph = kiln::record(on, [&](Recorder& recorder) {
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

void bind_calls(nb::module_& module) {
  nb::class_<PyFunction> function(module, "Function", nb::type_slots(function_slots));
  bind_description(function);
  function.def("bind", bind)
      .def("_kernel",
           [](PyFunction& self, const nb::args& arguments, const nb::kwargs& given) {
             return kernel_fields(self, true, arguments, given);
           })
      .def("_look_up",
           [](PyFunction& self, const nb::args& arguments, const nb::kwargs& given) {
             return kernel_fields(self, false, arguments, given);
           })
      .def("_prepare",
           [](const PyFunction& self, const nb::tuple& operands, nb::handle device) {
             return self.function().prepare(
                 device_of(device),
                 specification_of(operands, self.arguments(), self.function().name()));
           })
      .def("__repr__",
           [](const PyFunction& self) { return "<kiln.Function " + self.text() + ">"; });

  nb::class_<PyProgram> program(module, "Program", nb::type_slots(program_slots));
  bind_description(program);
  program
      .def("workspace_bytes",
           [](PyProgram& self, const nb::args& arguments, const nb::kwargs& given) {
             const Operands operands(self, arguments.ptr(), given.ptr());
             return self.program.workspace_bytes(operands.stream(), operands.inputs(),
                                                 operands.outputs());
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

  nb::class_<PyLaunch>(module, "Launch")
      .def("__call__", &PyLaunch::run, nb::kw_only(), nb::arg("stream") = nb::none())
      .def("set_input", &PyLaunch::set_input, nb::arg("argument"), nb::arg("value"))
      .def("set_output", &PyLaunch::set_output, nb::arg("array"), nb::arg("index") = 0);

  nb::class_<PyKernel>(module, "Kernel")
      .def_prop_ro("name", [](const PyKernel& self) { return self.kernel.name(); })
      .def("__call__", call_kernel, nb::arg("arguments"), nb::kw_only(), nb::arg("grid"),
           nb::arg("stream") = nb::none());
  module.def("kernel", make_kernel, nb::arg("name"), nb::arg("source"), nb::arg("parameters"),
             nb::kw_only(), nb::arg("accuracy") = "storage", nb::arg("on_miss") = "compile");

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
