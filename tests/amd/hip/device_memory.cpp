// See device_memory.hpp. Addresses come from one region of the process, for all devices, that is
// reserved once and handed out from its beginning to its end.
#include "tests/amd/hip/device_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <iterator>
#include <mutex>

namespace kiln::amd {
namespace {

const std::uint64_t kPage = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));

std::uint64_t whole_pages(std::uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
std::uint64_t address(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }
void* pointer(std::uint64_t address) { return reinterpret_cast<void*>(address); }

/// Address space without memory, and what of it is handed out.
class Region {
 public:
  static Region& instance() {
    static auto* const one = new Region;  // the end of the process may still free memory
    return *one;
  }

  /// That many bytes, whole pages, behind a page and before a page that stay inaccessible; 0 if
  /// there are none.
  std::uint64_t take(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (begin_ == 0 || bytes > kBytes / 2) return 0;
    std::uint64_t at = next_fit(cursor_, bytes);
    if (at == 0) at = next_fit(begin_, bytes);
    if (at == 0 || mprotect(pointer(at), bytes, PROT_READ | PROT_WRITE) != 0) return 0;
    taken_[at] = bytes;
    cursor_ = at + bytes;
    return at;
  }
  void give_back(std::uint64_t at) {
    const std::lock_guard lock(mutex_);
    const auto found = taken_.find(at);
    // New pages that nobody may touch in place of the old ones, which are gone.
    (void)mmap(pointer(at), found->second, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    taken_.erase(found);
  }

 private:
  static constexpr std::uint64_t kBytes = std::uint64_t{1} << 38;

  Region() {
    void* const found =
        mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found != MAP_FAILED) begin_ = cursor_ = address(found);
  }

  std::uint64_t next_fit(std::uint64_t from, std::uint64_t bytes) const {
    std::uint64_t at = from + kPage;
    for (auto next = taken_.lower_bound(from); next != taken_.end(); ++next) {
      if (next->first >= at + bytes + kPage) break;
      at = next->first + next->second + kPage;
    }
    return at + bytes + kPage <= begin_ + kBytes ? at : 0;
  }

  std::mutex mutex_;
  std::uint64_t begin_ = 0;
  std::uint64_t cursor_ = 0;
  std::map<std::uint64_t, std::uint64_t> taken_;  // bytes by address
};

/// Zeroed, and no memory until it is touched.
std::uint8_t* make_shadow(std::uint64_t bytes) {
  void* const made =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return made == MAP_FAILED ? nullptr : static_cast<std::uint8_t*>(made);
}

std::uint8_t* shadow_of(const DeviceMemory& memory, const void* data) {
  const Allocation* const found = memory.find(address(data));
  return found->written + (address(data) - found->begin);
}

}  // namespace

DeviceMemory::~DeviceMemory() {
  while (!allocations_.empty()) free(pointer(allocations_.begin()->first));
}

void* DeviceMemory::allocate(std::uint64_t bytes) {
  if (bytes == 0 || bytes > limit_ - used_) return nullptr;
  std::uint8_t* const shadow = make_shadow(bytes);
  if (shadow == nullptr) return nullptr;
  const std::uint64_t begin = Region::instance().take(whole_pages(bytes));
  if (begin == 0) {
    munmap(shadow, bytes);
    return nullptr;
  }
  std::memset(pointer(begin), kPoison, bytes);
  allocations_[begin] = {begin, bytes, shadow};
  used_ += bytes;
  return pointer(begin);
}

bool DeviceMemory::free(void* pointer) {
  const auto found = allocations_.find(address(pointer));
  if (found == allocations_.end()) return false;
  munmap(found->second.written, found->second.bytes);
  Region::instance().give_back(found->first);
  used_ -= found->second.bytes;
  allocations_.erase(found);
  return true;
}

const Allocation* DeviceMemory::find(std::uint64_t address) const {
  const auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return nullptr;
  const Allocation& before = std::prev(after)->second;
  return address - before.begin < before.bytes ? &before : nullptr;
}

bool DeviceMemory::holds(const void* pointer, std::uint64_t bytes) const {
  const Allocation* const found = find(address(pointer));
  return found != nullptr && bytes <= found->bytes - (address(pointer) - found->begin);
}

void DeviceMemory::mark_written(const void* pointer, std::uint64_t bytes) const {
  std::memset(shadow_of(*this, pointer), 1, bytes);
}

void DeviceMemory::copy(const DeviceMemory& to_memory, void* to, const DeviceMemory& from_memory,
                        const void* from, std::uint64_t bytes) {
  std::memmove(to, from, bytes);
  std::memmove(shadow_of(to_memory, to), shadow_of(from_memory, from), bytes);
}

}  // namespace kiln::amd
