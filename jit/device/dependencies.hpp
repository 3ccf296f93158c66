// Which of a list of operations must wait for which, from the bytes that each reads and writes.
// Pure: it knows nothing of kernels, devices or graphs.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

namespace kiln::jit {

/// The addresses [begin, end). Empty ranges touch nothing. A strided view is the range from its
/// lowest byte to its highest.
struct ByteRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;

  /// For an operation of which it is not known what it touches.
  static constexpr ByteRange everything() {
    return {0, std::numeric_limits<std::uintptr_t>::max()};
  }
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

/// What one operation touches. It may read what it writes.
struct Access {
  std::vector<ByteRange> reads;
  std::vector<ByteRange> writes;
  /// Of what it reads, the part that it does not wait for, if it may begin before others have
  /// ended.
  std::vector<ByteRange> early{};
};

enum class Hazard : std::uint8_t { read_after_write, write_after_read, write_after_write };
std::string_view name(Hazard hazard);

/// `to` must wait for `from`, because of `bytes` (the lowest common range; there may be more).
struct Dependency {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  Hazard hazard = Hazard::read_after_write;
  ByteRange bytes;
  friend bool operator==(const Dependency&, const Dependency&) = default;
};

/// The fewest edges by which every two operations that touch a common byte, at least one of them
/// writing, stay in the order of the list. Sorted by `to`, then `from`, no pair twice, and none
/// that follows from others. Takes n^2 bits for n operations.
std::vector<Dependency> dependencies(std::span<const Access> operations);

/// Of each operation, whether it may begin before those that it waits for have ended: none of those
/// before it in the list, which may all be running then, writes what it reads early.
std::vector<bool> may_begin_early(std::span<const Access> operations);

}  // namespace kiln::jit
