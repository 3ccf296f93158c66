#include "call/bound_launch.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "base/profiler_ranges.hpp"
#include "call/caught_error.hpp"

namespace kiln {
namespace {

// `view` with other data, aligned as the old data is, since the kernel was chosen by that.
View with_data(const Launch::Impl& bound, std::string_view setter, const View& view, void* data,
               std::size_t operand) {
  const auto before = reinterpret_cast<std::uintptr_t>(view.data());
  const auto after = reinterpret_cast<std::uintptr_t>(data);
  if ((before ^ after) % 16 != 0 || (data == nullptr && view.size() != 0)) {
    throw Error(
        Code::invalid_argument,
        fmt::format("{}: {}: {}: expected an address that is {} modulo 16, as the one that "
                    "was bound, got {}",
                    bound.names.function, setter,
                    operand_label(bound.names, bound.inputs.size(), operand), before % 16, data));
  }
  return view.with_data(data);
}

[[noreturn]] void fail_setter(const Launch::Impl& bound, const std::string& message) {
  throw Error(Code::invalid_argument, fmt::format("{}: {}", bound.names.function, message));
}

void run_in_range(const Launch::Impl& bound, const Stream& stream) {
  const base::ProfilerRange range([&] { return bound.names.function; });
  bound.run(stream);
}

}  // namespace

void Launch::Impl::add_kernels(const Plan& plan) {
  for (const PlannedKernel& kernel : plan.kernels) {
    Filled one{&plan, &kernel, {}, {}};
    one.block.resize((kernel.parameters.bytes.size() + 7) / 8);
    for (const std::uint32_t offset : kernel.parameters.offsets) {
      one.arguments.push_back(one.bytes() + offset);
    }
    filled.push_back(std::move(one));
  }
}

BoundFunction::BoundFunction(std::shared_ptr<Function::Impl> function,
                             std::shared_ptr<const Plan> plan, const Stream& stream,
                             std::span<const Argument> inputs, std::span<const View> outputs)
    : Impl(names_of(function->definition), stream, inputs, outputs),
      function_(std::move(function)),
      plan_(std::move(plan)) {
  info = plan_->info;
  add_kernels(*plan_);
  refill();
}

void BoundFunction::refill() {
  if (filled.empty()) return;
  check_overlap(*plan_, call());
  for (Filled& one : filled) fill_parameters(*plan_, *one.kernel, call(), one.bytes());
}

void BoundFunction::run(const Stream& on) const {
  for (const Filled& one : filled) launch(one, on);
}

Launch::Launch(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Launch::Launch(Launch&&) noexcept = default;
Launch& Launch::operator=(Launch&&) noexcept = default;
Launch::~Launch() = default;

void Launch::operator()(const Stream& stream) const { run_in_range(*impl_, stream); }

std::optional<Error> Launch::try_launch(const Stream& stream) const noexcept {
  return caught_error([&] { run_in_range(*impl_, stream); });
}

void Launch::set_input(std::size_t index, const void* data) {
  if (index >= impl_->inputs.size() || impl_->inputs[index].is_scalar()) {
    fail_setter(*impl_, fmt::format("set_input: input {} is not an array argument", index));
  }
  // Inputs are only read; View has one pointer type for both.
  Argument replaced =
      with_data(*impl_, "set_input", impl_->inputs[index].view(), const_cast<void*>(data), index);
  impl_->replace(impl_->inputs[index], std::move(replaced));
}

void Launch::set_output(std::size_t index, void* data) {
  if (index >= impl_->outputs.size()) {
    fail_setter(*impl_, fmt::format("set_output: there is no output {}", index));
  }
  View replaced =
      with_data(*impl_, "set_output", impl_->outputs[index], data, impl_->inputs.size() + index);
  impl_->replace(impl_->outputs[index], std::move(replaced));
}

void Launch::set_scalar(std::size_t index, Scalar value) {
  if (index >= impl_->inputs.size() || !impl_->inputs[index].is_scalar()) {
    fail_setter(*impl_, fmt::format("set_scalar: input {} is not a scalar argument", index));
  }
  const Scalar& bound = impl_->inputs[index].scalar();
  if (bound.dtype() != value.dtype() || bound.weak() != value.weak()) {
    fail_setter(*impl_, fmt::format("set_scalar: {}: expected a{} {}, got a{} {}",
                                    operand_label(impl_->names, impl_->inputs.size(), index),
                                    bound.weak() ? " weak" : "", kiln::name(bound.dtype()),
                                    value.weak() ? " weak" : "", kiln::name(value.dtype())));
  }
  impl_->replace(impl_->inputs[index], Argument(value));
}

const KernelInfo& Launch::info() const { return impl_->info; }

}  // namespace kiln
