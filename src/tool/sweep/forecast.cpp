#include "tool/sweep/forecast.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ahead/compile_only.hpp"

namespace kiln::tool {
namespace {

std::vector<std::string> reasons_of(const Explanation& explanation) {
  std::vector<std::string> reasons;
  reasons.push_back(fmt::format("{}", fmt::join(explanation.layout.axes, "; ")));
  reasons.push_back(explanation.layout.width);
  for (const fusion::OperandReport& operand : explanation.layout.operands) {
    reasons.push_back(fmt::format("{}: {}; {}", operand.name, operand.access, operand.reason));
  }
  reasons.push_back(fmt::format("memory takes {:.2f} and arithmetic {:.2f} of a copy's time",
                                explanation.estimate.memory, explanation.estimate.arithmetic));
  return reasons;
}

}  // namespace

Forecast forecast(const Function& function, const Specification& specification,
                  const ProgramInfo& info, std::string_view target) {
  Forecast result;
  double time = 0;  // each in bytes that a copy would move meanwhile
  double memory = 0;
  double arithmetic = 0;
  const std::vector<KernelSpec> kernels = program_specs(function, specification, target);
  for (std::size_t k = 0; k < kernels.size(); ++k) {
    const Explanation explanation = explain_for(kernels[k], target);
    double bytes = 0;
    for (const fusion::OperandReport& operand : explanation.layout.operands) {
      bytes += static_cast<double>(operand.bytes);
    }
    time += bytes / explanation.estimate.fraction_of_copy;
    memory += bytes * explanation.estimate.memory;
    arithmetic += bytes * explanation.estimate.arithmetic;
    if (kernels.size() > 1) {
      const std::string why = k < info.kernels.size() ? info.kernels[k].reason : "";
      result.reasons.push_back(
          fmt::format("kernel {}: {}; {}", k, kernels[k].function.expression, why));
    }
    for (std::string& reason : reasons_of(explanation)) result.reasons.push_back(std::move(reason));
  }
  result.fraction_of_copy = time == 0 ? 1 : static_cast<double>(info.lower_bound) / time;
  result.bound_by_memory = arithmetic <= memory;
  return result;
}

}  // namespace kiln::tool
