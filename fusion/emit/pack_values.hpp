// The constants of one layout among a kernel's parameters, where they were placed before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fusion/emit/emit.hpp"

namespace kiln::fusion {

/// Writes each parameter's value to `block` at its offset, as pack_parameters() does; pointers and
/// scalars are left as they are. Allocates nothing.
void pack_values(std::span<const Parameter> parameters, const Layout& layout,
                 std::span<const std::uint32_t> offsets, std::byte* block);

}  // namespace kiln::fusion
