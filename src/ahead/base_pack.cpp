#include "ahead/base_pack.hpp"

#include <condition_variable>
#include <memory>
#include <mutex>

#include "fallback/general_kernels.hpp"
#include "kernel/target.hpp"

namespace kiln {

std::vector<BaseKernel> compile_base_kernels(
    std::string_view target,
    const std::function<void(const BaseKernel&, std::size_t, std::size_t)>& done) {
  struct Arrivals {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::size_t> order;
  };
  const auto arrivals = std::make_shared<Arrivals>();
  const std::string resolved = resolve_target(target);
  std::vector<BaseKernel> kernels;
  std::vector<WantedKernel> wanted;
  for (const GeneralKernel& kernel : all_general_kernels()) {
    wanted.push_back({general_request(kernel, resolved), nullptr});
    kernels.push_back({wanted.back().request.function, {}});
  }
  std::vector<KernelTable::Done> deliveries;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    deliveries.push_back([arrivals, i, &kernels](const KernelResult& result) {
      const std::lock_guard lock(arrivals->mutex);
      kernels[i].result = result;
      arrivals->order.push_back(i);
      arrivals->changed.notify_one();
    });
  }
  KernelTable::instance().request(wanted, deliveries);
  for (std::size_t count = 0; count < kernels.size(); ++count) {
    std::unique_lock lock(arrivals->mutex);
    arrivals->changed.wait(lock, [&] { return arrivals->order.size() > count; });
    const std::size_t i = arrivals->order[count];
    lock.unlock();
    if (done) done(kernels[i], count + 1, kernels.size());
  }
  return kernels;
}

}  // namespace kiln
