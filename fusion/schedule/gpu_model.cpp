// See gpu_model.hpp.
#include "fusion/schedule/gpu_model.hpp"

#include <algorithm>
#include <iterator>

namespace kiln::fusion {
namespace {

// Compute units, clocks and bandwidths (of an MI250X for one of its two dies, which is a device):
// * AMD Instinct: compute units from "AMD GPU specifications" of ROCm's documentation, bandwidths
//   and peak rates of f32 from the table of products in Wikipedia's "AMD Instinct"; a compute unit
//   does 128 operations a cycle, of CDNA 3 and 4 (packed) 256, so the MI300X's 163.4 TFLOPS are
//   304 units at 2.1 GHz.
// * Radeon and Ryzen: the tables in Wikipedia's "RDNA 2", "RDNA 3" and "RDNA 4" (boost clocks), and
//   AMD's announcement of the Ryzen AI Max (40 units, 2.9 GHz, 256 bits of LPDDR5X-8000).
// * NVIDIA: the white papers of each architecture and the data sheets of A100, H200 and B200. Of a
//   B200 the driver says 7680 bits at 3996 MHz.
// Rates of AMD's compute units:
// * CDNA: "Pipeline descriptions" of ROCm Compute Profiler's documentation: four SIMDs of 16 lanes;
//   each cycle instructions of several kinds issue, of different waves, one of them scalar; LDS
//   with 32 banks of 4 bytes. A vector instruction of a wave of 64 takes 4 cycles, a transcendental
//   one four times as long (LLVM's SISchedule.td: a quarter of the rate), addresses are taken from
//   16 lanes a cycle.
// * RDNA: AMD's RDNA white paper: two SIMDs of 32 lanes, each with a scalar unit and with a
//   transcendental unit of 8 lanes beside its others; LDS with 32 banks for each compute unit;
//   addresses are taken from 32 lanes a cycle. Pairs (VOPD) are one instruction here.
// NVIDIA: the table of arithmetic throughput in the CUDA C++ Programming Guide.
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
