// General kernels that are loaded, and their launches.
#pragma once

#include <array>
#include <cstring>
#include <memory>

#include "fallback/general_kernels.hpp"
#include "fallback/host_operations.hpp"
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

/// The elements of a row that one work item of a kernel along rows takes.
inline constexpr std::uint64_t kPartLength = 64;

/// The arguments of a kernel along rows (GeneralKernel::Kind::along), by the names that its text
/// has for them.
struct Along {
  std::uint32_t what = 0;  ///< along_code()
  const void* from = nullptr;
  const void* places = nullptr;
  const void* before = nullptr;
  void* to = nullptr;
  void* to_places = nullptr;
  std::uint64_t rows = 0;
  std::uint64_t length = 0;
  std::uint64_t part = 0;
  std::uint64_t parts = 1;
  std::uint64_t chunks = 1;  ///< of stages of the tree
  std::uint64_t apart = 1;
  std::uint32_t element_log2 = 0;  ///< of host::TreeStage::elements
};

/// Those of a stage of the tree; `counts` as host::run_stage() has them.
Along along_stage(std::uint32_t what, const host::TreeStage& stage, const void* from,
                  const void* counts, void* to);

void launch_along(jit::Backend& backend, const jit::Kernel& kernel, const Along& along,
                  const Stream& stream);

}  // namespace kiln
