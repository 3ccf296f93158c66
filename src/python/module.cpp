// The module kiln._kiln: what is bound elsewhere, its errors, and the process's settings, devices
// and cache.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>

#include "kiln/cache.hpp"
#include "kiln/configure.hpp"
#include "kiln/devices.hpp"
#include "kiln/error.hpp"
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

nb::dict fields_of(const KernelInfo& info) {
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
  return fields;
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
                       std::optional<int> threads, std::optional<std::uint64_t> fallback_memory) {
  Configuration configuration;
  configuration.cache_directory = std::move(cache_directory);
  configuration.cache_max_size = cache_max_size;
  configuration.cache_readonly = std::move(cache_readonly);
  configuration.jobs = jobs;
  configuration.worker = std::move(worker);
  configuration.threads = threads;
  configuration.fallback_memory = fallback_memory;
  configure(std::move(configuration), "kiln.configure", 0);
}

nb::object describe_device(nb::handle device) {
  const DeviceInfo info = device_info(device_of(device));
  nb::dict fields;
  fields["name"] = info.name;
  fields["target"] = info.target;
  fields["compute_units"] = info.compute_units;
  fields["wave_size"] = info.wave_size;
  return result("DeviceInfo", fields);
}

std::vector<std::string> device_names() {
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

// ---- The cache ---------------------------------------------------------------------------------

using CachePointer = std::shared_ptr<cache::Cache>;

struct PyCache {
  CachePointer cache;
};

nb::object listing(const cache::Listing& entry) {
  nb::dict fields;
  fields["key"] = entry.key.hex();
  fields["function"] = entry.metadata.function;
  fields["expression"] = entry.metadata.expression;
  fields["signature"] = entry.metadata.signature;
  fields["target"] = entry.metadata.target;
  fields["toolchain"] = entry.metadata.toolchain;
  fields["compile_ms"] = entry.metadata.compile_ms;
  fields["created"] = entry.metadata.created;
  fields["last_used"] = entry.last_used;
  fields["file_bytes"] = entry.file_bytes;
  fields["code_bytes"] = entry.code_bytes;
  fields["path"] = entry.path;
  fields["problem"] = entry.problem;
  return result("CacheEntry", fields);
}

nb::list problems_of(const std::vector<cache::Problem>& problems) {
  nb::list list;
  for (const cache::Problem& problem : problems) {
    list.append(nb::make_tuple(problem.path, problem.reason));
  }
  return list;
}

cache::Filter filter_of(const std::string& target, const std::string& function) {
  return {.target = target, .function = function};
}

nb::list list_entries(const PyCache& self, const std::string& target, const std::string& function) {
  std::vector<cache::Listing> entries;
  {
    const nb::gil_scoped_release released;
    entries = cache::list(*self.cache, filter_of(target, function));
  }
  nb::list list;
  for (const cache::Listing& entry : entries) list.append(listing(entry));
  return list;
}

nb::tuple read_entry(const PyCache& self, const std::string& key) {
  const cache::Entry entry = cache::read(*self.cache, cache::resolve(*self.cache, key));
  return nb::make_tuple(entry.source, nb::bytes(entry.code.data(), entry.code.size()));
}

nb::dict stats_of(const PyCache& self) {
  const cache::Stats stats = cache::stats(*self.cache);
  nb::dict counts;
  for (std::size_t i = 0; i < cache::kCounts; ++i) {
    const auto count = static_cast<cache::Count>(i);
    counts[nb::cast(std::string(cache::name(count)))] = stats[count];
  }
  return counts;
}

nb::list verify(const PyCache& self, bool repair) {
  cache::Verification found;
  {
    const nb::gil_scoped_release released;
    found = cache::verify(*self.cache, repair);
  }
  return problems_of(found.problems);
}

std::size_t trim(const PyCache& self, std::optional<std::uint64_t> max_size,
                 std::optional<std::int64_t> unused_seconds, bool dry_run) {
  if (!max_size && !unused_seconds) {
    throw Error(Code::invalid_argument,
                "trim: expected max_size= or unused_seconds=; clear() "
                "removes everything");
  }
  cache::TrimPolicy policy;
  policy.max_size = max_size;
  if (unused_seconds) policy.unused_for = std::chrono::seconds(*unused_seconds);
  policy.dry_run = dry_run;
  const nb::gil_scoped_release released;
  return cache::trim(*self.cache, policy).entries.size();
}

std::uint64_t export_entries(const PyCache& self, const std::string& path,
                             const std::string& target, const std::string& function) {
  const nb::gil_scoped_release released;
  return cache::export_bundle(*self.cache, path, filter_of(target, function)).entries;
}

std::uint64_t import_entries(const PyCache& self, const std::string& path) {
  const nb::gil_scoped_release released;
  return cache::import_bundle(*self.cache, path).entries;
}

void bind_cache(nb::module_& module) {
  nb::class_<PyCache>(module, "Cache")
      .def_prop_ro("directory", [](const PyCache& self) { return cache::directory(*self.cache); })
      .def("list", list_entries, nb::kw_only(), nb::arg("target") = "", nb::arg("function") = "")
      .def("read", read_entry, nb::arg("key"))
      .def("stats", stats_of)
      .def("verify", verify, nb::kw_only(), nb::arg("repair") = false)
      .def("trim", trim, nb::kw_only(), nb::arg("max_size") = nb::none(),
           nb::arg("unused_seconds") = nb::none(), nb::arg("dry_run") = false)
      .def("clear",
           [](const PyCache& self) {
             const nb::gil_scoped_release released;
             return cache::clear(*self.cache).entries.size();
           })
      .def("export", export_entries, nb::arg("path"), nb::kw_only(), nb::arg("target") = "",
           nb::arg("function") = "")
      .def("import_", import_entries, nb::arg("path"));
  module.def(
      "_open_cache", [](const std::string& directory) { return PyCache{cache::open(directory)}; },
      nb::arg("directory"));
}

}  // namespace

NB_MODULE(_kiln, module) {
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
  bind_cache(module);
  module.def("version", [] { return std::string(version()); });
  module.def(
      "set_log", [](const nb::object& callback) { set_log(log_to(callback)); },
      nb::arg("callback").none());
  module.def("configure", configure_process, nb::kw_only(), nb::arg("cache_directory") = nb::none(),
             nb::arg("cache_max_size") = nb::none(), nb::arg("cache_readonly") = nb::none(),
             nb::arg("jobs") = nb::none(), nb::arg("worker") = nb::none(),
             nb::arg("threads") = nb::none(), nb::arg("fallback_memory") = nb::none());
  module.def("devices", device_names);
  module.def("device_info", describe_device, nb::arg("device"));
  module.def("compile_targets", target_names);
}

}  // namespace kiln::python
