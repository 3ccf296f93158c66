// See environment.hpp.
#include "jit/toolchain/environment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/environment.hpp"
#include "base/text.hpp"
#include "jit/toolchain/toolchain.hpp"

namespace kiln::jit {
namespace {

// Variables through which a compiler's output can be changed from outside; they are part of the
// key.
constexpr std::array kOutputVariables = {"HIPRTC_COMPILE_OPTIONS_APPEND",
                                         "HIPRTC_LINK_OPTIONS_APPEND",
                                         "HIPRTC_USE_RUNTIME_UNBUNDLER",
                                         "AMD_COMGR_DRIVER_OPTIONS_APPEND",
                                         "HSA_OVERRIDE_GFX_VERSION",
                                         "LLVM_PATH",
                                         "ROCM_PATH",
                                         "HIP_PATH",
                                         "HIP_DEVICE_LIB_PATH",
                                         "DEVICE_LIB_PATH",
                                         "CPATH",
                                         "C_INCLUDE_PATH",
                                         "CPLUS_INCLUDE_PATH",
                                         "LIBRARY_PATH",
                                         "COMPILER_PATH",
                                         "GCC_EXEC_PREFIX",
                                         "CCC_OVERRIDE_OPTIONS",
                                         "CUDA_HOME",
                                         "CUDA_PATH"};

// Without what depends on the working directory: a program or library that lies there by chance is
// none of the compiler's, and would be another one in the next directory.
std::string absolute_directories(const std::string& paths) {
  std::string kept;
  for (const std::string& directory : base::split(paths, ':')) {
    if (directory.starts_with('/')) kept += (kept.empty() ? "" : ":") + directory;
  }
  return kept;
}

struct CompilerVariables {
  /// What decides where compilers and their parts are found: the toolchain's identity covers that.
  std::vector<std::pair<std::string, std::string>> run;
  std::vector<std::pair<std::string, std::string>> output;  ///< of the key
};

const CompilerVariables& compiler_variables() {
  static const auto* const variables = [] {
    auto* const read = new CompilerVariables;
    for (const auto& [name, paths] :
         {std::pair("PATH", base::program_path()),
          std::pair("LD_LIBRARY_PATH", base::environment("LD_LIBRARY_PATH"))}) {
      std::string value = absolute_directories(paths);
      if (!value.empty()) read->run.emplace_back(name, std::move(value));
    }
    if (auto home = base::environment_if_set("HOME"))
      read->run.emplace_back("HOME", *std::move(home));
    for (const char* name : kOutputVariables) {
      if (auto value = base::environment_if_set(name))
        read->output.emplace_back(name, *std::move(value));
    }
    return read;
  }();
  return *variables;
}

}  // namespace

std::string compiler_variable(std::string_view name) {
  for (const auto* list : {&compiler_variables().run, &compiler_variables().output}) {
    for (const auto& [each, value] : *list) {
      if (each == name) return value;
    }
  }
  return {};
}

std::vector<std::string> scrubbed_environment(const std::string& temporary_directory) {
  std::vector<std::string> variables;
  for (const auto* list : {&compiler_variables().run, &compiler_variables().output}) {
    for (const auto& [name, value] : *list) variables.push_back(fmt::format("{}={}", name, value));
  }
  // comgr's own cache would hide what a compile costs, and what it gives is kept by kiln's cache.
  for (const char* fixed : {"LC_ALL=C", "AMD_COMGR_CACHE=0"}) variables.emplace_back(fixed);
  variables.push_back(fmt::format("TMPDIR={}", temporary_directory));
  return variables;
}

base::CommandResult run_scrubbed(const std::vector<std::string>& command,
                                 const std::string& directory, std::chrono::milliseconds deadline) {
  return base::run_command(command, scrubbed_environment(directory), deadline);
}

std::vector<std::pair<std::string, std::string>> compiler_environment() {
  return compiler_variables().output;
}

}  // namespace kiln::jit
