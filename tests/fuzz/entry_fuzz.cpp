// Any bytes as an entry's file: as they are, and with digest and checksum made right, because no
// mutation gets past those by itself.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/bytes.hpp"
#include "cache/entry.hpp"
#include "seal.hpp"

using namespace kiln::cache;

namespace {

void check(const Key& key, const std::string& bytes) {
  decode_head(bytes);
  for (const Parts parts : {Parts::code, Parts::all}) {
    const Decoded decoded = decode(key, bytes, parts);
    if (decoded.entry.has_value() != decoded.reason.empty()) std::abort();
    // What is accepted can be written and read again to the same.
    if (decoded.entry && parts == Parts::all &&
        decode(key, encode(key, *decoded.entry), parts).entry->code != decoded.entry->code) {
      std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  kiln::base::ByteReader reader(std::string_view(bytes).substr(0, 32));
  reader.raw(16);
  Key key;
  key.high = reader.u64();
  key.low = reader.u64();
  check(key, bytes);
  seal(bytes, head_size(bytes));
  check(key, bytes);
  return 0;
}
