// Shape ops of a traced callable: they move elements and compute nothing. In a Program they cost
// nothing where strides can express them; a Function, which is one kernel, refuses them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>

#include "kiln/value.hpp"

#pragma GCC visibility push(default)

namespace kiln {

/// In C order. One extent may be -1, which is what is left; 0 is the operand's own extent there.
Value reshape(const Value& x, std::initializer_list<std::int64_t> extents);
/// The axes in their new order; none: reversed.
Value transpose(const Value& x, std::initializer_list<std::int64_t> axes = {});
Value swapaxes(const Value& x, std::int64_t a, std::int64_t b);
/// Python's x[start:stop:step] along one axis. A start or stop of INT64_MIN counts as left out.
Value slice(const Value& x, std::int64_t axis, std::optional<std::int64_t> start,
            std::optional<std::int64_t> stop, std::int64_t step = 1);
/// One element along an axis, which goes: x[..., index].
Value element(const Value& x, std::int64_t axis, std::int64_t index);
/// A new axis of one element, at that place of the result.
Value expand_dims(const Value& x, std::int64_t axis);
/// Without an axis that has one element.
Value squeeze(const Value& x, std::int64_t axis);
/// One after the other along an axis that they have.
Value concat(std::int64_t axis, std::span<const Value> values);
Value concat(std::int64_t axis, std::initializer_list<Value> values);
/// Side by side along a new axis.
Value stack(std::int64_t axis, std::span<const Value> values);
Value stack(std::int64_t axis, std::initializer_list<Value> values);

}  // namespace kiln

#pragma GCC visibility pop
