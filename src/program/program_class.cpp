// The hot path of runs by class: find the form, evaluate its numbers, launch. Forms are made in
// program_form.cpp.
#include "program/program_class.hpp"

#include <algorithm>
#include <cmath>

#include "core/view_bytes.hpp"
#include "fusion/infer/attention_space.hpp"
#include "fusion/passes/split_reductions.hpp"
#include "fusion/schedule/scratch.hpp"
#include "kernel/emit_kernel.hpp"
#include "kiln/error.hpp"
#include "program/program_form.hpp"

namespace kiln {
namespace {

struct MemoryRange {
  const char* begin;
  const char* end;
  bool meets(const MemoryRange& other) const { return begin < other.end && other.begin < end; }
};

MemoryRange memory_range(const View& view) {
  const ByteExtent extent = extent_of(view);
  const char* const data = static_cast<const char*>(view.data());
  return {data + extent.low, data + extent.high};
}

std::uint64_t size_of(const View& workspace) {
  return static_cast<std::uint64_t>(workspace.size() * bits(workspace.dtype()) / 8);
}

bool fits(const View& workspace, std::uint64_t bytes, const Device& device) {
  return size_of(workspace) >= bytes && workspace.data() != nullptr &&
         workspace.device() == device &&
         reinterpret_cast<std::uintptr_t>(workspace.data()) % 16 == 0;
}

bool is_exact_view(const View& a, const View& b) {
  return a.data() == b.data() && a.offset() == b.offset() && a.dtype() == b.dtype() &&
         a.shape() == b.shape() && a.strides() == b.strides();
}

// Whether no output shares memory with anything, but for an input that it updates. What does may be
// an error, or not.
bool is_apart(const ProgramClass& form, const Call& call, const View& workspace) {
  std::array<MemoryRange, ClassKey::kMostOperands + 1> others;
  std::size_t count = 0;
  others[count++] = memory_range(workspace);
  for (const Argument& input : call.inputs) {
    const MemoryRange range =
        input.is_scalar() ? MemoryRange{nullptr, nullptr} : memory_range(input.view());
    if (range.meets(others[0])) return false;
    others[count++] = range;
  }
  for (const auto& [output, argument] : form.updates) {
    if (!is_exact_view(call.outputs[output], call.inputs[argument].view())) return false;
    others[1 + argument] = {nullptr, nullptr};
  }
  for (const View& output : call.outputs) {
    const MemoryRange range = memory_range(output);
    for (std::size_t i = 0; i < count; ++i) {
      if (range.meets(others[i])) return false;
    }
    others[count++] = range;
  }
  return true;
}

bool holds(const ProgramClass::Condition& condition, std::span<const std::int64_t> numbers) {
  using Kind = fusion::SizeFact::Kind;
  const auto& terms = condition.terms;
  switch (condition.kind) {
    case Kind::sign: {
      double sum = 0;
      double all = 0;
      for (const auto& [factor, number] : terms) {
        const double term = factor * static_cast<double>(numbers[number]);
        sum += term;
        all += std::abs(term);
      }
      // Bytes are rounded up, and shares of them down.
      const double margin = condition.is_exact ? 0 : 64 + 1e-9 * all;
      const std::int64_t sign = sum > margin ? 1 : sum < -margin ? -1 : 0;
      return sign == condition.result;
    }
    case Kind::divides: {
      const std::int64_t divisor = numbers[terms[1].second];
      return divisor != 0 && (numbers[terms[0].second] % divisor == 0) == (condition.result != 0);
    }
    case Kind::remainder: {
      const std::int64_t divisor = numbers[terms[1].second];
      return divisor != 0 && numbers[terms[0].second] % divisor == condition.result;
    }
    case Kind::key_splits:
      return fusion::attention_splits(numbers[terms[0].second]) == condition.result;
    case Kind::splits: break;
  }
  fusion::SplitRows rows;
  std::int64_t parts = 1;
  for (std::size_t i = 0; i < condition.row_terms; ++i) {
    (i < condition.kept_terms ? rows.rows : parts) *= numbers[terms[i].second];
  }
  for (std::size_t i = condition.row_terms; i < terms.size(); ++i) {
    const std::int64_t extent = numbers[terms[i].second];
    rows.length *= extent;
    rows.longest_axis = std::max(rows.longest_axis, extent);
  }
  rows.rows *= parts;
  rows.length /= parts;
  if (condition.has_columns) rows.columns = numbers[terms[0].second];
  return fusion::splits_of(rows, condition.read_again) == condition.result;
}

// False where one is too large. Without a branch for each, whose way nobody would know by the next
// call: a driver's code comes between.
bool evaluate_products(std::span<const ProgramClass::Product> products,
                       std::span<const std::int64_t> variables, std::span<std::int64_t> numbers) {
  bool is_too_large = false;
  for (const ProgramClass::Product& product : products) {
    std::int64_t value = product.factor;
    for (const std::uint8_t size : product.sizes) {
      is_too_large |= __builtin_mul_overflow(value, variables[size], &value);
    }
    numbers[product.number] = value;
    is_too_large |= SizeFormula::is_too_large(value);
  }
  return !is_too_large;
}

// Of places in a workspace, for one call.
class Lifetimes {
 public:
  Lifetimes(std::span<const ProgramClass::Place> places, std::span<const std::int64_t> numbers) {
    all_.reserve(places.size());
    for (const ProgramClass::Place& place : places) {
      const auto bytes = static_cast<std::uint64_t>(numbers[place.bytes]);
      all_.push_back({bytes, place.first, place.last});
    }
  }
  std::span<const fusion::Lifetime> all() const { return {all_.data(), all_.size()}; }

 private:
  fusion::ScratchVector<fusion::Lifetime> all_;
};

const Argument* first_array(const Call& call) {
  const auto found =
      std::ranges::find_if(call.inputs, [](const Argument& input) { return !input.is_scalar(); });
  return found == call.inputs.end() ? nullptr : &*found;
}

// Where the memories of a call are.
class Memories {
 public:
  Memories(const Call& call, const View& workspace) {
    std::size_t count = 0;
    for (const Argument& input : call.inputs) {
      data_[count++] = input.is_scalar() ? nullptr : static_cast<char*>(input.view().data());
    }
    for (const View& output : call.outputs) data_[count++] = static_cast<char*>(output.data());
    data_[count] = static_cast<char*>(workspace.data());
  }
  char* operator[](std::size_t memory) const { return data_[memory]; }

 private:
  std::array<char*, ClassKey::kMostOperands + 1> data_;
};

void launch_steps(const ProgramClass& form, const Call& call, const View& workspace,
                  const ProgramNumbers& at, const KernelLaunches& launches) {
  const Memories memories(call, workspace);
  for (std::size_t k = 0; k < form.steps.size(); ++k) {
    const ProgramClass::Step& step = form.steps[k];
    std::array<char*, ClassKey::kMostOperands> data;
    for (std::size_t i = 0; i < step.operands.size(); ++i) {
      const ProgramClass::Operand& operand = step.operands[i];
      if (!operand.fixed.iota) data[i] = memories[operand.memory] + bytes_to(operand, at);
    }
    const PlannedKernel& planned = (*launches.of[k].kernel)->planned;
    LaunchBlock block = launches.of[k].block(std::span(data).first(step.operands.size()));
    fill_scalars(step.names(), planned, {call.stream, step.inputs, {}, {}, call.inputs},
                 block.bytes());
    for (const auto& [input, number] : step.lengths) {
      fill_scalar(planned, input, Scalar::typed(at.numbers[number], DType::i64), block.bytes());
    }
    block.launch(*form.backend, step.spec.form, call.stream);
  }
}

}  // namespace

// ---- Keys --------------------------------------------------------------------------------------

ProgramClassKey::ProgramClassKey(const Call& call) : key_(call), has_class_(key_.has_class()) {
  if (!has_class_ || first_array(call) == nullptr) {
    has_class_ = false;
    return;
  }
  for (const std::uint64_t word : key_.words()) words_[count_++] = word;
  const std::span<const std::int64_t> sizes = key_.sizes().first(key_.input_sizes()).subspan(1);
  if (sizes.size() > kMostSizes) {
    has_class_ = false;
    return;
  }
  size_count_ = axis_sizes_ = sizes.size();
  std::ranges::copy(sizes, sizes_.begin());
  for (const Argument& input : call.inputs) {
    if (!input.is_scalar()) push_strides(input.view());
  }
  for (const View& output : call.outputs) push_strides(output);
  hash_ = hash_of_words({words_.data(), count_});
}

void ProgramClassKey::push_strides(const View& view) {
  if (view.offset() != 0) has_class_ = false;  // packed elements that begin within a byte
  if (!has_class_) return;
  std::uint64_t code = 0;
  if (!is_in_c_order(view)) {
    const StrideKinds kinds(view.shape(), view.strides());
    has_class_ = !kinds.overlaps;
    code = 1;
    for (std::size_t k = 0; k < view.strides().size() && has_class_; ++k) {
      const std::int64_t stride = view.strides()[k];
      code = code << 3 | kinds.order[k];
      const StrideKinds::Kind kind = kinds.of[k];
      const bool is_literal = kind == StrideKinds::Kind::literal;
      const std::uint64_t sign = stride < 0 ? 1 : 0;
      code = code << 3 | (is_literal                         ? static_cast<unsigned>(stride + 1)
                          : kind == StrideKinds::Kind::dense ? 3 + sign
                                                             : 5 + sign);
      if (kind != StrideKinds::Kind::free) continue;
      has_class_ = size_count_ < kMostSizes;
      if (has_class_) sizes_[size_count_++] = stride;
    }
  }
  words_[count_++] = code;
}

std::span<const std::uint64_t> ProgramClassKey::words(std::uint64_t form) {
  words_[count_] = form;
  return {words_.data(), count_ + 1};
}

bool is_in_c_order(const View& view) {
  std::int64_t expected = 1;
  for (std::size_t k = view.shape().size(); k-- > 0;) {
    if (view.strides()[k] != expected) return false;
    expected *= view.shape()[k];
  }
  return true;
}

StrideKinds::StrideKinds(const Dims& shape, const Dims& strides) {
  const std::size_t rank = shape.size();
  const auto size_of = [&](std::size_t k) { return std::abs(strides[k]); };
  for (std::size_t k = 0; k < rank; ++k) {
    std::size_t at = k;
    const auto comes_before = [&](std::size_t other) {
      if (size_of(k) != size_of(other)) return size_of(k) < size_of(other);
      return shape[k] == 1 && shape[other] != 1;
    };
    for (; at > 0 && comes_before(order[at - 1]); --at) order[at] = order[at - 1];
    order[at] = static_cast<std::uint8_t>(k);
  }
  std::int64_t reach = 1;
  for (std::size_t i = 0; i < rank; ++i) {
    const std::size_t k = order[i];
    const std::int64_t stride = size_of(k);
    if (stride > 1) {
      overlaps = overlaps || stride < reach;
      of[k] = stride == reach ? Kind::dense : Kind::free;
    }
    reach = std::max(reach, stride * shape[k]);
  }
}

// ---- Forms -------------------------------------------------------------------------------------

CallNames ProgramClass::Step::names() const {
  const TypedFunction& function = spec.function;
  return {function.name, function.graph.argument_names, function.graph.output_names};
}

std::size_t ProgramClass::bytes() const {
  std::size_t bytes = sizeof *this + 8 * signature.size() + target.size() + 8 * constants.size() +
                      products.size() * sizeof(Product) + formulas.size() * sizeof formulas[0] +
                      2 * (output_sizes.size() + extents.size() + 2 * different.size()) +
                      updates.size() * sizeof updates[0] +
                      (places.size() + unfused.size()) * sizeof(Place) +
                      known.size() * sizeof(ClassKernel);
  for (const Condition& condition : conditions) {
    bytes += sizeof condition + condition.terms.size() * sizeof condition.terms[0];
  }
  for (const Step& step : steps) {
    const fusion::TypedGraph& graph = step.spec.function.graph;
    bytes += sizeof step + step.spec.function.expression.size() +
             graph.nodes.size() * sizeof(fusion::TypedNode) +
             step.operands.size() * (sizeof(Operand) + 2 * step.shape.size()) +
             step.inputs.size() * sizeof(PlacedOperands::Place);
  }
  return bytes;
}

std::vector<std::int64_t> ProgramClass::unchanged_sizes(std::span<const std::int64_t> now) const {
  static_assert(ProgramClassKey::kMostSizes <= 32);
  std::uint32_t changed = 0;
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i] != first_sizes[i]) changed |= std::uint32_t{1} << i;
  }
  changed |= changed_sizes.fetch_or(changed, std::memory_order_relaxed);
  std::vector<std::int64_t> sizes = first_sizes;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if ((changed >> i & 1) != 0) sizes[i] = 0;
  }
  return sizes;
}

bool evaluate(const ProgramClass& form, const ProgramClassKey& key, ProgramNumbers& at) {
  if (form.is_empty) return false;
  const std::span<const std::int64_t> sizes = key.sizes();
  const std::span<const std::int64_t> numbers(at.numbers);
  for (const auto& [position, size] : form.pinned) {
    if (sizes[position] != size) return false;
  }
  std::array<std::int64_t, ProgramClass::kOne + 1> variables;
  std::size_t count = 0;
  at.size_kind = size_kind_of(sizes);
  for (std::size_t i = 0; i < key.axis_sizes(); ++i) variables[count++] = sizes[i];
  for (const SizeFormula& sum : form.sums) {
    if (!sum.evaluate(sizes, variables[count++])) return false;
  }
  for (std::size_t i = key.axis_sizes(); i < sizes.size(); ++i) variables[count++] = sizes[i];
  variables[ProgramClass::kOne] = 1;
  const std::span<const std::int64_t> known = std::span(variables).first(count);
  std::ranges::copy(form.constants, at.numbers.begin());
  if (!evaluate_products(form.products, variables, at.numbers)) return false;
  for (const auto& [number, formula] : form.formulas) {
    if (!formula.evaluate(known, at.numbers[number])) return false;
  }
  for (std::size_t i = 0; i < form.output_sizes.size(); ++i) {
    if (numbers[form.output_sizes[i]] != key.output_sizes()[i]) return false;
  }
  for (const ProgramClass::Number extent : form.extents) {
    if (numbers[extent] <= 0) return false;
  }
  for (const auto& [one, other] : form.different) {
    if (numbers[one] == numbers[other]) return false;
  }
  for (const ProgramClass::Condition& condition : form.conditions) {
    if (!holds(condition, numbers)) return false;
  }
  const fusion::ScratchScope scratch;
  if (form.has_fixed_places) {
    std::ranges::copy(form.fixed_offsets, at.offsets.begin());
    at.workspace = form.fixed_workspace;
  } else {
    at.workspace = fusion::plan_few(Lifetimes(form.places, numbers).all(), at.offsets);
  }
  if (form.unfused.empty()) return true;
  std::uint64_t together = 0;
  for (const ProgramClass::Number bytes : form.unfused_together) {
    together += fusion::aligned_bytes(static_cast<std::uint64_t>(numbers[bytes]));
  }
  if (at.workspace <= together) return true;
  if (form.unfused.size() > fusion::kFewLifetimes) return false;
  const Lifetimes unfused(form.unfused, numbers);
  if (fusion::lives_together(unfused.all(), at.workspace)) return true;
  std::array<std::uint64_t, fusion::kFewLifetimes> offsets;
  return at.workspace <= fusion::plan_few(unfused.all(), offsets);
}

const ProgramClass* find_form(const PlanTable& plans, ProgramClassKey& key, ProgramNumbers& at,
                              std::uint64_t& count) {
  const auto form_of = [&](std::uint64_t number) {
    return static_cast<const ProgramClass*>(plans.find(key.words(number), key.hash(number)));
  };
  count = 0;
  const ProgramClass* const first = form_of(0);
  if (first == nullptr) return nullptr;
  const std::uint64_t recent = first->recent.load(std::memory_order_relaxed);
  const ProgramClass* const likely = recent == 0 ? first : form_of(recent);
  if (likely != nullptr && evaluate(*likely, key, at)) return likely;
  for (; count < ProgramClass::kMostForms; ++count) {
    const ProgramClass* const form = count == 0 ? first : form_of(count);
    if (form == nullptr) return nullptr;
    if (form == likely || !evaluate(*form, key, at)) continue;
    first->recent.store(count, std::memory_order_relaxed);
    return form;
  }
  return nullptr;
}

std::span<const fusion::Operand> StepNumbers::read(const ProgramClass& form, std::size_t step,
                                                   const Call& call, const ProgramNumbers& at) {
  const ProgramClass::Step& own = form.steps[step];
  const std::size_t rank = own.shape.size();
  shape = Dims(rank);
  for (std::size_t k = 0; k < rank; ++k) shape[k] = at.numbers[own.shape[k]];
  if (operands.size() < own.operands.size()) operands.resize(own.operands.size());
  for (std::size_t i = 0; i < own.operands.size(); ++i) {
    const ProgramClass::Operand& mapped = own.operands[i];
    fusion::Operand& operand = operands[i];
    operand.dtype = mapped.fixed.dtype;
    operand.output = mapped.fixed.output;
    operand.iota = mapped.fixed.iota;
    operand.index_operands = mapped.fixed.index_operands;
    if (operand.strides.size() != rank) operand.strides = Dims(rank);
    for (std::size_t k = 0; k < rank; ++k) operand.strides[k] = at.numbers[mapped.strides[k]];
    operand.offset = at.numbers[mapped.offset];
    operand.split_stride = at.numbers[mapped.split_stride];
    operand.place = {mapped.fixed.place.memory, at.numbers[mapped.place]};
    operand.indexed = {at.numbers[mapped.place_stride], at.numbers[mapped.place_count]};
    operand.address = 0;
    if (!operand.iota) operand.address = first_address(mapped, call, at);
  }
  return std::span(operands).first(own.operands.size());
}

std::int64_t bytes_to(const ProgramClass::Operand& operand, const ProgramNumbers& at) {
  const std::int64_t bytes = at.numbers[operand.bytes];
  if (operand.temporary < 0) return bytes;
  return bytes + static_cast<std::int64_t>(at.offsets[static_cast<std::size_t>(operand.temporary)]);
}

std::uintptr_t first_address(const ProgramClass::Operand& operand, const Call& call,
                             const ProgramNumbers& at) {
  const std::uintptr_t base = operand.memory < call.inputs.size() + call.outputs.size()
                                  ? address_of(call, operand.memory)
                                  : kWorkspaceAddress;
  return base + static_cast<std::uint64_t>(bytes_to(operand, at));
}

std::uintptr_t address_of(const Call& call, std::size_t operand) {
  const View& view = operand < call.inputs.size() ? call.inputs[operand].view()
                                                  : call.outputs[operand - call.inputs.size()];
  return reinterpret_cast<std::uintptr_t>(view.data());
}

// ---- Calls -------------------------------------------------------------------------------------

std::optional<std::uint64_t> workspace_by_class(const PlanTable& plans, const Call& call) {
  ProgramClassKey key(call);
  ProgramNumbers at;
  std::uint64_t count = 0;
  if (!key.has_class() || find_form(plans, key, at, count) == nullptr) return std::nullopt;
  return at.workspace;
}

bool run_by_class(PlanTable& plans, const Call& call, const View& workspace, std::uint64_t hash) {
  ProgramClassKey key(call);
  if (!key.has_class() || !is_sound(call)) return false;
  ProgramNumbers at;
  std::uint64_t count = 0;
  const ProgramClass* const form = find_form(plans, key, at, count);
  if (form == nullptr) return false;
  if (at.workspace != 0 && !fits(workspace, at.workspace, call.stream.device)) return false;
  if (!is_apart(*form, call, at.workspace != 0 ? workspace : View())) return false;
  const fusion::ScratchScope scratch;  // of the launches, which end before it
  KernelLaunches launches(form->steps.size());
  try {
    for (std::size_t k = 0; k < form->steps.size(); ++k) {
      if (!find_launch(plans, *form, k, call, at, launches)) return false;
    }
  } catch (const Error&) {
    return false;  // a plan says it in the words of this call
  }
  if (form->counts.is_often(hash)) return false;
  launch_steps(*form, call, workspace, at, launches);
  for (std::size_t k = 0; k < form->steps.size(); ++k) {
    if (!launches.of[k].wants_tape) continue;
    add_tape_of_step(plans, *form, k, call, at, *launches.of[k].kernel);
  }
  return true;
}

}  // namespace kiln
