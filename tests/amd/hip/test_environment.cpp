// Linked into programs of tests beside emulate.cpp: a fault on an emulated GPU fails the test in
// which it happened, whatever the test makes of the error, and where the installed hiprtc does not
// know the emulated target the tests are skipped.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "jit/device/backend.hpp"
#include "jit/service/compile.hpp"
#include "tests/amd/hip/emulate.hpp"
#include "tests/amd/isa/disassembler.hpp"
#include "tests/support/toolchains.hpp"

namespace kiln::amd {
namespace {

class FaultListener : public ::testing::EmptyTestEventListener {
  void OnTestEnd(const ::testing::TestInfo&) override {
    if (const std::string faults = new_faults(); !faults.empty()) ADD_FAILURE() << faults;
  }
};

/// Why the processor that KILN_TEST_AMD_TARGET names cannot be tested; empty if it can. Throws
/// where there is all that it takes, and yet no GPU.
std::string why_absent(const std::string& processor) {
  if (!testing::has_toolchain(jit::ToolchainKind::hiprtc)) return "there is no hiprtc";
  if (find_comgr().empty()) return "there is no libamd_comgr";
  if (const std::string reason = jit::why_absent(DeviceType::hip); !reason.empty()) {
    throw std::runtime_error("no emulated GPU: " + reason);
  }
  if (processor == "gfx90a" || processor == "gfx1030") return {};  // every release knows them
  const auto known = jit::known_targets(jit::ToolchainKind::hiprtc);
  if (std::ranges::count(known, processor) != 0) return {};
  return "hiprtc does not know " + processor;
}

class EmulatedGpu : public ::testing::Environment {
  void SetUp() override {
    if (!is_emulating()) return;
    ::testing::UnitTest::GetInstance()->listeners().Append(new FaultListener);
    const char* const processor = std::getenv("KILN_TEST_AMD_TARGET");
    if (processor == nullptr) return;
    const std::string reason = why_absent(processor);
    if (!reason.empty()) GTEST_SKIP() << "no emulated GPU: " << reason;
  }
  void TearDown() override {
    if (const std::string work = executed(); !work.empty()) fmt::print("{}\n", work);
  }
};

const auto* const environment = ::testing::AddGlobalTestEnvironment(new EmulatedGpu);

}  // namespace
}  // namespace kiln::amd
