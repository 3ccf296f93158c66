// The module kiln._kiln: what is bound elsewhere, its errors, and the process's settings and
// devices.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "kiln/configure.hpp"
#include "kiln/devices.hpp"
#include "kiln/error.hpp"
#include "kiln/fallback.hpp"
#include "kiln/statistics.hpp"
#include "kiln/version.hpp"
#include "python/calls.hpp"
#include "python/objects.hpp"

namespace kiln::python {

// ---- objects.hpp -------------------------------------------------------------------------------

std::string text_of(PyObject* object) {
  const nb::object text = taken(PyObject_Str(object));
  Py_ssize_t size = 0;
  const char* bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (bytes == nullptr) throw nb::python_error();
  return {bytes, static_cast<std::size_t>(size)};
}

std::shared_ptr<PyObject> shared(nb::handle object) {
  return {Py_NewRef(object.ptr()), [](PyObject* kept) {
            if (Py_IsInitialized() == 0) return;
            const PyGILState_STATE state = PyGILState_Ensure();
            Py_DECREF(kept);
            PyGILState_Release(state);
          }};
}

nb::object result(const char* type, const nb::dict& fields) {
  const nb::object made = nb::module_::import_("kiln._results").attr(type);
  return taken(PyObject_Call(made.ptr(), nb::tuple().ptr(), fields.ptr()));
}

namespace {

void set_kiln_error(const Error& error) {
  const nb::object type = nb::module_::import_("kiln._results").attr("Error");
  const nb::object code = error.driver_code() ? nb::cast(*error.driver_code()) : nb::none();
  const nb::object made = type(error.what(), std::string(name(error.code())), code);
  PyErr_SetObject(type.ptr(), made.ptr());
}

}  // namespace

void set_error() noexcept {
  try {
    try {
      throw;
    } catch (nb::python_error& error) {
      error.restore();
    } catch (const Error& error) {
      set_kiln_error(error);
    } catch (const std::bad_alloc&) {
      PyErr_NoMemory();
    } catch (const std::bad_cast&) {
      PyErr_SetString(PyExc_TypeError, "an argument has a type that was not expected");
    } catch (const std::exception& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
    }
  } catch (nb::python_error& error) {  // kiln's class of errors is not to be had
    error.restore();
  }
}

// ---- Results -----------------------------------------------------------------------------------

namespace {

std::string name_of(CacheState state) {
  switch (state) {
    case CacheState::memory: return "memory";
    case CacheState::disk: return "disk";
    case CacheState::remote: return "remote";
    case CacheState::compiled: break;
  }
  return "compiled";
}

}  // namespace

nb::object kernel_info(const KernelInfo& info) {
  nb::dict fields;
  fields["function"] = info.function;
  fields["expression"] = info.expression;
  fields["entry"] = info.entry;
  fields["key"] = info.key;
  fields["target"] = info.target;
  fields["variant"] = info.variant;
  fields["source"] = info.source;
  fields["cache"] = name_of(info.cache);
  fields["compile_ms"] = info.compile_ms;
  fields["bytes"] = info.bytes;
  fields["kernels"] = info.kernels;
  fields["fallback"] = info.fallback;
  return result("KernelInfo", fields);
}

nb::object explanation(const ProgramInfo& info) {
  nb::list kernels;
  for (const ProgramKernel& kernel : info.kernels) {
    nb::dict fields;
    fields["name"] = kernel.name;
    fields["call"] = kernel.call;
    fields["expression"] = kernel.expression;
    fields["reason"] = kernel.reason;
    fields["after"] = nb::tuple(nb::cast(kernel.after));
    fields["reads"] = nb::tuple(nb::cast(kernel.reads));
    fields["writes"] = nb::tuple(nb::cast(kernel.writes));
    fields["operations"] = kernel.operations;
    fields["bytes"] = kernel.bytes;
    fields["unfused_bytes"] = kernel.op_by_op_bytes;
    kernels.append(result("ExplainedKernel", fields));
  }
  nb::dict fields;
  fields["name"] = info.program;
  fields["kernels"] = nb::tuple(kernels);
  fields["bytes"] = info.bytes;
  fields["unfused_bytes"] = info.op_by_op_bytes;
  fields["least_bytes"] = info.lower_bound;
  fields["workspace_bytes"] = info.workspace_bytes;
  return result("Explanation", fields);
}

// ---- The process -------------------------------------------------------------------------------

Device device_of(nb::handle device) {
  if (PyUnicode_Check(device.ptr())) return parse_device(text_of(device.ptr()));
  Arrays views("device");
  return views.view(device.ptr(), {"device"}, Access::read).device();
}

namespace {

LogSink log_to(const nb::object& callback) {
  if (callback.is_none()) return {};
  return [kept = shared(callback)](LogLevel level, std::string_view message) {
    if (Py_IsInitialized() == 0) return;
    const nb::gil_scoped_acquire acquired;
    constexpr std::array<const char*, 3> kLevels = {"debug", "info", "warning"};
    try {
      nb::handle(kept.get())(kLevels[static_cast<std::size_t>(level)], std::string(message));
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("the log of kiln");
    }
  };
}

void configure_process(std::optional<std::string> cache_directory,
                       std::optional<std::uint64_t> cache_max_size,
                       std::optional<std::vector<std::string>> cache_readonly,
                       std::optional<int> jobs, std::optional<std::string> worker,
                       std::optional<int> threads, std::optional<std::uint64_t> memory_limit,
                       std::optional<std::uint64_t> fallback_memory,
                       const std::optional<std::string>& on_miss) {
  Configuration configuration;
  configuration.cache_directory = std::move(cache_directory);
  configuration.cache_max_size = cache_max_size;
  configuration.cache_readonly = std::move(cache_readonly);
  configuration.jobs = jobs;
  configuration.worker = std::move(worker);
  configuration.threads = threads;
  configuration.memory_limit = memory_limit;
  configuration.fallback_memory = fallback_memory;
  if (on_miss) configuration.on_miss = on_miss_of(*on_miss);
  configure(std::move(configuration), "kiln.configure", 0);
}

nb::object describe_device(nb::handle device) {
  const Device described = device_of(device);
  DeviceInfo info;
  {
    const nb::gil_scoped_release released;
    info = device_info(described);
  }
  nb::dict fields;
  fields["name"] = info.name;
  fields["target"] = info.target;
  fields["compute_units"] = info.compute_units;
  fields["wave_size"] = info.wave_size;
  return result("DeviceInfo", fields);
}

nb::object statistics_of(nb::handle device) {
  const Statistics kept = statistics(device_of(device));
  nb::dict fields;
  fields["memory_limit"] = kept.memory_limit;
  fields["plans"] = kept.plans;
  fields["plan_bytes"] = kept.plan_bytes;
  fields["plans_dropped"] = kept.plans_dropped;
  fields["kernels"] = kept.kernels;
  fields["kernel_bytes"] = kept.kernel_bytes;
  fields["kernels_unloaded"] = kept.kernels_unloaded;
  fields["fallbacks"] = kept.fallbacks;
  return result("Statistics", fields);
}

// The device's name.
std::string lend_memory(nb::handle device, nb::handle memory) {
  const Device on = device_of(device);
  Arrays views("lend_fallback_memory");
  const View view = memory.is_none() ? View(nullptr, DType::u8, {0}, on)
                                     : views.view(memory.ptr(), {"memory"}, Access::write);
  {
    const nb::gil_scoped_release released;
    lend_fallback_memory(view);
  }
  return to_string(on);
}

std::vector<std::string> device_names() {
  const nb::gil_scoped_release released;
  std::vector<std::string> names;
  for (const Device device : devices()) names.push_back(to_string(device));
  return names;
}

nb::list target_names() {
  std::vector<CompileTarget> targets;
  {
    const nb::gil_scoped_release released;
    targets = compile_targets();
  }
  nb::list list;
  for (const CompileTarget& target : targets) {
    list.append(nb::make_tuple(target.name, target.compiler));
  }
  return list;
}

}  // namespace

void bind_process(nb::module_& module) {
  module.def("version", [] { return std::string(version()); });
  module.def(
      "set_log", [](const nb::object& callback) { set_log(log_to(callback)); },
      nb::arg("callback").none());
  module.def("configure", configure_process, nb::kw_only(), nb::arg("cache_directory") = nb::none(),
             nb::arg("cache_max_size") = nb::none(), nb::arg("cache_readonly") = nb::none(),
             nb::arg("jobs") = nb::none(), nb::arg("worker") = nb::none(),
             nb::arg("threads") = nb::none(), nb::arg("memory_limit") = nb::none(),
             nb::arg("fallback_memory") = nb::none(), nb::arg("on_miss") = nb::none());
  module.def("devices", device_names);
  module.def("device_info", describe_device, nb::arg("device"));
  module.def("compile_targets", target_names);
  module.def("statistics", statistics_of, nb::arg("device"));
  module.def("_lend_fallback_memory", lend_memory, nb::arg("device"), nb::arg("memory").none());
}

NB_MODULE(_kiln, module) {
  // A program keeps the functions of its calls, which may refer to their module and so to the
  // program: a cycle through C++, which is there until the process ends and no fault of the user's.
  nb::set_leak_warnings(false);
  nb::register_exception_translator(
      [](const std::exception_ptr& thrown, void*) {
        try {
          std::rethrow_exception(thrown);
        } catch (const Error& error) {
          set_kiln_error(error);
        }
      },
      nullptr);
  bind_tracing(module);
  bind_calls(module);
  bind_kernels(module);
  bind_graphs(module);
  bind_cache(module);
  bind_process(module);
}

}  // namespace kiln::python
