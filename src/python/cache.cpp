// The cache of compiled kernels in Python.
#include "kiln/cache.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <chrono>

#include "kiln/error.hpp"
#include "python/calls.hpp"
#include "python/objects.hpp"

namespace kiln::python {
namespace {

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
  cache::Entry entry;
  {
    const nb::gil_scoped_release released;
    entry = cache::read(*self.cache, cache::resolve(*self.cache, key));
  }
  return nb::make_tuple(entry.source, nb::bytes(entry.code.data(), entry.code.size()));
}

nb::dict stats_of(const PyCache& self) {
  cache::Stats stats;
  {
    const nb::gil_scoped_release released;
    stats = cache::stats(*self.cache);
  }
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

std::uint64_t push_entries(const PyCache& self, const std::string& target,
                           const std::string& function) {
  const nb::gil_scoped_release released;
  return cache::push(*self.cache, filter_of(target, function)).entries;
}

std::uint64_t pull_entries(const PyCache& self, const std::string& target,
                           const std::string& function) {
  const nb::gil_scoped_release released;
  return cache::pull(*self.cache, filter_of(target, function)).entries;
}

}  // namespace

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
      .def("import_", import_entries, nb::arg("path"))
      .def("push", push_entries, nb::kw_only(), nb::arg("target") = "", nb::arg("function") = "")
      .def("pull", pull_entries, nb::kw_only(), nb::arg("target") = "", nb::arg("function") = "");
  module.def("_use_remote", cache::use_remote, nb::arg("url"), nb::arg("secret"));
  module.def(
      "_open_cache", [](const std::string& directory) { return PyCache{cache::open(directory)}; },
      nb::arg("directory"));
}

}  // namespace kiln::python
