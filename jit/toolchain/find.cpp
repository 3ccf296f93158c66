// See find.hpp.
#include "jit/toolchain/find.hpp"

#include <elf.h>
#include <fmt/format.h>
#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/dynamic_library.hpp"
#include "base/elf.hpp"
#include "base/environment.hpp"
#include "base/mapped_file.hpp"
#include "base/text.hpp"
#include "jit/toolchain/environment.hpp"

namespace kiln::jit {
namespace {

namespace fs = std::filesystem;

#if defined(__x86_64__)
constexpr const char* kMultiarch = "x86_64-linux-gnu";
#else
constexpr const char* kMultiarch = "aarch64-linux-gnu";
#endif

std::vector<std::string> matches(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  globfree(&found);
  return paths;
}

// The directories the dynamic loader searches, in its order.
std::vector<std::string> loader_directories() {
  std::vector<std::string> directories = base::split(compiler_variable("LD_LIBRARY_PATH"), ':');
  for (const std::string& file : matches("/etc/ld.so.conf.d/*.conf")) {
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with('/')) directories.push_back(line);
    }
  }
  for (const std::string& directory :
       {fmt::format("/lib/{}", kMultiarch), fmt::format("/usr/lib/{}", kMultiarch),
        std::string("/lib64"), std::string("/usr/lib64"), std::string("/lib"),
        std::string("/usr/lib")}) {
    directories.push_back(directory);
  }
  return directories;
}

// Where the vendors install outside the loader's paths, for a toolchain kind.
std::vector<std::string> vendor_directories(ToolchainKind kind) {
  std::vector<std::string> roots;
  std::string suffix = "/lib";
  if (kind == ToolchainKind::hiprtc) {
    for (const char* variable : {"ROCM_PATH", "HIP_PATH"})
      roots.push_back(compiler_variable(variable));
    for (const char* pattern : {"/opt/rocm", "/opt/rocm-*"}) {
      for (std::string& root : matches(pattern)) roots.push_back(std::move(root));
    }
  } else {
    suffix = "/lib64";
    for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
      roots.push_back(compiler_variable(variable));
    for (const char* pattern : {"/usr/local/cuda", "/usr/local/cuda-*"}) {
      for (std::string& root : matches(pattern)) roots.push_back(std::move(root));
    }
  }
  std::vector<std::string> directories;
  for (const std::string& root : roots) {
    if (!root.empty()) directories.push_back(root + suffix);
  }
  return directories;
}

std::vector<std::string> library_names(ToolchainKind kind) {
  if (kind == ToolchainKind::hiprtc) {
    return {"libhiprtc.so.7", "libhiprtc.so.6",   "libamdhip64.so.6",
            "libhiprtc.so.5", "libamdhip64.so.5", "libhiprtc.so"};
  }
  return {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"};
}

std::optional<std::string> resolved(const fs::path& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (error || !fs::is_regular_file(real, error)) return std::nullopt;
  return real.string();
}

// The directory of the HIP runtime that this process has loaded already.
std::optional<fs::path> loaded_hip_directory() {
  for (const char* name : {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"}) {
    const auto library = base::DynamicLibrary::find_loaded(name);
    const auto path = library ? resolved(library.path()) : std::nullopt;
    if (path) return fs::path(*path).parent_path();
  }
  return std::nullopt;
}

std::vector<int> numbers(const std::string& version) {
  std::vector<int> parts;
  for (const std::string& part : base::split(version, '.'))
    parts.push_back(std::atoi(part.c_str()));
  return parts;
}

// Newest first, except that the release of the loaded HIP runtime comes before all others: code for
// another release may not load there.
void order_by_preference(ToolchainKind kind, std::vector<std::string>& paths) {
  const auto loaded = kind == ToolchainKind::hiprtc ? loaded_hip_directory() : std::nullopt;
  const auto rank = [&](const std::string& path) {
    const bool beside = loaded && fs::path(path).parent_path() == *loaded;
    return std::pair(beside, numbers(version_in_name(path)));
  };
  std::stable_sort(paths.begin(), paths.end(),
                   [&](const std::string& a, const std::string& b) { return rank(a) > rank(b); });
}

void add_unique(std::vector<std::string>& list, std::string item) {
  if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(std::move(item));
}

std::vector<std::string> search_directories(ToolchainKind kind) {
  std::vector<std::string> directories = loader_directories();
  for (std::string& directory : vendor_directories(kind))
    directories.push_back(std::move(directory));
  return directories;
}

std::vector<std::string> find_libraries(ToolchainKind kind) {
  const bool hip = kind == ToolchainKind::hiprtc;
  const std::string chosen = base::environment(hip ? "KILN_HIPRTC" : "KILN_NVRTC");
  if (chosen.find('/') != std::string::npos) {
    const auto path = resolved(chosen);
    return path ? std::vector{*path} : std::vector<std::string>{};
  }
  const auto names = chosen.empty() ? library_names(kind) : std::vector{chosen};
  std::vector<std::string> paths;
  for (const std::string& directory : search_directories(kind)) {
    for (const std::string& name : names) {
      if (auto path = resolved(fs::path(directory) / name)) {
        add_unique(paths, std::move(*path));
        break;  // a release that has libhiprtc has it inside libamdhip64 as well
      }
    }
  }
  order_by_preference(kind, paths);
  return paths;
}

std::vector<std::string> find_host_compilers() {
  const std::string chosen = base::environment("KILN_CXX");
  std::vector<std::string> names = {"clang++", "g++", "c++"};
  if (!chosen.empty()) names = {chosen};
  std::vector<std::string> paths;
  std::set<std::string> seen;
  for (const std::string& name : names) {
    const auto program = find_program(name);
    const auto file = program ? resolved(*program) : std::nullopt;
    // Not the resolved name itself: clang decides by its name whether it is a C++ compiler.
    if (file && seen.insert(*file).second) paths.push_back(*program);
  }
  return paths;
}

// The directories that the library itself names for those it needs.
std::vector<std::string> run_paths(const std::string& library) {
  constexpr std::string_view kOrigin = "$ORIGIN";
  const base::MappedFile file(library);
  const auto elf = base::Elf::parse(file.bytes());
  std::vector<std::string> directories;
  for (const std::int64_t tag : {DT_RPATH, DT_RUNPATH}) {
    for (const std::string_view paths :
         elf ? elf->dynamic_strings(tag) : std::vector<std::string_view>{}) {
      for (std::string& directory : base::split(paths, ':')) {
        if (const std::size_t at = directory.find(kOrigin); at != std::string::npos) {
          directory.replace(at, kOrigin.size(), fs::path(library).parent_path().string());
        }
        directories.push_back(std::move(directory));
      }
    }
  }
  return directories;
}

std::optional<std::string> find_beside(const std::string& library, const std::string& name) {
  const fs::path beside = fs::path(library).parent_path();
  if (auto path = resolved(beside / name)) return path;
  for (const std::string& directory : run_paths(library)) {
    if (auto path = resolved(fs::path(directory) / name)) return path;
  }
  for (const std::string& directory : search_directories(ToolchainKind::hiprtc)) {
    if (auto path = resolved(fs::path(directory) / name)) return path;
  }
  return std::nullopt;
}

std::vector<std::string> needed_by(const std::string& library) {
  const base::MappedFile file(library);
  const auto elf = base::Elf::parse(file.bytes());
  if (!elf) return {};
  const auto names = elf->dynamic_strings(DT_NEEDED);
  return {names.begin(), names.end()};
}

// libstdc++, libc and their kind do not decide what a compiler writes.
bool shapes_code(const std::string& name) {
  static constexpr std::array kParts = {"amd_comgr", "amdhip64", "hiprtc", "LLVM",
                                        "clang",     "lld",      "nvrtc",  "nvJitLink"};
  return std::any_of(kParts.begin(), kParts.end(),
                     [&](const char* part) { return name.find(part) != std::string::npos; });
}

}  // namespace

std::string version_in_name(std::string_view path) {
  const std::size_t so = path.rfind(".so.");
  return so == std::string_view::npos ? std::string() : std::string(path.substr(so + 4));
}

std::optional<std::string> find_program(std::string_view name) {
  const auto is_program = [](const std::string& path) {
    std::error_code ignored;
    return access(path.c_str(), X_OK) == 0 && fs::is_regular_file(path, ignored);
  };
  if (name.find('/') != std::string_view::npos) {
    std::string path(name);
    return is_program(path) ? std::optional(std::move(path)) : std::nullopt;
  }
  for (const std::string& directory : base::split(compiler_variable("PATH"), ':')) {
    std::string path = fmt::format("{}/{}", directory, name);
    if (is_program(path)) return path;
  }
  return std::nullopt;
}

std::vector<std::string> find_compilers(ToolchainKind kind) {
  return kind == ToolchainKind::host ? find_host_compilers() : find_libraries(kind);
}

std::optional<std::string> find_comgr(const std::string& path) {
  for (const std::string& name : needed_by(path)) {
    if (name.find("libamd_comgr") != std::string::npos) return find_beside(path, name);
  }
  // Some releases load it only when they need it: HIP 5 with the soname of comgr 2.
  const bool old = version_in_name(path).starts_with("5");
  const std::array<const char*, 2> names = {old ? "libamd_comgr.so.2" : "libamd_comgr.so.3",
                                            old ? "libamd_comgr.so.3" : "libamd_comgr.so.2"};
  for (const char* name : names) {
    if (auto comgr = find_beside(path, name)) return comgr;
  }
  return std::nullopt;
}

std::optional<std::vector<std::string>> libraries_behind(const std::string& path) {
  std::vector<std::string> all = {path};
  // Loaded when they are first needed, from beside the library.
  for (const char* builtins : {"libnvrtc-builtins.so.*", "libhiprtc-builtins.so*"}) {
    for (std::string& file : matches((fs::path(path).parent_path() / builtins).string())) {
      if (auto real = resolved(file)) add_unique(all, std::move(*real));
    }
  }
  const bool nvrtc = fs::path(path).filename().string().find("nvrtc") != std::string::npos;
  if (const auto comgr = nvrtc ? std::nullopt : find_comgr(path)) add_unique(all, *comgr);
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const std::string& name : needed_by(all[i])) {
      if (!shapes_code(name)) continue;
      auto library = find_beside(all[i], name);
      if (!library) return std::nullopt;
      add_unique(all, std::move(*library));
    }
  }
  return all;
}

std::string missing_compiler(ToolchainKind kind) {
  switch (kind) {
    case ToolchainKind::hiprtc:
      return base::environment("KILN_HIPRTC").empty()
                 ? "no libhiprtc.so.7, .6 or libamdhip64.so.5 in the loader's paths, $ROCM_PATH or "
                   "/opt/rocm*; Debian and Ubuntu: libamdhip64-5 (libhiprtc6 where there is one), "
                   "AMD's packages: hip-runtime-amd"
                 : fmt::format("KILN_HIPRTC={} is not there", base::environment("KILN_HIPRTC"));
    case ToolchainKind::nvrtc:
      return base::environment("KILN_NVRTC").empty()
                 ? "no libnvrtc.so.13, .12 or .11.2 in the loader's paths, $CUDA_HOME or "
                   "/usr/local/cuda*; NVIDIA's package: cuda-nvrtc, Debian: libnvrtc12 or newer"
                 : fmt::format("KILN_NVRTC={} is not there", base::environment("KILN_NVRTC"));
    case ToolchainKind::host: break;
  }
  return base::environment("KILN_CXX").empty()
             ? "no clang++, g++ or c++ on PATH; install g++ or clang"
             : fmt::format("KILN_CXX={} is not an executable file", base::environment("KILN_CXX"));
}

}  // namespace kiln::jit
