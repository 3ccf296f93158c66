// Plans of calls of one class that differ in sizes alone: what a form is made of
// (program_form.hpp). Decisions that depend on sizes are recorded while they are made.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "call/call_types.hpp"
#include "fusion/graph/size_trace.hpp"
#include "program/memory.hpp"
#include "program/plan.hpp"
#include "program/program_class.hpp"

namespace kiln {

/// A call of a class, and its plan.
struct PlanSample {
  std::vector<std::int64_t> sizes;         ///< as ProgramClassKey::sizes()
  std::vector<std::int64_t> output_sizes;  ///< as ProgramClassKey::output_sizes()
  CallTypes types;
  ProgramPlan plan;
  PlanChoice choice;
  TemporaryPlaces places;
  std::vector<KernelSpec> specs;
  std::vector<std::int64_t> extents;
  std::vector<fusion::SizeFact> facts;
};

/// The calls of a class, of which one is given.
class PlanSamples {
 public:
  /// Of a form: its formulas have two factors, and are checked by the others.
  static constexpr std::size_t kCount = 7;

  PlanSamples(const Definition& definition, const Call& call, const ProgramClassKey& key);

  /// Of the call. Nothing if its plan was searched for.
  std::optional<PlanSample> first() const;
  /// The first one and others, at least kCount in all, in which `pinned` sizes of axes are the same
  /// and each of the others has several values; none where those have no plans of one structure.
  std::vector<PlanSample> like(const PlanSample& first, const std::vector<bool>& pinned);

 private:
  std::optional<PlanSample> other(const PlanSample& first, const std::vector<bool>& pinned,
                                  int turn);
  std::vector<Dims> natural_shapes(const CallTypes& types) const;
  bool plan(PlanSample& sample) const;
  std::vector<std::int64_t> other_sizes(const std::vector<bool>& pinned, int turn);
  PlanSample with_sizes(std::vector<std::int64_t> sizes);
  Dims new_strides(const ArrayType& before, const Dims& shape, std::vector<std::int64_t>& sizes);

  const Definition& definition_;
  const ProgramClassKey& key_;
  CallTypes types_;
  std::vector<Dims> kept_;
  std::mt19937 random_{1};
};

}  // namespace kiln
