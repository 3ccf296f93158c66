#include "kiln/statistics.hpp"

#include "core/memory_limit.hpp"
#include "core/plan_table.hpp"
#include "fallback/temporaries.hpp"
#include "kernel/kernel_table.hpp"

namespace kiln {

Statistics statistics(Device device) {
  const PlanUsage plans = plan_usage(device);
  const KernelUsage kernels = KernelTable::instance().usage(device);
  Statistics result;
  result.memory_limit = memory_limit();
  result.plans = plans.plans;
  result.plan_bytes = plans.bytes;
  result.plans_dropped = plans.dropped;
  result.kernels = kernels.kernels;
  result.kernel_bytes = kernels.bytes;
  result.kernels_unloaded = kernels.unloaded;
  result.fallbacks = Temporaries::of(device).leases();
  return result;
}

}  // namespace kiln
