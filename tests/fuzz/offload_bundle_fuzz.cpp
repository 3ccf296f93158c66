// Any bytes as an offload bundle, as they are and after its magic: refused with an Error, or the
// code is a part of them.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "jit/compilers/offload_bundle.hpp"
#include "kiln/error.hpp"

namespace {

void check(const std::string& bytes) {
  try {
    if (bytes.find(kiln::jit::unbundle(bytes, "gfx90a")) == bytes.npos) std::abort();
  } catch (const kiln::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  check(bytes);
  check("__CLANG_OFFLOAD_BUNDLE__" + bytes);
  return 0;
}
