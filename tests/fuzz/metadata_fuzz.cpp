// Any bytes as the metadata of an AMD code object: read, or refused with an Error.
#include <cstdint>
#include <string_view>

#include "jit/compilers/resources.hpp"
#include "kiln/error.hpp"
#include "tests/support/code_object.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view metadata(reinterpret_cast<const char*>(data), size);
  try {
    kiln::jit::resources(kiln::testing::amd_code_object(metadata), "kiln_k");
  } catch (const kiln::Error&) {
  }
  return 0;
}
