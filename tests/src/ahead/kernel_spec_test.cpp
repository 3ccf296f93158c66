// One value describes a kernel: what is compiled ahead from types and shapes alone is what a call
// of a Function or a run of a Program on such memory loads.
#include "kernel/kernel_spec.hpp"

#include <gtest/gtest.h>

#include <set>

#include "ahead/compile_only.hpp"
#include "kernel/emit_kernel.hpp"
#include "kernel/kernel_table.hpp"
#include "kernel/named_kernel.hpp"
#include "kiln/program.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/private_cache.hpp"
#include "tests/support/toolchains.hpp"

namespace kiln {
namespace {

const Device kCpuDevice{DeviceType::cpu, 0};
const Stream kCpuStream{kCpuDevice, nullptr};

/// Memory that begins at a multiple of 16.
struct alignas(16) Block {
  std::byte bytes[1 << 16] = {};
};

/// MisalignedArrays in C order, each so many bytes past a multiple of 16, in the order of the
/// arguments.
class MisalignedArrays {
 public:
  MisalignedArrays(const Function& function, const std::vector<ArgumentSpec>& types) {
    for (const ArgumentSpec& type : types) {
      specification_.arguments.push_back(type);
      inputs_.emplace_back(add(type.dtype, type.shape, type.misalignment));
    }
    const OutputTypes natural = output_types(function, specification_);
    for (std::size_t i = 0; i < natural.dtypes.size(); ++i) {
      outputs_.push_back(add(natural.dtypes[i], natural.shapes[i], 0));
    }
  }

  const Specification& specification() const { return specification_; }
  const std::vector<Argument>& inputs() const { return inputs_; }
  const std::vector<View>& outputs() const { return outputs_; }
  View add(DType dtype, const Dims& shape, std::uint32_t misalignment) {
    blocks_.push_back(std::make_unique<Block>());
    return View(blocks_.back()->bytes + misalignment, dtype, shape, kCpuDevice);
  }

 private:
  Specification specification_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Argument> inputs_;
  std::vector<View> outputs_;
};

/// Those of the kernels that are not loaded on the CPU, by what they compute.
std::vector<std::string> not_loaded(const std::vector<KernelSpec>& specs) {
  jit::Backend& backend = jit::backend(kCpuDevice);
  std::vector<std::string> missing;
  for (const KernelSpec& spec : specs) {
    const EmittedKernel kernel = emit_kernel(spec, backend.target());
    if (kernel.is_empty()) continue;
    if (KernelTable::instance().find(backend, name_kernel(kernel.request).key) == nullptr) {
      missing.push_back(spec.function.expression);
    }
  }
  return missing;
}

ArgumentSpec array(const char* name, DType dtype, Dims shape, std::uint32_t misalignment = 0) {
  ArgumentSpec type;
  type.name = name;
  type.dtype = dtype;
  type.shape = std::move(shape);
  type.misalignment = misalignment;
  return type;
}

class KernelSpecs : public ::testing::Test {
 protected:
  void SetUp() override { KILN_NEED(host); }

  static void expect_that_a_run_loads_them(const char* text,
                                           const std::vector<ArgumentSpec>& types) {
    const Function function = parse("f", text);
    MisalignedArrays arrays(function, types);
    const Program whole = program(function);
    const auto bytes = static_cast<std::int64_t>(
        whole.workspace_bytes(kCpuStream, arrays.inputs(), arrays.outputs()));
    ASSERT_LE(bytes, std::int64_t{sizeof(Block)});
    const View workspace = arrays.add(DType::u8, {bytes}, 0);
    const std::vector<KernelSpec> specs = kernel_specs(function, arrays.specification());
    EXPECT_EQ(not_loaded(specs).size(), specs.size()) << text << ": something is loaded already";
    whole.run(kCpuStream, arrays.inputs(), arrays.outputs(), workspace);
    EXPECT_EQ(not_loaded(specs), std::vector<std::string>()) << text;
  }
};

TEST_F(KernelSpecs, OfAProgramAreTheKernelsThatARunLoads) {
  expect_that_a_run_loads_them("h = x + r; h[..., 0::2] * h[..., 1::2], cumsum(h, 1)",
                               {array("x", DType::f32, {8, 32}), array("r", DType::f32, {8, 32})});
  expect_that_a_run_loads_them("cumsum(cumsum(x, 0), 1) + x[::-1]",
                               {array("x", DType::f32, {8, 32}, 4)});
  // A view of packed elements that begins in the middle of a byte.
  expect_that_a_run_loads_them("q[:, 1:] + y",
                               {array("q", DType::u4, {8, 33}), array("y", DType::f32, {8, 32})});
}

TEST_F(KernelSpecs, OfAFunctionAreTheKernelsThatACallLoads) {
  const Function function = parse("f", "x + y, y * 2.5, x + 0.5");
  const MisalignedArrays arrays(function,
                                {array("x", DType::f32, {8, 32}, 4), array("y", DType::f16, {32})});
  const std::vector<KernelSpec> specs = kernel_specs(function, arrays.specification());
  EXPECT_EQ(specs.size(), 2u);
  EXPECT_EQ(not_loaded(specs).size(), specs.size());
  function.call(kCpuStream, arrays.inputs(), arrays.outputs());
  EXPECT_EQ(not_loaded(specs), std::vector<std::string>());
}

// The keys of the kernels of `text`.
std::set<std::string> keys_of(const std::string& name, const std::string& text,
                              const std::vector<ArgumentSpec>& arguments) {
  Specification specification;
  specification.arguments = arguments;
  std::set<std::string> keys;
  for (const KernelSpec& spec : kernel_specs(parse(name, text), specification)) {
    keys.insert(source_key(emit_kernel(spec, "gfx90a").request).hex());
  }
  return keys;
}

TEST(KernelKeys, DoNotDependOnNames) {
  const auto of_names = [](const std::string& function, const std::string& a,
                           const std::string& b) {
    const Dims shape = {4, 64};
    return keys_of(function,
                   "silu(" + a + ") * " + b + ", sum(" + a + ", -1), cumsum(" + b + ", 0)",
                   {array(a.c_str(), DType::bf16, shape), array(b.c_str(), DType::bf16, shape)});
  };
  const std::set<std::string> keys = of_names("swiglu", "gate", "up");
  EXPECT_GE(keys.size(), 2u);
  EXPECT_EQ(of_names("f", "a", "b"), keys);
  EXPECT_EQ(of_names("f", "z", "y"), keys) << "the order is that of the text";
  EXPECT_EQ(of_names("f", "in1", "in0"), keys);
}

// Equal layers of a model, one after the other.
std::set<std::string> keys_of_layers(int count) {
  std::string text = "h0 = x";
  std::vector<ArgumentSpec> arguments = {array("x", DType::f32, {64, 256})};
  for (int i = 0; i < count; ++i) {
    const std::string n = std::to_string(i);
    text += "; a" + n + " = cumsum(rms_norm(h" + n + ", w" + n + ", 1e-5), 0)";
    text += "; h" + std::to_string(i + 1) + " = h" + n + " + silu(a" + n + ")";
    arguments.push_back(array(("w" + n).c_str(), DType::f32, {256}));
  }
  return keys_of("model", text + "; h" + std::to_string(count), arguments);
}

TEST(KernelKeys, OfEqualLayersAreThoseOfOne) {
  const std::set<std::string> two = keys_of_layers(2);
  const std::set<std::string> five = keys_of_layers(5);
  EXPECT_EQ(five, two);
  EXPECT_GE(five.size(), 2u);
  EXPECT_LE(five.size(), keys_of_layers(1).size() + 1);
}

TEST(KernelForms, AreWhatTheGraphComputesAlong) {
  const auto form_of = [](const char* text, Dims shape) {
    Specification specification;
    specification.arguments.push_back(array("x", DType::f32, std::move(shape)));
    return kernel_specs(parse("f", text), specification).at(0).form;
  };
  EXPECT_TRUE(std::holds_alternative<ElementwiseForm>(form_of("x + 1", {4, 8})));
  EXPECT_TRUE(std::holds_alternative<RowsForm>(form_of("x - max(x, -1)", {4, 8})));
  EXPECT_TRUE(std::holds_alternative<ScanForm>(form_of("cumsum(x, -1)", {4, 8})));
  // Along an axis of one element nothing runs.
  EXPECT_TRUE(std::holds_alternative<ElementwiseForm>(form_of("cumsum(x, -1)", {4, 1})));
}

}  // namespace
}  // namespace kiln
