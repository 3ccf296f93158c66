#include "call/bound_launch.hpp"

#include <fmt/format.h>

#include "kiln/error.hpp"

namespace kiln {

View with_data(const View& view, void* data, std::string_view function, std::string_view setter,
               std::size_t index) {
  const auto before = reinterpret_cast<std::uintptr_t>(view.data());
  const auto after = reinterpret_cast<std::uintptr_t>(data);
  if ((before ^ after) % 16 != 0 || (data == nullptr && view.size() != 0)) {
    throw Error(Code::invalid_argument, fmt::format("{}: {} {}: expected an address that is {} "
                                                    "modulo 16, as the one that was bound, got {}",
                                                    function, setter, index, before % 16, data));
  }
  return view.with_data(data);
}

Launch::Impl::Impl(std::shared_ptr<Function::Impl> bound_function,
                   std::shared_ptr<const Plan> bound_plan, const Stream& bound_stream,
                   std::span<const Argument> bound_inputs, std::span<const View> bound_outputs)
    : function(std::move(bound_function)),
      held(std::move(bound_plan)),
      plan(*held),
      stream(bound_stream),
      inputs(bound_inputs.begin(), bound_inputs.end()),
      outputs(bound_outputs.begin(), bound_outputs.end()) {
  for (const PlannedKernel& kernel : plan.kernels) {
    Filled one;
    one.block.resize((kernel.parameters.bytes.size() + 7) / 8);
    auto* const bytes = reinterpret_cast<std::byte*>(one.block.data());
    for (const std::uint32_t offset : kernel.parameters.offsets)
      one.arguments.push_back(bytes + offset);
    filled.push_back(std::move(one));
  }
  refill();
}

void Launch::Impl::refill() {
  if (plan.kernels.empty()) return;
  check_overlap(plan, call());
  for (std::size_t i = 0; i < filled.size(); ++i) {
    fill_parameters(plan, plan.kernels[i], call(),
                    reinterpret_cast<std::byte*>(filled[i].block.data()));
  }
}

Launch::Launch(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Launch::Launch(Launch&&) noexcept = default;
Launch& Launch::operator=(Launch&&) noexcept = default;
Launch::~Launch() = default;

void Launch::operator()(const Stream& stream) const {
  const Plan& plan = impl_->plan;
  for (std::size_t i = 0; i < plan.kernels.size(); ++i) {
    plan.backend->launch(*plan.kernels[i].kernel, plan.kernels[i].shape,
                         impl_->filled[i].arguments.data(), stream);
  }
}

void Launch::set_input(std::size_t index, const void* data) {
  const std::string& name = impl_->plan.info.function;
  if (index >= impl_->inputs.size() || impl_->inputs[index].is_scalar()) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: set_input: input {} is not an array argument", name, index));
  }
  // Inputs are only read; View has one pointer type for both.
  Argument replaced = with_data(impl_->inputs[index].view(), const_cast<void*>(data), name,
                                "set_input: input", index);
  impl_->replace(impl_->inputs[index], std::move(replaced));
}

void Launch::set_output(std::size_t index, void* data) {
  const std::string& name = impl_->plan.info.function;
  if (index >= impl_->outputs.size()) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: set_output: there is no output {}", name, index));
  }
  View replaced = with_data(impl_->outputs[index], data, name, "set_output: output", index);
  impl_->replace(impl_->outputs[index], std::move(replaced));
}

void Launch::set_scalar(std::size_t index, Scalar value) {
  const std::string& name = impl_->plan.info.function;
  if (index >= impl_->inputs.size() || !impl_->inputs[index].is_scalar()) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: set_scalar: input {} is not a scalar argument", name, index));
  }
  const Scalar& bound = impl_->inputs[index].scalar();
  if (bound.dtype() != value.dtype() || bound.weak() != value.weak()) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: set_scalar: input {}: expected a{} {}, got a{} {}", name, index,
                            bound.weak() ? " weak" : "", kiln::name(bound.dtype()),
                            value.weak() ? " weak" : "", kiln::name(value.dtype())));
  }
  impl_->replace(impl_->inputs[index], Argument(value));
}

const KernelInfo& Launch::info() const { return impl_->plan.info; }

}  // namespace kiln
