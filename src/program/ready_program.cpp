#include "program/ready_program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory_resource>
#include <optional>
#include <string>
#include <utility>

#include "fusion/schedule/overlap.hpp"
#include "jit/device/backend.hpp"
#include "kernel/emit_kernel.hpp"
#include "kernel/kernel_table.hpp"
#include "kiln/error.hpp"

namespace kiln {
namespace {

// Before a program is run, temporaries are at their offsets from here: as aligned as a workspace.
void* const kSomewhere = reinterpret_cast<void*>(std::uintptr_t{1} << 16);

bool covers_same_bits(const View& a, const View& b) {
  return a.data() == b.data() && a.offset() == b.offset() && bits(a.dtype()) == bits(b.dtype()) &&
         a.shape() == b.shape() && a.strides() == b.strides();
}

struct Range {
  const char* begin;
  const char* end;
  bool meets(const Range& other) const { return begin < other.end && other.begin < end; }
};
Range range_of(const View& view, const ByteExtent& extent) {
  const char* const data = static_cast<const char*>(view.data());
  return {data + extent.low, data + extent.high};
}

// Of the operands of one call.
class Places {
 public:
  Places(const ProgramPlan& plan, const Call& call) : plan_(plan), call_(call) {}

  PlacedOperands::Place operator()(const ProgramOperand& operand) const {
    if (operand.kind == ProgramOperand::Kind::length) {
      return {0, 0, true, {}, Scalar::typed(static_cast<std::int64_t>(operand.index), DType::i64)};
    }
    if (operand.scalar) return {operand.index, 0, true, {}};
    const View whole = memory(operand);
    View view =
        View(whole.data(), whole.dtype(), operand.shape, operand.layout.strides, whole.device())
            .from(whole.offset() + operand.layout.offset);
    const auto bytes = static_cast<const char*>(view.data()) - base(operand);
    return {memory_index(operand), bytes, false, std::move(view)};
  }

 private:
  std::size_t memory_index(const ProgramOperand& operand) const {
    switch (operand.kind) {
      case ProgramOperand::Kind::argument: return operand.index;
      case ProgramOperand::Kind::output: return call_.inputs.size() + operand.index;
      case ProgramOperand::Kind::length:
      case ProgramOperand::Kind::temporary: break;
    }
    return call_.inputs.size() + call_.outputs.size();
  }

  const char* base(const ProgramOperand& operand) const {
    if (operand.kind == ProgramOperand::Kind::temporary)
      return static_cast<const char*>(kSomewhere);
    return static_cast<const char*>(memory(operand).data());
  }

  View memory(const ProgramOperand& operand) const {
    switch (operand.kind) {
      case ProgramOperand::Kind::argument: return call_.inputs[operand.index].view();
      case ProgramOperand::Kind::output: return call_.outputs[operand.index];
      case ProgramOperand::Kind::length:
      case ProgramOperand::Kind::temporary: break;
    }
    const ProgramPlan::Temporary& temporary = plan_.temporaries[operand.index];
    return {static_cast<char*>(kSomewhere) + temporary.offset, temporary.dtype, Dims(),
            call_.stream.device};
  }

  const ProgramPlan& plan_;
  const Call& call_;
};

// The call of a step's kernel.
class StepCall {
 public:
  StepCall(const ReadyProgram::Step& step, const Call& call) : stream_(call.stream) {
    for (const PlacedOperands::Place& place : step.inputs) {
      inputs_.push_back(place.argument(call.inputs));
    }
    for (const PlacedOperands::Place& place : step.outputs) outputs_.push_back(place.view);
  }
  Call call() const { return {stream_, inputs_, outputs_}; }

 private:
  const Stream& stream_;
  std::vector<Argument> inputs_;
  std::vector<View> outputs_;
};

// What a program's kernels are together.
KernelInfo info_of_all(const Definition& definition, std::vector<KernelInfo> kernels) {
  KernelInfo info;
  info.kernels = 0;
  bool first = true;
  for (KernelInfo& kernel : kernels) {
    if (std::exchange(first, false)) {
      info = std::move(kernel);
      continue;
    }
    info.kernels += kernel.kernels;
    info.bytes += kernel.bytes;
    info.compile_ms += kernel.compile_ms;
    info.cache = std::max(info.cache, kernel.cache);
    info.fallback = info.fallback || kernel.fallback;
  }
  info.function = definition.name;
  info.expression = definition.expression;
  return info;
}

}  // namespace

// ---- Making it ready ---------------------------------------------------------------------------

ReadyProgram::ReadyProgram(const Definition& definition, const ProgramPlan& plan, const Call& call)
    : definition_(definition), plan_(plan) {
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    Read read;
    read.is_read = !call.inputs[i].is_scalar() && plan.last_read[i] != 0;
    if (read.is_read) read.extent = extent_of(call.inputs[i].view());
    reads_.push_back(read);
  }
  for (const View& output : call.outputs) outputs_.push_back(extent_of(output));
  check_views(call);
  const Places place(plan, call);
  for (const ProgramStep& step : plan.steps) {
    Step ready{nullptr, step.call, {}, {}};
    std::ranges::transform(step.inputs, std::back_inserter(ready.inputs), place);
    std::ranges::transform(step.outputs, std::back_inserter(ready.outputs), place);
    steps_.push_back(std::move(ready));
  }
}

ReadyProgram::ReadyProgram(const Definition& definition, const ProgramPlan& plan, const Call& call,
                           OnMiss on_miss)
    : ReadyProgram(definition, plan, call) {
  // Looked up first, so that what is missing is compiled together.
  const bool compiles = on_miss == OnMiss::compile;
  std::vector<std::size_t> missing;
  std::optional<Error> error;
  for (std::size_t k = 0; k < steps_.size(); ++k) {
    if (!plan.steps[k].kernel) continue;
    try {
      steps_[k].plan = plan.steps[k].kernel->plan_for(StepCall(steps_[k], call).call(),
                                                      compiles ? OnMiss::fail : on_miss);
      if (steps_[k].plan->missing.empty()) continue;
      std::ranges::copy(steps_[k].plan->missing, std::back_inserter(missing_));
      steps_[k].plan = nullptr;  // served without
    } catch (const Error& thrown) {
      if (thrown.code() != Code::would_compile) throw;
      if (!error) error = thrown;
      missing.push_back(k);
    }
  }
  if (!compiles && error) throw Error(*error);
  if (missing.size() > 1) {
    const CallTypes types = types_of(call);
    jit::Backend& backend = jit::backend(call.stream.device);
    std::vector<WantedKernel> wanted;
    for (const std::size_t k : missing) {
      const KernelSpec spec = plan.steps[k].kernel->spec(step_types(plan, plan.steps[k], types));
      EmittedKernel emitted = emit_kernel(spec, backend.target());
      if (!emitted.is_empty()) wanted.push_back({std::move(emitted.request), &backend});
    }
    build_together(wanted);
  }
  for (const std::size_t k : missing) {
    steps_[k].plan =
        plan.steps[k].kernel->plan_for(StepCall(steps_[k], call).call(), OnMiss::compile);
  }
}

KernelInfo ReadyProgram::info() const {
  std::vector<KernelInfo> kernels;
  for (const Step& step : steps_) {
    if (step.plan) kernels.push_back(step.plan->info);
  }
  return info_of_all(definition_, std::move(kernels));
}

KernelInfo ReadyProgram::look_up(const Definition& definition, const ProgramPlan& plan,
                                 const Call& call) {
  const Places place(plan, call);
  std::vector<KernelInfo> kernels;
  for (const ProgramStep& step : plan.steps) {
    if (!step.kernel) continue;
    Step placed;
    std::ranges::transform(step.inputs, std::back_inserter(placed.inputs), place);
    std::ranges::transform(step.outputs, std::back_inserter(placed.outputs), place);
    kernels.push_back(step.kernel->look_up(StepCall(placed, call).call()));
  }
  return info_of_all(definition, std::move(kernels));
}

// ---- Checks ------------------------------------------------------------------------------------

// By the names that the caller knows. Signatures have all that this looks at.
void ReadyProgram::check_views(const Call& call) const {
  const CallNames names = names_of(definition_);
  const Device& device = call.stream.device;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    if (!reads_[i].is_read) continue;
    check_operand(names, call.inputs[i].view(), device, operand_label(names, call, i));
  }
  for (std::size_t i = 0; i < call.outputs.size(); ++i) {
    check_operand(names, call.outputs[i], device,
                  operand_label(names, call, call.inputs.size() + i));
  }
}

void ReadyProgram::check_workspace(const Call& call, const View& workspace) const {
  const auto fail = [&](const std::string& message) {
    throw Error(Code::invalid_argument, fmt::format("{}: {}", definition_.name, message));
  };
  const std::uint64_t needed = plan_.info.workspace_bytes;
  const auto given = static_cast<std::uint64_t>(workspace.size() * bits(workspace.dtype()) / 8);
  if (given < needed || workspace.data() == nullptr) {
    fail(fmt::format("workspace: expected at least {} bytes, got {}", needed,
                     workspace.data() == nullptr ? 0 : given));
  }
  if (workspace.device() != call.stream.device) {
    fail(fmt::format("workspace: is on {}, but the stream is on {}", to_string(workspace.device()),
                     to_string(call.stream.device)));
  }
  if (reinterpret_cast<std::uintptr_t>(workspace.data()) % 16 != 0) {
    fail("workspace: expected an address that is a multiple of 16");
  }
}

void ReadyProgram::check_input_and_output(const Call& call, std::size_t input,
                                          std::size_t output) const {
  const View& read = call.inputs[input].view();
  const View& written = call.outputs[output];
  const bool last = plan_.last_read[input] <= plan_.written[output] + 1;
  const bool same = covers_same_bits(written, read);
  if ((same && last) || !fusion::overlaps(bytes_of(written), bytes_of(read))) return;
  const CallNames names = names_of(definition_);
  throw Error(Code::invalid_argument,
              fmt::format("{}: {} overlaps {}, which {}", definition_.name,
                          operand_label(names, call, call.inputs.size() + output),
                          operand_label(names, call, input),
                          last ? "is not exactly its view" : "a later kernel reads"));
}

// Kernels check their own operands; here is what one kernel writes and another reads.
void ReadyProgram::check(const Call& call, const View& workspace) const {
  const bool works = plan_.info.workspace_bytes != 0;
  if (works) check_workspace(call, workspace);
  const Range space = works ? range_of(workspace, extent_of(workspace)) : Range{nullptr, nullptr};
  const std::size_t inputs = call.inputs.size();
  const auto refuse_overlap = [&](std::size_t operand, const std::string& other) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: {} overlaps {}", definition_.name,
                            operand_label(names_of(definition_), call, operand), other));
  };
  const auto check_apart = [&](const View& view, const Range& range, std::size_t operand) {
    if (!range.meets(space) || !fusion::overlaps(bytes_of(workspace), bytes_of(view))) return;
    refuse_overlap(operand, "the workspace");
  };
  for (std::size_t i = 0; i < inputs && works; ++i) {
    if (!reads_[i].is_read) continue;
    const View& read = call.inputs[i].view();
    check_apart(read, range_of(read, reads_[i].extent), i);
  }
  for (const auto& [output, argument] : plan_.updates) {
    if (covers_same_bits(call.outputs[output], call.inputs[argument].view())) continue;
    const CallNames names = names_of(definition_);
    throw Error(Code::invalid_argument,
                fmt::format("{}: {}: expected exactly the view of {}, which put updates in place",
                            definition_.name, operand_label(names, call, inputs + output),
                            operand_label(names, call, argument)));
  }
  for (std::size_t i = 0; i < call.outputs.size(); ++i) {
    const View& written = call.outputs[i];
    const Range range = range_of(written, outputs_[i]);
    for (std::size_t k = 0; k < inputs; ++k) {
      if (!reads_[k].is_read) continue;
      if (range.meets(range_of(call.inputs[k].view(), reads_[k].extent))) {
        check_input_and_output(call, k, i);
      }
    }
    for (std::size_t k = 0; k < i; ++k) {
      const View& other = call.outputs[k];
      if (!range.meets(range_of(other, outputs_[k]))) continue;
      if (!fusion::overlaps(bytes_of(written), bytes_of(other))) continue;
      refuse_overlap(inputs + i, operand_label(names_of(definition_), call, inputs + k));
    }
    if (works) check_apart(written, range, inputs + i);
  }
}

// ---- Running -----------------------------------------------------------------------------------

void ReadyProgram::find_memories(const Call& call, const View& workspace,
                                 std::span<void*> memories) const {
  auto at = memories.begin();
  for (const Argument& input : call.inputs) {
    *at++ = input.is_scalar() ? nullptr : input.view().data();
  }
  for (const View& output : call.outputs) *at++ = output.data();
  *at = workspace.data();
}

void ReadyProgram::run_call(const Step& step, const Stream& stream,
                            std::span<void* const> memories) const {
  std::array<std::byte, 4096> memory;
  std::pmr::monotonic_buffer_resource resource(memory.data(), memory.size());
  const auto views_of = [&](const std::vector<PlacedOperands::Place>& places) {
    std::pmr::vector<View> views(&resource);
    views.reserve(places.size());
    for (const PlacedOperands::Place& place : places) {
      views.push_back(
          place.view.with_data(static_cast<char*>(memories[place.memory]) + place.bytes));
    }
    return views;
  };
  step.call->run(stream, views_of(step.inputs), views_of(step.outputs));
}

void ReadyProgram::fall_back(std::size_t step, const Call& call,
                             std::span<void* const> memories) const {
  Step placed = steps_[step];
  const auto place = [&](PlacedOperands::Place& operand) {
    if (operand.scalar) return;
    operand.view =
        operand.view.with_data(static_cast<char*>(memories[operand.memory]) + operand.bytes);
  };
  std::ranges::for_each(placed.inputs, place);
  std::ranges::for_each(placed.outputs, place);
  plan_.steps[step].kernel->fall_back(StepCall(placed, call).call());
}

void ReadyProgram::run(const Call& call, const View& workspace) const {
  constexpr std::size_t kInline = 64;
  check(call, workspace);
  const auto run_steps = [&](std::span<void*> memories) {
    find_memories(call, workspace, memories);
    for (std::size_t k = 0; k < steps_.size(); ++k) {
      const Step& step = steps_[k];
      if (step.plan) {
        launch_plan(*step.plan, {call.stream, step.inputs, step.outputs, memories, call.inputs});
      } else if (step.call) {
        run_call(step, call.stream, memories);
      } else {
        fall_back(k, call, memories);
      }
    }
  };
  if (memory_count() <= kInline) {
    std::array<void*, kInline> memories;
    return run_steps(std::span(memories.data(), memory_count()));
  }
  std::vector<void*> memories(memory_count());
  run_steps(memories);
}

// ---- The plan that is kept ---------------------------------------------------------------------

CachedProgramPlan::CachedProgramPlan(const Definition& definition, const Call& call)
    : definition_(definition), plan_(plan_program(definition, program_types(call))) {
  device = call.stream.device;
}

const ReadyProgram& CachedProgramPlan::ready(const Call& call, OnMiss on_miss) const {
  if (const ReadyProgram* const known = ready_now()) return *known;
  return keep(std::make_unique<const ReadyProgram>(definition_, plan_, call, on_miss));
}

void CachedProgramPlan::run_with_fallback(const Call& call, const View& workspace) const {
  auto made = std::make_unique<const ReadyProgram>(definition_, plan_, call, OnMiss::fallback);
  if (made->is_complete()) return keep(std::move(made)).run(call, workspace);
  const CompileLater later(made->missing());  // the call comes first
  made->run(call, workspace);
}

const ReadyProgram& CachedProgramPlan::keep(std::unique_ptr<const ReadyProgram> made) const {
  const std::lock_guard lock(mutex_);
  if (!made_) {  // else another thread was first
    made_ = std::move(made);
    ready_.store(made_.get(), std::memory_order_release);
  }
  return *made_;
}

// Its kernels' own plans count for themselves.
std::size_t CachedProgramPlan::bytes() const {
  const auto size_of = [](const std::vector<std::string>& texts) {
    std::size_t bytes = 0;
    for (const std::string& text : texts) bytes += sizeof text + text.size();
    return bytes;
  };
  std::size_t bytes = sizeof *this + sizeof(ReadyProgram) + 8 * signature.size();
  bytes += plan_.temporaries.size() * sizeof(ProgramPlan::Temporary);
  bytes += plan_.output_shapes.size() * sizeof(Dims);
  for (const ProgramStep& step : plan_.steps) {
    bytes += sizeof step + sizeof(ReadyProgram::Step) +
             (step.inputs.size() + step.outputs.size()) *
                 (sizeof(ProgramOperand) + sizeof(PlacedOperands::Place));
    if (step.kernel) bytes += step.kernel->bytes();
  }
  for (const ProgramKernel& kernel : plan_.info.kernels) {
    bytes += sizeof kernel + kernel.name.size() + kernel.expression.size() + kernel.reason.size();
    bytes += size_of(kernel.reads) + size_of(kernel.writes) + 8 * kernel.after.size();
  }
  return bytes;
}

std::vector<std::shared_ptr<jit::Kernel>> CachedProgramPlan::loaded_kernels() const {
  std::vector<std::shared_ptr<jit::Kernel>> kernels;
  for (const ProgramStep& step : plan_.steps) {
    if (step.kernel) std::ranges::move(step.kernel->loaded_kernels(), std::back_inserter(kernels));
  }
  return kernels;
}

}  // namespace kiln
