// Kernels as text, and memory to run them on: what the tests of instructions are made of.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/amd/isa/code_object.hpp"
#include "tests/amd/isa/wave.hpp"

namespace kiln::amd {

/// Device memory of a test: allocations that remember what has been written.
class TestMemory final : public Memory {
 public:
  /// Memory that nobody has written.
  std::uint64_t allocate(std::size_t bytes) {
    Owned& owned = owned_.emplace_back(std::make_unique<std::uint8_t[]>(bytes + 64),
                                       std::make_unique<std::uint8_t[]>(bytes));
    const std::uint64_t begin = (reinterpret_cast<std::uint64_t>(owned.data.get()) + 63) & ~63ULL;
    allocations_[begin] = {begin, bytes, owned.written.get()};
    return begin;
  }
  template <class T>
  std::uint64_t allocate(const std::vector<T>& values) {
    const std::size_t bytes = values.size() * sizeof(T);
    const std::uint64_t begin = allocate(bytes);
    std::memcpy(reinterpret_cast<void*>(begin), values.data(), bytes);
    std::memset(allocations_[begin].written, 1, bytes);
    return begin;
  }
  const Allocation* find(std::uint64_t address) const override {
    const auto after = allocations_.upper_bound(address);
    if (after == allocations_.begin()) return nullptr;
    const Allocation& before = std::prev(after)->second;
    return address - before.begin < before.bytes ? &before : nullptr;
  }

 private:
  struct Owned {
    std::unique_ptr<std::uint8_t[]> data;
    std::unique_ptr<std::uint8_t[]> written;
    Owned(std::unique_ptr<std::uint8_t[]> bytes, std::unique_ptr<std::uint8_t[]> marks)
        : data(std::move(bytes)), written(std::move(marks)) {}
  };
  std::vector<Owned> owned_;
  std::map<std::uint64_t, Allocation> allocations_;
};

/// COMPUTE_PGM_RSRC1 of kernels as compilers make them: rounding to nearest, subnormals kept in all
/// formats, DX10_CLAMP, IEEE_MODE.
inline constexpr std::uint32_t kUsualModes = 0xf << 16 | 1 << 21 | 1 << 23;

/// A kernel of these lines, one instruction each, whose addresses are 4 apart: a branch over two
/// lines has the offset 2. s[0:1] holds the address of the arguments, v0 the thread's number.
inline std::shared_ptr<const CodeObject> kernel_of(const std::string& target,
                                                   const std::string& lines,
                                                   std::uint32_t lds_bytes = 0,
                                                   std::uint32_t modes = kUsualModes) {
  Kernel kernel;
  kernel.name = "listed";
  kernel.target = target;
  kernel.wave_size = isa_of(target).major >= 10 ? 32 : 64;
  kernel.vgprs = 32;
  kernel.sgprs = 96;
  kernel.accumulators = 24;
  kernel.lds_bytes = lds_bytes;
  kernel.argument_bytes = kernel.segment_bytes = 64;
  kernel.resources1 = modes;
  kernel.properties = 8;                // the address of the arguments
  kernel.resources2 = 2 << 1 | 1 << 7;  // two scalar registers of the user; block id x
  std::string listing;
  std::uint64_t address = 0;
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t end = std::min(lines.find('\n', at), lines.size());
    const std::string line = lines.substr(at, end - at);
    if (line.find_first_not_of(' ') != line.npos) {
      listing += fmt::format("  {:08x}:\t{}\n", address, line);
      address += 4;
    }
    at = end + 1;
  }
  return object_of_listing(std::move(listing), std::move(kernel));
}

/// Runs it with these arguments, of 8 bytes each.
inline Trace run(const CodeObject& object, const Memory& memory,
                 std::vector<std::uint64_t> arguments, std::uint32_t blocks = 1,
                 std::uint32_t threads = 1, const Options& options = {}) {
  arguments.resize(8);
  Dispatch dispatch;
  dispatch.kernel = object.kernels().data();
  dispatch.blocks = {blocks, 1, 1};
  dispatch.threads = {threads, 1, 1};
  dispatch.arguments = std::as_bytes(std::span(arguments));
  return execute(dispatch, memory, options);
}

}  // namespace kiln::amd
