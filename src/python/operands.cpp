// What a call from Python is given: arguments by position and name, outputs, stream, workspace.
#include <nanobind/stl/string.h>

#include <algorithm>

#include "python/calls.hpp"
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

}  // namespace

Described::Described(Function function)
    : function_(std::move(function)),
      arguments_(argument_names(function_)),
      outputs_(output_names(function_)),
      updated_(updated_arguments(function_)) {
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

const OutputTypes& Described::types_for(std::span<const Argument> inputs) {
  constexpr std::size_t kMost = 1024;
  std::vector<std::int64_t> key;
  key.reserve(6 * inputs.size());
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
    : callee_(callee), views_(callee.function().name(), &lists_) {
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
        workspace_given_ = not_none(value);
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

// The outputs in `out`, which may be null; None in a tuple is none.
void Operands::take_given_outputs(PyObject* out) {
  const std::size_t count = results_.size();
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
}

void Operands::take_outputs(PyObject* out) {
  const std::size_t count = callee_.outputs().size();
  outputs_.reserve(count);
  results_.resize(count);
  take_given_outputs(out);
  bool complete = true;
  for (std::size_t i = 0; i < count; ++i) {
    What what{"out", count == 1 ? std::nullopt : std::optional(i)};
    const std::optional<std::size_t> updated = callee_.updated()[i];
    if (results_[i].ptr() == nullptr && updated && !inputs_[*updated].is_scalar()) {
      results_[i] = nb::borrow(given_[*updated]);
      what = {callee_.arguments()[*updated]};
    }
    if (results_[i].ptr() == nullptr) {
      complete = false;
      outputs_.emplace_back();
      continue;
    }
    outputs_.push_back(views_.view(results_[i].ptr(), what, Access::write));
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
  if (workspace_given_ != nullptr) {
    workspace_array_ = nb::borrow(workspace_given_);
    workspace_view_ = views_.view(workspace_given_, {"workspace"}, Access::write);
  } else if (bytes != 0) {
    workspace_array_ = nb::steal(allocated(DType::u8, Dims{static_cast<std::int64_t>(bytes)}));
    workspace_view_ = views_.view(workspace_array_.ptr(), {"workspace"}, Access::fresh);
  }
  return workspace_view_;
}

PyObject* Operands::result() const {
  if (results_.size() == 1) return Py_NewRef(results_[0].ptr());
  nb::object tuple = taken(PyTuple_New(static_cast<Py_ssize_t>(results_.size())));
  for (std::size_t i = 0; i < results_.size(); ++i) {
    check(PyTuple_SetItem(tuple.ptr(), static_cast<Py_ssize_t>(i), Py_NewRef(results_[i].ptr())));
  }
  return tuple.release().ptr();
}

nb::list Operands::kept() const {
  nb::list all;
  for (PyObject* given : given_) all.append(nb::handle(given));
  for (const nb::object& array : results_) all.append(array);
  if (workspace_array_.is_valid()) all.append(workspace_array_);
  return all;
}

std::vector<std::pair<const void*, nb::object>> Operands::memory() const {
  std::vector<std::pair<const void*, nb::object>> all;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (!inputs_[i].is_scalar()) all.emplace_back(inputs_[i].view().data(), nb::borrow(given_[i]));
  }
  for (std::size_t i = 0; i < results_.size(); ++i) {
    all.emplace_back(outputs_[i].data(), results_[i]);
  }
  if (workspace_array_.is_valid()) all.emplace_back(workspace_view_.data(), workspace_array_);
  return all;
}

Stream stream_for(Device device, PyObject* array, PyObject* chosen) {
  if (device.type == DeviceType::cpu) return {device, nullptr};
  if (chosen != nullptr && chosen != Py_None) return {device, stream_address(chosen)};
  const ArrayType* type = array == nullptr ? nullptr : array_type(array);
  return {device, type == nullptr ? nullptr : current_stream(*type, device)};
}

}  // namespace kiln::python
