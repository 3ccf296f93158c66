// Stands in for amd.cpp in a build without HIP's headers.
#include "jit/device/hip/platform.hpp"
#include "kiln/error.hpp"

namespace kiln::jit::amd {

int device_count() { return 0; }

std::string why_absent() {
  return "this build of kiln has no HIP: hip/hip_runtime_api.h was not there when it was built "
         "(Debian, Ubuntu: libamdhip64-dev; AMD's packages: hip-runtime-amd-dev)";
}

std::unique_ptr<Backend> open(int) { throw Error(Code::unsupported, why_absent()); }

}  // namespace kiln::jit::amd
