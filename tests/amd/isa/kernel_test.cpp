// Whole kernels, as hiprtc compiles them for waves of 32 and of 64 lanes, against the host's
// arithmetic: what single instructions do not show, from arguments to synchronisation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "jit/service/compile.hpp"
#include "tests/amd/isa/listing.hpp"
#include "tests/amd/isa/numbers.hpp"
#include "tests/support/toolchains.hpp"

namespace kiln::amd {
namespace {

constexpr const char* kSource = R"(
typedef unsigned int u32;
#define KERNEL extern "C" __attribute__((global)) void __attribute__((amdgpu_flat_work_group_size(1, 256)))
#define THREAD __builtin_amdgcn_workitem_id_x()
#define BLOCK __builtin_amdgcn_workgroup_id_x()

__attribute__((device)) inline void synchronise() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

KERNEL quotients(const float* a, const float* b, float* out, u32 size) {
  const u32 i = BLOCK * 256 + THREAD;
  if (i < size) out[i] = a[i] / b[i];
}

KERNEL wide_quotients(const double* a, const double* b, double* out, u32 size) {
  const u32 i = BLOCK * 256 + THREAD;
  if (i < size) out[i] = a[i] / b[i];
}

KERNEL roots(const float* a, const float* b, float* out, u32 size) {
  const u32 i = BLOCK * 256 + THREAD;
  if (i < size) out[i] = __builtin_sqrtf(a[i]) + 0 * b[i];
}

KERNEL halves(const float* a, const float* b, float* out, u32 size) {
  const u32 i = BLOCK * 256 + THREAD;
  if (i < size) out[i] = (float)((_Float16)a[i] * (_Float16)b[i]);
}

KERNEL integers(const int* a, const int* b, int* out, u32 size) {
  const u32 i = BLOCK * 256 + THREAD;
  if (i < size) out[i] = a[i] / b[i] + a[i] % b[i] * 3;
}

KERNEL own_memory(const float* a, const float* b, float* out, u32 size) {
  const u32 i = BLOCK * 256 + THREAD;
  if (i >= size) return;
  float own[3] = {a[i], b[i], 0};
  float* volatile anywhere = own + i % 3;
  *anywhere += 1;
  out[i] = *anywhere + own[1];
}

KERNEL shared_memory(const float* a, const float* b, float* out, u32 size) {
  __attribute__((shared)) static float all[256];
  float* volatile anywhere = all + THREAD;
  *anywhere = THREAD < size ? a[THREAD] : 0;
  synchronise();
  anywhere = all + (THREAD ^ 1);
  if (THREAD < size) out[THREAD] = *anywhere + b[THREAD];
}

KERNEL block_sums(const float* a, const float*, float* out, u32 size) {
  __attribute__((shared)) static float partial[256];
  const u32 i = BLOCK * 256 + THREAD;
  partial[THREAD] = i < size ? a[i] : 0;
  synchronise();
  for (u32 width = 128; width > 0; width /= 2) {
    if (THREAD < width) partial[THREAD] += partial[THREAD + width];
    synchronise();
  }
  if (i < size) out[i] = partial[0];
}

KERNEL turned(const float* a, const float*, float* out, u32 size) {
  __attribute__((shared)) static float tile[16][17];
  const u32 row = THREAD / 16, column = THREAD % 16;
  const u32 i = BLOCK * 256 + THREAD;
  tile[row][column] = i < size ? a[i] : 0;
  synchronise();
  if (i < size) out[i] = tile[column][row];
}
)";

/// Numbers of every magnitude and sign, with zeros, infinities, NaN and subnormals among them.
template <class T>
std::vector<T> every_kind(std::uint32_t seed, std::size_t count) {
  std::mt19937_64 random(seed);
  std::vector<T> values(count);
  for (T& value : values) {
    if constexpr (sizeof(T) == 8) {
      value = std::bit_cast<T>(random());
    } else {
      value = std::bit_cast<T>(static_cast<std::uint32_t>(random()));
    }
  }
  if constexpr (std::is_floating_point_v<T>) {
    const T special[] = {0,
                         -T(0),
                         std::numeric_limits<T>::infinity(),
                         -std::numeric_limits<T>::infinity(),
                         std::numeric_limits<T>::quiet_NaN(),
                         std::numeric_limits<T>::denorm_min(),
                         std::numeric_limits<T>::max(),
                         std::numeric_limits<T>::min(),
                         1,
                         -1};
    // Every pair of two of them, as `seed` is the first or the second operand.
    for (std::size_t i = 0; i < 100; ++i) values[i] = special[seed == 1 ? i / 10 : i % 10];
  }
  return values;
}

class Kernels : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    KILN_NEED(hiprtc)
    const bool every_release_knows = GetParam() == "gfx90a" || GetParam() == "gfx1030";
    if (!every_release_knows &&
        !std::ranges::count(jit::known_targets(jit::ToolchainKind::hiprtc), GetParam())) {
      GTEST_SKIP() << "hiprtc does not know " << GetParam();
    }
    jit::CompileRequest request;
    request.entry = request.function = "kernels";
    request.source = kSource;
    request.target = GetParam();
    request.options = jit::compile_options(GetParam(), false);
    const std::string code = jit::compile(request).code;
    object_ = CodeObject::load(std::as_bytes(std::span(code)), GetParam(),
                               [](const std::string& image, const std::string& target) {
                                 return jit::disassemble(image, target);
                               });
  }

  template <class T>
  std::vector<T> run(const char* name, const std::vector<T>& a, const std::vector<T>& b) {
    struct {
      std::uint64_t in[2];
      std::uint64_t out;
      std::uint32_t size;
    } arguments{};
    arguments.in[0] = memory_.allocate(a);
    arguments.in[1] = memory_.allocate(b);
    arguments.out = memory_.allocate(a.size() * sizeof(T));
    arguments.size = static_cast<std::uint32_t>(a.size());
    Dispatch dispatch;
    dispatch.kernel = object_->kernel(name);
    dispatch.blocks = {(arguments.size + 255) / 256, 1, 1};
    dispatch.threads = {256, 1, 1};
    dispatch.arguments = std::as_bytes(std::span(&arguments, 1));
    trace_ = execute(dispatch, memory_);
    std::vector<T> out(a.size());
    std::memcpy(out.data(), reinterpret_cast<const void*>(arguments.out), out.size() * sizeof(T));
    return out;
  }

  /// `function` of each pair is what the kernel gives, bit for bit but for the bits of a NaN.
  template <class T, class F>
  void expect_function(const char* name, F function) {
    const std::vector<T> a = every_kind<T>(1, 5003);
    const std::vector<T> b = every_kind<T>(2, 5003);
    const std::vector<T> out = run(name, a, b);
    int wrong = 0;
    for (std::size_t i = 0; i < out.size() && wrong < 10; ++i) {
      const T expected = function(a[i], b[i]);
      const bool same = std::memcmp(&expected, &out[i], sizeof(T)) == 0 ||
                        (expected != expected && out[i] != out[i]);
      if (same) continue;
      ++wrong;
      ADD_FAILURE() << name << "(" << a[i] << ", " << b[i] << ") gave " << out[i] << ", not "
                    << expected;
    }
  }

  std::shared_ptr<const CodeObject> object_;
  TestMemory memory_;
  Trace trace_;
};

TEST_P(Kernels, compute_as_the_host_does) {
  expect_function<float>("quotients", [](float a, float b) { return a / b; });
  expect_function<double>("wide_quotients", [](double a, double b) { return a / b; });
  expect_function<float>("roots", [](float a, float b) { return std::sqrt(a) + 0 * b; });
  expect_function<float>("halves", [](float a, float b) {
    return half_to_float(
        half_of(static_cast<double>(half_to_float(half_of(a))) * half_to_float(half_of(b))));
  });
}

TEST_P(Kernels, reach_their_own_memory_and_lds_by_pointers_to_anything) {
  const std::vector<float> a = {1, 2, 4};
  const std::vector<float> b = {8, 16, 32};
  EXPECT_EQ(run("own_memory", a, b), (std::vector<float>{10, 34, 33}));
  EXPECT_EQ(run("shared_memory", a, b), (std::vector<float>{10, 17, 32}));
}

TEST_P(Kernels, divide_integers) {
  std::vector<int> a = every_kind<int>(1, 1003);
  std::vector<int> b = every_kind<int>(2, 1003);
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = b[i] >> (i % 31) | 1;
  a[0] = std::numeric_limits<int>::max();
  const std::vector<int> out = run("integers", a, b);
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (b[i] == -1) continue;
    const auto expected =
        static_cast<unsigned>(a[i] / b[i]) + static_cast<unsigned>(a[i] % b[i]) * 3;
    EXPECT_EQ(static_cast<unsigned>(out[i]), expected) << a[i] << ", " << b[i];
  }
}

TEST_P(Kernels, synchronise_their_waves) {
  std::vector<float> a(1000);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 64);
  const std::vector<float> sums = run("block_sums", a, a);
  float first = 0;
  for (std::size_t i = 0; i < 256; ++i) first += a[i];
  EXPECT_EQ(sums[0], first);
  EXPECT_EQ(sums[255], first);
  EXPECT_GT(trace_.units[static_cast<std::size_t>(Unit::lds)].instructions, 0U);
  const std::vector<float> turned = run("turned", a, a);
  EXPECT_EQ(turned[3 * 16 + 7], a[7 * 16 + 3]);
  EXPECT_EQ(trace_.waves, 4 * 256U / object_->kernels()[0].wave_size);
  EXPECT_EQ(trace_.bytes_written, 4000U);
}

INSTANTIATE_TEST_SUITE_P(Targets, Kernels,
                         ::testing::Values("gfx90a", "gfx1030", "gfx942", "gfx950", "gfx1100",
                                           "gfx1151", "gfx1201"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace kiln::amd
