// Any bytes as a bundle: as they are, with digest and checksum made right, and signed.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "cache/bundle.hpp"
#include "seal.hpp"

using namespace kiln::cache;

namespace {

const Secret kSecret("of the fuzzer");

void check(const std::string& bytes, const Secret& secret) {
  const BundleIndex whole = check_bundle(bytes, secret);
  const BundleIndex index = decode_bundle_index(bytes, bytes.size(), secret);
  if (whole.reason.empty() && !index.reason.empty()) std::abort();
  if (secret && index.reason.empty() && index.signature != Signature::good) std::abort();
  for (const BundleItem& item : index.items) {
    if (item.offset > bytes.size() || item.size > bytes.size() - item.offset) std::abort();
    const std::string_view file = std::string_view(bytes).substr(item.offset, item.size);
    decode_bundle_entry(item, file, Parts::all, secret);
    decode(item.key, file, Parts::all);
  }
}

/// Where the index has room for a signature, the right one.
void sign(std::string& bytes, std::uint64_t index) {
  if (index < 8 + kMacBytes + 24 || index > bytes.size() || bytes[12] != 1) return;
  const std::size_t covered = index - 8 - kMacBytes;
  const Mac mac = kSecret.sign("bundle", std::string_view(bytes).substr(0, covered));
  std::copy(mac.begin(), mac.end(), bytes.begin() + static_cast<std::ptrdiff_t>(covered));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  check(bytes, {});
  check(bytes, kSecret);
  seal(bytes, bundle_index_size(bytes));
  check(bytes, {});
  sign(bytes, bundle_index_size(bytes));
  seal(bytes, bundle_index_size(bytes));
  check(bytes, kSecret);
  return 0;
}
