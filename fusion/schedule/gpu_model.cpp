// See gpu_model.hpp.
#include "fusion/schedule/gpu_model.hpp"

#include <algorithm>
#include <iterator>

namespace kiln::fusion {
namespace {

// Compute units, boost clocks and bandwidths (of an MI250X for one of its two dies, which is a
// device), and how far they have been compared with something:
// * with ROCm's documentation: compute units of MI300X and MI355X ("AMD GPU specifications"), clock
//   and bandwidth of an MI250X's die ("MI250 microarchitecture": 1.7 GHz, 1.6 TB/s)
// * with published figures of the product: MI300X (its peak of 163.4 TFLOPS in f32, packed, is 304
//   units at 2.1 GHz with 256 operations a cycle), RX 7900 XTX, RX 9070, Ryzen AI Max+ 395
//   (256 bits of LPDDR5X-8000), H200, RTX 4090
// * with reviews, not with a vendor's page: RX 6900 XT; with reviews and what a device query
//   printed: A100
// * with what the driver says: bandwidth of a B200 (7680 bits at 3996 MHz)
// * with nothing: MI50, MI100, RTX 3090, RTX 5090, units of the MI250X, clock and bandwidth of the
//   MI355X, units and clock of the B200
// Rates of AMD's compute units:
// * CDNA: "Pipeline descriptions" of ROCm Compute Profiler's documentation: four SIMDs of 16 lanes;
//   each cycle instructions of several kinds issue, of different waves, one of them scalar; LDS
//   with 32 banks of 4 bytes. A vector instruction of a wave of 64 takes 4 cycles, a transcendental
//   one four times as long (LLVM's SISchedule.td: a quarter of the rate), addresses are taken from
//   16 lanes a cycle.
// * RDNA, compared with no document: two SIMDs of 32 lanes, each with a scalar unit and with a
//   transcendental unit of 8 lanes beside its others; LDS with 32 banks for each compute unit;
//   addresses are taken from 32 lanes a cycle. Pairs (VOPD) are one instruction here.
// Rates of NVIDIA's multiprocessors are compared with no document.
constexpr GpuModel kGpus[] = {
    {"gfx906", "MI50", 60, 1.725, 1024, 64, 16, 32, 16, 1, false},
    {"gfx908", "MI100", 120, 1.502, 1228.8, 64, 16, 32, 16, 1, false},
    {"gfx90a", "MI250X", 110, 1.7, 1638.4, 64, 16, 32, 16, 1, false},
    {"gfx942", "MI300X", 304, 2.1, 5300, 64, 16, 32, 16, 1, false},
    {"gfx950", "MI355X", 256, 2.4, 8000, 64, 16, 32, 16, 1, false},
    {"gfx103", "RX 6900 XT", 80, 2.25, 512, 64, 16, 32, 32, 2, true},
    {"gfx110", "RX 7900 XTX", 96, 2.5, 960, 64, 16, 32, 32, 2, true},
    {"gfx115", "Ryzen AI Max+ 395", 40, 2.9, 256, 64, 16, 32, 32, 2, true},
    {"gfx120", "RX 9070", 56, 2.52, 640, 64, 16, 32, 32, 2, true},
    {"gfx", "of no known kind", 64, 2, 800, 64, 16, 32, 16, 1, false},
    {"sm_80", "A100 80 GB", 108, 1.41, 2039, 64, 16, 32, 0, 0, true},
    {"sm_86", "RTX 3090", 82, 1.695, 936, 128, 16, 32, 0, 0, true},
    {"sm_89", "RTX 4090", 128, 2.52, 1008, 128, 16, 32, 0, 0, true},
    {"sm_90", "H200", 132, 1.98, 4800, 128, 16, 32, 0, 0, true},
    {"sm_100", "B200", 148, 1.965, 7672, 128, 16, 32, 0, 0, true},
    {"sm_120", "RTX 5090", 170, 2.407, 1792, 128, 16, 32, 0, 0, true},
    {"sm_", "of no known kind", 64, 1.7, 1640, 128, 16, 32, 0, 0, true},
};

}  // namespace

const GpuModel* find_gpu_model(std::string_view target) {
  const auto* const found = std::ranges::find_if(
      kGpus, [&](const GpuModel& model) { return target.starts_with(model.target); });
  return found == std::end(kGpus) ? nullptr : found;
}

}  // namespace kiln::fusion
