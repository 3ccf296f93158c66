// The registry of devices: which there are, and one backend for each, made on first use. See
// backend.hpp.
#include "jit/device/backend.hpp"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <mutex>

#include "jit/device/cpu/cpu_backend.hpp"
#include "jit/device/hip/platform.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

constexpr int kMaxDevices = 64;
constexpr std::size_t kTypes = 3;

/// Backends are found here without a lock. They are never destroyed: at the end of the process the
/// drivers under them may go first.
std::array<std::array<std::atomic<Backend*>, kMaxDevices>, kTypes> opened{};

int device_count(DeviceType type) {
  switch (type) {
    case DeviceType::cpu: return 1;
    case DeviceType::hip: return amd::device_count();
    case DeviceType::cuda: return nvidia::device_count();
  }
  return 0;
}

std::unique_ptr<Backend> open(Device device) {
  switch (device.type) {
    case DeviceType::hip: return amd::open(device.index);
    case DeviceType::cuda: return nvidia::open(device.index);
    case DeviceType::cpu: break;
  }
  return cpu::open();
}

std::string list(const std::vector<Device>& devices) {
  std::string text;
  for (Device device : devices) text += (text.empty() ? "" : ", ") + to_string(device);
  return text;
}

Backend& open_once(Device device, std::atomic<Backend*>& slot) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (Backend* known = slot.load(std::memory_order_acquire)) return *known;
  slot.store(open(device).release(), std::memory_order_release);
  return *slot.load(std::memory_order_relaxed);
}

}  // namespace

Backend& backend(Device device) {
  const auto type = static_cast<std::size_t>(device.type);
  const bool in_table = type < kTypes && device.index >= 0 && device.index < kMaxDevices;
  if (in_table) {
    if (Backend* known =
            opened[type][static_cast<std::size_t>(device.index)].load(std::memory_order_acquire)) {
      return *known;
    }
  }
  const int count = device_count(device.type);
  if (count == 0) {
    throw Error(Code::unsupported,
                fmt::format("device {}: {}", to_string(device), why_absent(device.type)));
  }
  if (!in_table || device.index >= count) {
    throw Error(Code::not_found, fmt::format("device {}: there is no such device here, only {}",
                                             to_string(device), list(devices())));
  }
  return open_once(device, opened[type][static_cast<std::size_t>(device.index)]);
}

std::vector<Backend*> open_backends() {
  std::vector<Backend*> all;
  for (const auto& devices : opened) {
    for (const std::atomic<Backend*>& slot : devices) {
      if (Backend* const known = slot.load(std::memory_order_acquire)) all.push_back(known);
    }
  }
  return all;
}

std::vector<Device> devices() {
  std::vector<Device> all;
  for (DeviceType type : {DeviceType::hip, DeviceType::cuda, DeviceType::cpu}) {
    for (int i = 0, count = device_count(type); i < count; ++i) all.push_back({type, i});
  }
  return all;
}

std::string why_absent(DeviceType type) {
  switch (type) {
    case DeviceType::cpu: return {};
    case DeviceType::hip: return amd::why_absent();
    case DeviceType::cuda: return nvidia::why_absent();
  }
  return "unknown device type";
}

}  // namespace kiln::jit
