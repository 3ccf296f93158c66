// See environment.hpp.
#include "jit/toolchain/environment.hpp"

#include <fmt/format.h>

#include <array>

#include "base/environment.hpp"
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

// Variables that a compiler needs to be found and to run. The toolchain's identity, made from the
// files that are found, covers what they decide.
constexpr std::array kRunVariables = {"LD_LIBRARY_PATH", "HOME"};

}  // namespace

std::vector<std::string> scrubbed_environment(const std::string& temporary_directory) {
  std::vector<std::string> variables = {"PATH=" + program_path()};
  for (const char* name : kRunVariables) {
    if (const auto value = environment_if_set(name))
      variables.push_back(fmt::format("{}={}", name, *value));
  }
  for (const auto& [name, value] : compiler_environment()) {
    variables.push_back(fmt::format("{}={}", name, value));
  }
  // comgr's own cache would hide what a compile costs, and what it gives is kept by kiln's cache.
  for (const char* fixed : {"LC_ALL=C", "AMD_COMGR_CACHE=0"}) variables.emplace_back(fixed);
  variables.push_back(fmt::format("TMPDIR={}", temporary_directory));
  return variables;
}

std::vector<std::pair<std::string, std::string>> compiler_environment() {
  std::vector<std::pair<std::string, std::string>> variables;
  for (const char* name : kOutputVariables) {
    if (auto value = environment_if_set(name)) variables.emplace_back(name, *std::move(value));
  }
  return variables;
}

}  // namespace kiln::jit
