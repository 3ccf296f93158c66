#include "cache/mac.hpp"

#include <sodium.h>

#include <cstdint>

#include "base/bytes.hpp"
#include "kiln/error.hpp"

namespace kiln::cache {
namespace {

const unsigned char* data(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

class Hash {
 public:
  /// Unkeyed without a key.
  explicit Hash(const std::array<unsigned char, 32>* key = nullptr) {
    // Chooses the fastest code for this CPU; may be called by any thread, any number of times.
    if (::sodium_init() < 0) throw Error(Code::internal, "cache: libsodium cannot be initialised");
    ::crypto_generichash_init(&state_, key == nullptr ? nullptr : key->data(),
                              key == nullptr ? 0 : key->size(), kMacBytes);
  }
  void add(std::string_view bytes) {
    ::crypto_generichash_update(&state_, data(bytes), bytes.size());
  }
  void add_number(std::uint64_t number) {
    std::string bytes;
    base::ByteWriter(bytes).u64(number);
    add(bytes);
  }
  Mac finish() {
    Mac mac{};
    ::crypto_generichash_final(&state_, mac.data(), mac.size());
    return mac;
  }

 private:
  ::crypto_generichash_state state_;
};

Hash started(const std::array<unsigned char, 32>& key, std::string_view purpose) {
  Hash hash(&key);
  hash.add_number(purpose.size());
  hash.add(purpose);
  return hash;
}

bool same(const Mac& a, const Mac& b) { return ::sodium_memcmp(a.data(), b.data(), a.size()) == 0; }

}  // namespace

Secret::Secret(std::string_view text) : present_(!text.empty()) {
  if (!present_) return;
  Hash hash;
  hash.add(text);
  key_ = hash.finish();
}

Mac Secret::sign(std::string_view purpose, std::string_view bytes) const {
  if (!present_) throw Error(Code::internal, "cache: signing without a secret");
  Hash hash = started(key_, purpose);
  hash.add(bytes);
  return hash.finish();
}

bool Secret::accepts(const Mac& mac, std::string_view purpose, std::string_view bytes) const {
  return present_ && same(mac, sign(purpose, bytes));
}

Mac Secret::sign_entry(const Key& key, std::string_view file) const {
  if (!present_) throw Error(Code::internal, "cache: signing without a secret");
  Hash hash = started(key_, "entry");
  hash.add_number(key.high);
  hash.add_number(key.low);
  hash.add(file);
  return hash.finish();
}

bool Secret::accepts_entry(const Mac& mac, const Key& key, std::string_view file) const {
  return present_ && same(mac, sign_entry(key, file));
}

}  // namespace kiln::cache
