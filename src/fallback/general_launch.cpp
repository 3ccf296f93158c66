#include "fallback/general_launch.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "kernel/kernel_table.hpp"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;
using Id = std::pair<const jit::Backend*, GeneralKernel>;

enum class For : std::uint8_t { call, later_calls };

// One that was looked for; where there is none, when it is looked for again.
struct FoundGeneral {
  std::shared_ptr<jit::Kernel> kernel;
  std::array<Clock::time_point, 2> look_again{};  ///< For each
};

std::shared_ptr<jit::Kernel> find(jit::Backend& backend, const GeneralKernel& kernel, For what) {
  static auto* const mutex = new std::mutex;
  static auto* const known = new std::map<Id, FoundGeneral>;
  const Id id{&backend, kernel};
  {
    const std::lock_guard lock(*mutex);
    const auto found = known->find(id);
    if (found != known->end() &&
        (found->second.kernel ||
         Clock::now() < found->second.look_again[static_cast<std::size_t>(what)])) {
      return found->second.kernel;
    }
  }
  const WantedKernel wanted{general_request(kernel, backend.target()), &backend};
  const KernelResult result = KernelTable::instance().get(wanted, name_kernel(wanted.request));
  if (result.failure && result.failure->code != Code::would_compile)
    throw error_of(*result.failure);
  const std::lock_guard lock(*mutex);
  FoundGeneral& found = (*known)[id];
  found.kernel = result.kernel;
  found.look_again[static_cast<std::size_t>(what)] = Clock::now() + std::chrono::seconds(1);
  return result.kernel;
}

}  // namespace

std::shared_ptr<jit::Kernel> find_general_kernel(jit::Backend& backend,
                                                 const GeneralKernel& kernel) {
  return find(backend, kernel, For::call);
}

void load_likely_general_kernels(const fusion::Graph& graph, Accuracy accuracy) {
  using Kind = GeneralKernel::Kind;
  std::set<GeneralKernel> likely{GeneralKernel()};
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    likely.insert({Kind::convert, dtype, fusion::Op::input, false});
  }
  for (const fusion::Node& node : graph.nodes()) {
    if (const auto map = general_map(node.op, DType::f32, accuracy)) likely.insert(*map);
    if (fusion::is_reduction(node.op) || fusion::is_scan(node.op)) {
      likely.insert({Kind::along, DType::f32, fusion::Op::input, false});
    }
  }
  for (jit::Backend* const backend : jit::open_backends()) {
    for (const GeneralKernel& kernel : likely) {
      failure_of([&] { find(*backend, kernel, For::later_calls); });
    }
  }
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

Along along_stage(std::uint32_t what, const host::TreeStage& stage, const void* from,
                  const void* counts, void* to) {
  return {.what = what,
          .from = from,
          .places = counts,
          .to = to,
          .rows = stage.rows,
          .length = stage.length,
          .part = stage.residues,
          .parts = stage.slots,
          .chunks = stage.chunks,
          .apart = stage.apart,
          .element_log2 = static_cast<std::uint32_t>(
              std::countr_zero(std::max<std::uint64_t>(1, stage.elements)))};
}

void launch_along(jit::Backend& backend, const jit::Kernel& kernel, const Along& along,
                  const Stream& stream) {
  const std::uint64_t items = along.rows * along.chunks * along.parts;
  GeneralArguments arguments(along.from);
  arguments.add(along.places).add(along.before).add(along.to).add(along.to_places).add(items);
  arguments.add(along.length).add(along.part).add(along.parts);
  arguments.add(along.chunks).add(along.apart).add(along.element_log2).add(along.what);
  arguments.launch(backend, kernel, items, jit::kCpuBlock / kPartLength, stream);
}

}  // namespace kiln
