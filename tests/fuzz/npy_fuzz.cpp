// Any bytes as a .npy file: refused with an Error, or located inside the file with the size that
// its shape says.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "files/format.hpp"

using namespace kiln;
using namespace kiln::files;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string path = "fuzz.npy";
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const std::uint64_t header = npy_header_size(path, bytes.substr(0, kNpyProbe), size);
    if (header > size) std::abort();
    const Located found = decode_npy(path, bytes.substr(0, header), size);
    const DType dtype = found.info.dtype.value();
    if (found.begin > size || found.bytes != size - found.begin) std::abort();
    if (byte_count(found.info.shape, bits(dtype)) != found.bytes) std::abort();

    // What is written for it is read as the same.
    const std::string again = encode_npy_header(dtype, found.info.shape);
    const std::uint64_t whole = again.size() + found.bytes;
    if (npy_header_size(path, again.substr(0, kNpyProbe), whole) != again.size()) std::abort();
    if (decode_npy(path, again, whole).info.shape != found.info.shape) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
