// `kiln doctor`: what is on this machine, what is missing, and which package gives it.
#include <fmt/format.h>

#include <array>
#include <chrono>

#include "jit/service/compile.hpp"
#include "kernel/process_cache.hpp"
#include "kiln/cache.hpp"
#include "kiln/devices.hpp"
#include "kiln/error.hpp"
#include "kiln/version.hpp"
#include "tool/commands.hpp"
#include "tool/print.hpp"

namespace kiln::tool {
namespace {

/// Where a missing part comes from, by distribution. AMD's and NVIDIA's own repositories have other
/// names than Debian and its kin.
struct Packages {
  std::string_view part;
  std::string_view debian;
  std::string_view fedora;
  std::string_view vendor;
};
constexpr Packages kHiprtc = {"hiprtc", "libamdhip64-dev (bookworm to noble: libamdhip64-5)",
                              "rocm-hip", "hip-runtime-amd (repo.radeon.com)"};
constexpr Packages kNvrtc = {"nvrtc", "libnvrtc12 (or nvidia-cuda-toolkit)", "cuda-nvrtc",
                             "cuda-nvrtc-12-x (developer.download.nvidia.com)"};
constexpr Packages kHost = {"host", "clang or g++", "clang or gcc-c++", ""};

const Packages& packages(jit::ToolchainKind kind) {
  switch (kind) {
    case jit::ToolchainKind::hiprtc: return kHiprtc;
    case jit::ToolchainKind::nvrtc: return kNvrtc;
    case jit::ToolchainKind::host: break;
  }
  return kHost;
}

Json to_json(const Packages& packages) {
  Json json = {{"debian", packages.debian}, {"fedora", packages.fedora}};
  if (!packages.vendor.empty()) json["vendor"] = packages.vendor;
  return json;
}

Json device_list() {
  Json json = Json::array();
  for (const Device device : devices()) {
    try {
      const DeviceInfo info = device_info(device);
      json.push_back({{"device", to_string(device)},
                      {"name", info.name},
                      {"target", info.target},
                      {"compute_units", info.compute_units},
                      {"wave_size", info.wave_size}});
    } catch (const Error& error) {
      json.push_back({{"device", to_string(device)}, {"problem", error.what()}});
    }
  }
  return json;
}

Json absent_devices() {
  Json json = Json::object();
  for (const auto& [type, name] :
       {std::pair(DeviceType::hip, "hip"), std::pair(DeviceType::cuda, "cuda"),
        std::pair(DeviceType::cpu, "cpu")}) {
    if (std::string why = why_absent(type); !why.empty()) json[name] = std::move(why);
  }
  return json;
}

Json toolchains() {
  Json json = Json::array();
  for (const jit::Toolchain& toolchain : jit::toolchains()) {
    bool used = true;
    for (const Json& other : json) used &= other["kind"] != jit::name(toolchain.kind);
    Json entry = {{"kind", jit::name(toolchain.kind)},
                  {"version", toolchain.version},
                  {"path", toolchain.path},
                  {"identity", toolchain.identity},
                  {"used", used}};
    if (used) {
      try {
        entry["targets"] = jit::known_targets(toolchain.kind);
      } catch (const Error& error) {
        entry["problem"] = error.what();
      }
    }
    json.push_back(std::move(entry));
  }
  return json;
}

Json missing_toolchains(const Json& found) {
  Json json = Json::array();
  for (const jit::ToolchainKind kind :
       {jit::ToolchainKind::hiprtc, jit::ToolchainKind::nvrtc, jit::ToolchainKind::host}) {
    bool there = false;
    for (const Json& toolchain : found) there |= toolchain["kind"] == jit::name(kind);
    if (there) continue;
    std::string reason = "not found";
    try {
      jit::toolchain(kind);
    } catch (const Error& error) {
      reason = error.what();
    }
    json.push_back(
        {{"kind", jit::name(kind)}, {"reason", reason}, {"packages", to_json(packages(kind))}});
  }
  return json;
}

Json cache_health() {
  cache::Cache& cache = process_cache();
  Json json = {{"directory", cache.config().directory}};
  const std::string problem = cache.health_error();
  json["healthy"] = problem.empty();
  if (!problem.empty()) {
    json["problem"] = problem;
    return json;
  }
  const cache::Usage usage = cache::usage(cache);
  json["entries"] = usage.entries;
  json["bytes"] = usage.bytes;
  json["max_bytes"] = usage.max_size;
  json["quarantined"] = usage.quarantined;
  json["readonly"] = cache.config().readonly;
  if (!usage.problems.empty()) {
    json["healthy"] = false;
    json["problem"] = fmt::format("{}: {}", usage.problems[0].path, usage.problems[0].reason);
  }
  return json;
}

/// The server of the remote cache; null without one.
Json remote_health() {
  cache::Cache& cache = process_cache();
  const std::string& why = cache.config().why_no_remote;
  if (!why.empty()) return {{"healthy", false}, {"problem", why}};
  const auto remote = cache.remote();
  if (!remote) return nullptr;
  const auto limit = remote->settings().answer + std::chrono::seconds(1);
  const cache::RemoteHealth health = remote->check(std::chrono::steady_clock::now() + limit);
  Json json = {{"server", remote->settings().display()},
               {"prefix", remote->settings().prefix},
               {"healthy", health.problem.empty()}};
  if (!health.problem.empty()) json["problem"] = "the server " + health.problem;
  if (health.connected) json["latency_ms"] = static_cast<double>(health.latency.count()) / 1000;
  return json;
}

std::string joined(const Json& list) {
  std::string text;
  for (const Json& item : list) text += (text.empty() ? "" : " ") + item.get<std::string>();
  return text;
}

void print_devices(const Json& report) {
  print("{}\n", bold("Devices"));
  Table table;
  for (const Json& device : report["devices"]) {
    table.row({"  " + device["device"].get<std::string>(),
               device.contains("problem") ? red(device["problem"].get<std::string>())
                                          : device["name"].get<std::string>(),
               device.contains("target") ? clip(device["target"].get<std::string>(), 60) : ""});
  }
  table.print();
  for (const auto& [type, why] : report["absent"].items()) {
    print("  {}: {}\n", type, why.get<std::string>());
  }
}

void print_toolchains(const Json& report) {
  print("\n{}\n", bold("Compilers"));
  for (const Json& toolchain : report["toolchains"]) {
    Table table;
    const auto text = [&](const char* key) { return toolchain[key].get<std::string>(); };
    table.row({"  " + text("kind"),
               text("version") + (toolchain["used"].get<bool>() ? "" : dim(" (not used)"))});
    table.row({"", text("path")});
    table.row({"", text("identity").empty()
                       ? red("not identified: kernels that it compiles are not cached on disk")
                       : "identity " + clip(text("identity"), 80)});
    if (toolchain.contains("targets")) table.row({"", "targets " + joined(toolchain["targets"])});
    if (toolchain.contains("problem")) table.row({"", red(text("problem"))});
    table.print();
  }
  for (const Json& missing : report["missing"]) {
    print("  {}: {}\n", missing["kind"].get<std::string>(), missing["reason"].get<std::string>());
    for (const auto& [family, name] : missing["packages"].items()) {
      print("    {}: {}\n", family, name.get<std::string>());
    }
  }
}

void print_cache(const Json& cache) {
  print("\n{}\n", bold("Cache"));
  const auto directory = cache["directory"].get<std::string>();
  print("  {}\n", directory.empty() ? "none" : directory);
  if (!cache["healthy"].get<bool>()) {
    print("  {}\n", red(cache["problem"].get<std::string>()));
    return;
  }
  const auto bound = cache["max_bytes"].get<std::uint64_t>();
  print("  {} entries, {}{}\n", cache["entries"].get<std::uint64_t>(),
        human_bytes(cache["bytes"].get<std::uint64_t>()),
        bound ? fmt::format(" of at most {}", human_bytes(bound)) : "");
  if (const auto bad = cache["quarantined"].get<std::uint64_t>()) {
    print("  {}\n",
          red(fmt::format("{} damaged or refused entries in quarantine: see kiln cache verify",
                          bad)));
  }
}

void print_remote(const Json& remote) {
  if (remote.is_null()) return;
  print("\n{}\n", bold("Remote cache"));
  if (remote.contains("server")) print("  {}\n", remote["server"].get<std::string>());
  if (remote.contains("latency_ms")) {
    print("  answers in {:.2f} ms\n", remote["latency_ms"].get<double>());
  }
  if (remote.contains("problem")) print("  {}\n", red(remote["problem"].get<std::string>()));
}

}  // namespace

int run_doctor(const DoctorOptions& options) {
  Json report = {{"version", KILN_VERSION_STRING}};
  report["devices"] = device_list();
  report["absent"] = absent_devices();
  report["toolchains"] = toolchains();
  report["missing"] = missing_toolchains(report["toolchains"]);
  report["cache"] = cache_health();
  report["remote"] = remote_health();
  // Something must be able to run, or kiln is of no use here.
  const bool works = !report["devices"].empty();
  report["works"] = works;
  if (options.json) {
    print_json(report);
  } else {
    print_devices(report);
    print_toolchains(report);
    print_cache(report["cache"]);
    print_remote(report["remote"]);
  }
  return works ? kSuccess : kFailure;
}

}  // namespace kiln::tool
