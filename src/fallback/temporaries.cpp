#include "fallback/temporaries.hpp"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <utility>

#include "base/configuration.hpp"
#include "base/environment.hpp"
#include "cache/config.hpp"
#include "core/check_view.hpp"
#include "kiln/error.hpp"
#include "kiln/fallback.hpp"

namespace kiln {
namespace {

// hipStreamPerThread and CU_STREAM_PER_THREAD: another stream in each thread.
void* const kStreamPerThread = reinterpret_cast<void*>(std::uintptr_t{2});

}  // namespace

Temporaries& Temporaries::of(Device device) {
  static auto* const mutex = new std::mutex;
  static auto* const all = new std::map<std::pair<DeviceType, int>, std::unique_ptr<Temporaries>>;
  const std::lock_guard lock(*mutex);
  std::unique_ptr<Temporaries>& own = (*all)[{device.type, device.index}];
  if (!own) own = std::make_unique<Temporaries>();
  return *own;
}

Temporaries::Lease Temporaries::lease(jit::Backend& backend, const Stream& stream,
                                      std::string_view function) {
  std::unique_lock lock(mutex_);
  if (data_ == nullptr && fallback_memory() != 0) {
    if (pool_ == nullptr) pool_ = static_cast<std::byte*>(backend.allocate(fallback_memory()));
    data_ = pool_;
    bytes_ = fallback_memory();
  }
  if (data_ == nullptr) {
    throw Error(
        Code::would_compile,
        fmt::format("{}: on_miss is fallback, which needs memory for temporaries, and there "
                    "is none: set Configuration::fallback_memory or KILN_FALLBACK_MEMORY, "
                    "or lend some with kiln::lend_fallback_memory; the kernel is being "
                    "compiled in the background",
                    function));
  }
  const bool same = stream_ == stream.native && stream.native != kStreamPerThread;
  const bool elsewhere = used_ && !same;
  if (elsewhere && stream.device.type != DeviceType::cpu && !backend.wait_until_idle()) {
    throw Error(Code::would_compile,
                fmt::format("{}: on_miss is fallback, whose temporaries another stream uses, which "
                            "cannot be waited for now; the kernel is being compiled in the "
                            "background",
                            function));
  }
  used_ = true;
  stream_ = stream.native;
  leases_.fetch_add(1, std::memory_order_relaxed);
  return {std::move(lock), data_, bytes_};
}

void Temporaries::lend(const View& memory) {
  const std::lock_guard lock(mutex_);
  if (used_ && memory.device().type != DeviceType::cpu &&
      !jit::backend(memory.device()).wait_until_idle()) {
    throw Error(
        Code::device,
        "lend_fallback_memory: work that uses the memory before cannot be waited for while a "
        "stream is being captured");
  }
  used_ = false;
  const auto bytes = static_cast<std::size_t>(memory.size() * bits(memory.dtype()) / 8);
  const bool any = memory.data() != nullptr && bytes != 0;
  data_ = any ? static_cast<std::byte*>(memory.data()) : nullptr;
  bytes_ = any ? bytes : 0;
}

void lend_fallback_memory(const View& memory) {
  const auto fail = [](const std::string& message) {
    throw Error(Code::invalid_argument, "lend_fallback_memory: " + message);
  };
  if (memory.data() != nullptr) {
    if (reinterpret_cast<std::uintptr_t>(memory.data()) % 16 != 0) {
      fail(fmt::format("memory: expected an address that is a multiple of 16, got {}",
                       memory.data()));
    }
    if (memory.strides() != contiguous_strides(memory.shape()) || memory.offset() != 0) {
      fail("memory: expected a view in C order");
    }
  }
  Temporaries::of(memory.device()).lend(memory);
}

std::size_t fallback_memory() {
  static const std::size_t bytes = [] {
    if (const auto set = base::configuration("the memory of fallbacks").fallback_memory) {
      return static_cast<std::size_t>(*set);
    }
    const std::string text = base::environment("KILN_FALLBACK_MEMORY");
    if (text.empty()) return std::size_t{0};
    if (const auto parsed = cache::parse_size(text)) return static_cast<std::size_t>(*parsed);
    log_once(
        LogLevel::warning, "fallback.memory",
        fmt::format("KILN_FALLBACK_MEMORY: '{}': expected a size such as 64M or 1G; using none",
                    text));
    return std::size_t{0};
  }();
  return bytes;
}

}  // namespace kiln
