// Shape ops of a traced callable: they move elements and compute nothing. In a Program they cost
// nothing where strides can express them; a Function, which is one kernel, refuses them. Indexed
// ops, for both, take from integers that are data where to read, write and end.
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

/// The elements of an array at the places `indices` along an axis, as NumPy's take: the result has
/// the axes of `indices`, integers of any dtype, in place of that one. A place that is not there,
/// below zero or not below the extent, gives 0.
Value take(const Value& x, const Value& indices, std::int64_t axis = 0);
/// An argument that is updated in place: `y`, which broadcasts to the shape of take(x, indices,
/// axis), is stored at those places of it, and nothing else of it is read or written. A place that
/// is not there is not written; of several values for one place, one stands. The result is an
/// output whose view is that of the argument.
Value put(const Value& x, const Value& indices, const Value& y, std::int64_t axis = 0);
/// A run-time extent, x[:end] in the text form: x up to element `end` along an axis, of which the
/// view keeps its extent. `end` is an integer, or an array of them that broadcasts to x with one
/// element along the axis, read on the device, and is taken to be from 0 to the extent. What lies
/// beyond is neither read nor written, by whatever is computed of it: a reduction over the axis
/// covers what is before the end, and an output is stored up to there. What is computed of several
/// bounded values ends at the first of their ends; a value that is broadcast along the axis does
/// not end it.
Value bound(const Value& x, const Value& end, std::int64_t axis = 0);

}  // namespace kiln

#pragma GCC visibility pop
