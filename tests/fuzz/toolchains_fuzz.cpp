// Any bytes as toolchains.json: opened without an exception, and what is remembered afterwards is
// there for the next process, beside what the file held.
#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "jit/toolchain/toolchain_cache.hpp"

using kiln::jit::ToolchainCache;

namespace {

// In memory, for speed; removed at the end of the process.
struct Directory {
  Directory() {
    std::string pattern = "/dev/shm/kiln-fuzz-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    path = pattern;
  }
  ~Directory() { std::filesystem::remove_all(path); }
  std::string path;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Directory directory;
  std::ofstream file(directory.path + "/toolchains.json", std::ios::binary);
  file.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  file.close();
  ToolchainCache cache(directory.path);
  auto targets = cache.targets("nvrtc");
  targets["sm_90"] = true;
  cache.remember_targets("nvrtc", {{"sm_90", true}});
  if (ToolchainCache(directory.path).targets("nvrtc") != targets) std::abort();
  return 0;
}
