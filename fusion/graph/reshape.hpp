// What a reshape does to operands that are broadcast: axes that become others together are a group,
// of as many elements before as after.
#pragma once

#include <optional>

#include "kiln/dims.hpp"

namespace kiln::fusion {

/// The shape in which an operand of shape `own`, which broadcasts to `from`, broadcasts to `to`
/// where values of shape `from` are reshaped to `to`: 1 along the axes of a group in which it
/// repeats. Nothing if it repeats along a part of a group, which no shape says, or if one axis of
/// it would be made of several, which strides may not say, unless it `joins` them. Neither shape is
/// empty of elements.
std::optional<Dims> reshaped_operand(const Dims& own, const Dims& from, const Dims& to,
                                     bool joins = false);

/// The axis of `to` that axis `axis` of `from`, of more than one element, is where the two differ
/// in axes of one element alone. Nothing where they differ otherwise.
std::optional<std::size_t> same_axis(const Dims& from, std::size_t axis, const Dims& to);

}  // namespace kiln::fusion
