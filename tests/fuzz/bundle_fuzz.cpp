// Any bytes as a bundle: as they are, and with digest and checksum made right.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "cache/bundle.hpp"
#include "seal.hpp"

using namespace kiln::cache;

namespace {

void check(const std::string& bytes) {
  const bool intact = check_bundle(bytes).empty();
  const BundleIndex index = decode_bundle_index(bytes, bytes.size());
  if (intact && !index.reason.empty()) std::abort();
  for (const BundleItem& item : index.items) {
    if (item.offset > bytes.size() || item.size > bytes.size() - item.offset) std::abort();
    decode(item.key, std::string_view(bytes).substr(item.offset, item.size), Parts::all);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  check(bytes);
  seal(bytes, bundle_index_size(bytes));
  check(bytes);
  return 0;
}
