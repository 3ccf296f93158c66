// What a target's kernels may use, from its name: "gfx90a", "sm_90", "x86-64 ...".
#pragma once

#include <string>
#include <string_view>

#include "fusion/schedule/layout.hpp"
#include "fusion/schedule/rows/row_mapping.hpp"

namespace kiln {

/// A target as a person names it: "cpu" is this host.
std::string resolve_target(std::string_view target);

/// The backend of a target: gfx*, sm_*, everything else is the host.
fusion::Backend backend_of(std::string_view target);
inline bool is_gpu(std::string_view target) { return backend_of(target) != fusion::Backend::host; }
/// What the layouts of a target's kernels depend on.
struct TargetFeatures {
  fusion::Backend backend = fusion::Backend::host;
  bool tiles = false;  ///< the instructions of preamble/product_tiles.h: from sm_80 on
  bool pdl = false;    ///< programmatic dependent launch (preamble/dependents.h): from sm_90
  fusion::RowFeatures rows{};  ///< how long rows can be shared out
};
TargetFeatures features_of(std::string_view target);

}  // namespace kiln
