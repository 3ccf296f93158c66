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
/// Whether a target has the instructions of preamble/product_tiles.h: sm_80 and later ones.
bool has_tiles(std::string_view target);
/// How long rows can be shared out on a target.
fusion::RowFeatures row_features(std::string_view target);
/// Whether a target has programmatic dependent launch (preamble/dependents.h): sm_90 and later
/// ones.
bool has_pdl(std::string_view target);

}  // namespace kiln
