// The device code that kernels start with: texts without includes, valid under hiprtc, NVRTC and a
// host compiler, of which a kernel carries those that it needs. Embedded at build time from the .h
// files beside this one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kiln::preamble {

enum class Device : std::uint8_t { host, amd, nvidia };

/// A set of headers, by their places in the one order that they have.
struct Headers {
  static constexpr std::size_t kMost = 128;
  std::array<std::uint64_t, 2> words = {};

  static constexpr Headers only(std::size_t index) {
    Headers one;
    one.words[index / 64] = std::uint64_t{1} << index % 64;
    return one;
  }
  constexpr bool contains(std::size_t index) const {
    return (words[index / 64] >> index % 64 & 1) != 0;
  }
  constexpr bool empty() const { return words[0] == 0 && words[1] == 0; }
  constexpr Headers& operator|=(const Headers& other) {
    for (std::size_t i = 0; i < words.size(); ++i) words[i] |= other.words[i];
    return *this;
  }
  friend constexpr Headers operator&(Headers a, const Headers& b) {
    for (std::size_t i = 0; i < a.words.size(); ++i) a.words[i] &= b.words[i];
    return a;
  }
  friend bool operator==(const Headers&, const Headers&) = default;
};

/// What a kernel needs: every header that declares one of the words in its text, and what those
/// include. Lines that are comments do not count. What a word means cannot depend on a header that
/// is left out, except by token pasting: a text with ## needs everything.
Headers needed_by(std::string_view kernel, Device device);

/// Every header that has code for this kind of device.
Headers all(Device device);

/// Their code for this kind of device, one after the other.
std::string text(Headers headers, Device device);

std::size_t header_count();
/// Such as "types.h".
std::string_view header_name(std::size_t index);
/// A header and all that it includes, directly or not.
Headers needs_of(std::size_t index, Device device);
/// The headers that declare `word`.
Headers declared_by(std::string_view word, Device device);

}  // namespace kiln::preamble
