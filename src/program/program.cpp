#include "kiln/program.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/configuration.hpp"
#include "base/profiler_ranges.hpp"
#include "base/reclamation.hpp"
#include "call/caught_error.hpp"
#include "call/manifest_log.hpp"
#include "fusion/infer/shapes.hpp"
#include "kiln/error.hpp"
#include "program/bound_program.hpp"
#include "program/program_class.hpp"
#include "program/program_impl.hpp"

namespace kiln {
namespace {

// The operands of a call in the program's order; `what` they are in messages.
template <class Operand, class Named, class Get>
std::vector<Operand> in_order(const Definition& definition, std::string_view what,
                              std::span<const std::string> names, std::span<const Named> given,
                              const Get& get) {
  const auto fail = [&](const std::string& message) {
    throw Error(Code::invalid_argument, fmt::format("{}: {}; the {}s are {}", definition.name,
                                                    message, what, fmt::join(names, ", ")));
  };
  std::vector<Operand> ordered;
  for (const std::string& name : names) {
    const auto named = [&](const Named& one) { return one.name == name; };
    const auto found = std::ranges::find_if(given, named);
    if (found == given.end())
      fail(fmt::format("expected the {} '{}', which is missing", what, name));
    if (std::ranges::count_if(given, named) > 1) {
      fail(fmt::format("expected the {} '{}' once, got it {} times", what, name,
                       std::ranges::count_if(given, named)));
    }
    ordered.push_back(get(*found));
  }
  for (const Named& one : given) {
    if (std::ranges::find(names, one.name) != names.end()) continue;
    fail(fmt::format("there is no {} '{}'", what, one.name));
  }
  return ordered;
}

std::vector<Argument> ordered_inputs(const Definition& definition,
                                     std::span<const NamedArgument> given) {
  return in_order<Argument>(definition, "argument", definition.graph.arguments(), given,
                            [](const NamedArgument& one) { return one.argument; });
}

std::vector<View> ordered_outputs(const Definition& definition, std::span<const NamedView> given) {
  std::vector<std::string> names = definition.graph.output_names();
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) names[i] = fmt::format("out{}", i);
  }
  return in_order<View>(definition, "output", names, given,
                        [](const NamedView& one) { return one.view; });
}

View placed_view(const PlacedOperands::Place& place, std::span<void* const> memories) {
  return place.view.with_data(static_cast<char*>(memories[place.memory]) + place.bytes);
}

std::vector<View> placed_views(std::span<const PlacedOperands::Place> places,
                               std::span<void* const> memories) {
  std::vector<View> views;
  for (const PlacedOperands::Place& place : places) views.push_back(placed_view(place, memories));
  return views;
}

}  // namespace

// ---- Plans -------------------------------------------------------------------------------------

const CachedProgramPlan* Program::Impl::find(const Signature& signature) const {
  return static_cast<const CachedProgramPlan*>(plans_.find(signature.words(), signature.hash()));
}

std::shared_ptr<const CachedProgramPlan> Program::Impl::plan_for(const Call& call) {
  check_counts(names_of(definition()), call);
  return plan_for(call, Signature(call));
}

std::shared_ptr<const CachedProgramPlan> Program::Impl::plan_for(const Call& call,
                                                                 const Signature& signature) {
  {
    const base::ReadSection reading;
    if (const CachedProgramPlan* const known = find(signature)) {
      return std::static_pointer_cast<const CachedProgramPlan>(known->shared_from_this());
    }
  }
  auto made = std::make_shared<CachedProgramPlan>(definition(), call);
  if (logs_manifest() && !fusion::has_custom_calls(definition().graph)) {
    log_program(definition(), specification_of(names_of(definition()), call));
  }
  made->signature.assign(signature.words().begin(), signature.words().end());
  made->hash = signature.hash();
  return std::static_pointer_cast<const CachedProgramPlan>(plans_.insert(std::move(made)));
}

void Program::Impl::run(const Call& call, const View& workspace) {
  const base::ProfilerRange range([&] { return std::string_view(definition().name); });
  check_counts(names_of(definition()), call);
  const Signature signature(call);
  {
    const base::ReadSection reading;
    const CachedProgramPlan* const known = find(signature);
    if (const ReadyProgram* const ready = known != nullptr ? known->ready_now() : nullptr) {
      ready->run(call, workspace);
      return;
    }
    // Manifests list every shape.
    if (!logs_manifest() && run_by_class(plans_, call, workspace, signature.hash())) return;
  }
  const auto plan = plan_for(call, signature);
  const OnMiss on_miss = base::on_miss_of(definition().options.on_miss);
  const bool kept =
      on_miss != OnMiss::fallback || jit::backend(call.stream.device).is_capturing(call.stream);
  if (kept) {
    plan->ready(call, when_kept(on_miss)).run(call, workspace);
  } else {
    plan->run_with_fallback(call, workspace);
  }
  if (const ReadyProgram* const ready = plan->ready_now()) {
    add_to_class(plans_, definition(), call, plan->plan(), *ready);
  }
}

std::uint64_t Program::Impl::workspace_bytes(const Call& call) {
  check_counts(names_of(definition()), call);
  const Signature signature(call);
  if (!logs_manifest()) {
    const base::ReadSection reading;
    if (const CachedProgramPlan* const known = find(signature)) {
      return known->plan().info.workspace_bytes;
    }
    if (const auto bytes = workspace_by_class(plans_, call)) return *bytes;
  }
  return plan_for(call, signature)->plan().info.workspace_bytes;
}

const ReadyProgram& Program::Impl::prepare(const Call& call, const CachedProgramPlan& plan) {
  const ReadyProgram& ready = plan.ready(call, OnMiss::compile);
  add_to_class(plans_, definition(), call, plan.plan(), ready);
  return ready;
}

// ---- The public class --------------------------------------------------------------------------

std::size_t Program::workspace_bytes(const Stream& stream, std::span<const Argument> inputs,
                                     std::span<const View> outputs) const {
  return impl_->workspace_bytes({stream, inputs, outputs});
}

void Program::run(const Stream& stream, std::span<const Argument> inputs,
                  std::span<const View> outputs, const View& workspace) const {
  impl_->run({stream, inputs, outputs}, workspace);
}

std::optional<Error> Program::try_run(const Stream& stream, std::span<const Argument> inputs,
                                      std::span<const View> outputs,
                                      const View& workspace) const noexcept {
  return caught_error([&] { impl_->run({stream, inputs, outputs}, workspace); });
}

void Program::run(const Stream& stream, std::span<const NamedArgument> inputs,
                  std::span<const NamedView> outputs, const View& workspace) const {
  run(stream, ordered_inputs(impl_->definition(), inputs),
      ordered_outputs(impl_->definition(), outputs), workspace);
}

KernelInfo Program::prepare(const Stream& stream, std::span<const Argument> inputs,
                            std::span<const View> outputs) const {
  const Call call{stream, inputs, outputs};
  const auto plan = impl_->plan_for(call);
  const bool known = plan->ready_now() != nullptr;
  KernelInfo info = impl_->prepare(call, *plan).info();
  if (known) {
    info.cache = CacheState::memory;
    info.compile_ms = 0;
  }
  return info;
}

KernelInfo Program::look_up(const Stream& stream, std::span<const Argument> inputs,
                            std::span<const View> outputs) const {
  const Call call{stream, inputs, outputs};
  return impl_->plan_for(call)->look_up(call);
}

Launch Program::bind(const Stream& stream, std::span<const Argument> inputs,
                     std::span<const View> outputs, const View& workspace) const {
  const auto plan = impl_->plan_for({stream, inputs, outputs});
  return Launch(std::make_unique<BoundProgram>(impl_, plan, stream, inputs, outputs, workspace));
}

Launch Program::bind(const Stream& stream, std::span<const NamedArgument> inputs,
                     std::span<const NamedView> outputs, const View& workspace) const {
  return bind(stream, ordered_inputs(impl_->definition(), inputs),
              ordered_outputs(impl_->definition(), outputs), workspace);
}

void Program::record(Recorder& recorder, Device device, std::span<const Argument> inputs,
                     std::span<const View> outputs, const View& workspace) const {
  const Stream stream{device, nullptr};
  const Call call{stream, inputs, outputs};
  const auto plan = impl_->plan_for(call);
  const OnMiss on_miss = when_kept(impl_->definition().options.on_miss);
  // Else the recorder compiles what is missing beside what others record.
  if (on_miss != OnMiss::compile) plan->ready(call, on_miss);
  const ReadyProgram ready(impl_->definition(), plan->plan(), call);
  ready.check(call, workspace);
  std::vector<void*> memories(ready.memory_count());
  ready.find_memories(call, workspace, memories);
  for (std::size_t k = 0; k < ready.steps().size(); ++k) {
    const ReadyProgram::Step& step = ready.steps()[k];
    const std::vector<View> results = placed_views(step.outputs, memories);
    if (const auto& kernel = plan->plan().steps[k].kernel) {
      std::vector<Argument> arguments;
      for (const PlacedOperands::Place& place : step.inputs) {
        arguments.push_back(place.scalar ? place.argument(inputs)
                                         : Argument(placed_view(place, memories)));
      }
      recorder.call(kernel, arguments, results);
      continue;
    }
    const std::vector<View> reads = placed_views(step.inputs, memories);
    recorder.sequence(
        step.call->name, reads, results,
        [body = step.call, reads, results](const Stream& on) { body->run(on, reads, results); });
  }
}

ProgramInfo Program::explain(const Stream& stream, std::span<const Argument> inputs,
                             std::span<const View> outputs) const {
  return impl_->plan_for({stream, inputs, outputs})->plan().info;
}

const std::string& Program::name() const { return impl_->definition().name; }
std::string Program::expression() const { return impl_->definition().expression; }

std::vector<std::string> argument_names(const Program& program) {
  return program.impl().definition().graph.arguments();
}

std::vector<std::string> output_names(const Program& program) {
  return program.impl().definition().graph.output_names();
}

Program program(const Function& function) {
  return Program(std::make_shared<Program::Impl>(function.shared_impl()));
}

Program parse_program(std::string_view name, std::string_view text, const Options& options) {
  return program(parse(name, text, options));
}

}  // namespace kiln
