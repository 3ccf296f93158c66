// See host_features.hpp. Only features that help a generated kernel are listed: what is not here is
// not used, and so is not part of the target. CPUID is read by hand because the compilers' own
// __builtin_cpu_supports does not know f16c and lzcnt everywhere (clang 14).
#include "jit/toolchain/host_features.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "jit/toolchain/toolchain.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

constexpr std::string_view kX86 = "x86-64";
constexpr std::string_view kArm = "aarch64";

// Named as after gcc's and clang's -m.
constexpr std::array<std::string_view, 20> kX86Features = {
    "sse3",     "ssse3",    "sse4.1",   "sse4.2",     "popcnt",     "avx",     "f16c",
    "fma",      "bmi",      "avx2",     "bmi2",       "lzcnt",      "avx512f", "avx512cd",
    "avx512bw", "avx512dq", "avx512vl", "avx512bf16", "avx512vnni", "avxvnni"};
// Named as after -march=armv8-a+.
constexpr std::array<std::string_view, 4> kArmFeatures = {"lse", "fp16", "dotprod", "bf16"};

#if defined(__x86_64__)
// Register state that the operating system saves: without it, AVX instructions fault.
std::uint64_t enabled_state() {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (std::uint64_t{high} << 32) | low;
}

std::vector<std::string_view> detect() {
  unsigned a = 0;
  unsigned b1 = 0;
  unsigned c1 = 0;
  unsigned d1 = 0;
  if (__get_cpuid(1, &a, &b1, &c1, &d1) == 0) return {};
  unsigned b7 = 0;
  unsigned c7 = 0;
  unsigned d7 = 0;
  __get_cpuid_count(7, 0, &a, &b7, &c7, &d7);
  unsigned a71 = 0;
  unsigned ignored = 0;
  __get_cpuid_count(7, 1, &a71, &ignored, &ignored, &ignored);
  unsigned extended = 0;
  __get_cpuid(0x80000001, &a, &ignored, &extended, &ignored);
  const auto bit = [](unsigned word, int index) { return ((word >> index) & 1U) != 0; };

  const std::uint64_t state = bit(c1, 27) ? enabled_state() : 0;
  const bool avx = (state & 0x6) == 0x6 && bit(c1, 28);
  const bool avx512 = avx && (state & 0xe6) == 0xe6 && bit(b7, 16);
  const std::array<bool, kX86Features.size()> present = {bit(c1, 0),
                                                         bit(c1, 9),
                                                         bit(c1, 19),
                                                         bit(c1, 20),
                                                         bit(c1, 23),
                                                         avx,
                                                         avx && bit(c1, 29),
                                                         avx && bit(c1, 12),
                                                         bit(b7, 3),
                                                         avx && bit(b7, 5),
                                                         bit(b7, 8),
                                                         bit(extended, 5),
                                                         avx512,
                                                         avx512 && bit(b7, 28),
                                                         avx512 && bit(b7, 30),
                                                         avx512 && bit(b7, 17),
                                                         avx512 && bit(b7, 31),
                                                         avx512 && bit(a71, 5),
                                                         avx512 && bit(c7, 11),
                                                         avx && bit(a71, 4)};
  std::vector<std::string_view> features;
  for (std::size_t i = 0; i < present.size(); ++i) {
    if (present[i]) features.push_back(kX86Features[i]);
  }
  return features;
}
constexpr std::string_view kHere = kX86;
#elif defined(__aarch64__)
std::vector<std::string_view> detect() {
  const unsigned long one = getauxval(AT_HWCAP);
  const unsigned long two = getauxval(AT_HWCAP2);
  const std::array<bool, kArmFeatures.size()> present = {
      (one & HWCAP_ATOMICS) != 0, (one & HWCAP_ASIMDHP) != 0, (one & HWCAP_ASIMDDP) != 0,
      (two & HWCAP2_BF16) != 0};
  std::vector<std::string_view> features;
  for (std::size_t i = 0; i < present.size(); ++i) {
    if (present[i]) features.push_back(kArmFeatures[i]);
  }
  return features;
}
constexpr std::string_view kHere = kArm;
#else
#error "kiln: the CPU device knows x86-64 and aarch64; add this machine's features here"
#endif

std::string_view architecture(std::string_view target) {
  return target.substr(0, target.find(':'));
}

std::vector<std::string_view> features_of(std::string_view target) {
  std::vector<std::string_view> features;
  for (std::size_t colon = target.find(':'); colon != std::string_view::npos;) {
    target.remove_prefix(colon + 1);
    colon = target.find(',');
    features.push_back(target.substr(0, colon));
  }
  return features;
}

}  // namespace

std::string host_target() {
  static const auto* const target = [] {
    const auto features = detect();
    return new std::string(features.empty()
                               ? std::string(kHere)
                               : fmt::format("{}:{}", kHere, fmt::join(features, ",")));
  }();
  return *target;
}

bool is_host_target(std::string_view target) {
  return architecture(target) == kX86 || architecture(target) == kArm;
}

std::vector<std::string> host_target_options(std::string_view target) {
  const bool x86 = architecture(target) == kX86;
  const auto check = [&](std::string_view feature, const auto& known) {
    if (std::find(known.begin(), known.end(), feature) != known.end()) return;
    throw Error(Code::invalid_argument,
                fmt::format("target '{}': unknown feature '{}', expected some of {}", target,
                            feature, fmt::join(known, ",")));
  };
  std::vector<std::string> options;
  if (x86) {
    options.emplace_back("-march=x86-64");
    for (const std::string_view feature : features_of(target)) {
      check(feature, kX86Features);
      options.push_back(fmt::format("-m{}", feature));
    }
    return options;
  }
  std::string march = "-march=armv8-a";
  for (const std::string_view feature : features_of(target)) {
    check(feature, kArmFeatures);
    march += fmt::format("+{}", feature);
  }
  options.push_back(march);
  return options;
}

const std::vector<std::string>& host_link_options() {
  static const auto* const options =
      new std::vector<std::string>{"-s", "-Wl,--build-id=none", "-lm", "-lc", "-lgcc"};
  return *options;
}

}  // namespace kiln::jit
