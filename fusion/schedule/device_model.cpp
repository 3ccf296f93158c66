// See device_model.hpp.
#include "fusion/schedule/device_model.hpp"

#include <algorithm>

namespace kiln::fusion {
namespace {

// GPUs: one 16-byte access of the narrowest operand per thread keeps enough bytes in flight with
// 256 threads a block, and 64 bytes of the widest operand still fit registers. An output is stored
// in one access of a thread, so that neighbouring threads fill whole cache lines at once: several
// accesses would leave gaps for the next one, and L2 is slow to merge them. Tiles take half of the
// shared memory of a block, so that two blocks fit a compute unit.
constexpr WorkSizes kAmd = {16, 64, 16, 16, 256, 256, 0, 32 << 10};
constexpr WorkSizes kNvidia = {16, 64, 16, 16, 256, 512, 0, 32 << 10};
// A work item is a part of a row, long enough that locating it costs nothing; tiles fit the L1
// cache.
constexpr WorkSizes kHost = {0, 0, 0, 1024, 16, 16, 8 << 20, 32 << 10};

// Compute units, boost clocks and bandwidths (of an MI250X for one of its two dies, which is a
// device). What each was compared with:
// * ROCm's documentation: compute units of MI250X, MI300X and MI355X ("AMD GPU specifications"),
//   clock and bandwidth of an MI250X's die ("MI250 microarchitecture": 1.7 GHz, 1.6 TB/s)
// * AMD's published peaks: MI100 (184.6 TFLOPS in f16 by its matrix units are 120 units with 1024
//   operations a cycle at 1.502 GHz; 4096 bits of HBM2 at 1.2 GHz), MI250X (47.9 TFLOPS in f32 are
//   220 units with 128 at 1.7 GHz), MI300X (163.4 in f32, packed, are 304 with 256 at 2.1 GHz),
//   MI355X (2.4 GHz as presented at Hot Chips 2025; 8 TB/s)
// * lists of the product's figures as reviews print them: RX 6900 XT (23.04 TFLOPS in f32), RX 7900
//   XTX, RX 9070, Ryzen AI Max+ 395 (256 bits of LPDDR5X-8000), A100 (and a device query), H200,
//   RTX 3090, RTX 4090, RTX 5090 (104 TFLOPS in f32), and units and clock of the B200
// * what a driver says: bandwidth of a B200 (7680 bits at 3996 MHz); clocks of an MI50 under load,
//   1725 MHz, memory at 1000 MHz. A list of its figures has 60 units and a boost clock of 1746 MHz.
// Rates of AMD's compute units:
// * CDNA: "Pipeline descriptions" of ROCm Compute Profiler's documentation: four SIMDs of 16 lanes;
//   each cycle instructions of several kinds issue, of different waves, one of them scalar; LDS
//   with 32 banks of 4 bytes. A vector instruction of a wave of 64 takes 4 cycles, addresses are
//   taken from 16 lanes a cycle.
// * RDNA: 64 lanes a cycle without pairs (VOPD), which are one instruction here ("Workgroup
//   processor" of that documentation: 128 operations in f32). Compared with no document: that each
//   of two SIMDs has a scalar unit, that LDS has 32 banks for each compute unit, and that addresses
//   are taken from 32 lanes a cycle.
// * Both: transcendental instructions have a quarter of the rate (WriteTrans32 of LLVM's
//   SISchedule.td), on RDNA in a unit of their own (HWTransVALU there).
// Rates of NVIDIA's multiprocessors: the table "Throughput of Native Arithmetic Instructions" of
// CUDA's guides: 64 lanes for 8.0 and 128 for the others, 16 of the special functions. Of 10.0 and
// 12.0 these 16, and of all the 32 banks of shared memory, are as for their predecessors.
// A core of a CPU: copies of 12 GB/s, and 24 operations a nanosecond, which is what the functions
// of `kiln bench --sweep` reach on average on 16 cores of a Xeon with AVX-512.
constexpr DeviceModel kDevices[] = {
    {"gfx906", "MI50", kAmd, 60, 1.725, 1024, 64, 16, 32, 16, 1, false},
    {"gfx908", "MI100", kAmd, 120, 1.502, 1228.8, 64, 16, 32, 16, 1, false},
    {"gfx90a", "MI250X", kAmd, 110, 1.7, 1638.4, 64, 16, 32, 16, 1, false},
    {"gfx942", "MI300X", kAmd, 304, 2.1, 5300, 64, 16, 32, 16, 1, false},
    {"gfx950", "MI355X", kAmd, 256, 2.4, 8000, 64, 16, 32, 16, 1, false},
    {"gfx103", "RX 6900 XT", kAmd, 80, 2.25, 512, 64, 16, 32, 32, 2, true},
    {"gfx110", "RX 7900 XTX", kAmd, 96, 2.5, 960, 64, 16, 32, 32, 2, true},
    {"gfx115", "Ryzen AI Max+ 395", kAmd, 40, 2.9, 256, 64, 16, 32, 32, 2, true},
    {"gfx120", "RX 9070", kAmd, 56, 2.52, 640, 64, 16, 32, 32, 2, true},
    {"gfx", "of no known kind", kAmd, 64, 2, 800, 64, 16, 32, 16, 1, false},
    {"sm_80", "A100 80 GB", kNvidia, 108, 1.41, 2039, 64, 16, 32, 0, 0, true},
    {"sm_86", "RTX 3090", kNvidia, 82, 1.695, 936, 128, 16, 32, 0, 0, true},
    {"sm_89", "RTX 4090", kNvidia, 128, 2.52, 1008, 128, 16, 32, 0, 0, true},
    {"sm_90", "H200", kNvidia, 132, 1.98, 4800, 128, 16, 32, 0, 0, true},
    {"sm_100", "B200", kNvidia, 148, 1.965, 7672, 128, 16, 32, 0, 0, true},
    {"sm_120", "RTX 5090", kNvidia, 170, 2.407, 1792, 128, 16, 32, 0, 0, true},
    {"sm_", "of no known kind", kNvidia, 64, 1.7, 1640, 128, 16, 32, 0, 0, true},
    {"", "a CPU's core", kHost, 1, 3, 12 / kCopiedFraction, 8, 0, 0, 0, 0, false},
};

}  // namespace

const DeviceModel& device_model(std::string_view target) {
  return *std::ranges::find_if(
      kDevices, [&](const DeviceModel& model) { return target.starts_with(model.target); });
}

const DeviceModel& device_model(Backend backend) {
  static const DeviceModel& amd = device_model("gfx");
  static const DeviceModel& nvidia = device_model("sm_");
  static const DeviceModel& host = device_model("");
  switch (backend) {
    case Backend::amd: return amd;
    case Backend::nvidia: return nvidia;
    case Backend::host: break;
  }
  return host;
}

}  // namespace kiln::fusion
