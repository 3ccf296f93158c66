// Functions whose reductions run as a test asks for, so that results of all schedules can be
// compared.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>

#include "call/function_impl.hpp"
#include "fusion/schedule/rows/row_mapping.hpp"
#include "kiln/function.hpp"

namespace kiln::testing {

inline Function with_schedule(const Function& function, const fusion::ForcedRows& forced) {
  Definition definition = function.impl().definition;
  definition.forced = forced;
  return Function(std::make_shared<Function::Impl>(std::move(definition)));
}

/// "", or what is asked for.
inline std::string describe(const fusion::ForcedRows& forced) {
  return (forced.threads == 0 ? "" : fmt::format(", {} threads", forced.threads)) +
         (forced.width == 0 ? "" : fmt::format(", up to {} lanes", forced.width)) +
         (forced.read_again ? ", read again" : "") +
         (forced.cluster_blocks == 0 ? "" : fmt::format(", {} blocks", forced.cluster_blocks)) +
         (forced.parts == 0 ? "" : fmt::format(", {} parts", forced.parts)) +
         (forced.keeps_columns ? ", kept columns" : "") +
         (forced.columns == 0 ? "" : fmt::format(", {} columns side by side", forced.columns)) +
         (forced.batch == 0 ? "" : fmt::format(", {} loaded at a time", forced.batch));
}

}  // namespace kiln::testing
