// How many cores a process may use, from trees of files such as /proc and /sys/fs/cgroup have.
#include "base/usable_cores.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>

#include "base/temporary.hpp"

namespace kiln::base {
namespace {

TEST(UsableCores, QuotaOfACgroup) {
  EXPECT_EQ(cores_of_quota("max 100000"), 0);
  EXPECT_EQ(cores_of_quota("200000 100000"), 2);
  EXPECT_EQ(cores_of_quota("150000 100000"), 2);
  EXPECT_EQ(cores_of_quota("1000 100000"), 1);
  for (const char* nonsense : {"", " ", "200000", "200000 ", "200000 0", "0 100000", "-1 100000"}) {
    EXPECT_EQ(cores_of_quota(nonsense), 0) << nonsense;
  }
}

class Cgroups : public ::testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = tree_.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << '\n';
  }
  void v1(const std::string& group, const std::string& quota, const std::string& period) const {
    put(group + "/cpu.cfs_quota_us", quota);
    put(group + "/cpu.cfs_period_us", period);
  }
  int cores() const { return cores_of_cgroups(tree_.path()); }

  const TemporaryDirectory tree_{"kiln-cgroups"};
};

constexpr const char* kV2 =
    "30 23 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate";

TEST_F(Cgroups, NoneIsNoLimit) {
  EXPECT_EQ(cores(), 0);
  put("/proc/self/cgroup", "0::/");
  EXPECT_EQ(cores(), 0);
  put("/proc/self/mountinfo", kV2);
  EXPECT_EQ(cores(), 0);
  put("/sys/fs/cgroup/cpu.max", "max 100000");
  EXPECT_EQ(cores(), 0);
}

TEST_F(Cgroups, TheTightestQuotaOfV2OnTheWayToTheRootCounts) {
  put("/proc/self/mountinfo", kV2);
  put("/proc/self/cgroup", "0::/machine.slice/job:1/step");
  put("/sys/fs/cgroup/machine.slice/job:1/step/cpu.max", "max 100000");
  EXPECT_EQ(cores(), 0);
  put("/sys/fs/cgroup/machine.slice/cpu.max", "300000 100000");
  EXPECT_EQ(cores(), 3);
  put("/sys/fs/cgroup/machine.slice/job:1/cpu.max", "150000 100000");
  EXPECT_EQ(cores(), 2);
  put("/sys/fs/cgroup/machine.slice/job:1/step/cpu.max", "800000 100000");
  EXPECT_EQ(cores(), 2);
  put("/sys/fs/cgroup/machine.slice/other/cpu.max", "100000 100000");
  EXPECT_EQ(cores(), 2);
}

TEST_F(Cgroups, TheQuotaOfV1IsThatOfTheHierarchyWithTheCpuController) {
  put("/proc/self/mountinfo",
      "32 31 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
      "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct");
  put("/proc/self/cgroup", "3:cpuset:/other\n2:cpu,cpuacct:/jobs/one\n0::/");
  v1("/sys/fs/cgroup/cpu,cpuacct", "-1", "100000");
  v1("/sys/fs/cgroup/cpu,cpuacct/jobs", "400000", "100000");
  v1("/sys/fs/cgroup/cpuset/other", "100000", "100000");
  EXPECT_EQ(cores(), 4);
  v1("/sys/fs/cgroup/cpu,cpuacct/jobs/one", "25000", "10000");
  EXPECT_EQ(cores(), 3);
}

TEST_F(Cgroups, WhereBothVersionsAreMountedTheTighterCounts) {
  put("/proc/self/mountinfo",
      std::string(kV2) + "\n32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu");
  put("/proc/self/cgroup", "1:cpu:/a\n0::/b");
  put("/sys/fs/cgroup/b/cpu.max", "500000 100000");
  v1("/sys/fs/cgroup/cpu/a", "200000", "100000");
  EXPECT_EQ(cores(), 2);
  v1("/sys/fs/cgroup/cpu/a", "-1", "100000");
  EXPECT_EQ(cores(), 5);
}

TEST_F(Cgroups, AContainerSeesItsOwnGroupAsTheMount) {
  // Without a namespace of its own the path is the host's, and the mount shows a part of it.
  put("/proc/self/mountinfo",
      "40 39 0:30 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu");
  put("/proc/self/cgroup", "2:cpu:/docker/abc/inner");
  v1("/sys/fs/cgroup/cpu", "200000", "100000");
  EXPECT_EQ(cores(), 2);
  v1("/sys/fs/cgroup/cpu/inner", "100000", "100000");
  EXPECT_EQ(cores(), 1);
  put("/proc/self/cgroup", "2:cpu:/../elsewhere");
  EXPECT_EQ(cores(), 2);
}

TEST_F(Cgroups, AMountPointMayHaveASpace) {
  put("/proc/self/mountinfo", R"(30 23 0:27 / /my\040groups rw - cgroup2 cgroup2 rw)");
  put("/proc/self/cgroup", "0::/");
  put("/my groups/cpu.max", "100000 100000");
  EXPECT_EQ(cores(), 1);
}

TEST_F(Cgroups, NonsenseIsNoLimit) {
  put("/proc/self/mountinfo", "- - -\n\n1 2 3\n30 23 0:27 / /sys/fs/cgroup rw - cgroup2");
  put("/proc/self/cgroup", "0\n:\n0::/");
  put("/sys/fs/cgroup/cpu.max", "100000 100000");
  EXPECT_EQ(cores(), 0);
}

TEST(UsableCores, AreAsManyAsTheAffinityAllowsAtMost) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0)
    GTEST_SKIP() << "more cores than a cpu_set_t has";
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), CPU_COUNT(&set));
}

}  // namespace
}  // namespace kiln::base
