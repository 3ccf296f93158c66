// Memory whose ends are watched: between pages that cannot be touched on the CPU, between canaries
// on a GPU. For tests that care about every byte around an array.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <vector>

#include "jit/device/backend.hpp"
#include "kiln/view.hpp"

namespace kiln::testing {

class GuardedMemory {
 public:
  static constexpr std::size_t kMargin = 256;  ///< bytes that are looked at on either side
  static constexpr std::byte kCanary{0xa5};

  GuardedMemory(jit::Backend& backend, std::size_t bytes)
      : backend_(backend), stream_{backend.device(), nullptr}, bytes_(bytes) {
    if (backend.device().type != DeviceType::cpu) {
      memory_ = static_cast<char*>(backend.allocate(bytes_ + 2 * kMargin));
      data_ = memory_ + kMargin;
      return;
    }
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    bytes_ = (bytes + page - 1) / page * page;
    mapped_ = bytes_ + 2 * page;
    void* const region = ::mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(region, MAP_FAILED);
    memory_ = static_cast<char*>(region);
    data_ = memory_ + page;
    EXPECT_EQ(::mprotect(data_, bytes_, PROT_READ | PROT_WRITE), 0);
  }
  ~GuardedMemory() {
    if (mapped_ != 0) {
      ::munmap(memory_, mapped_);
    } else {
      backend_.free(memory_);
    }
  }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  std::size_t size() const { return bytes_; }

  /// Where an array of `bytes` lies that is `gap` bytes from the start or the end.
  char* place(std::size_t bytes, bool at_end, std::size_t gap) const {
    return at_end ? data_ + bytes_ - gap - bytes : data_ + gap;
  }

  /// Puts an array there, with canaries around it as far as memory goes.
  void write(char* at, const std::vector<std::byte>& contents) const {
    const auto [begin, end] = surroundings(at, contents.size());
    std::vector<std::byte> image(static_cast<std::size_t>(end - begin), kCanary);
    std::copy(contents.begin(), contents.end(), image.begin() + (at - begin));
    backend_.copy_in(begin, image.data(), image.size(), stream_);
    backend_.synchronize(stream_);
  }

  /// The array as it is now; `intact` becomes false if a canary was touched.
  std::vector<std::byte> read(const char* at, std::size_t bytes, bool& intact) const {
    const auto [begin, end] = surroundings(at, bytes);
    std::vector<std::byte> image(static_cast<std::size_t>(end - begin));
    backend_.copy_out(image.data(), begin, image.size(), stream_);
    backend_.synchronize(stream_);
    const auto from = image.begin() + (at - begin);
    const auto to = from + static_cast<std::ptrdiff_t>(bytes);
    const auto is_canary = [](std::byte byte) { return byte == kCanary; };
    intact = intact && std::all_of(image.begin(), from, is_canary) &&
             std::all_of(to, image.end(), is_canary);
    return {from, to};
  }

 private:
  std::pair<char*, char*> surroundings(const char* at, std::size_t bytes) const {
    const std::ptrdiff_t reach = mapped_ != 0 ? 0 : kMargin;
    char* const lowest = data_ - reach;
    char* const highest = data_ + bytes_ + reach;
    char* const from = const_cast<char*>(at);
    const auto margin = static_cast<std::ptrdiff_t>(kMargin);
    return {from - std::min(margin, from - lowest),
            from + bytes + std::min(margin, highest - from - static_cast<std::ptrdiff_t>(bytes))};
  }

  jit::Backend& backend_;
  Stream stream_;
  std::size_t bytes_;
  std::size_t mapped_ = 0;  ///< bytes of the mapping; 0 for memory of a GPU
  char* memory_ = nullptr;
  char* data_ = nullptr;
};

}  // namespace kiln::testing
