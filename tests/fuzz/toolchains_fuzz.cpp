// Any bytes as toolchains.json: opened without an exception, and what is remembered afterwards is
// there for the next process, beside what the file held.
#include <cstdint>
#include <cstdlib>

#include "base/temporary.hpp"
#include "jit/toolchain/toolchain_cache.hpp"

using kiln::jit::ToolchainCache;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const kiln::base::TemporaryDirectory directory("/dev/shm", "kiln-fuzz");  // for speed
  directory.write("toolchains.json", {reinterpret_cast<const char*>(data), size});
  ToolchainCache cache(directory.path());
  auto targets = cache.targets("nvrtc");
  targets["sm_90"] = true;
  cache.remember_targets("nvrtc", {{"sm_90", true}});
  if (ToolchainCache(directory.path()).targets("nvrtc") != targets) std::abort();
  return 0;
}
