// General kernels that are loaded, and their launches.
#pragma once

#include <array>
#include <cstring>
#include <memory>

#include "fallback/general_kernels.hpp"
#include "fusion/graph/graph.hpp"
#include "jit/device/backend.hpp"

namespace kiln {

/// The kernel on that device: loaded once, and kept. Null if it is in no cache; that is looked up
/// again after a second. Safe from any thread. Throws Error(device) where it cannot be loaded.
std::shared_ptr<jit::Kernel> find_general_kernel(jit::Backend& backend,
                                                 const GeneralKernel& kernel);

/// Loads what calls of that function are likely to be served by, as far as it is in a cache, on the
/// devices that this process has used: then its first call waits for no disk and no driver.
/// Failures are those of the call that needs the kernel.
void load_likely_general_kernels(const fusion::Graph& graph, Accuracy accuracy);

/// The parameters of a launch, in the order of the kernel's.
class GeneralArguments {
 public:
  explicit GeneralArguments(const void* first) { add(first); }
  GeneralArguments& add(const void* pointer) { return put(&pointer, sizeof pointer); }
  GeneralArguments& add(std::uint64_t number) { return put(&number, sizeof number); }
  GeneralArguments& add(std::int64_t number) { return put(&number, sizeof number); }
  GeneralArguments& add(std::uint32_t number) { return put(&number, sizeof number); }

  /// One work item for each of `items`, of which so many are worth a core of their own.
  void launch(jit::Backend& backend, const jit::Kernel& kernel, std::uint64_t items,
              std::uint32_t worth_a_core, const Stream& stream);

 private:
  GeneralArguments& put(const void* value, std::size_t bytes) {
    std::memcpy(&words_[count_], value, bytes);
    ++count_;
    return *this;
  }

  static constexpr std::size_t kMost = 11 + 2 * kMostMovedAxes;
  std::array<std::uint64_t, kMost> words_{};
  std::size_t count_ = 0;
};

}  // namespace kiln
