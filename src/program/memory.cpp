#include "program/memory.hpp"

#include <algorithm>
#include <numeric>

#include "fusion/graph/broadcast.hpp"
#include "fusion/partition/workspace.hpp"

namespace kiln {
namespace {

using OperandKind = ProgramOperand::Kind;

bool is_temporary(const ProgramOperand& operand) {
  return !operand.scalar && operand.kind == OperandKind::temporary;
}

// Of each temporary. With `parts_stay` those of split reductions live as long as the program runs.
std::vector<fusion::Lifetime> lifetimes_of(const ProgramPlan& plan, bool parts_stay) {
  std::vector<fusion::Lifetime> lives;
  for (const ProgramPlan::Temporary& temporary : plan.temporaries) {
    lives.push_back({temporary.bytes, plan.steps.size(), 0});
  }
  for (std::size_t k = 0; k < plan.steps.size(); ++k) {
    for (const auto* operands : {&plan.steps[k].inputs, &plan.steps[k].outputs}) {
      for (const ProgramOperand& operand : *operands) {
        if (!is_temporary(operand)) continue;
        fusion::Lifetime& life = lives[operand.index];
        life.first = std::min(life.first, k);
        life.last = std::max(life.last, k);
      }
    }
  }
  for (const ProgramStep& step : plan.steps) {
    if (!parts_stay || !step.kernel || step.kernel->function().splits == 1) continue;
    for (const ProgramOperand& operand : step.outputs) {
      if (is_temporary(operand))
        lives[operand.index] = {lives[operand.index].bytes, 0, plan.steps.size() - 1};
    }
  }
  return lives;
}

bool is_same_view(const ProgramOperand& a, const ProgramOperand& b) {
  return a.shape == b.shape && fusion::is_same(a.layout, b.layout);
}

class InPlace {
 public:
  InPlace(const ProgramPlan& plan, const std::vector<fusion::Lifetime>& lives)
      : plan_(plan), lives_(lives), first_(plan.temporaries.size()) {
    std::iota(first_.begin(), first_.end(), std::size_t{0});
  }

  /// For each temporary the first one that was where it is.
  std::vector<std::size_t> run() {
    for (std::size_t k = 0; k < plan_.steps.size(); ++k) {
      if (plan_.steps[k].kernel) look_at(k);
    }
    return std::move(first_);
  }

 private:
  void look_at(std::size_t k) {
    const ProgramStep& step = plan_.steps[k];
    std::vector<std::size_t> taken;
    for (const ProgramOperand& output : step.outputs) {
      if (!is_temporary(output) || lives_[output.index].first != k) continue;
      const auto found = std::ranges::find_if(step.inputs, [&](const ProgramOperand& input) {
        return can_take(k, output, input) && std::ranges::find(taken, input.index) == taken.end();
      });
      if (found == step.inputs.end()) continue;
      taken.push_back(found->index);
      first_[output.index] = first_[found->index];
    }
  }

  // Whether `output` can lie where `input` is: nothing else of the step is there, and no thread
  // reads what another one stores, as all of a row do with a value of that row.
  bool can_take(std::size_t k, const ProgramOperand& output, const ProgramOperand& input) const {
    if (!is_temporary(input) || lives_[input.index].last != k) return false;
    const std::int64_t elements = fusion::element_count(plan_.steps[k].shape);
    fusion::trace_order(fusion::element_count(output.shape), elements);
    if (fusion::element_count(output.shape) != elements) return false;
    const ProgramPlan::Temporary& from = plan_.temporaries[input.index];
    const ProgramPlan::Temporary& to = plan_.temporaries[output.index];
    fusion::trace_order(static_cast<std::int64_t>(from.bytes), static_cast<std::int64_t>(to.bytes));
    if (from.dtype != to.dtype || from.bytes != to.bytes || !is_same_view(input, output)) {
      return false;
    }
    const auto is_there = [&](const ProgramOperand& other) {
      return is_temporary(other) && other.index == input.index;
    };
    return std::ranges::count_if(plan_.steps[k].inputs, is_there) == 1 &&
           std::ranges::none_of(plan_.steps[k].outputs, is_there);
  }

  const ProgramPlan& plan_;
  const std::vector<fusion::Lifetime>& lives_;
  std::vector<std::size_t> first_;
};

}  // namespace

TemporaryPlaces find_places(const ProgramPlan& plan, bool fused) {
  const std::vector<fusion::Lifetime> lives = lifetimes_of(plan, !fused);
  std::vector<std::size_t> first(lives.size());
  std::iota(first.begin(), first.end(), std::size_t{0});
  if (fused) first = InPlace(plan, lives).run();
  // One place for all that are in it, one after the other.
  TemporaryPlaces places;
  places.of.resize(lives.size());
  for (std::size_t i = 0; i < lives.size(); ++i) {
    if (first[i] != i) continue;
    places.of[i] = places.lifetimes.size();
    places.lifetimes.push_back(lives[i]);
  }
  for (std::size_t i = 0; i < lives.size(); ++i) {
    places.of[i] = places.of[first[i]];
    fusion::Lifetime& whole = places.lifetimes[places.of[i]];
    whole.last = std::max(whole.last, lives[i].last);
  }
  return places;
}

void place_temporaries(ProgramPlan& plan, bool fused) {
  const TemporaryPlaces places = find_places(plan, fused);
  const fusion::Workspace workspace = fusion::plan_workspace(places.lifetimes);
  for (std::size_t i = 0; i < plan.temporaries.size(); ++i) {
    plan.temporaries[i].offset = workspace.offsets[places.of[i]];
  }
  plan.info.workspace_bytes = workspace.bytes;
}

std::size_t busiest_step(const ProgramPlan& plan) {
  std::vector<std::int64_t> change(plan.steps.size() + 1, 0);
  for (const fusion::Lifetime& life : lifetimes_of(plan, false)) {
    if (life.first > life.last) continue;
    const auto bytes = static_cast<std::int64_t>(fusion::aligned_bytes(life.bytes));
    change[life.first] += bytes;
    change[life.last + 1] -= bytes;
  }
  std::partial_sum(change.begin(), change.end(), change.begin());
  return static_cast<std::size_t>(std::ranges::max_element(change) - change.begin());
}

}  // namespace kiln
