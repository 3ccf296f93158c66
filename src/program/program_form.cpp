// How a form of a class is made: its call is planned for several sizes while decisions that depend
// on sizes are recorded, the numbers of those plans become functions of the sizes, and the
// decisions conditions on them.
#include "program/program_form.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "program/plan_samples.hpp"

namespace kiln {
namespace {

using fusion::SizeFact;
using Number = ProgramClass::Number;

// ---- The form ----------------------------------------------------------------------------------

// Thrown and caught here: the numbers of a plan are no functions of sizes.
struct NoFormula {};

class FormMaker {
 public:
  FormMaker(ProgramClass& form, const std::vector<PlanSample>& samples,
            const std::vector<bool>& pinned)
      : form_(form), samples_(samples), axes_(pinned.size()) {
    for (std::size_t i = 0; i < pinned.size(); ++i) {
      if (pinned[i]) form_.pinned.emplace_back(i, samples[0].sizes[i]);
    }
  }

  void run() {
    find_extents();
    zero_ = number([](const PlanSample&) { return 0; });
    for (std::size_t i = 0; i < samples_[0].output_sizes.size(); ++i) {
      form_.output_sizes.push_back(number([&](const PlanSample& s) { return s.output_sizes[i]; }));
    }
    add_steps();
    add_updates();
    add_places();
    add_extents();
    for (std::size_t i = 0; i < samples_[0].facts.size(); ++i) add_fact(i);
    add_formulas();
    fix_places();
  }

 private:
  // Extents as functions of sizes; those that are sums are factors of other numbers.
  void find_extents() {
    std::vector<std::vector<std::int64_t>> sizes;
    for (const PlanSample& sample : samples_) sizes.push_back(sample.sizes);
    FormulaFinder plain(sizes, axes_);
    for (std::size_t i = 0; i < samples_[0].extents.size(); ++i) {
      std::vector<std::int64_t> values;
      for (const PlanSample& sample : samples_) values.push_back(sample.extents[i]);
      const auto found = plain.find(values);
      if (!found) throw NoFormula();
      extents_.push_back(plain.formulas()[*found]);
      if (extents_.back().terms[1].factor == 0 || form_.sums.size() == ProgramClass::kMostSums) {
        continue;
      }
      const auto at = static_cast<std::ptrdiff_t>(axes_ + form_.sums.size());
      form_.sums.push_back(extents_.back());
      for (std::size_t k = 0; k < sizes.size(); ++k)
        sizes[k].insert(sizes[k].begin() + at, values[k]);
    }
    factors_ = axes_ + form_.sums.size();
    finder_.emplace(std::move(sizes), factors_);
  }

  template <class Get>
  Number number(const Get& get) {
    std::vector<std::int64_t> values;
    for (const PlanSample& sample : samples_) values.push_back(get(sample));
    const auto found = finder_->find(values);
    if (!found) throw NoFormula();
    return *found;
  }
  template <class Get>
  std::vector<Number> numbers(std::size_t count, const Get& get) {
    std::vector<Number> all;
    for (std::size_t k = 0; k < count; ++k) {
      all.push_back(number([&](const PlanSample& sample) { return get(sample)[k]; }));
    }
    return all;
  }

  const SizeFormula& formula(Number position) const { return finder_->formulas()[position]; }

  void add_formulas() {
    const std::vector<SizeFormula>& formulas = finder_->formulas();
    if (formulas.size() > ProgramClass::kMostNumbers) throw NoFormula();
    form_.constants.assign(formulas.size(), 0);
    for (std::size_t i = 0; i < formulas.size(); ++i) {
      const bool evaluated =
          !formulas[i].is_constant() || formulas[i].evaluate({}, form_.constants[i]);
      if (!evaluated) throw NoFormula();
      if (formulas[i].is_constant()) continue;
      if (formulas[i].is_product()) {
        form_.products.push_back(product(static_cast<Number>(i), formulas[i].terms[0]));
      } else {
        form_.formulas.emplace_back(static_cast<Number>(i), formulas[i]);
      }
    }
  }

  static ProgramClass::Product product(Number number, const SizeFormula::Product& own) {
    ProgramClass::Product product{own.factor, number, own.sizes};
    std::fill(product.sizes.begin() + own.count, product.sizes.end(), ProgramClass::kOne);
    return product;
  }

  // -- Steps

  void add_steps() {
    for (std::size_t k = 0; k < samples_[0].specs.size(); ++k) {
      const KernelSpec& spec = samples_[0].specs[k];
      check_shape(spec);
      ProgramClass::Step step;
      step.spec = spec;
      step.shape =
          numbers(spec.shape.size(), [&](const PlanSample& s) { return s.specs[k].shape; });
      add_operands(step, k);
      step.spec.operands.clear();
      form_.steps.push_back(std::move(step));
    }
    form_.known = std::vector<ClassKernel>(form_.steps.size());
    for (std::size_t k = 0; k < form_.known.size(); ++k) form_.known[k].id = form_.id << 16 | k;
  }

  static void check_shape(const KernelSpec& spec) {
    const auto* attention = std::get_if<AttentionForm>(&spec.form);
    if (attention != nullptr && attention->shape != spec.shape) throw NoFormula();
    const auto* rows = std::get_if<RowsForm>(&spec.form);
    const auto* scan = std::get_if<ScanForm>(&spec.form);
    if (rows != nullptr && rows->space.shape != spec.shape) throw NoFormula();
    if (scan != nullptr && scan->shape != spec.shape) throw NoFormula();
    if (spec.shape.size() > Dims::kInline || spec.operands.size() > ClassKey::kMostOperands) {
      throw NoFormula();
    }
  }

  void add_operands(ProgramClass::Step& step, std::size_t k) {
    const ProgramStep& planned = samples_[0].plan.steps[k];
    std::size_t next = 0;
    for (std::size_t i = 0; i < planned.inputs.size(); ++i) {
      step.inputs.push_back({planned.inputs[i].index, 0, planned.inputs[i].scalar, {}});
      if (planned.inputs[i].kind == ProgramOperand::Kind::length) {
        const auto length = [&](const PlanSample& s) {
          return static_cast<std::int64_t>(s.plan.steps[k].inputs[i].index);
        };
        step.inputs.back().length = Scalar::typed(length(samples_[0]), DType::i64);
        step.lengths.emplace_back(static_cast<std::uint32_t>(i), number(length));
      }
      if (planned.inputs[i].scalar) continue;
      add_operand(step, k, next++, [&, i](const PlanSample& s) -> const ProgramOperand& {
        return s.plan.steps[k].inputs[i];
      });
    }
    for (std::size_t i = 0; i < planned.outputs.size(); ++i) {
      add_operand(step, k, next++, [&, i](const PlanSample& s) -> const ProgramOperand& {
        return s.plan.steps[k].outputs[i];
      });
    }
    for (; next < step.spec.operands.size(); ++next) {
      step.operands.push_back(operand_of_kernel(k, next));
    }
  }

  // What put updates is read before.
  void add_updates() {
    const ProgramPlan& plan = samples_[0].plan;
    for (const auto& [output, argument] : plan.updates) {
      if (plan.last_read[argument] > plan.written[output] + 1) throw NoFormula();
      form_.updates.emplace_back(output, argument);
    }
  }

  // What the kernel's planning knows of it.
  ProgramClass::Operand operand_of_kernel(std::size_t k, std::size_t i) {
    const fusion::Operand& own = samples_[0].specs[k].operands[i];
    const auto of = [&, k, i](const PlanSample& s) -> const fusion::Operand& {
      return s.specs[k].operands[i];
    };
    ProgramClass::Operand operand;
    operand.fixed.dtype = own.dtype;
    operand.fixed.output = own.output;
    operand.fixed.iota = own.iota;
    operand.fixed.place.memory = own.place.memory;
    operand.bytes = zero_;
    operand.strides =
        numbers(own.strides.size(), [&](const PlanSample& s) { return of(s).strides; });
    operand.offset = number([&](const PlanSample& s) { return of(s).offset; });
    operand.split_stride = number([&](const PlanSample& s) { return of(s).split_stride; });
    operand.fixed.index_operands = own.index_operands;
    operand.place_stride = number([&](const PlanSample& s) { return of(s).indexed.stride; });
    operand.place_count = number([&](const PlanSample& s) { return of(s).indexed.extent; });
    operand.place = number([&](const PlanSample& s) { return of(s).place.element; });
    return operand;
  }

  template <class Get>
  void add_operand(ProgramClass::Step& step, std::size_t k, std::size_t i, const Get& get) {
    ProgramClass::Operand operand = operand_of_kernel(k, i);
    if (operand.offset != zero_) throw NoFormula();
    const ProgramOperand& planned = get(samples_[0]);
    const std::size_t inputs = samples_[0].types.arguments.size();
    operand.bytes = number([&](const PlanSample& s) {
      const std::int64_t begin = get(s).layout.offset * bits(operand.fixed.dtype);
      if (begin % 8 != 0) throw NoFormula();  // within a byte
      return begin / 8;
    });
    switch (planned.kind) {
      case ProgramOperand::Kind::argument:
        operand.memory = static_cast<std::uint32_t>(planned.index);
        break;
      case ProgramOperand::Kind::output:
        operand.memory = static_cast<std::uint32_t>(inputs + planned.index);
        break;
      case ProgramOperand::Kind::length: break;  // no array
      case ProgramOperand::Kind::temporary:
        operand.memory = static_cast<std::uint32_t>(inputs + samples_[0].types.outputs.size());
        operand.temporary = static_cast<std::int32_t>(samples_[0].places.of[planned.index]);
    }
    step.operands.push_back(std::move(operand));
  }

  // -- The workspace

  template <class Get>
  std::vector<ProgramClass::Place> places(const Get& get) {
    const std::vector<fusion::Lifetime>& lives = get(samples_[0]);
    std::vector<ProgramClass::Place> all;
    for (std::size_t i = 0; i < lives.size(); ++i) {
      const Number bytes =
          number([&](const PlanSample& s) { return static_cast<std::int64_t>(get(s)[i].bytes); });
      all.push_back({bytes, lives[i].first, lives[i].last});
    }
    return all;
  }

  void add_places() {
    form_.places = places([](const PlanSample& s) -> const auto& { return s.places.lifetimes; });
    if (form_.places.size() > fusion::kFewLifetimes) throw NoFormula();
    form_.unfused = places([](const PlanSample& s) -> const auto& { return s.choice.unfused; });
    find_unfused_together();
  }

  void find_unfused_together() {
    const std::vector<fusion::Lifetime>& lives = samples_[0].choice.unfused;
    std::uint64_t most = 0;
    for (const fusion::Lifetime& begins : lives) {
      std::uint64_t sum = 0;
      std::vector<Number> together;
      for (std::size_t i = 0; i < lives.size(); ++i) {
        if (lives[i].first > begins.first || begins.first > lives[i].last) continue;
        sum += fusion::aligned_bytes(lives[i].bytes);
        together.push_back(form_.unfused[i].bytes);
      }
      if (sum <= most) continue;
      most = sum;
      form_.unfused_together = std::move(together);
    }
  }

  // After add_formulas().
  void fix_places() {
    form_.has_fixed_places = std::ranges::all_of(
        form_.places,
        [&](const ProgramClass::Place& place) { return formula(place.bytes).is_constant(); });
    if (!form_.has_fixed_places) return;
    std::vector<fusion::Lifetime> lifetimes;
    for (const ProgramClass::Place& place : form_.places) {
      const auto bytes = static_cast<std::uint64_t>(form_.constants[place.bytes]);
      lifetimes.push_back({bytes, place.first, place.last});
    }
    form_.fixed_offsets.resize(lifetimes.size());
    form_.fixed_workspace = fusion::plan_few(lifetimes, form_.fixed_offsets);
  }

  // -- Conditions

  // Whatever compares extents finds the same while the same of them are equal.
  void add_extents() {
    const SizeFormula one{{{{1, {}, 0}}}, 1};
    std::vector<std::pair<SizeFormula, Number>> extents{
        {one, number([](const PlanSample&) { return 1; })}};
    for (std::size_t i = 0; i < extents_.size(); ++i) {
      const Number extent = number([&](const PlanSample& s) { return s.extents[i]; });
      if (extents_[i].is_constant() && extents_[i].terms[0].factor <= 0) {
        throw NoFormula();  // there are no elements
      }
      if (extent != extents[0].second) extents.emplace_back(extents_[i], extent);
      if (known_sign(sum_of(extents_[i]), axes_) <= 0) form_.extents.push_back(extent);
    }
    for (std::size_t i = 0; i < extents.size(); ++i) {
      for (std::size_t k = 0; k < i; ++k) {
        const auto& [a, first] = extents[i];
        const auto& [b, second] = extents[k];
        if (is_size(a) && is_size(b)) continue;  // the class says so
        if (a.is_constant() && b.is_constant()) continue;
        SizePolynomial difference = sum_of(a);
        add(difference, -1, b);
        drop_zeros(difference);
        if (difference.empty()) throw NoFormula();
        if (known_sign(difference, axes_) == 0) form_.different.emplace_back(first, second);
      }
    }
  }

  static SizePolynomial sum_of(const SizeFormula& formula) {
    SizePolynomial sum;
    add(sum, 1, formula);
    return sum;
  }

  bool is_size(const SizeFormula& own) const {
    return own.terms[0].count == 1 && own.terms[0].factor == 1 && own.terms[1].factor == 0 &&
           own.divisor == 1 && own.terms[0].sizes[0] < axes_;
  }

  void add_fact(std::size_t i) {
    const SizeFact& fact = samples_[0].facts[i];
    ProgramClass::Condition condition{fact.kind, fact.read_again, true, fact.result, {}};
    for (std::size_t t = 0; t < fact.terms.size(); ++t) {
      const double factor = fact.terms[t].factor;
      condition.is_exact = condition.is_exact && std::abs(factor) == 1;
      if (factor == 0) continue;
      condition.terms.emplace_back(
          factor, number([&](const PlanSample& s) { return s.facts[i].terms[t].number; }));
    }
    const bool constant = std::ranges::all_of(
        condition.terms, [&](const auto& term) { return formula(term.second).is_constant(); });
    if (constant) return;
    if (fact.kind == SizeFact::Kind::sign) return add_sign(std::move(condition));
    if (fact.kind == SizeFact::Kind::splits) sort_axes(condition);
    std::vector<double> key = key_of(condition.terms);
    for (const int own :
         {int{condition.kept_terms}, int{condition.row_terms}, int{condition.has_columns}}) {
      key.push_back(own);
    }
    const int kind = static_cast<int>(fact.kind) * 2 + (fact.read_again ? 1 : 0);
    if (known_.emplace(kind, std::move(key)).second)
      form_.conditions.push_back(std::move(condition));
  }

  // The extents of a shape, and then those that it is reduced to, become what Condition has. Which
  // of them are equal, or 1, no size changes (add_extents()).
  void sort_axes(ProgramClass::Condition& condition) const {
    const std::size_t rank = condition.terms.size() / 2;
    std::vector<Number> kept;
    std::vector<Number> parts;
    std::vector<Number> reduced;
    for (std::size_t k = 0; k < rank; ++k) {
      const Number extent = condition.terms[k].second;
      const Number to = condition.terms[rank + k].second;
      if (is_one(extent)) continue;
      condition.has_columns = extent == to;
      (condition.has_columns ? kept : reduced).push_back(extent);
      if (extent != to && !is_one(to)) parts.push_back(to);
    }
    if (condition.has_columns) std::ranges::rotate(kept, kept.end() - 1);
    std::ranges::sort(kept.begin() + (condition.has_columns ? 1 : 0), kept.end());
    std::ranges::sort(parts);
    std::ranges::sort(reduced);
    condition.kept_terms = static_cast<std::uint8_t>(kept.size());
    condition.row_terms = static_cast<std::uint8_t>(kept.size() + parts.size());
    condition.terms.clear();
    for (const std::vector<Number>* axes : {&kept, &parts, &reduced}) {
      for (const Number extent : *axes) condition.terms.emplace_back(1, extent);
    }
  }

  bool is_one(Number position) const {
    const SizeFormula& own = formula(position);
    return own.is_constant() && own.terms[0].factor == own.divisor;
  }

  void add_sign(ProgramClass::Condition condition) {
    SizePolynomial sum;
    for (const auto& [factor, position] : condition.terms) add(sum, factor, formula(position));
    drop_zeros(sum);
    if (sum.empty()) {
      if (condition.result != 0) throw NoFormula();
      return;
    }
    if (condition.result == 0 && !condition.is_exact) throw NoFormula();
    if (condition.result != 0 && known_sign(sum, factors_) == condition.result) return;
    // What is larger than another number by a factor is the same condition.
    const double scale = condition.is_exact ? 1 : std::abs(sum.begin()->second);
    std::vector<double> key{static_cast<double>(condition.result)};
    for (const auto& [product, factor] : sum) {
      for (const std::uint8_t size : product) key.push_back(size);
      key.push_back(-1);
      key.push_back(factor / scale);
    }
    if (known_.emplace(condition.is_exact ? -1 : -2, std::move(key)).second) {
      condition.terms = collected(condition.terms);
      form_.conditions.push_back(std::move(condition));
    }
  }

  using Terms = std::vector<std::pair<double, Number>>;

  // Each number once, and none that does not count.
  static Terms collected(const Terms& terms) {
    std::map<Number, double> factors;
    for (const auto& [factor, number] : terms) factors[number] += factor;
    Terms collected;
    for (const auto& [number, factor] : factors) {
      if (factor != 0) collected.emplace_back(factor, number);
    }
    return collected;
  }

  static std::vector<double> key_of(const Terms& terms) {
    std::vector<double> key;
    for (const auto& term : terms) key.push_back(term.second);
    return key;
  }

  ProgramClass& form_;
  const std::vector<PlanSample>& samples_;
  const std::size_t axes_;            // how many sizes are of axes
  std::size_t factors_ = 0;           // those, and extents that are sums of them: all 2 or more
  std::vector<SizeFormula> extents_;  // of the samples' extents, of the sizes alone
  std::optional<FormulaFinder> finder_;
  Number zero_ = 0;
  std::set<std::pair<int, std::vector<double>>> known_;  // conditions
};

// Which sizes of axes stay as they are in the calls of a form, in the order in which that is tried.
// First those that have not changed so far: what does not change costs a call nothing. A program
// may also name sizes, as in x[:, 64:128], or want one size to be twice another.
std::vector<std::vector<bool>> pins_of(std::span<const std::int64_t> own,
                                       std::span<const std::int64_t> earlier) {
  const std::size_t sizes = own.size();
  std::vector<std::vector<bool>> pins;
  if (earlier.size() >= sizes) {
    std::vector<bool> kept;
    for (std::size_t i = 0; i < sizes; ++i) kept.push_back(own[i] == earlier[i]);
    if (std::ranges::count(kept, false) != 0) pins.push_back(std::move(kept));
  }
  pins.emplace_back(sizes, false);
  for (std::size_t i = 0; i < sizes && sizes > 1; ++i) {
    pins.emplace_back(sizes, false)[i] = true;
  }
  for (std::size_t i = 0; i < sizes && sizes > 2; ++i) {
    pins.emplace_back(sizes, true)[i] = false;
  }
  return pins;
}

// Whether what the form says of a call is what its plan has.
bool agrees(const ProgramClass& form, const ProgramClassKey& key, const ProgramPlan& plan,
            const TemporaryPlaces& places) {
  ProgramNumbers at;
  if (!evaluate(form, key, at) || at.workspace != plan.info.workspace_bytes) return false;
  for (std::size_t i = 0; i < plan.temporaries.size(); ++i) {
    if (at.offsets[places.of[i]] != plan.temporaries[i].offset) return false;
  }
  return true;
}

}  // namespace

std::shared_ptr<ProgramClass> make_form(const Definition& definition, const Call& call,
                                        const ProgramClassKey& key, const ProgramPlan& plan,
                                        std::span<const std::int64_t> earlier) {
  static std::atomic<std::uint64_t> next{1};
  const auto empty = [&] {
    auto form = std::make_shared<ProgramClass>();
    form->is_empty = true;
    form->device = call.stream.device;
    form->id = next++;
    form->backend = &jit::backend(call.stream.device);
    form->target = form->backend->target();
    form->features = features_of(form->target);
    return form;
  };
  PlanSamples calls(definition, call, key);
  const std::optional<PlanSample> first = calls.first();
  if (!first) return empty();
  for (const std::vector<bool>& pinned : pins_of(key.sizes().first(key.axis_sizes()), earlier)) {
    const std::vector<PlanSample> samples = calls.like(*first, pinned);
    if (samples.empty()) continue;
    std::shared_ptr<ProgramClass> form = empty();
    try {
      FormMaker(*form, samples, pinned).run();
    } catch (const NoFormula&) {
      continue;
    }
    form->is_empty = false;
    if (agrees(*form, key, plan, first->places)) return form;
  }
  return empty();
}

}  // namespace kiln
