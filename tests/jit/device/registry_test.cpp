// Which devices there are, and what a person is told about those that are not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "base/dynamic_library.hpp"
#include "jit/device/backend.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

TEST(Registry, CpuIsAlwaysThereAndLast) {
  const std::vector<Device> all = devices();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.back(), (Device{DeviceType::cpu, 0}));
  EXPECT_EQ(std::count(all.begin(), all.end(), Device{}), 1);
  EXPECT_EQ(why_absent(DeviceType::cpu), "");
}

TEST(Registry, BackendIsMadeOnce) {
  std::vector<Backend*> seen(8, nullptr);
  std::vector<std::thread> threads;
  for (Backend*& slot : seen) threads.emplace_back([&slot] { slot = &backend({}); });
  for (std::thread& thread : threads) thread.join();
  for (Backend* one : seen) EXPECT_EQ(one, &backend({}));
}

TEST(Registry, IndexThatIsNotThereListsWhatIs) {
  for (int index : {1, -1, 64, 1'000'000}) {
    try {
      backend({DeviceType::cpu, index});
      ADD_FAILURE() << "cpu " << index << " was found";
    } catch (const Error& error) {
      EXPECT_EQ(name(error.code()), name(Code::not_found));
      EXPECT_THAT(error.what(), AllOf(HasSubstr("no such device"), HasSubstr("cpu")));
    }
  }
}

class AbsentGpu : public ::testing::TestWithParam<DeviceType> {};

TEST_P(AbsentGpu, ErrorSaysWhatIsMissingAndWhatGivesIt) {
  const std::string reason = why_absent(GetParam());
  if (reason.empty()) GTEST_SKIP() << "there is such a device here";
  EXPECT_THAT(reason, AnyOf(HasSubstr("libcuda.so.1"), HasSubstr("libamdhip64"),
                            HasSubstr("hip_runtime_api.h"), HasSubstr("/dev/kfd")));
  for (int index : {0, 3}) {
    try {
      backend({GetParam(), index});
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(name(error.code()), name(Code::unsupported));
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr(to_string(Device{GetParam(), index})), HasSubstr(reason)));
    }
  }
  std::printf("%s\n", reason.c_str());
}

INSTANTIATE_TEST_SUITE_P(Every, AbsentGpu, ::testing::Values(DeviceType::hip, DeviceType::cuda));

TEST(DynamicLibraryTest, SaysWhyNoneOfTheNamesCouldBeLoaded) {
  const std::string names[] = {"libkiln-no-such-library.so.1", "/nowhere/libkiln-other.so"};
  base::DynamicLibrary library(names);
  EXPECT_FALSE(library);
  EXPECT_EQ(library.symbol("anything"), nullptr);
  EXPECT_THAT(library.error(), AllOf(HasSubstr("libkiln-no-such-library.so.1"),
                                     HasSubstr("/nowhere/libkiln-other.so")));
}

TEST(DynamicLibraryTest, TakesTheFirstNameThatLoads) {
  const std::string names[] = {"libkiln-no-such-library.so.1", "libm.so.6"};
  base::DynamicLibrary library(names);
  ASSERT_TRUE(library) << library.error();
  EXPECT_EQ(library.error(), "");
  EXPECT_NE(library.symbol("cosf"), nullptr);
  EXPECT_EQ(library.symbol("kiln_no_such_symbol"), nullptr);
}

}  // namespace
}  // namespace kiln::jit
