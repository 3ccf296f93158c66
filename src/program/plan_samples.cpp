#include "program/plan_samples.hpp"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>

#include "fusion/infer/infer.hpp"
#include "fusion/infer/shapes.hpp"
#include "kiln/error.hpp"
#include "program/program_form.hpp"

namespace kiln {
namespace {

bool is_same_fact(const fusion::SizeFact& a, const fusion::SizeFact& b) {
  const auto factor = [](const fusion::SizeTerm& term) { return term.factor; };
  return a.kind == b.kind && a.result == b.result && a.read_again == b.read_again &&
         std::ranges::equal(a.terms, b.terms, {}, factor, factor);
}

bool is_same_operand(const ProgramOperand& a, const ProgramOperand& b) {
  const bool length = a.kind == ProgramOperand::Kind::length;
  return a.kind == b.kind && (length || a.index == b.index) && a.scalar == b.scalar;
}

bool is_same_form(const KernelForm& a, const KernelForm& b) {
  if (a.index() != b.index()) return false;
  if (const auto* rows = std::get_if<RowsForm>(&a)) {
    const RowsForm& other = std::get<RowsForm>(b);
    return rows->row_invariant == other.row_invariant &&
           rows->space.reduced == other.space.reduced &&
           rows->space.reductions == other.space.reductions &&
           rows->space.splits == other.space.splits;
  }
  if (const auto* attention = std::get_if<AttentionForm>(&a)) {
    const AttentionForm& other = std::get<AttentionForm>(b);
    return attention->nodes == other.nodes && attention->sides == other.sides &&
           attention->splits == other.splits;
  }
  const auto* scan = std::get_if<ScanForm>(&a);
  return scan == nullptr || scan->axis == std::get<ScanForm>(b).axis;
}

bool is_same_kernel(const KernelSpec& a, const KernelSpec& b) {
  const auto is_same = [](const fusion::Operand& x, const fusion::Operand& y) {
    return x.dtype == y.dtype && x.output == y.output && x.iota == y.iota &&
           x.place.memory == y.place.memory && x.index_operands == y.index_operands &&
           x.indexed.exists() == y.indexed.exists();
  };
  return a.function.expression == b.function.expression &&
         a.function.graph.nodes == b.function.graph.nodes &&
         a.function.graph.outputs == b.function.graph.outputs &&
         a.function.graph.indexed == b.function.graph.indexed &&
         a.function.graph.bounds == b.function.graph.bounds &&
         a.function.bounds == b.function.bounds && a.function.splits == b.function.splits &&
         a.shape.size() == b.shape.size() && a.arguments == b.arguments && a.outputs == b.outputs &&
         is_same_form(a.form, b.form) && std::ranges::equal(a.operands, b.operands, is_same);
}

bool has_same_structure(const PlanSample& a, const PlanSample& b) {
  const auto is_same_step = [](const ProgramStep& x, const ProgramStep& y) {
    return std::ranges::equal(x.inputs, y.inputs, is_same_operand) &&
           std::ranges::equal(x.outputs, y.outputs, is_same_operand);
  };
  const auto is_same_life = [](const fusion::Lifetime& x, const fusion::Lifetime& y) {
    return x.first == y.first && x.last == y.last;
  };
  return a.sizes.size() == b.sizes.size() && a.extents.size() == b.extents.size() &&
         std::ranges::equal(a.facts, b.facts, is_same_fact) &&
         std::ranges::equal(a.plan.steps, b.plan.steps, is_same_step) &&
         a.plan.updates == b.plan.updates && std::ranges::equal(a.specs, b.specs, is_same_kernel) &&
         a.places.of == b.places.of &&
         std::ranges::equal(a.places.lifetimes, b.places.lifetimes, is_same_life) &&
         std::ranges::equal(a.choice.unfused, b.choice.unfused, is_same_life);
}

// Whether each size that is not pinned has enough values to tell what depends on it, and how.
bool varies_enough(const std::vector<PlanSample>& samples, const std::vector<bool>& pinned) {
  constexpr std::size_t kLeastValues = 4;
  for (std::size_t i = 0; i < samples.front().sizes.size(); ++i) {
    if (i < pinned.size() && pinned[i]) continue;
    std::set<std::int64_t> values;
    for (const PlanSample& sample : samples) values.insert(sample.sizes[i]);
    if (values.size() < kLeastValues) return false;
  }
  return true;
}

// The extents of a view whose value has shape `now` in place of `before`: it may leave out axes
// of size one.
void resize_output(const Dims& view, const Dims& before, const Dims& now, Dims& result) {
  if (view == before) {
    result = now;
    return;
  }
  std::size_t next = 0;
  for (std::size_t k = 0; k < before.size() && next < view.size(); ++k) {
    if (view[next] == before[k]) result[next++] = now[k];
  }
}

}  // namespace

PlanSamples::PlanSamples(const Definition& definition, const Call& call, const ProgramClassKey& key)
    : definition_(definition), key_(key), types_(program_types(call)) {
  for (std::vector<ArrayType>* arrays : {&types_.arrays, &types_.outputs}) {
    for (ArrayType& array : *arrays) array.address = 0;
  }
  kept_ = natural_shapes(types_);
}

std::optional<PlanSample> PlanSamples::first() const {
  PlanSample sample;
  sample.sizes.assign(key_.sizes().begin(), key_.sizes().end());
  sample.output_sizes.assign(key_.output_sizes().begin(), key_.output_sizes().end());
  sample.types = types_;
  return plan(sample) ? std::optional(std::move(sample)) : std::nullopt;
}

std::vector<PlanSample> PlanSamples::like(const PlanSample& first,
                                          const std::vector<bool>& pinned) {
  constexpr int kTries = 28;
  constexpr int kPatience = 8;
  std::vector<PlanSample> samples{first};
  for (int turn = 0; turn < kTries; ++turn) {
    if (turn == kPatience && samples.size() == 1) return {};
    std::optional<PlanSample> found = other(first, pinned, turn);
    if (!found) continue;
    samples.push_back(*std::move(found));
    if (samples.size() >= kCount && varies_enough(samples, pinned)) return samples;
  }
  return {};
}

// Nothing if there is no such call, or its plan has another structure.
std::optional<PlanSample> PlanSamples::other(const PlanSample& first,
                                             const std::vector<bool>& pinned, int turn) {
  try {
    PlanSample sample = with_sizes(other_sizes(pinned, turn));
    if (plan(sample) && has_same_structure(sample, first)) return sample;
  } catch (const Error&) {  // sizes may depend on each other in a way that is not known here
  }
  return std::nullopt;
}

// Of the outputs, with reduced axes.
std::vector<Dims> PlanSamples::natural_shapes(const CallTypes& types) const {
  std::vector<DType> dtypes;
  for (const ArrayType& output : types.outputs) dtypes.push_back(output.dtype);
  const fusion::TypedGraph typed = fusion::infer(definition_.graph, types.arguments, dtypes,
                                                 definition_.options.rounding, definition_.name);
  const fusion::ShapedGraph graph =
      fusion::shape_graph(typed, argument_shapes(typed, types.arrays), definition_.name);
  std::vector<Dims> shapes;
  for (const fusion::NodeId output : graph.graph.outputs) shapes.push_back(graph.shapes[output]);
  return shapes;
}

bool PlanSamples::plan(PlanSample& sample) const {
  fusion::SizeTrace trace;
  sample.plan = plan_program(definition_, sample.types, {}, &sample.choice);
  sample.specs = step_specs(sample.plan, sample.types);
  sample.places = find_places(sample.plan, true);
  sample.extents = trace.extents();
  sample.facts = trace.facts();
  return !sample.choice.is_smaller;
}

// Near the call's, so that most decisions stay, and nearer the more have been tried; often
// multiples of the same power of two.
std::vector<std::int64_t> PlanSamples::other_sizes(const std::vector<bool>& pinned, int turn) {
  const auto own = key_.sizes().first(key_.axis_sizes());
  std::vector<std::int64_t> sizes(own.begin(), own.end());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (pinned[i]) continue;
    const std::int64_t size = own[i];
    const std::int64_t unit = turn % 4 == 3 ? 1 : size & -size;
    const int halvings = turn % 2 == 0 ? 0 : 1 + turn / 4;
    const std::int64_t most = std::max<std::int64_t>(2, size / unit >> halvings);
    const std::int64_t step = std::uniform_int_distribution<std::int64_t>(1, most)(random_);
    const std::int64_t less = std::max<std::int64_t>(1, step / 2) * unit;
    const bool down = turn % 4 == 2 && size - less >= 2;
    sizes[i] = down ? size - less : size + step * unit;
    while (std::ranges::count(sizes, sizes[i]) > 1) sizes[i] += unit;
  }
  return sizes;
}

PlanSample PlanSamples::with_sizes(std::vector<std::int64_t> sizes) {
  PlanSample sample;
  sample.types = types_;
  const auto new_size = [&](std::int64_t size) {
    const auto all = key_.sizes().first(key_.axis_sizes());
    const auto found = std::ranges::find(all, size);
    return found == all.end() ? size : sizes[static_cast<std::size_t>(found - all.begin())];
  };
  sample.sizes = sizes;
  for (ArrayType& array : sample.types.arrays) {
    const ArrayType before = array;
    for (std::int64_t& extent : array.shape) extent = new_size(extent);
    array.strides = new_strides(before, array.shape, sample.sizes);
  }
  const std::vector<Dims> kept = natural_shapes(sample.types);
  sample.output_sizes.resize(key_.output_sizes().size());
  for (std::size_t i = 0; i < kept.size(); ++i) {
    ArrayType& output = sample.types.outputs[i];
    const ArrayType before = output;
    resize_output(before.shape, kept_[i], kept[i], output.shape);
    output.strides = new_strides(before, output.shape, sample.sizes);
    for (std::size_t k = 0; k < before.shape.size(); ++k) {
      const auto known = std::ranges::find(key_.output_sizes(), before.shape[k]);
      if (known == key_.output_sizes().end()) continue;
      sample.output_sizes[static_cast<std::size_t>(known - key_.output_sizes().begin())] =
          output.shape[k];
    }
  }
  return sample;
}

// In C order if it was, else with gaps where there were some, of any length; adds strides that are
// numbers of their own to the sizes.
Dims PlanSamples::new_strides(const ArrayType& before, const Dims& shape,
                              std::vector<std::int64_t>& sizes) {
  if (before.strides == contiguous_strides(before.shape)) return contiguous_strides(shape);
  const StrideKinds kinds(before.shape, before.strides);
  Dims strides = before.strides;
  std::int64_t reach = 1;      // of the axes before, now
  std::int64_t old_reach = 1;  // and in the call
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::size_t k = kinds.order[i];
    const std::int64_t old_stride = std::abs(before.strides[k]);
    if (kinds.of[k] != StrideKinds::Kind::literal) {
      const bool free = kinds.of[k] == StrideKinds::Kind::free;
      const int more = free ? std::uniform_int_distribution<int>(0, 15)(random_) : 0;
      strides[k] = reach + old_stride - old_reach + 16 * more;
      if (before.strides[k] < 0) strides[k] = -strides[k];
    }
    reach = std::max(reach, std::abs(strides[k]) * shape[k]);
    old_reach = std::max(old_reach, old_stride * before.shape[k]);
  }
  for (std::size_t k = 0; k < shape.size(); ++k) {
    if (kinds.of[k] == StrideKinds::Kind::free) sizes.push_back(strides[k]);
  }
  return strides;
}

}  // namespace kiln
