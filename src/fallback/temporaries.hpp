// The memory in which calls that are served before their kernel is there keep their values: lent by
// the caller (kiln/fallback.hpp), or a pool of a size that the configuration allows. One for each
// device; a call has it alone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>

#include "jit/device/backend.hpp"
#include "kiln/view.hpp"

namespace kiln {

class Temporaries {
 public:
  /// Of that device; never destroyed.
  static Temporaries& of(Device device);

  /// The memory, for work on one stream, for as long as it is held. What comes after on that stream
  /// runs after that work.
  struct Lease {
    std::unique_lock<std::mutex> lock;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  /// Waits for another call that has it, and where that was on another stream for the device.
  /// Throws Error(would_compile) in the name of `function` where there is none, or where that
  /// cannot be waited for.
  Lease lease(jit::Backend& backend, const Stream& stream, std::string_view function);

  /// Uses that memory from now on; a view of nothing gives it back. Waits for the work that uses
  /// the memory before it.
  void lend(const View& memory);

  /// How often it was leased.
  std::uint64_t leases() const { return leases_.load(std::memory_order_relaxed); }

 private:
  std::mutex mutex_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::byte* pool_ = nullptr;  ///< allocated once
  bool used_ = false;          ///< by work that may still run
  void* stream_ = nullptr;     ///< of that work
  std::atomic<std::uint64_t> leases_ = 0;
};

/// The bytes of a pool: Configuration::fallback_memory, else KILN_FALLBACK_MEMORY, else 0.
std::size_t fallback_memory();

}  // namespace kiln
