// The keyed code that proves an entry comes from somebody who knows the secret: for what reaches
// this machine by ways that the trust checks of a directory say nothing about, such as a bundle or
// a server. A checksum cannot do this: anybody can make one right.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "cache/key.hpp"

namespace kiln::cache {

inline constexpr std::size_t kMacBytes = 32;
using Mac = std::array<unsigned char, kMacBytes>;

/// Characters below which a secret can be found by trying.
inline constexpr std::size_t kStrongSecret = 16;

/// The secrets that machines which share entries have in common, or none. The first one signs, and
/// all are accepted, so that a secret can be changed while machines with the old one run.
class Secret {
 public:
  Secret() = default;
  /// Secrets separated by commas, each of any length; the empty text is none. What can be guessed
  /// protects nothing: a secret is 32 or more random characters.
  explicit Secret(std::string_view text);
  explicit operator bool() const { return !keys_.empty(); }
  /// Whether each has kStrongSecret characters or more.
  bool is_strong() const { return strong_; }

  /// Keyed BLAKE2b-256. `purpose` keeps the codes of one thing from being used for another. There
  /// must be a secret.
  Mac sign(std::string_view purpose, std::string_view bytes) const;
  /// Whether `mac` is sign() of these, in a time that does not tell where it differs.
  bool accepts(const Mac& mac, std::string_view purpose, std::string_view bytes) const;

  /// Of an entry's file under its key: a good file cannot be passed off as another one's.
  Mac sign_entry(const Key& key, std::string_view file) const;
  bool accepts_entry(const Mac& mac, const Key& key, std::string_view file) const;

 private:
  std::vector<std::array<unsigned char, 32>> keys_;
  bool strong_ = true;
};

}  // namespace kiln::cache
