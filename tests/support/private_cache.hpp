// A cache directory of the test process' own, for every test of a program that includes this: no
// test sees what another one compiled.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

#include "tests/support/settings.hpp"
#include "tests/support/temporary_directory.hpp"

namespace kiln::testing {

/// KILN_TEST_CACHE_DIR names a directory that is kept instead, for a second run that must not start
/// a compiler. What is known of the compilers (toolchains.json) comes from the directory that
/// KILN_CACHE_DIR named and goes back there: to find out which targets hiprtc knows takes seconds,
/// for each of them starts a process.
class PrivateCache : public ::testing::Environment {
 public:
  PrivateCache() {
    if (const char* kept = std::getenv("KILN_TEST_CACHE_DIR")) {
      setenv("KILN_CACHE_DIR", kept, 1);
      return;
    }
    directory_.emplace();
    if (const char* shared = std::getenv("KILN_CACHE_DIR")) {
      shared_ = shared;
      std::error_code absent;
      std::filesystem::copy_file(shared_ / kToolchains, own() / kToolchains, absent);
    }
    setenv("KILN_CACHE_DIR", own().c_str(), 1);
  }
  ~PrivateCache() override {
    if (!shared_.empty()) share();
  }

 private:
  static constexpr const char* kToolchains = "toolchains.json";

  std::filesystem::path own() const { return directory_->path(); }

  // By rename, since others read it; what says more replaces what says less.
  void share() const {
    namespace fs = std::filesystem;
    const auto bytes = [](const fs::path& file) {
      std::error_code absent;
      const auto size = fs::file_size(file, absent);
      return absent ? 0 : size;
    };
    if (bytes(own() / kToolchains) <= bytes(shared_ / kToolchains)) return;
    const fs::path copy = shared_ / (own().filename().string() + ".json");
    std::error_code failed;
    fs::copy_file(own() / kToolchains, copy, failed);
    if (!failed) fs::rename(copy, shared_ / kToolchains, failed);
    if (failed) fs::remove(copy, failed);
  }

  std::optional<TemporaryDirectory> directory_;
  std::filesystem::path shared_;
};

#ifdef KILN_TEST_QUICK_KERNELS
/// In tests of what a kernel computes, whatever compiles it, and of nothing else about it: three
/// processes of four, drawn each time, have the CPU's kernels compiled by a host compiler that
/// optimises little, in half the time. All have the user's where KILN_CXX names one, and where all
/// cases run (KILN_TEST_SHARE=1). src/numerics has the compiler of users alone.
inline const bool has_quick_kernels = [] {
  if (std::getenv("KILN_CXX") != nullptr || setting("KILN_TEST_SHARE", 0) == 1) return false;
  if (random_seed() % 4 == 0) return false;
  std::fprintf(stderr, "KILN_CXX=%s\n", KILN_TEST_QUICK_KERNELS);  // standard output may be a list
  return setenv("KILN_CXX", KILN_TEST_QUICK_KERNELS, 1) == 0;
}();
#endif

inline const auto* const private_cache = ::testing::AddGlobalTestEnvironment(new PrivateCache);

}  // namespace kiln::testing
