// See offload_bundle.hpp; the format is documented in clang's "Clang Offload Bundler".
#include "jit/compilers/offload_bundle.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>

#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

constexpr std::string_view kMagic = "__CLANG_OFFLOAD_BUNDLE__";

std::uint64_t read_number(std::string_view bytes, std::uint64_t at) {
  std::uint64_t value = 0;
  if (at > bytes.size() || bytes.size() - at < sizeof(value)) {
    throw Error(Code::internal, "hiprtc: a truncated offload bundle");
  }
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

std::string_view read_bytes(std::string_view bytes, std::uint64_t at, std::uint64_t size) {
  if (at > bytes.size() || size > bytes.size() - at) {
    throw Error(Code::internal, "hiprtc: a truncated offload bundle");
  }
  return bytes.substr(at, size);
}

}  // namespace

std::string unbundle(std::string code, std::string_view target) {
  if (!code.starts_with(kMagic)) return code;
  const std::string_view bytes = code;
  const std::uint64_t count = read_number(bytes, kMagic.size());
  std::uint64_t at = kMagic.size() + 8;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t offset = read_number(bytes, at);
    const std::uint64_t size = read_number(bytes, at + 8);
    const std::uint64_t length = read_number(bytes, at + 16);
    const std::string_view id = read_bytes(bytes, at + 24, length);
    at += 24 + length;
    // "hip-amdgcn-amd-amdhsa--gfx90a:sramecc+", "hipv4-amdgcn-amd-amdhsa--gfx90a"
    const std::size_t processor = id.find("gfx");
    if (processor != std::string_view::npos && id.substr(processor) == target) {
      return std::string(read_bytes(bytes, offset, size));
    }
  }
  throw Error(Code::internal,
              fmt::format("hiprtc: the offload bundle holds no code for {}", target));
}

}  // namespace kiln::jit
