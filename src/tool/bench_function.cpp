#include "tool/bench_function.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "ahead/compile_only.hpp"
#include "fusion/graph/broadcast.hpp"
#include "fusion/infer/infer.hpp"
#include "fusion/infer/shapes.hpp"
#include "fusion/reference/arrays.hpp"
#include "fusion/reference/value.hpp"
#include "fusion/text/text.hpp"
#include "tool/bench_compare.hpp"
#include "tool/commands.hpp"

namespace kiln::tool {
namespace {

// The largest of so many errors is several times their typical size, and a kernel may round its
// steps otherwise than the reference.
constexpr double kOfDifference = 8;

// Copies element `from` of one array to `to` of another; packed ones lie two to a byte, the low
// half first, and the bytes of `target` are zero where nothing was copied.
void copy_element(DType dtype, const std::byte* source, std::int64_t from, std::byte* target,
                  std::int64_t to) {
  const std::uint64_t number = fusion::reference::read_bits(source, dtype, from);
  if (is_packed(dtype)) {
    target[to / 2] |= static_cast<std::byte>((number & 15) << (to % 2 * 4));
  } else {
    const auto width = static_cast<std::int64_t>(bits(dtype) / 8);
    std::memcpy(target + to * width, &number, static_cast<std::size_t>(width));
  }
}

// Calls `visit` with where each element of the box `part`, which begins at `start` of an array of
// the shape `whole`, lies in the array, both in C order.
template <class Visit>
void for_each_element(const Dims& whole, const Dims& part, const Dims& start, const Visit& visit) {
  const Dims strides = contiguous_strides(whole);
  const std::int64_t count = fusion::element_count(part);
  Dims index(part.size());
  for (std::int64_t k = 0; k < count; ++k) {
    std::int64_t at = 0;
    for (std::size_t axis = 0; axis < part.size(); ++axis) {
      at += (start[axis] + index[axis]) * strides[axis];
    }
    visit(k, at);
    for (std::size_t axis = part.size(); axis-- > 0;) {
      if (++index[axis] < part[axis]) break;
      index[axis] = 0;
    }
  }
}

// Where a part begins that lies at one end of the array.
Dims start_of(const Dims& whole, const Dims& part, BenchFunction::Part which) {
  Dims start(whole.size());
  if (which == BenchFunction::Part::first) return start;
  for (std::size_t axis = 0; axis < whole.size(); ++axis) start[axis] = whole[axis] - part[axis];
  return start;
}

bool has_reals(DType dtype) { return is_floating(dtype) || kind(dtype) == Kind::complex; }

}  // namespace

/// Results of the reference: as numbers where an output has floats, of c64 the parts of each one
/// after the other.
struct BenchFunction::Outputs {
  std::vector<Dims> shapes;
  std::vector<std::vector<std::byte>> bits;
  std::vector<std::vector<double>> reals;
};

Specification specification_of(std::span<const BenchArgument> arguments) {
  Specification specification;
  for (const BenchArgument& argument : arguments) {
    ArgumentSpec& spec = specification.arguments.emplace_back();
    spec.name = argument.name;
    spec.dtype = argument.dtype;
    spec.shape = argument.shape;
  }
  return specification;
}

BenchFunction::BenchFunction(const Function& function, std::span<const BenchArgument> arguments,
                             jit::Backend& backend, const Stream& stream)
    : function_(function), program_(program(function)), backend_(backend), stream_(stream) {
  for (const std::string& name : argument_names(function_)) {
    const auto found = std::ranges::find(arguments, name, &BenchArgument::name);
    if (found == arguments.end()) {
      throw UsageError(
          fmt::format("{}: the benchmark's arguments have no '{}'", function.name(), name));
    }
    order_.push_back(static_cast<std::size_t>(found - arguments.begin()));
    arguments_.push_back({found->dtype, found->shape});
    const std::uint64_t bytes = fusion::byte_count(found->dtype, found->shape);
    values_.push_back(random_values(found->dtype, std::min(bytes, period_bytes(found->dtype)),
                                    found->values, values_.size() + 1));
    memory_.emplace_back(backend, bytes);
    fill(memory_.back(), bytes, values_.back());
    inputs_.emplace_back(View(memory_.back().data(), found->dtype, found->shape, backend.device()));
  }
  const OutputTypes types = output_types(function_, specification_of(arguments));
  for (std::size_t i = 0; i < types.dtypes.size(); ++i) {
    memory_.emplace_back(backend, fusion::byte_count(types.dtypes[i], types.shapes[i]));
    outputs_.emplace_back(memory_.back().data(), types.dtypes[i], types.shapes[i],
                          backend.device());
  }
  info_ = program_.explain(stream, inputs_, outputs_);
  memory_.emplace_back(backend, info_.workspace_bytes);
  workspace_ = View(memory_.back().data(), DType::u8,
                    {static_cast<std::int64_t>(info_.workspace_bytes)}, backend.device());
}

// Values that repeat go to the device once; there they are copied, each time twice as many.
void BenchFunction::fill(const DeviceMemory& memory, std::size_t bytes,
                         std::span<const std::byte> values) {
  auto* const data = static_cast<std::byte*>(memory.data());
  backend_.copy_in(data, values.data(), values.size(), stream_);
  for (std::size_t filled = values.size(); filled < bytes; filled *= 2) {
    backend_.copy_on_device(data + filled, data, std::min(filled, bytes - filled), stream_);
  }
}

bool BenchFunction::is_right() {
  std::vector<Dims> shapes;
  for (const Array& argument : arguments_) shapes.push_back(argument.shape);
  return agrees(shapes, Part::first);
}

bool BenchFunction::is_right(std::span<const BenchArgument> part, Part which) {
  std::vector<Dims> shapes;
  for (const std::size_t place : order_) shapes.push_back(part[place].shape);
  return agrees(shapes, which);
}

bool BenchFunction::agrees(std::span<const Dims> shapes, Part which) {
  constexpr int kPoison = 0xff;
  for (const View& output : outputs_) {
    backend_.fill(output.data(), kPoison, fusion::byte_count(output.dtype(), output.shape()),
                  stream_);
  }
  run();
  const Outputs exact = reference(shapes, which, Rounding::once);
  std::optional<Outputs> rounded;
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    if (agrees(i, exact, which, 0)) continue;
    if (exact.reals[i].empty() || views_bits()) return false;
    if (!rounded) rounded = reference(shapes, which, Rounding::each);
    const double off = typical_difference(exact.reals[i], rounded->reals[i]);
    if (!agrees(i, exact, which, kOfDifference * off)) return false;
  }
  return true;
}

// Whether the results depend on how the arguments are stored: then they cannot be widened.
bool BenchFunction::views_bits() const {
  return function_.expression().find("bitcast") != std::string::npos;
}

// Under Rounding::once the exact results, under Rounding::each those of steps that are rounded to
// f32, as narrower floats are computed, or to f64.
BenchFunction::Outputs BenchFunction::reference(std::span<const Dims> shapes, Part which,
                                                Rounding rounding) const {
  std::vector<fusion::ArgumentType> types;
  std::vector<std::vector<std::byte>> values;
  std::vector<fusion::ReferenceOperand> arguments;
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    const DType dtype = arguments_[i].dtype;
    const bool widened = rounding == Rounding::each && is_floating(dtype) && bits(dtype) < 32;
    types.push_back({widened ? DType::f32 : dtype, false, false});
    std::vector<std::byte>& own = values.emplace_back(fusion::byte_count(dtype, shapes[i]));
    const auto period = static_cast<std::int64_t>(values_[i].size() * 8 / bits(dtype));
    for_each_element(arguments_[i].shape, shapes[i],
                     start_of(arguments_[i].shape, shapes[i], which),
                     [&](std::int64_t to, std::int64_t from) {
                       copy_element(dtype, values_[i].data(), from % period, own.data(), to);
                     });
    arguments.push_back({own.data(), dtype, contiguous_strides(shapes[i]), 0});
  }
  fusion::ShapedGraph graph = fusion::shape_graph(
      fusion::infer(fusion::parse(function_.expression()), types, {}, rounding, "reference"),
      shapes, "reference");
  leave_outputs_unrounded(graph.graph);
  Outputs wanted;
  std::vector<fusion::ReferenceOperand> results;
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const DType dtype = is_floating(outputs_[i].dtype()) ? DType::f64 : outputs_[i].dtype();
    wanted.shapes.push_back(graph.shapes[graph.graph.outputs[i]]);
    wanted.bits.emplace_back(fusion::byte_count(dtype, wanted.shapes[i]));
    results.push_back({wanted.bits[i].data(), dtype, contiguous_strides(wanted.shapes[i]), 0});
  }
  fusion::evaluate_arrays(graph.graph, graph.shapes, arguments, results);
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    std::vector<double>& reals = wanted.reals.emplace_back();
    if (!has_reals(results[i].dtype)) continue;
    const std::int64_t count = fusion::element_count(wanted.shapes[i]);
    for (std::int64_t k = 0; k < count; ++k) {
      const auto number = fusion::reference::read(wanted.bits[i].data(), results[i].dtype, k);
      reals.push_back(static_cast<double>(number.real));
      if (kind(results[i].dtype) == Kind::complex) {
        reals.push_back(static_cast<double>(number.imag));
      }
    }
  }
  return wanted;
}

bool BenchFunction::agrees(std::size_t output, const Outputs& wanted, Part which,
                           double slack) const {
  const View& view = outputs_[output];
  const DType dtype = view.dtype();
  const Dims& part = wanted.shapes[output];
  const Dims start = start_of(view.shape(), part, which);
  const auto bytes_before = [&](std::int64_t elements) { return elements * bits(dtype) / 8; };
  std::int64_t first = 0;
  std::int64_t last = 0;
  for (std::size_t axis = 0; axis < part.size(); ++axis) {
    first += start[axis] * view.strides()[axis];
    last += (start[axis] + part[axis] - 1) * view.strides()[axis];
  }
  first -= first % 2;  // packed elements lie two to a byte
  std::vector<std::byte> span(
      static_cast<std::size_t>(bytes_before(last + 2) - bytes_before(first)));
  span.resize(
      std::min(span.size(), static_cast<std::size_t>(fusion::byte_count(dtype, view.shape())) -
                                static_cast<std::size_t>(bytes_before(first))));
  backend_.synchronize(stream_);
  backend_.copy_out(span.data(), static_cast<const std::byte*>(view.data()) + bytes_before(first),
                    span.size(), stream_);
  backend_.synchronize(stream_);
  std::vector<std::byte> got(fusion::byte_count(dtype, part));
  for_each_element(view.shape(), part, start, [&](std::int64_t to, std::int64_t from) {
    copy_element(dtype, span.data(), from - first, got.data(), to);
  });
  if (has_reals(dtype)) return may_be_rounded_from(dtype, got, wanted.reals[output], slack);
  const std::uint64_t mask = ~std::uint64_t{0} >> (64 - bits(dtype));
  const std::int64_t count = fusion::element_count(part);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t number = fusion::reference::read_bits(got.data(), dtype, i);
    const std::uint64_t expected =
        fusion::reference::read_bits(wanted.bits[output].data(), dtype, i);
    // A quotient may round to either whole number.
    const std::uint64_t difference = (number - expected) & mask;
    if (difference > 1 && difference != mask) return false;
  }
  return true;
}

}  // namespace kiln::tool
