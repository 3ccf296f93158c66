// References to Python's objects, and its errors in C++.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace kiln::python {

namespace nb = nanobind;

/// A new reference, or the Python error that is set, thrown.
inline nb::object taken(PyObject* object) {
  if (object == nullptr) throw nb::python_error();
  return nb::steal(object);
}

/// Throws the Python error that a function reported by -1.
inline void check(int status) {
  if (status < 0) throw nb::python_error();
}

std::string text_of(PyObject* object);

/// Sets the Python error for the C++ exception that is being handled.
void set_error() noexcept;

/// A reference that may be dropped without the GIL, also when the interpreter is gone: for what
/// kiln keeps.
std::shared_ptr<PyObject> shared(nb::handle object);

/// An object of a class of kiln._results, with these fields by name.
nb::object result(const char* type, const nb::dict& fields);

}  // namespace kiln::python
