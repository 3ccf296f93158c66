// Every op on every dtype that it accepts, compiled by the real compilers for targets that need not
// be here: always a cross section for one of two AMD processors, in TargetsLong everything for
// every target that the compilers know. What the machine code must hold is in targets_test.cpp.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ahead/prepare.hpp"
#include "fusion/graph/composition.hpp"
#include "fusion/graph/op.hpp"
#include "tests/support/machine_code.hpp"
#include "tests/support/private_cache.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using fusion::OpInfo;
using fusion::Rule;

// The time of a compile grows faster than its kernel; functions of a library are long.
constexpr std::size_t kFunctionsOfKernel = 8;
constexpr std::size_t kCallsOfKernel = 16;

// What is done with arguments x, y, z of one dtype.
using Calls = std::vector<std::string>;

Calls ops_on(DType dtype, bool functions) {
  constexpr std::string_view kOperands[] = {"x", "x, y", "x, y, z"};
  Calls calls;
  for (const OpInfo& op : fusion::all_ops()) {
    const bool is_function = op.f32.libm > 0.5;
    if (is_function == functions && op.rule != Rule::convert && fusion::accepts(op, dtype))
      calls.push_back(fmt::format("{}({})", op.name, kOperands[op.arity - 1]));
  }
  return calls;
}

Calls conversions_of(DType dtype) {
  Calls calls;
  for (const DTypeInfo& to : kDTypes) {
    calls.push_back(fmt::format("{}(x)", to.name));
    const bool bits_of =
        to.bits == bits(dtype) && to.kind != Kind::boolean && kind(dtype) != Kind::boolean;
    if (bits_of) calls.push_back(fmt::format("bitcast(x, {})", to.name));
  }
  return calls;
}

// Places along an axis in every dtype that counts them.
Calls counting() {
  Calls calls;
  for (const DTypeInfo& entry : kDTypes) {
    if (!entry.storage_only && (is_integer(entry.dtype) || is_floating(entry.dtype)))
      calls.push_back(fmt::format("iota(0, {}) < 7 and x == x", entry.name));
  }
  return calls;
}

Calls compositions_on(DType dtype) {
  Calls calls;
  for (const fusion::Composition& composition : fusion::all_compositions()) {
    if (kind(dtype) != Kind::complex && kind(dtype) != Kind::boolean)
      calls.push_back(fmt::format("{}(x)", composition.name));
  }
  return calls;
}

class Kernels {
 public:
  /// Every other element, so that a thread has one and the compiler little to unroll.
  void add(const Calls& calls, DType dtype, std::size_t most, const Options& options = {}) {
    for (std::size_t from = 0; from < calls.size(); from += most) {
      const auto begin = calls.begin() + static_cast<std::ptrdiff_t>(from);
      const auto end = begin + static_cast<std::ptrdiff_t>(std::min(most, calls.size() - from));
      functions_.push_back(parse(fmt::format("every_{}_{}", name(dtype), functions_.size()),
                                 fmt::format("{}", fmt::join(begin, end, ", ")), options));
      Specification specification;
      for (const std::string& argument : argument_names(functions_.back()))
        specification.arguments.push_back({argument, dtype, {100}, {2}, false});
      specifications_.push_back(std::move(specification));
    }
  }

  /// Several kernels to a program, and programs side by side, as an engine fills its cache.
  void expect_that_all_compile(const std::vector<std::string>& targets) const {
    std::vector<PrepareRequest> requests;
    for (const std::string& target : targets) {
      for (std::size_t i = 0; i < functions_.size(); ++i)
        requests.push_back({&functions_[i], &specifications_[i], {}, target});
    }
    const std::vector<Preparation> all = prepare_requests(requests, {});
    double milliseconds = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::optional<Error> error = all[i].error();
      EXPECT_FALSE(error.has_value()) << std::get<const Function*>(requests[i].of)->expression()
                                      << " for " << requests[i].target << ": " << error->what();
      if (error) continue;
      milliseconds += all[i].get().compile_ms;
      expect_code(requests[i]);
    }
    fmt::print("{} kernels for {} targets, {:.0f} s of compiling\n", all.size(), targets.size(),
               milliseconds / 1e3);
  }

 private:
  static void expect_code(const PrepareRequest& request) {
    const CompiledKernel kernel =
        compile_for(*std::get<const Function*>(request.of), *request.specification, request.target);
    EXPECT_FALSE(kernel.code.empty());
    // CUDA's own sine, cosine and tangent take some.
    if (request.target.starts_with("sm_")) return;
    // Scalar registers that are kept in lanes of vector registers are no memory.
    EXPECT_EQ(kernel.resources.scratch.value_or(0), 0)
        << std::get<const Function*>(request.of)->expression() << " for " << request.target;
  }

  std::vector<Function> functions_;
  std::vector<Specification> specifications_;
};

Kernels everything() {
  Kernels kernels;
  for (const DTypeInfo& entry : kDTypes) {
    const DType dtype = entry.dtype;
    kernels.add(ops_on(dtype, false), dtype, kCallsOfKernel);
    kernels.add(conversions_of(dtype), dtype, kCallsOfKernel);
    kernels.add(ops_on(dtype, true), dtype, kFunctionsOfKernel);
    kernels.add(compositions_on(dtype), dtype, kFunctionsOfKernel);
    if (entry.storage_only || !is_floating(dtype)) continue;
    for (const Accuracy accuracy : {Accuracy::strict, Accuracy::fast}) {
      kernels.add(ops_on(dtype, true), dtype, kFunctionsOfKernel, {Rounding::once, accuracy});
      kernels.add({"x / y", "sqrt(x)", "reciprocal(x)"}, dtype, 3, {Rounding::once, accuracy});
    }
    if (bits(dtype) == 16)
      kernels.add(ops_on(dtype, false), dtype, kCallsOfKernel, {Rounding::each});
  }
  kernels.add(counting(), DType::f32, kCallsOfKernel);
  return kernels;
}

TEST(TargetsLong, HiprtcCompilesEveryOpAndDtypeForEveryTargetItKnows) {
  const std::vector<std::string> targets = testing::targets_of(jit::ToolchainKind::hiprtc);
  if (targets.empty()) GTEST_SKIP() << "there is no hiprtc on this machine";
  everything().expect_that_all_compile(targets);
}

TEST(TargetsLong, NvrtcCompilesEveryOpAndDtype) {
  if (testing::targets_of(jit::ToolchainKind::nvrtc).empty())
    GTEST_SKIP() << "there is no NVRTC on this machine";
  everything().expect_that_all_compile({"sm_80"});
}

// Every op that is no function of a library on each dtype, and every conversion; those functions
// on a narrow float, a wide one and complex numbers. Each for waves of 64 lanes or of 32.
TEST(EveryOp, HiprtcCompilesItForOneWaveSize) {
  if (testing::targets_of(jit::ToolchainKind::hiprtc).empty())
    GTEST_SKIP() << "there is no hiprtc on this machine";
  Kernels kernels[2];
  std::size_t number = 0;
  testing::Share share(DeviceType::cpu, 8);
  for (const DTypeInfo& entry : kDTypes) {
    if (!share.next()) continue;
    kernels[number++ % 2].add(ops_on(entry.dtype, false), entry.dtype, kCallsOfKernel);
    kernels[number % 2].add(conversions_of(entry.dtype), entry.dtype, kCallsOfKernel);
  }
  for (const DType dtype : {DType::bf16, DType::f64, DType::c64})
    kernels[number++ % 2].add(ops_on(dtype, true), dtype, kFunctionsOfKernel);
  kernels[0].add(counting(), DType::f32, kCallsOfKernel);
  kernels[1].add(compositions_on(DType::bf16), DType::bf16, kFunctionsOfKernel);
  kernels[0].expect_that_all_compile({"gfx90a"});
  kernels[1].expect_that_all_compile({"gfx1030"});
}

}  // namespace
}  // namespace kiln
