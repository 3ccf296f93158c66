// Functions with reductions against the reference interpreter: numbers in, numbers out, with the
// shapes that the function gives them.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "fusion/graph/number.hpp"
#include "fusion/graph/typed_graph.hpp"
#include "fusion/infer/infer.hpp"
#include "fusion/infer/shapes.hpp"
#include "fusion/reference/arrays.hpp"
#include "fusion/reference/value.hpp"
#include "fusion/text/text.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/numbers.hpp"

namespace kiln::testing {

inline double number_at(const HostArray& array, std::int64_t index) {
  const std::uint64_t pattern = get_bits(array, index);
  if (is_floating(array.dtype)) {
    return static_cast<double>(fusion::reference::decode(array.dtype, pattern).real);
  }
  if (kind(array.dtype) != Kind::signed_integer) return static_cast<double>(pattern);
  const int unused = 64 - bits(array.dtype);
  return static_cast<double>(static_cast<std::int64_t>(pattern << unused) >> unused);
}

/// A number as the nearest of any float dtype.
inline std::uint64_t bits_of(double value, DType dtype) {
  if (bits(dtype) > 8) return fusion::encode(value, dtype);
  return fusion::reference::encode({dtype, fusion::reference::round_to(value, dtype), 0, 0});
}

/// Normally distributed numbers; integers and bools from them.
inline HostArray random_array(DType dtype, const Dims& shape, std::uint64_t seed,
                              double scale = 2) {
  HostArray array = HostArray::contiguous(dtype, shape);
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, scale);
  for (std::int64_t i = 0; i < array.size(); ++i) {
    const double value = normal(random);
    if (is_floating(dtype)) {
      set_bits(array, i, bits_of(value, dtype));
    } else if (dtype == DType::boolean) {
      set_bits(array, i, value > 0.5 ? 1 : 0);
    } else {
      const double whole = kind(dtype) == Kind::unsigned_integer ? std::fabs(value) : value;
      set_bits(array, i, static_cast<std::uint64_t>(static_cast<std::int64_t>(whole * 8)));
    }
  }
  return array;
}

/// What the reference gives, floats in f64 and everything else in its own dtype, each output with
/// its own shape.
inline std::vector<HostArray> reference_of(const std::string& text,
                                           const std::vector<HostArray>& inputs,
                                           Rounding rounding = Rounding::once,
                                           const std::vector<DType>& stored = {}) {
  const fusion::Graph graph = fusion::parse(text);
  std::vector<fusion::ArgumentType> types;
  std::vector<Dims> own;
  std::vector<fusion::ReferenceOperand> arguments;
  for (const HostArray& input : inputs) {
    types.push_back({input.dtype, false, false});
    own.push_back(input.shape);
    arguments.push_back({const_cast<std::byte*>(input.bytes.data()) + input.first, input.dtype,
                         input.strides, input.offset});
  }
  const fusion::ShapedGraph shaped = fusion::shape_graph(
      fusion::infer(graph, types, stored, rounding, "reference"), own, "reference");
  const fusion::TypedGraph& typed = shaped.graph;
  const std::vector<Dims>& shapes = shaped.shapes;
  std::vector<HostArray> outputs;
  std::vector<fusion::ReferenceOperand> results;
  for (const fusion::NodeId output : typed.outputs) {
    const DType dtype = typed.nodes[output].dtype;
    outputs.push_back(
        HostArray::contiguous(is_floating(dtype) ? DType::f64 : dtype, shapes[output]));
  }
  for (HostArray& output : outputs)
    results.push_back({output.bytes.data(), output.dtype, output.strides, 0});
  fusion::evaluate_arrays(typed, shapes, arguments, results);
  return outputs;
}

/// The dtypes that the outputs have by themselves.
inline std::vector<DType> natural_dtypes(const std::string& text,
                                         const std::vector<HostArray>& inputs) {
  std::vector<fusion::ArgumentType> types;
  for (const HostArray& input : inputs) types.push_back({input.dtype, false, false});
  const fusion::TypedGraph typed =
      fusion::infer(fusion::parse(text), types, {}, Rounding::once, "reference");
  std::vector<DType> dtypes;
  for (const fusion::NodeId output : typed.outputs) dtypes.push_back(typed.nodes[output].dtype);
  return dtypes;
}

/// `relative` of the larger number and `absolute`; NaN equals NaN.
inline void expect_close(const HostArray& got, const HostArray& want, double relative,
                         double absolute, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  int reported = 0;
  for (std::int64_t i = 0; i < want.size() && reported < 3; ++i) {
    const double a = number_at(got, i);
    const double b = number_at(want, i);
    const bool same = a == b || (std::isnan(a) && std::isnan(b)) ||
                      std::fabs(a - b) <= absolute + relative * std::fabs(b);
    if (same) continue;
    ADD_FAILURE() << what << ": element " << i << " is " << a << ", expected " << b;
    ++reported;
  }
}

/// Half a unit in the last place of a dtype, relative.
inline double rounding_of(DType dtype) {
  switch (dtype) {
    case DType::f16: return std::ldexp(1.0, -11);
    case DType::bf16: return std::ldexp(1.0, -8);
    case DType::f32: return std::ldexp(1.0, -24);
    default: return 0;
  }
}

/// What one kernel of `text` gives on a device, each output in its natural dtype.
inline std::vector<HostArray> outputs_of(Device device, const std::string& text,
                                         const std::vector<HostArray>& inputs,
                                         const Options& options = {}) {
  const std::vector<DType> dtypes = natural_dtypes(text, inputs);
  std::vector<HostArray> outputs;
  for (const HostArray& want : reference_of(text, inputs, options.rounding)) {
    outputs.push_back(HostArray::contiguous(dtypes[outputs.size()], want.shape));
  }
  run_on(device, parse("checked", text, options), inputs, outputs);
  return outputs;
}

/// Floats within their dtype's rounding and `slack` roundings of an f32, or of an f64 if they are
/// that, of the largest number of their output; everything else equal.
inline void expect_within(const std::vector<HostArray>& got, const std::vector<HostArray>& want,
                          double slack, const std::string& text) {
  ASSERT_EQ(got.size(), want.size()) << text;
  for (std::size_t i = 0; i < want.size(); ++i) {
    double largest = 0;
    for (std::int64_t k = 0; k < want[i].size(); ++k) {
      const double value = std::fabs(number_at(want[i], k));
      if (std::isfinite(value)) largest = std::max(largest, value);
    }
    const DType dtype = got[i].dtype;
    const bool exact = !is_floating(dtype);
    const double unit = std::ldexp(1.0, dtype == DType::f64 ? -53 : -24);
    expect_close(got[i], want[i], exact ? 0 : rounding_of(dtype) * 1.01 + slack * unit,
                 exact ? 0 : slack * unit * largest,
                 fmt::format("{}, output {} of dtype {}", text, i, name(dtype)));
  }
}

/// Compares what one kernel of `text` gives on a device with the reference, as expect_within().
inline void check_on(Device device, const std::string& text, const std::vector<HostArray>& inputs,
                     double slack, const Options& options = {}) {
  expect_within(outputs_of(device, text, inputs, options),
                reference_of(text, inputs, options.rounding), slack, text);
}

/// The part of an array in C order that has `count` indices from `from` on along `axis`.
inline HostArray part_of(const HostArray& whole, std::size_t axis, std::int64_t from,
                         std::int64_t count) {
  Dims shape = whole.shape;
  shape[axis] = count;
  HostArray part = HostArray::contiguous(whole.dtype, shape);
  std::int64_t inner = 1;
  for (std::size_t k = axis + 1; k < shape.size(); ++k) inner *= shape[k];
  for (std::int64_t i = 0; i < part.size(); ++i) {
    const std::int64_t outer = i / (inner * count);
    const std::int64_t within = i % (inner * count) + from * inner;
    set_bits(part, i, get_bits(whole, outer * inner * whole.shape[axis] + within));
  }
  return part;
}

}  // namespace kiln::testing
