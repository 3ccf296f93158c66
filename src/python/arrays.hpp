// Arrays of Python as views of kiln: what frameworks export by DLPack, the streams that they work
// on, and new arrays of theirs. Everything here needs the GIL.
#pragma once

#include <Python.h>

#include <cstddef>
#include <memory_resource>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/function.hpp"
#include "kiln/view.hpp"
#include "python/dlpack.hpp"

namespace kiln::python {

/// A type of arrays, and what its framework is known to do.
struct ArrayType {
  enum class Framework { numpy, torch, cupy, jax, other };
  PyTypeObject* type = nullptr;
  Framework framework = Framework::other;
  const dlpack::Exchange* exchange = nullptr;  ///< null without the C exchange API
  bool versioned = true;                       ///< `__dlpack__` takes max_version
};

/// The type of `object`, looked at once; null if it is no array.
const ArrayType* array_type(PyObject* object);

/// An operand, in messages.
struct What {
  std::string_view name;
  std::optional<std::size_t> index = {};  ///< of several that share the name
  std::string text() const;
};

enum class Access {
  read,
  write,  ///< refused where the array says that it is read-only
  fresh,  ///< written by the call that allocated it
};

/// Views of the arrays of one call, valid while this lives.
class Arrays {
 public:
  /// `function` is for messages, and lives as long, as `memory` does.
  explicit Arrays(std::string_view function,
                  std::pmr::memory_resource* memory = std::pmr::get_default_resource())
      : function_(function), kept_(memory), managed_(memory) {}
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;
  ~Arrays();

  /// Throws Error: invalid_argument for what is no array, and for a read-only one to write into;
  /// unsupported for a dtype or device that kiln has not.
  View view(PyObject* array, const What& what, Access access);
  /// The stream that other frameworks order their work before, where their own is not known.
  void order_before(void* stream) { stream_ = stream; }

 private:
  View by_exchange(const ArrayType& type, PyObject* array, const What& what);
  void check_resolved(PyObject* tensor, const What& what) const;
  View by_capsule(ArrayType& type, PyObject* array, const What& what, Access access);
  View by_numpy(PyObject* array, const What& what, Access access);
  std::optional<View> by_cupy(PyObject* array, const What& what) const;
  Dims element_strides(PyObject* steps, DType dtype, const What& what) const;
  View view_of(const dlpack::Tensor& tensor, const What& what) const;
  [[noreturn]] void fail(const What& what, const std::string& message) const;

  std::string_view function_;
  void* stream_ = nullptr;
  std::pmr::vector<PyObject*> kept_;  ///< capsules, each with what it manages
  std::pmr::vector<dlpack::ManagedVersioned*> managed_;
};

/// A number as a scalar: of Python weak, of NumPy with its dtype. Nothing for anything else. Throws
/// Error(invalid_argument) for an integer that 64 bits do not hold.
std::optional<Scalar> scalar_of(PyObject* object);

/// The stream that the framework of `array` works on now on that device; null for the CPU.
void* current_stream(const ArrayType& type, Device device);

/// What a caller has given as `stream=`: an address, or an object of a framework that has one.
void* stream_address(PyObject* stream);

/// A new array, in C order, of the framework of `like`, which is on `device`. A new reference.
PyObject* allocate(const ArrayType& type, PyObject* like, DType dtype, const Dims& shape,
                   Device device, std::string_view function);

/// A dtype as Python names it: kiln's own name, NumPy's name, or an object with one (numpy.dtype,
/// numpy.float32, torch.float32). Throws Error(invalid_argument).
DType dtype_of(PyObject* object);

/// A capsule of DLPack, versioned or not, with the memory of `view`; `owner` lives as long.
PyObject* export_view(const View& view, PyObject* owner, bool versioned);

}  // namespace kiln::python
