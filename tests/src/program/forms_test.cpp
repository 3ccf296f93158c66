// One small kernel of every form on every GPU that is there, against the reference interpreter: few
// enough for GPUs made of software (tests/amd) in every check. Other tests have the cases of each.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "ahead/compile_only.hpp"
#include "tests/src/program/run_program.hpp"

namespace kiln {
namespace {

using testing::HostArray;

class Forms : public testing::ProgramsOnDevices {
 protected:
  /// `text` of arrays x, y... is right, and its kernel one whose description has `form`.
  void check_form(const std::string& form, const std::string& text,
                  const std::vector<HostArray>& inputs) {
    SCOPED_TRACE(form);
    Specification types;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      types.arguments.push_back({.name = std::string(1, static_cast<char>('x' + i)),
                                 .dtype = inputs[i].dtype,
                                 .shape = inputs[i].shape,
                                 .strides = inputs[i].strides});
    }
    const auto emitted = emit_all(parse("form", text), types, jit::backend(device()).target());
    EXPECT_NE(emitted.at(0).request.text.find(form), std::string::npos) << emitted[0].request.text;
    check(text, inputs, 2e-5);
  }
  static HostArray array(DType dtype, const Dims& shape) {
    return testing::random_array(dtype, shape, static_cast<std::uint64_t>(shape[0]));
  }
};

INSTANTIATE_TEST_SUITE_P(Gpu, Forms, ::testing::Values(DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

TEST_P(Forms, OfElementsAndTheirMovement) {
  HostArray transposed = array(DType::f32, {90, 70});
  std::swap(transposed.shape[0], transposed.shape[1]);
  transposed.strides = {1, 70};
  check_form("in tiles", "x + y", {transposed, array(DType::f32, {70, 90})});
  check("x[::-1, 1::3], concat(0, x, y), reshape(transpose(y), -1)",
        {array(DType::bf16, {6, 8}), array(DType::bf16, {5, 8})}, 0);
}

TEST_P(Forms, OfRowsAndColumns) {
  const std::string reductions = "sum(x, -1), max(x, -1)";
  check_form("rows per block", reductions, {array(DType::f32, {7, 5})});
  check_form("rows per block", "softmax(x, -1)", {array(DType::bf16, {5, 300})});
  check_form("256 threads", reductions, {array(DType::f32, {3, 4100})});
  check_form("per column", "sum(x, 0), max(x, 0)", {array(DType::f16, {130, 40})});
  check_form("per column", "softmax(x, 0)", {array(DType::f32, {70, 33})});
  check("sum(x, -1), argmax(x, -1)", {array(DType::f32, {1, 65601})}, 2e-5);  // split
}

TEST_P(Forms, OfScans) {
  check_form("scan along rows", "cumsum(x, -1)", {array(DType::f32, {3, 700})});
  check_form("scan across rows", "cummax(x, 0)", {array(DType::i16, {130, 33})});
}

}  // namespace
}  // namespace kiln
