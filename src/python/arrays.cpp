#include "python/arrays.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <deque>
#include <utility>

#include "kiln/dlpack_types.hpp"
#include "kiln/error.hpp"
#include "python/objects.hpp"

namespace kiln::python {
namespace {

using Framework = ArrayType::Framework;

constexpr std::uint32_t kDlpackMajor = 1;
constexpr std::uint32_t kDlpackMinor = 1;

PyObject* interned(const char* text) { return PyUnicode_InternFromString(text); }

// Made once, kept until the process ends.
struct Names {
  PyObject* dlpack = interned("__dlpack__");
  PyObject* dlpack_device = interned("__dlpack_device__");
  PyObject* data = interned("data");
  PyObject* ptr = interned("ptr");
  PyObject* cuda_stream = interned("cuda_stream");
  PyObject* device_id = interned("device_id");
  PyObject* dtype = interned("dtype");
  PyObject* shape = interned("shape");
  PyObject* strides = interned("strides");
  PyObject* version = Py_BuildValue("(II)", kDlpackMajor, kDlpackMinor);
  PyObject* no_stream = PyLong_FromLong(-1);  // of DLPack: does not synchronise
  PyObject* keywords_version = Py_BuildValue("(s)", "max_version");
  PyObject* keywords_stream = Py_BuildValue("(s)", "stream");
  PyObject* keywords_both = Py_BuildValue("(ss)", "max_version", "stream");
};

const Names& names() {
  static const Names made;
  return made;
}

// What NumPy, PyTorch and the array API call kiln's dtypes, in the order of kDTypes. The packed
// ones have no name: their arrays are bytes to everyone else.
constexpr std::array<const char*, kDTypes.size()> kDtypeNames = {
    "bool",    "uint8",     "uint16",        "uint32",      "uint64",          "int8",
    "int16",   "int32",     "int64",         "float16",     "bfloat16",        "float32",
    "float64", "complex64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
    nullptr,   nullptr,     nullptr};

std::optional<DType> dtype_by_name(std::string_view name) {
  if (const std::optional<DType> own = parse_dtype(name)) return own;
  for (std::size_t i = 0; i < kDtypeNames.size(); ++i) {
    if (kDtypeNames[i] != nullptr && name == kDtypeNames[i]) return kDTypes[i].dtype;
  }
  return std::nullopt;
}

// A module that somebody has imported; null, without an error, otherwise.
PyObject* imported(const char* module) {
  PyObject* modules = PyImport_GetModuleDict();
  return PyDict_GetItemString(modules, module);
}

bool is_instance(PyObject* object, const char* module, const char* type) {
  PyObject* loaded = imported(module);
  if (loaded == nullptr) return false;
  PyObject* wanted = PyObject_GetAttrString(loaded, type);
  if (wanted == nullptr) {  // a module that is being imported
    PyErr_Clear();
    return false;
  }
  const int found = PyObject_IsInstance(object, wanted);
  Py_DECREF(wanted);
  if (found < 0) PyErr_Clear();
  return found > 0;
}

Framework framework_of(PyObject* object) {
  if (is_instance(object, "numpy", "ndarray")) return Framework::numpy;
  if (is_instance(object, "torch", "Tensor")) return Framework::torch;
  if (is_instance(object, "cupy", "ndarray")) return Framework::cupy;
  if (is_instance(object, "jax", "Array")) return Framework::jax;
  return Framework::other;
}

const dlpack::Exchange* exchange_of(PyTypeObject* type) {
  PyObject* capsule =
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__dlpack_c_exchange_api__");
  if (capsule == nullptr) {
    PyErr_Clear();
    return nullptr;
  }
  const dlpack::ExchangeHeader* header = nullptr;
  if (PyCapsule_IsValid(capsule, "dlpack_exchange_api") != 0) {
    header = static_cast<const dlpack::ExchangeHeader*>(
        PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
  }
  Py_DECREF(capsule);
  while (header != nullptr && header->version.major != kDlpackMajor) header = header->previous;
  return reinterpret_cast<const dlpack::Exchange*>(header);
}

nb::object attribute(PyObject* object, const char* name) {
  return taken(PyObject_GetAttrString(object, name));
}
nb::object attribute(PyObject* object, PyObject* name) {
  return taken(PyObject_GetAttr(object, name));
}

Dims dims_of(PyObject* tuple) {
  Dims dims(static_cast<std::size_t>(PyTuple_Size(tuple)));
  for (std::size_t i = 0; i < dims.size(); ++i) {
    dims[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, static_cast<Py_ssize_t>(i)));
  }
  return dims;
}

void* address_of(PyObject* number) {
  void* address = PyLong_AsVoidPtr(number);
  if (address == nullptr && PyErr_Occurred() != nullptr) throw nb::python_error();
  return address;
}

// How DLPack writes the stream that a consumer works on.
nb::object stream_number(std::int32_t device_type, void* stream) {
  constexpr std::int32_t kCuda = 2;
  if (stream == nullptr) return taken(PyLong_FromLong(device_type == kCuda ? 1 : 0));
  return taken(PyLong_FromVoidPtr(stream));
}

nb::object shape_tuple(const Dims& shape) {
  nb::object tuple = taken(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  for (std::size_t i = 0; i < shape.size(); ++i) {
    check(PyTuple_SetItem(tuple.ptr(), static_cast<Py_ssize_t>(i),
                          taken(PyLong_FromLongLong(shape[i])).release().ptr()));
  }
  return tuple;
}

// The dtype object of a framework, kept.
PyObject* framework_dtype(Framework framework, DType dtype, PyObject* module) {
  static std::array<std::array<PyObject*, kDTypes.size()>, 3> known{};
  const char* name = kDtypeNames[static_cast<std::size_t>(dtype)];
  const bool by_numpy = framework == Framework::numpy || framework == Framework::cupy;
  if (framework == Framework::other || framework == Framework::jax) {
    return attribute(module, name).release().ptr();
  }
  PyObject*& kept = known[static_cast<std::size_t>(framework)][static_cast<std::size_t>(dtype)];
  if (kept == nullptr) {
    if (by_numpy) {
      const bool own = kind(dtype) != Kind::floating || (dtype != DType::bf16 && bits(dtype) > 8);
      nb::object from = taken(PyImport_ImportModule(own ? "numpy" : "ml_dtypes"));
      nb::object type = attribute(from.ptr(), std::strcmp(name, "bool") == 0 ? "bool_" : name);
      kept = taken(PyObject_CallMethod(taken(PyImport_ImportModule("numpy")).ptr(), "dtype", "O",
                                       type.ptr()))
                 .release()
                 .ptr();
    } else {
      kept = attribute(module, name).release().ptr();
    }
  }
  return Py_NewRef(kept);
}

void set_allocation_error(void* context, const char* kind, const char* message) {
  *static_cast<std::string*>(context) = std::string(kind) + ": " + message;
}

// What is called in a framework's modules, looked up once and kept.
struct Functions {
  PyObject* module;
  PyObject* empty;
  PyObject* current_stream;  ///< null on the host
};

Functions look_up(const char* module, const char* streams) {
  PyObject* loaded = taken(PyImport_ImportModule(module)).release().ptr();
  PyObject* empty = attribute(loaded, "empty").release().ptr();
  if (streams == nullptr) return {loaded, empty, nullptr};
  const nb::object from = taken(PyImport_ImportModule(streams));
  const bool torch = std::string_view(module) == "torch";
  return {loaded, empty,
          attribute(from.ptr(), torch ? "current_stream" : "get_current_stream").release().ptr()};
}

const Functions& functions_of(Framework framework) {
  if (framework == Framework::numpy) {
    static const Functions numpy = look_up("numpy", nullptr);
    return numpy;
  }
  if (framework == Framework::torch) {
    static const Functions torch = look_up("torch", "torch.cuda");
    return torch;
  }
  static const Functions cupy = look_up("cupy", "cupy.cuda");
  return cupy;
}

// empty(shape, dtype=, device=), without a device where that is null.
nb::object call_empty(PyObject* empty, const nb::object& shape, const nb::object& dtype,
                      const nb::object& device) {
  static PyObject* const keywords = Py_BuildValue("(ss)", "dtype", "device");
  static PyObject* const one_keyword = Py_BuildValue("(s)", "dtype");
  PyObject* arguments[] = {shape.ptr(), dtype.ptr(), device.ptr()};
  return taken(
      PyObject_Vectorcall(empty, arguments, 1, device.ptr() != nullptr ? keywords : one_keyword));
}

}  // namespace

const ArrayType* array_type(PyObject* object) {
  static std::deque<ArrayType> known;  // each keeps its type alive, so an address is one type
  static const ArrayType* last = nullptr;
  PyTypeObject* type = Py_TYPE(object);
  if (last != nullptr && last->type == type) return last;
  for (const ArrayType& entry : known) {
    if (entry.type == type) return last = &entry;
  }
  const int exports = PyObject_HasAttr(reinterpret_cast<PyObject*>(type), names().dlpack);
  if (exports == 0 || PyType_Check(object)) return nullptr;
  Py_INCREF(reinterpret_cast<PyObject*>(type));
  known.push_back({type, framework_of(object), exchange_of(type), true});
  return &known.back();
}

// ---- Views -------------------------------------------------------------------------------------

Arrays::~Arrays() {
  for (PyObject* object : kept_) Py_DECREF(object);
  for (dlpack::ManagedVersioned* managed : managed_) {
    if (managed->deleter != nullptr) managed->deleter(managed);
  }
}

std::string What::text() const {
  return index ? std::string(name) + "[" + std::to_string(*index) + "]"
               : "'" + std::string(name) + "'";
}

void Arrays::fail(const What& what, const std::string& message) const {
  throw Error(Code::invalid_argument, std::string(function_) + ": " + what.text() + ": " + message);
}

View Arrays::view(PyObject* array, const What& what, Access access) {
  const ArrayType* type = array_type(array);
  if (type == nullptr) {
    fail(what,
         "expected an array with __dlpack__, got " +
             text_of(attribute(reinterpret_cast<PyObject*>(Py_TYPE(array)), "__name__").ptr()));
  }
  if (type->exchange != nullptr) return by_exchange(*type, array, what);
  if (type->framework == Framework::cupy) {
    if (std::optional<View> view = by_cupy(array, what)) return *std::move(view);
  }
  return by_capsule(const_cast<ArrayType&>(*type), array, what, access);
}

View Arrays::by_exchange(const ArrayType& type, PyObject* array, const What& what) {
  if (type.exchange->borrow != nullptr) {
    dlpack::Tensor tensor{};
    check(type.exchange->borrow(array, &tensor));
    const View view = view_of(tensor, what);
    if (type.framework == Framework::torch && view.dtype() == DType::c64) {
      check_resolved(array, what);
    }
    return view;
  }
  dlpack::ManagedVersioned* managed = nullptr;
  check(type.exchange->managed_of(array, &managed));
  managed_.push_back(managed);
  return view_of(managed->tensor, what);
}

// A tensor of PyTorch may stand for the conjugates of what its memory holds.
void Arrays::check_resolved(PyObject* tensor, const What& what) const {
  if (taken(PyObject_CallMethod(tensor, "is_conj", nullptr)).ptr() != Py_True) return;
  fail(what, "the tensor is conjugated when it is read; give its resolve_conj()");
}

View Arrays::by_capsule(ArrayType& type, PyObject* array, const What& what, Access access) {
  const Names& n = names();
  nb::object detached;
  if (type.framework == Framework::torch && attribute(array, "requires_grad").ptr() == Py_True) {
    detached = taken(PyObject_CallMethod(array, "detach", nullptr));
    array = detached.ptr();
  }
  nb::object stream;  // none for arrays of the host
  if (type.framework == Framework::torch || type.framework == Framework::cupy) {
    stream = nb::borrow(n.no_stream);
  } else if (type.framework != Framework::numpy) {
    PyObject* self[] = {array};
    const nb::object device = taken(PyObject_VectorcallMethod(n.dlpack_device, self, 1, nullptr));
    const long device_type = PyLong_AsLong(PyTuple_GetItem(device.ptr(), 0));
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    const auto known = detail::device_of_dlpack(static_cast<int>(device_type), 0);
    if (known && known->type != DeviceType::cpu) {
      stream = stream_number(static_cast<std::int32_t>(device_type), stream_);
    }
  }
  const auto by_call = [&](bool versioned) {
    PyObject* both[] = {array, n.version, stream.ptr()};
    PyObject* one[] = {array, stream.ptr()};
    const bool ordered = stream.ptr() != nullptr;
    if (versioned) {
      return PyObject_VectorcallMethod(n.dlpack, both, 1,
                                       ordered ? n.keywords_both : n.keywords_version);
    }
    return PyObject_VectorcallMethod(n.dlpack, one, 1, ordered ? n.keywords_stream : nullptr);
  };
  PyObject* capsule = by_call(type.versioned);
  if (capsule == nullptr && type.versioned && PyErr_ExceptionMatches(PyExc_TypeError) != 0) {
    PyErr_Clear();  // a framework from before DLPack 1.0
    capsule = by_call(false);
    type.versioned = capsule == nullptr;
  }
  if (capsule == nullptr) {
    // Dtypes that DLPack has not, and read-only arrays of NumPy before 2.1.
    if (type.framework == Framework::numpy) {
      PyErr_Clear();
      return by_numpy(array, what, access);
    }
    throw nb::python_error();
  }
  kept_.push_back(capsule);  // unused, so its own destructor frees what it manages
  if (PyCapsule_IsValid(capsule, "dltensor_versioned") != 0) {
    const auto* managed = static_cast<const dlpack::ManagedVersioned*>(
        PyCapsule_GetPointer(capsule, "dltensor_versioned"));
    if (managed->version.major != kDlpackMajor) {
      fail(what, "its DLPack has version " + std::to_string(managed->version.major) +
                     ", and this kiln knows version " + std::to_string(kDlpackMajor));
    }
    if (access == Access::write && (managed->flags & dlpack::kReadOnly) != 0) {
      fail(what, "the array is read-only");
    }
    return view_of(managed->tensor, what);
  }
  const auto* managed =
      static_cast<const dlpack::Managed*>(PyCapsule_GetPointer(capsule, "dltensor"));
  if (managed == nullptr) throw nb::python_error();
  return view_of(managed->tensor, what);
}

View Arrays::by_numpy(PyObject* array, const What& what, Access access) {
  const nb::object type = attribute(array, "dtype");
  const std::string name = text_of(attribute(type.ptr(), "name").ptr());
  const std::optional<DType> dtype = dtype_by_name(name);
  if (!dtype || attribute(type.ptr(), "isnative").ptr() != Py_True) {
    throw Error(Code::unsupported, std::string(function_) + ": " + what.text() +
                                       ": no kiln dtype is NumPy's " + text_of(type.ptr()));
  }
  const nb::object description = attribute(array, "__array_interface__");
  PyObject* data = PyDict_GetItemString(description.ptr(), "data");
  PyObject* shape = PyDict_GetItemString(description.ptr(), "shape");
  PyObject* steps = PyDict_GetItemString(description.ptr(), "strides");
  if (access == Access::write && PyTuple_GetItem(data, 1) == Py_True) {
    fail(what, "the array is read-only");
  }
  void* address = address_of(PyTuple_GetItem(data, 0));
  if (steps == nullptr || steps == Py_None) return {address, *dtype, dims_of(shape)};
  return {address, *dtype, dims_of(shape), element_strides(steps, *dtype, what)};
}

// A tuple of strides in bytes.
Dims Arrays::element_strides(PyObject* steps, DType dtype, const What& what) const {
  Dims strides = dims_of(steps);
  const int shift = std::countr_zero(static_cast<unsigned>(bits(dtype) / 8));  // 1, 2, 4 or 8 bytes
  for (std::size_t i = 0; i < strides.size(); ++i) {
    if ((strides[i] & ((std::int64_t{1} << shift) - 1)) != 0) {
      fail(what, "its stride of " + std::to_string(strides[i]) + " bytes along axis " +
                     std::to_string(i) + " is not a whole number of elements");
    }
    strides[i] >>= shift;
  }
  return strides;
}

// CuPy's own attributes, which cost a third of its DLPack capsules. Nothing for a dtype that only
// those name.
std::optional<View> Arrays::by_cupy(PyObject* array, const What& what) const {
  const Names& n = names();
  static const bool hip =
      attribute(taken(PyImport_ImportModule("cupy.cuda.runtime")).ptr(), "is_hip").ptr() == Py_True;
  static std::deque<std::pair<PyObject*, DType>> known;  // dtypes of NumPy, kept alive
  const nb::object type = attribute(array, n.dtype);
  auto found = std::ranges::find(known, type.ptr(), &std::pair<PyObject*, DType>::first);
  if (found == known.end()) {
    const auto dtype = dtype_by_name(text_of(attribute(type.ptr(), "name").ptr()));
    if (!dtype) return std::nullopt;
    found = known.insert(known.end(), {Py_NewRef(type.ptr()), *dtype});
  }
  const nb::object memory = attribute(array, n.data);
  void* address = address_of(attribute(memory.ptr(), n.ptr).ptr());
  const long index = PyLong_AsLong(attribute(memory.ptr(), n.device_id).ptr());
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  return View(address, found->second, dims_of(attribute(array, n.shape).ptr()),
              element_strides(attribute(array, n.strides).ptr(), found->second, what),
              {hip ? DeviceType::hip : DeviceType::cuda, static_cast<int>(index)});
}

View Arrays::view_of(const dlpack::Tensor& tensor, const What& what) const {
  const std::optional<DType> dtype =
      detail::dtype_of_dlpack(tensor.type.code, tensor.type.bits, tensor.type.lanes);
  const std::optional<Device> device =
      detail::device_of_dlpack(tensor.device.type, tensor.device.index);
  if (!dtype || !device) {
    throw Error(Code::unsupported,
                std::string(function_) + ": " + what.text() + ": " +
                    (dtype ? "its memory is not the host's, an AMD or an NVIDIA GPU's: DLPack's "
                             "device type is " +
                                 std::to_string(tensor.device.type)
                           : "no kiln dtype is DLPack's code " + std::to_string(tensor.type.code) +
                                 " with " + std::to_string(tensor.type.bits) + " bits and " +
                                 std::to_string(tensor.type.lanes) + " lanes"));
  }
  void* data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  const auto rank = static_cast<std::size_t>(tensor.rank);
  Dims shape{std::span<const std::int64_t>(tensor.shape, rank)};
  if (tensor.strides == nullptr) return {data, *dtype, std::move(shape), *device};
  return {data, *dtype, std::move(shape), Dims(std::span<const std::int64_t>(tensor.strides, rank)),
          *device};
}

// ---- Numbers and dtypes ------------------------------------------------------------------------

namespace {

Scalar integer_scalar(PyObject* number) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
  if (overflow == 0) {
    if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    return Scalar(static_cast<std::int64_t>(value));
  }
  const unsigned long long wide = overflow > 0 ? PyLong_AsUnsignedLongLong(number) : 0;
  if (overflow < 0 || PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    throw Error(Code::invalid_argument,
                "a number: expected one of at most 64 bits, got " + text_of(number));
  }
  return Scalar(static_cast<std::uint64_t>(wide));
}

Scalar numpy_scalar(PyObject* number) {
  const DType dtype = dtype_of(attribute(number, "dtype").ptr());
  const nb::object item = taken(PyObject_CallMethod(number, "item", nullptr));
  if (is_floating(dtype)) {
    const double value = PyFloat_AsDouble(item.ptr());
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    return Scalar::typed(value, dtype);
  }
  if (kind(dtype) == Kind::complex) {
    throw Error(Code::invalid_argument,
                "a number: expected a real one, got a complex one; pass an array of one element");
  }
  return Scalar::typed(static_cast<std::int64_t>(integer_scalar(item.ptr()).bits()), dtype);
}

}  // namespace

std::optional<Scalar> scalar_of(PyObject* object) {
  if (PyFloat_CheckExact(object)) return Scalar(PyFloat_AsDouble(object));
  if (PyBool_Check(object)) return Scalar(object == Py_True);
  if (PyLong_Check(object)) return integer_scalar(object);
  if (array_type(object) != nullptr) return std::nullopt;
  if (is_instance(object, "numpy", "generic")) return numpy_scalar(object);
  if (PyFloat_Check(object)) return Scalar(PyFloat_AsDouble(object));
  return std::nullopt;
}

DType dtype_of(PyObject* object) {
  std::string name;
  if (PyUnicode_Check(object)) {
    name = text_of(object);
  } else {
    for (const char* from : {"name", "__name__"}) {
      PyObject* given = PyObject_GetAttrString(object, from);
      PyErr_Clear();
      if (given != nullptr && PyUnicode_Check(given)) name = text_of(given);
      Py_XDECREF(given);
      if (!name.empty()) break;
    }
    if (name.empty()) name = text_of(object);  // torch.float32
    name = name.substr(name.rfind('.') + 1);
  }
  if (const std::optional<DType> dtype = dtype_by_name(name)) return *dtype;
  throw Error(Code::invalid_argument,
              "dtype: expected a name such as \"bf16\" or a dtype of NumPy or PyTorch, got " +
                  text_of(taken(PyObject_Repr(object)).ptr()));
}

// ---- Streams -----------------------------------------------------------------------------------

void* current_stream(const ArrayType& type, Device device) {
  if (device.type == DeviceType::cpu) return nullptr;
  if (type.exchange != nullptr) {
    void* stream = nullptr;
    check(type.exchange->current_stream(detail::dlpack_device_type(device.type), device.index,
                                        &stream));
    return stream;
  }
  if (type.framework == Framework::torch || type.framework == Framework::cupy) {
    const nb::object index = taken(PyLong_FromLong(device.index));
    PyObject* arguments[] = {index.ptr()};
    const nb::object stream = taken(
        PyObject_Vectorcall(functions_of(type.framework).current_stream, arguments, 1, nullptr));
    const bool torch = type.framework == Framework::torch;
    return address_of(attribute(stream.ptr(), torch ? names().cuda_stream : names().ptr).ptr());
  }
  return nullptr;
}

void* stream_address(PyObject* stream) {
  if (PyLong_Check(stream)) return address_of(stream);
  for (const char* name : {"cuda_stream", "ptr"}) {
    PyObject* address = PyObject_GetAttrString(stream, name);
    if (address != nullptr) return address_of(taken(address).ptr());
    PyErr_Clear();
  }
  PyObject* pair = PyObject_CallMethod(stream, "__cuda_stream__", nullptr);
  if (pair != nullptr) return address_of(taken(PySequence_GetItem(taken(pair).ptr(), 1)).ptr());
  PyErr_Clear();
  throw Error(Code::invalid_argument,
              "stream: expected the address of a stream, a stream of PyTorch or CuPy, or an object "
              "with __cuda_stream__, got " +
                  text_of(taken(PyObject_Repr(stream)).ptr()));
}

// ---- New arrays --------------------------------------------------------------------------------

PyObject* allocate(const ArrayType& type, PyObject* like, DType dtype, const Dims& shape,
                   Device device, std::string_view function) {
  if (kDtypeNames[static_cast<std::size_t>(dtype)] == nullptr) {
    throw Error(Code::unsupported, std::string(function) + ": no framework has arrays of " +
                                       std::string(name(dtype)) + "; give the output as out=");
  }
  if (type.exchange != nullptr) {
    const detail::DlpackDType code = *detail::dlpack_dtype(dtype);
    Dims extents = shape;
    dlpack::Tensor prototype{nullptr,
                             {detail::dlpack_device_type(device.type), device.index},
                             static_cast<std::int32_t>(shape.size()),
                             {code.code, code.bits, 1},
                             extents.data(),
                             nullptr,
                             0};
    dlpack::ManagedVersioned* made = nullptr;
    std::string message;
    if (type.exchange->allocate(&prototype, &made, &message, set_allocation_error) != 0) {
      throw Error(Code::device, std::string(function) + ": allocating an output: " + message);
    }
    void* array = nullptr;
    check(type.exchange->array_of(made, &array));
    return static_cast<PyObject*>(array);
  }
  const nb::object extents = shape_tuple(shape);
  switch (type.framework) {
    case Framework::numpy:
    case Framework::torch: {
      const Functions& framework = functions_of(type.framework);
      return call_empty(
                 framework.empty, extents,
                 nb::steal(framework_dtype(type.framework, dtype, framework.module)),
                 type.framework == Framework::torch ? attribute(like, "device") : nb::object())
          .release()
          .ptr();
    }
    case Framework::cupy: {  // allocates on its current device
      const Functions& cupy = functions_of(type.framework);
      const nb::object element = nb::steal(framework_dtype(type.framework, dtype, cupy.module));
      const nb::object its = attribute(like, "device");
      taken(PyObject_CallMethod(its.ptr(), "__enter__", nullptr));
      PyObject* arguments[] = {extents.ptr(), element.ptr()};
      PyObject* made = PyObject_Vectorcall(cupy.empty, arguments, 2, nullptr);
      {
        const nb::error_scope failure;  // of the allocation, while the device is left
        Py_XDECREF(PyObject_CallMethod(its.ptr(), "__exit__", "OOO", Py_None, Py_None, Py_None));
        PyErr_Clear();
      }
      return taken(made).release().ptr();
    }
    case Framework::jax:
      if (device.type != DeviceType::cpu) {
        throw Error(Code::unsupported,
                    std::string(function) +
                        ": JAX's arrays on a GPU cannot be written by others; give the output as "
                        "an array of another framework, out=");
      }
      break;
    case Framework::other: break;
  }
  PyObject* module = PyObject_CallMethod(like, "__array_namespace__", nullptr);
  if (module == nullptr) {
    PyErr_Clear();
    throw Error(
        Code::unsupported,
        std::string(function) + ": arrays of type " +
            text_of(attribute(reinterpret_cast<PyObject*>(Py_TYPE(like)), "__name__").ptr()) +
            " have no array namespace to allocate an output with; give it as out=");
  }
  const nb::object space = taken(module);
  nb::object made = call_empty(attribute(space.ptr(), "empty").ptr(), extents,
                               nb::steal(framework_dtype(type.framework, dtype, space.ptr())),
                               attribute(like, "device"));
  if (type.framework == Framework::jax) {
    taken(PyObject_CallMethod(made.ptr(), "block_until_ready", nullptr));
  }
  return made.release().ptr();
}

// ---- Exports -----------------------------------------------------------------------------------

namespace {

template <class Managed>
struct Exported {
  Managed managed{};
  Dims shape;
  Dims strides;
  PyObject* owner = nullptr;
};

template <class Managed>
void release(Managed* managed) {
  auto* exported = static_cast<Exported<Managed>*>(managed->context);
  const PyGILState_STATE state = PyGILState_Ensure();
  Py_XDECREF(exported->owner);
  PyGILState_Release(state);
  delete exported;
}

template <class Managed>
void release_unused(PyObject* capsule, const char* name) {
  if (PyCapsule_IsValid(capsule, name) == 0) return;  // a consumer has taken it over
  release(static_cast<Managed*>(PyCapsule_GetPointer(capsule, name)));
}

template <class Managed>
PyObject* capsule_of(const View& view, PyObject* owner, const char* name,
                     PyCapsule_Destructor destructor) {
  const std::optional<detail::DlpackDType> type = detail::dlpack_dtype(view.dtype());
  if (!type) {
    throw Error(Code::unsupported,
                "__dlpack__: DLPack has no dtype " + std::string(kiln::name(view.dtype())));
  }
  auto exported = std::make_unique<Exported<Managed>>();
  exported->shape = view.shape();
  exported->strides = view.strides();
  exported->owner = Py_NewRef(owner);
  Managed& managed = exported->managed;
  managed.context = exported.get();
  managed.deleter = release<Managed>;
  managed.tensor = {view.data(),
                    {detail::dlpack_device_type(view.device().type), view.device().index},
                    static_cast<std::int32_t>(view.shape().size()),
                    {type->code, type->bits, 1},
                    exported->shape.data(),
                    exported->strides.data(),
                    0};
  if constexpr (std::is_same_v<Managed, dlpack::ManagedVersioned>) {
    managed.version = {kDlpackMajor, kDlpackMinor};
  }
  nb::object capsule = taken(PyCapsule_New(&managed, name, destructor));
  exported.release();
  return capsule.release().ptr();
}

}  // namespace

PyObject* export_view(const View& view, PyObject* owner, bool versioned) {
  if (versioned) {
    return capsule_of<dlpack::ManagedVersioned>(
        view, owner, "dltensor_versioned", [](PyObject* capsule) {
          release_unused<dlpack::ManagedVersioned>(capsule, "dltensor_versioned");
        });
  }
  return capsule_of<dlpack::Managed>(view, owner, "dltensor", [](PyObject* capsule) {
    release_unused<dlpack::Managed>(capsule, "dltensor");
  });
}

}  // namespace kiln::python
