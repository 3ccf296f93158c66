// Any bytes as a .safetensors file, and as the header of one with a right length: refused with an
// Error, or every tensor lies in the file, beside and not over the others.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "files/format.hpp"

using namespace kiln;
using namespace kiln::files;

namespace {

void check(std::string_view bytes, std::uint64_t file_size) {
  const std::string path = "fuzz.safetensors";
  try {
    const std::uint64_t header =
        safetensors_header_size(path, bytes.substr(0, kSafetensorsProbe), file_size);
    if (header > bytes.size()) return;  // the data of this file is only imagined
    std::uint64_t covered = header;
    for (const Located& tensor : decode_safetensors(path, bytes.substr(0, header), file_size)) {
      if (tensor.begin < header || tensor.bytes > file_size - tensor.begin) std::abort();
      covered += tensor.bytes;
    }
    if (covered != file_size) std::abort();
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check(bytes, size);
  // The input as the header of a file: its first two bytes say how much data follows.
  if (size < 2) return 0;
  const std::string_view json = bytes.substr(2);
  std::string file;
  for (std::size_t i = 0; i < 8; ++i) file += static_cast<char>(json.size() >> (8 * i) & 0xff);
  file += json;
  check(file, file.size() + data[0] + 256u * data[1]);
  return 0;
}
