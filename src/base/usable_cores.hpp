// How many cores this process may use: what the defaults of compiles at a time and of the CPU
// device's threads are.
#pragma once

#include <string>
#include <string_view>

namespace kiln::base {

/// The smaller of what the affinity mask and the quotas of the control groups allow, at least 1.
/// Read once.
int usable_cores();

/// The cores that the CPU quotas of this process's control group and of those above it allow, of
/// cgroup v2 (cpu.max) and v1 (cpu.cfs_quota_us), rounded up; 0 where none sets a limit. `root` is
/// put before every path that is read.
int cores_of_cgroups(const std::string& root = {});

/// The cores that "QUOTA PERIOD" grants, in the form of a cgroup v2 `cpu.max` ("max 100000",
/// "150000 100000"), rounded up; 0 where it sets no limit or is not understood.
int cores_of_quota(std::string_view cpu_max);

}  // namespace kiln::base
