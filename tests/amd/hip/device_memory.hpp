// The memory of one emulated GPU: host memory between pages that nobody may touch, poisoned when it
// is allocated, with a shadow that knows which bytes have been written. What is freed is unmapped,
// and its addresses are not given out again for as long as there are others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "tests/amd/isa/dispatch.hpp"

namespace kiln::amd {

class DeviceMemory final : public Memory {
 public:
  /// What memory holds before anything is written: a NaN in every float, a large or negative
  /// integer.
  static constexpr int kPoison = 0xff;

  explicit DeviceMemory(std::uint64_t limit) : limit_(limit) {}
  ~DeviceMemory() override;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  std::uint64_t limit() const { return limit_; }
  /// Aligned to a page. Null when more than the limit would be in use.
  void* allocate(std::uint64_t bytes);
  /// False for what is no allocation.
  bool free(void* pointer);

  const Allocation* find(std::uint64_t address) const override;
  /// Whether all these bytes are of one allocation.
  bool holds(const void* pointer, std::uint64_t bytes) const;
  /// Host code has written these bytes, which are of one allocation.
  void mark_written(const void* pointer, std::uint64_t bytes) const;
  /// Bytes of one allocation to another, and which of them have been written.
  static void copy(const DeviceMemory& to_memory, void* to, const DeviceMemory& from_memory,
                   const void* from, std::uint64_t bytes);

 private:
  const std::uint64_t limit_;
  std::uint64_t used_ = 0;
  std::map<std::uint64_t, Allocation> allocations_;  // by their begin
};

}  // namespace kiln::amd
