#include "kiln/devices.hpp"

#include "jit/device/backend.hpp"
#include "jit/service/compile.hpp"
#include "kiln/error.hpp"

namespace kiln {

std::vector<Device> devices() { return jit::devices(); }

DeviceInfo device_info(Device device) {
  const jit::Backend& backend = jit::backend(device);
  return {backend.name(), backend.target(), backend.compute_units(), backend.wave_size()};
}

std::string why_absent(DeviceType type) { return jit::why_absent(type); }

std::vector<CompileTarget> compile_targets() {
  std::vector<CompileTarget> targets;
  for (const jit::ToolchainKind kind :
       {jit::ToolchainKind::hiprtc, jit::ToolchainKind::nvrtc, jit::ToolchainKind::host}) {
    try {
      const std::string compiler = jit::toolchain(kind).version;
      for (std::string& name : jit::known_targets(kind)) {
        targets.push_back({std::move(name), compiler});
      }
    } catch (const Error& error) {
      if (error.code() != Code::not_found) throw;  // there is no such compiler
    }
  }
  return targets;
}

}  // namespace kiln
