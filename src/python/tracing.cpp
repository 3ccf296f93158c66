// kiln::Value in Python, and what makes functions of callables and of text.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "kiln/dlpack_types.hpp"
#include "kiln/dynamic.hpp"
#include "kiln/error.hpp"
#include "kiln/option_names.hpp"
#include "kiln/program.hpp"
#include "kiln/shape.hpp"
#include "python/arrays.hpp"
#include "python/calls.hpp"
#include "python/objects.hpp"

namespace kiln::python {
namespace {

Value value_of(nb::handle operand) {
  if (nb::isinstance<Value>(operand)) return nb::cast<Value>(operand);
  if (const std::optional<Scalar> number = scalar_of(operand.ptr()); number && number->weak()) {
    switch (number->dtype()) {
      case DType::boolean: return {number->bits() != 0};
      case DType::f64: return {nb::cast<double>(operand)};
      case DType::u64: return {number->bits()};
      default: return {static_cast<std::int64_t>(number->bits())};
    }
  }
  throw Error(Code::invalid_argument,
              "expected a value that is being traced or a number of Python, got " +
                  text_of(nb::repr(operand).ptr()) +
                  "; an array is an argument of the function, not a part of it");
}

std::vector<Value> values_of(const nb::sequence& operands) {
  std::vector<Value> values;
  for (nb::handle operand : operands) values.push_back(value_of(operand));
  return values;
}

Function trace_body(const std::string& name, const std::vector<std::string>& arguments,
                    const nb::object& body, const std::string& rounding,
                    const std::string& accuracy, const std::string& on_miss) {
  return trace(name, arguments, options_of(rounding, accuracy, on_miss),
               [&](std::span<const Value> values) {
                 nb::list operands;
                 for (const Value& value : values) operands.append(nb::cast(value));
                 const nb::object made = body(*operands);
                 if (PyTuple_Check(made.ptr()) || PyList_Check(made.ptr())) {
                   return values_of(nb::cast<nb::sequence>(made));
                 }
                 return std::vector<Value>{value_of(made)};
               });
}

// What kiln calls to know the results of a call of the caller's own, and to make it.
LibraryCall library_call(const std::string& name, const nb::object& run, const nb::object& shapes,
                         const nb::object& dtypes) {
  LibraryCall call;
  call.name = name;
  call.dtypes = [kept = shared(dtypes)](std::span<const DType> inputs) {
    const nb::gil_scoped_acquire acquired;
    nb::list given;
    for (const DType dtype : inputs) given.append(std::string(kiln::name(dtype)));
    std::vector<DType> made;
    for (nb::handle dtype : nb::handle(kept.get())(given)) made.push_back(dtype_of(dtype.ptr()));
    return made;
  };
  call.shapes = [kept = shared(shapes)](std::span<const Dims> inputs) {
    const nb::gil_scoped_acquire acquired;
    nb::list given;
    for (const Dims& shape : inputs) {
      given.append(nb::tuple(nb::cast(std::vector<std::int64_t>(shape.begin(), shape.end()))));
    }
    std::vector<Dims> made;
    for (nb::handle shape : nb::handle(kept.get())(given)) {
      const auto extents = nb::cast<std::vector<std::int64_t>>(shape);
      made.emplace_back(std::span<const std::int64_t>(extents));
    }
    return made;
  };
  call.run = [kept = shared(run)](const Stream& stream, std::span<const View> inputs,
                                  std::span<const View> outputs) {
    const nb::gil_scoped_acquire acquired;
    nb::list read;
    nb::list written;
    for (const View& view : inputs) read.append(nb::cast(view));
    for (const View& view : outputs) written.append(nb::cast(view));
    nb::handle(kept.get())(reinterpret_cast<std::uintptr_t>(stream.native), read, written);
  };
  return call;
}

nb::tuple tuple_of(const Dims& dims) {
  return nb::tuple(nb::cast(std::vector<std::int64_t>(dims.begin(), dims.end())));
}

// Memory that a program hands to a call of the caller's own: valid while that runs.
void bind_view(nb::module_& module) {
  nb::class_<View>(module, "View")
      .def_prop_ro("dtype", [](const View& self) { return std::string(name(self.dtype())); })
      .def_prop_ro("shape", [](const View& self) { return tuple_of(self.shape()); })
      .def_prop_ro("strides", [](const View& self) { return tuple_of(self.strides()); })
      .def_prop_ro("device", [](const View& self) { return to_string(self.device()); })
      .def_prop_ro("data_ptr",
                   [](const View& self) { return reinterpret_cast<std::uintptr_t>(self.data()); })
      .def(
          "__dlpack__",
          [](nb::handle self, nb::handle, nb::handle max_version, nb::handle, nb::handle copy) {
            if (copy.ptr() == Py_True) {
              throw Error(Code::unsupported, "__dlpack__: copy: a View does not copy");
            }
            const bool versioned = !max_version.is_none() && nb::cast<int>(max_version[0]) >= 1;
            return nb::steal(export_view(nb::cast<const View&>(self), self.ptr(), versioned));
          },
          nb::kw_only(), nb::arg("stream") = nb::none(), nb::arg("max_version") = nb::none(),
          nb::arg("dl_device") = nb::none(), nb::arg("copy") = nb::none())
      .def("__dlpack_device__", [](const View& self) {
        return nb::make_tuple(detail::dlpack_device_type(self.device().type), self.device().index);
      });
}

template <std::size_t N>
std::string one_of(const std::array<std::string_view, N>& names) {
  std::string text;
  for (const std::string_view name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

// The number of the given name.
template <std::size_t N>
std::size_t choice(const std::string& text, const char* option,
                   const std::array<std::string_view, N>& names) {
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == text) return i;
  }
  throw Error(Code::invalid_argument,
              std::string(option) + ": expected one of " + one_of(names) + ", got '" + text + "'");
}

template <class Enum, std::size_t N>
constexpr std::array<std::string_view, N> names_of(
    const std::array<std::pair<std::string_view, Enum>, N>& table) {
  std::array<std::string_view, N> names;
  for (std::size_t i = 0; i < N; ++i) names[i] = table[i].first;
  return names;
}

}  // namespace

Options options_of(const std::string& rounding, const std::string& accuracy,
                   const std::string& on_miss) {
  return {.rounding = static_cast<Rounding>(choice(rounding, "rounding", names_of(kRoundings))),
          .accuracy = static_cast<Accuracy>(choice(accuracy, "accuracy", names_of(kAccuracies))),
          .on_miss = on_miss_of(on_miss)};
}

OnMiss on_miss_of(const std::string& on_miss) {
  constexpr std::array<std::string_view, 5> kOnMiss = {"compile", "fail", "background", "fallback",
                                                       "configured"};
  return static_cast<OnMiss>(choice(on_miss, "on_miss", kOnMiss));
}

void bind_tracing(nb::module_& module) {
  nb::class_<Value>(module, "Value");
  bind_view(module);
  module.def("function_names", function_names);
  module.def("_apply", [](const std::string& name, const nb::sequence& operands) {
    return kiln::apply(name, values_of(operands));
  });
  module.def("_cast", [](const Value& x, const nb::object& dtype) {
    return cast(x, dtype_of(dtype.ptr()));
  });
  module.def("_bitcast", [](const Value& x, const nb::object& dtype) {
    return bitcast(x, dtype_of(dtype.ptr()));
  });
  module.def(
      "_iota",
      [](std::optional<int> axis, const nb::object& dtype) {
        const DType type = dtype_of(dtype.ptr());
        return axis ? iota(*axis, type) : iota(type);
      },
      nb::arg().none(), nb::arg());
  module.def(
      "_slice",
      [](const Value& x, std::int64_t axis, std::optional<std::int64_t> start,
         std::optional<std::int64_t> stop, std::optional<std::int64_t> step) {
        return slice(x, axis, start, stop, step.value_or(1));
      },
      nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg().none());
  module.def("_element", [](const Value& x, std::int64_t axis, std::int64_t index) {
    return element(x, axis, index);
  });
  module.def("_expand_dims",
             [](const Value& x, std::int64_t axis) { return expand_dims(x, axis); });
  module.def("_library_call",
             [](const std::string& name, const nb::object& run, const nb::object& shapes,
                const nb::object& dtypes, std::size_t results, const nb::sequence& inputs) {
               return call(library_call(name, run, shapes, dtypes), results, values_of(inputs));
             });

  const auto make = [&module](const char* name, auto make_one) { module.def(name, make_one); };
  make("_trace", [](const std::string& name, const std::vector<std::string>& arguments,
                    const nb::object& body, const std::string& rounding,
                    const std::string& accuracy, const std::string& on_miss, bool as_program) {
    const Function made = trace_body(name, arguments, body, rounding, accuracy, on_miss);
    return as_program ? nb::cast(new PyProgram(made), nb::rv_policy::take_ownership)
                      : nb::cast(new PyFunction(made), nb::rv_policy::take_ownership);
  });
  make("_parse", [](const std::string& name, const std::string& text,
                    const std::vector<std::string>& arguments, const std::string& rounding,
                    const std::string& accuracy, const std::string& on_miss, bool as_program) {
    const Function made = parse(name, text, options_of(rounding, accuracy, on_miss), arguments);
    return as_program ? nb::cast(new PyProgram(made), nb::rv_policy::take_ownership)
                      : nb::cast(new PyFunction(made), nb::rv_policy::take_ownership);
  });
}

}  // namespace kiln::python
