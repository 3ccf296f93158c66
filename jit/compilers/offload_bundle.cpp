// See offload_bundle.hpp; the format is documented in clang's "Clang Offload Bundler".
#include "jit/compilers/offload_bundle.hpp"

#include <fmt/format.h>

#include <cstdint>

#include "base/bytes.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

constexpr std::string_view kOffloadBundleMagic = "__CLANG_OFFLOAD_BUNDLE__";

Error truncated() { return Error(Code::internal, "hiprtc: a truncated offload bundle"); }

}  // namespace

std::string unbundle(std::string code, std::string_view target) {
  if (!code.starts_with(kOffloadBundleMagic)) return code;
  const std::string_view bytes = code;
  base::ByteReader reader(bytes.substr(kOffloadBundleMagic.size()));
  for (std::uint64_t count = reader.u64(); reader.ok() && count > 0; --count) {
    const std::uint64_t offset = reader.u64();
    const std::uint64_t size = reader.u64();
    const std::string_view id = reader.text();
    // "hip-amdgcn-amd-amdhsa--gfx90a:sramecc+", "hipv4-amdgcn-amd-amdhsa--gfx90a"
    const std::size_t processor = id.find("gfx");
    if (processor == std::string_view::npos || id.substr(processor) != target) continue;
    if (offset > bytes.size() || size > bytes.size() - offset) throw truncated();
    return std::string(bytes.substr(offset, size));
  }
  if (!reader.ok()) throw truncated();
  throw Error(Code::internal,
              fmt::format("hiprtc: the offload bundle holds no code for {}", target));
}

}  // namespace kiln::jit
