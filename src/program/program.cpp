#include "kiln/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/reclamation.hpp"
#include "call/function_impl.hpp"
#include "core/plan_table.hpp"
#include "core/view_bytes.hpp"
#include "fusion/schedule/overlap.hpp"
#include "kiln/error.hpp"
#include "program/plan.hpp"

namespace kiln {

namespace {

struct CachedProgramPlan final : CachedPlan {
  std::size_t bytes() const override;
  std::vector<std::shared_ptr<jit::Kernel>> loaded_kernels() const override;

  ProgramPlan plan;
};

}  // namespace

struct Program::Impl {
  std::shared_ptr<Function::Impl> function;
  PlanTable plans;

  const Definition& definition() const { return function->definition; }
  std::shared_ptr<const ProgramPlan> plan_for(const Call& call);
};

namespace {

bool is_same_view(const View& a, const View& b) {
  return a.data() == b.data() && a.offset() == b.offset() && bits(a.dtype()) == bits(b.dtype()) &&
         a.shape() == b.shape() && a.strides() == b.strides();
}

// The operands of every step of one call.
class Operands {
 public:
  Operands(const Definition& definition, const ProgramPlan& plan, const Call& call,
           const View& workspace)
      : names_(names_of(definition)), plan_(plan), call_(call) {
    check_views();
    check_workspace(workspace);
    base_ = static_cast<char*>(workspace.data());
    check_overlaps(workspace);
  }

  Argument input(const ProgramOperand& operand) const {
    if (operand.scalar) return call_.inputs[operand.index];
    return view(operand);
  }

  View view(const ProgramOperand& operand) const {
    const View whole = memory(operand);
    return View(whole.data(), whole.dtype(), operand.shape, operand.layout.strides, whole.device())
        .from(whole.offset() + operand.layout.offset);
  }

 private:
  View memory(const ProgramOperand& operand) const {
    switch (operand.kind) {
      case ProgramOperand::Kind::argument: return call_.inputs[operand.index].view();
      case ProgramOperand::Kind::output: return call_.outputs[operand.index];
      case ProgramOperand::Kind::temporary: break;
    }
    const ProgramPlan::Temporary& temporary = plan_.temporaries[operand.index];
    return {base_ + temporary.offset, temporary.dtype, Dims(), call_.stream.device};
  }

  [[noreturn]] void fail(const std::string& message) const {
    throw Error(Code::invalid_argument, fmt::format("{}: {}", names_.function, message));
  }

  std::string input_label(std::size_t i) const { return operand_label(names_, call_, i); }
  std::string output_label(std::size_t i) const { return input_label(call_.inputs.size() + i); }

  // An argument that no kernel reads may be anything.
  bool is_read(std::size_t input) const {
    return !call_.inputs[input].is_scalar() && plan_.last_read[input] != 0;
  }

  // Before the first kernel runs, and by the names that the caller knows.
  void check_views() const {
    const Device& device = call_.stream.device;
    for (std::size_t i = 0; i < call_.inputs.size(); ++i) {
      if (is_read(i)) check_operand(names_, call_.inputs[i].view(), device, input_label(i));
    }
    for (std::size_t i = 0; i < call_.outputs.size(); ++i) {
      check_operand(names_, call_.outputs[i], device, output_label(i));
    }
  }

  void check_workspace(const View& workspace) const {
    const std::uint64_t needed = plan_.info.workspace_bytes;
    const auto given = static_cast<std::uint64_t>(workspace.size() * bits(workspace.dtype()) / 8);
    if (needed == 0) return;
    if (given < needed || workspace.data() == nullptr) {
      fail(fmt::format("workspace: expected at least {} bytes, got {}", needed,
                       workspace.data() == nullptr ? 0 : given));
    }
    if (workspace.device() != call_.stream.device) {
      fail(fmt::format("workspace: is on {}, but the stream is on {}",
                       to_string(workspace.device()), to_string(call_.stream.device)));
    }
    if (reinterpret_cast<std::uintptr_t>(workspace.data()) % 16 != 0) {
      fail("workspace: expected an address that is a multiple of 16");
    }
  }

  // Kernels check their own operands; here is what one kernel writes and another reads.
  void check_overlaps(const View& workspace) const {
    const bool works = plan_.info.workspace_bytes != 0;
    for (std::size_t k = 0; k < call_.inputs.size(); ++k) {
      if (works && is_read(k)) check_apart(workspace, call_.inputs[k].view(), input_label(k));
    }
    for (std::size_t i = 0; i < call_.outputs.size(); ++i) {
      const View& written = call_.outputs[i];
      for (std::size_t k = 0; k < call_.inputs.size(); ++k) {
        if (is_read(k)) check_input_and_output(k, i);
      }
      for (std::size_t k = 0; k < i; ++k) {
        if (fusion::overlaps(bytes_of(written), bytes_of(call_.outputs[k]))) {
          fail(fmt::format("{} overlaps {}", output_label(i), output_label(k)));
        }
      }
      if (works) check_apart(workspace, written, output_label(i));
    }
  }

  void check_apart(const View& workspace, const View& view, const std::string& label) const {
    if (!fusion::overlaps(bytes_of(workspace), bytes_of(view))) return;
    fail(fmt::format("{} overlaps the workspace", label));
  }

  void check_input_and_output(std::size_t input, std::size_t output) const {
    const View& read = call_.inputs[input].view();
    const View& written = call_.outputs[output];
    if (!fusion::overlaps(bytes_of(written), bytes_of(read))) return;
    const bool last = plan_.last_read[input] <= plan_.written[output] + 1;
    if (is_same_view(written, read) && last) return;
    fail(fmt::format("{} overlaps {}, which {}", output_label(output), input_label(input),
                     last ? "is not exactly its view" : "a later kernel reads"));
  }

  const CallNames names_;
  const ProgramPlan& plan_;
  const Call& call_;
  char* base_ = nullptr;
};

// The operands of a call of the caller: always arrays.
std::vector<View> views_of(const std::vector<Argument>& arguments) {
  std::vector<View> views;
  for (const Argument& argument : arguments) views.push_back(argument.view());
  return views;
}

template <class Run>
void for_each_step(const Definition& definition, const ProgramPlan& plan, const Call& call,
                   const View& workspace, const Run& run) {
  const Operands operands(definition, plan, call, workspace);
  for (const ProgramStep& step : plan.steps) {
    std::vector<Argument> inputs;
    std::vector<View> outputs;
    for (const ProgramOperand& operand : step.inputs) inputs.push_back(operands.input(operand));
    for (const ProgramOperand& operand : step.outputs) outputs.push_back(operands.view(operand));
    run(step, inputs, outputs);
  }
}

}  // namespace

std::shared_ptr<const ProgramPlan> Program::Impl::plan_for(const Call& call) {
  check_counts(names_of(definition()), call);
  const Signature signature(call);
  const auto plan_of = [](std::shared_ptr<const CachedPlan> cached) {
    const auto& own = static_cast<const CachedProgramPlan&>(*cached);
    return std::shared_ptr<const ProgramPlan>(std::move(cached), &own.plan);
  };
  {
    const base::ReadSection reading;
    if (const CachedPlan* known = plans.find(signature.words(), signature.hash())) {
      return plan_of(known->shared_from_this());
    }
  }
  auto made = std::make_shared<CachedProgramPlan>();
  made->plan = plan_program(definition(), types_of(call));
  made->device = call.stream.device;
  made->signature.assign(signature.words().begin(), signature.words().end());
  made->hash = signature.hash();
  return plan_of(plans.insert(std::move(made)));
}

// Its kernels' own plans count for themselves.
std::size_t CachedProgramPlan::bytes() const {
  const auto size_of = [](const std::vector<std::string>& texts) {
    std::size_t bytes = 0;
    for (const std::string& text : texts) bytes += sizeof text + text.size();
    return bytes;
  };
  std::size_t bytes = sizeof *this + 8 * signature.size();
  bytes += plan.temporaries.size() * sizeof(ProgramPlan::Temporary);
  bytes += plan.output_shapes.size() * sizeof(Dims);
  for (const ProgramStep& step : plan.steps) {
    bytes += sizeof step + (step.inputs.size() + step.outputs.size()) * sizeof(ProgramOperand);
    if (step.kernel) bytes += step.kernel->bytes();
  }
  for (const ProgramKernel& kernel : plan.info.kernels) {
    bytes += sizeof kernel + kernel.name.size() + kernel.expression.size() + kernel.reason.size();
    bytes += size_of(kernel.reads) + size_of(kernel.writes) + 8 * kernel.after.size();
  }
  return bytes;
}

std::vector<std::shared_ptr<jit::Kernel>> CachedProgramPlan::loaded_kernels() const {
  std::vector<std::shared_ptr<jit::Kernel>> kernels;
  for (const ProgramStep& step : plan.steps) {
    if (step.kernel) std::ranges::move(step.kernel->loaded_kernels(), std::back_inserter(kernels));
  }
  return kernels;
}

std::size_t Program::workspace_bytes(const Stream& stream, std::span<const Argument> inputs,
                                     std::span<const View> outputs) const {
  return impl_->plan_for({stream, inputs, outputs})->info.workspace_bytes;
}

void Program::run(const Stream& stream, std::span<const Argument> inputs,
                  std::span<const View> outputs, const View& workspace) const {
  const Call call{stream, inputs, outputs};
  const auto plan = impl_->plan_for(call);
  for_each_step(impl_->definition(), *plan, call, workspace,
                [&](const ProgramStep& step, const std::vector<Argument>& arguments,
                    const std::vector<View>& results) {
                  if (!step.kernel) return step.call->run(stream, views_of(arguments), results);
                  const Call kernel{stream, arguments, results};
                  step.kernel->launch(kernel);
                });
}

void Program::record(Recorder& recorder, Device device, std::span<const Argument> inputs,
                     std::span<const View> outputs, const View& workspace) const {
  const Stream stream{device, nullptr};
  const Call call{stream, inputs, outputs};
  const auto plan = impl_->plan_for(call);
  for_each_step(impl_->definition(), *plan, call, workspace,
                [&](const ProgramStep& step, const std::vector<Argument>& arguments,
                    const std::vector<View>& results) {
                  if (step.kernel) {
                    recorder.call(step.kernel, arguments, results);
                    return;
                  }
                  const std::vector<View> reads = views_of(arguments);
                  recorder.sequence(step.call->name, reads, results,
                                    [body = step.call, reads, results](const Stream& on) {
                                      body->run(on, reads, results);
                                    });
                });
}

ProgramInfo Program::explain(const Stream& stream, std::span<const Argument> inputs,
                             std::span<const View> outputs) const {
  return impl_->plan_for({stream, inputs, outputs})->info;
}

const std::string& Program::name() const { return impl_->definition().name; }
std::string Program::expression() const { return impl_->definition().expression; }

Program program(const Function& function) {
  auto impl = std::make_shared<Program::Impl>();
  impl->function = function.shared_impl();
  return Program(std::move(impl));
}

Program parse_program(std::string_view name, std::string_view text, const Options& options) {
  return program(parse(name, text, options));
}

}  // namespace kiln
