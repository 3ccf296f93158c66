#include "cache/mac.hpp"

#include <sodium.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/bytes.hpp"
#include "base/text.hpp"
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

using SecretKey = std::array<unsigned char, 32>;

Mac sign_with(const SecretKey& key, std::string_view purpose, std::string_view bytes) {
  Hash hash(&key);
  hash.add_number(purpose.size());
  hash.add(purpose);
  hash.add(bytes);
  return hash.finish();
}

Mac sign_entry_with(const SecretKey& secret, const Key& key, std::string_view file) {
  constexpr std::string_view kPurpose = "entry";
  Hash hash(&secret);
  hash.add_number(kPurpose.size());
  hash.add(kPurpose);
  hash.add_number(key.high);
  hash.add_number(key.low);
  hash.add(file);
  return hash.finish();
}

bool same(const Mac& a, const Mac& b) { return ::sodium_memcmp(a.data(), b.data(), a.size()) == 0; }

const SecretKey& first(const std::vector<SecretKey>& keys) {
  if (keys.empty()) throw Error(Code::internal, "cache: signing without a secret");
  return keys.front();
}

}  // namespace

Secret::Secret(std::string_view text) {
  for (const std::string& one : base::split(text, ',')) {
    Hash hash;
    hash.add(one);
    keys_.push_back(hash.finish());
    strong_ = strong_ && one.size() >= kStrongSecret;
  }
}

Mac Secret::sign(std::string_view purpose, std::string_view bytes) const {
  return sign_with(first(keys_), purpose, bytes);
}

bool Secret::accepts(const Mac& mac, std::string_view purpose, std::string_view bytes) const {
  return std::ranges::any_of(
      keys_, [&](const SecretKey& key) { return same(mac, sign_with(key, purpose, bytes)); });
}

Mac Secret::sign_entry(const Key& key, std::string_view file) const {
  return sign_entry_with(first(keys_), key, file);
}

bool Secret::accepts_entry(const Mac& mac, const Key& key, std::string_view file) const {
  return std::ranges::any_of(keys_, [&](const SecretKey& secret) {
    return same(mac, sign_entry_with(secret, key, file));
  });
}

}  // namespace kiln::cache
