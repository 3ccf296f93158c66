#include "fallback/general_launch.hpp"

#include <chrono>
#include <map>
#include <mutex>
#include <utility>

#include "kernel/kernel_table.hpp"

namespace kiln {
namespace {

struct FoundGeneral {
  std::shared_ptr<jit::Kernel> kernel;
  std::chrono::steady_clock::time_point look_again;  ///< where there is none
};

}  // namespace

std::shared_ptr<jit::Kernel> find_general_kernel(jit::Backend& backend,
                                                 const GeneralKernel& kernel) {
  using Clock = std::chrono::steady_clock;
  using Id = std::pair<const jit::Backend*, GeneralKernel>;
  static auto* const mutex = new std::mutex;
  static auto* const known = new std::map<Id, FoundGeneral>;
  const Id id{&backend, kernel};
  {
    const std::lock_guard lock(*mutex);
    const auto found = known->find(id);
    if (found != known->end() && (found->second.kernel || Clock::now() < found->second.look_again))
      return found->second.kernel;
  }
  const WantedKernel wanted{general_request(kernel, backend.target()), &backend};
  const KernelResult result = KernelTable::instance().get(wanted, name_kernel(wanted.request));
  if (result.failure && result.failure->code != Code::would_compile)
    throw error_of(*result.failure);
  const std::lock_guard lock(*mutex);
  (*known)[id] = {result.kernel, Clock::now() + std::chrono::seconds(1)};
  return result.kernel;
}

void GeneralArguments::launch(jit::Backend& backend, const jit::Kernel& kernel, std::uint64_t items,
                              std::uint32_t worth_a_core, const Stream& stream) {
  std::array<void*, kMost> pointers;
  for (std::size_t i = 0; i < count_; ++i) pointers[i] = &words_[i];
  jit::LaunchShape shape;
  shape.work_items = items;
  shape.block = stream.device.type == DeviceType::cpu ? worth_a_core : 256;
  backend.launch(kernel, shape, pointers.data(), stream);
}

}  // namespace kiln
