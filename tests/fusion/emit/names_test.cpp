// The identifiers that operands get in a kernel's text: none that anything else could have,
// whatever the user calls them, and near to what that is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "fusion/emit/emit.hpp"
#include "fusion/emit/kernel_names.hpp"
#include "fusion/infer/infer.hpp"
#include "fusion/text/text.hpp"
#include "preamble/preamble.hpp"

namespace kiln::fusion {
namespace {

using ::testing::ElementsAre;

// A sum of arguments that are called so, stored as `output`.
TypedGraph sum_of(const std::vector<std::string>& names, const std::string& output) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "a" : " + a") + std::to_string(i);
  const std::vector<ArgumentType> types(names.size(), {DType::f32, false, false});
  TypedGraph graph = infer(parse(text), types, {}, Rounding::once, "f");
  graph.argument_names = names;
  graph.output_names = {output};
  return graph;
}

// What readers see of the identifiers of arguments that are called so, and of the output's.
std::vector<std::string> identifiers_of(const std::vector<std::string>& names,
                                        const std::string& output) {
  const TypedGraph graph = sum_of(names, output);
  std::vector<std::string> identifiers;
  const KernelNames names_of(graph);
  for (const NamedOperand& operand : names_of.operands()) {
    identifiers.push_back(with_names(operand.name, names, std::vector{output}));
  }
  return identifiers;
}

TEST(KernelNames, ArePositionsInWhatIsCompiled) {
  const TypedGraph graph = sum_of({"gate", "up"}, "y");
  const KernelNames names(graph);
  EXPECT_EQ(names.operands()[0].name, "in0");
  EXPECT_EQ(names.operands()[1].name, "in1");
  EXPECT_EQ(names.operands()[2].name, "out0");
  EXPECT_EQ(names.operands()[2].label, "y");
}

TEST(KernelNames, AreThePositionAndWhatTheUserCallsIt) {
  EXPECT_THAT(identifiers_of({"gate", "Up2", "int", "x_row"}, "y"),
              ElementsAre("in0_gate", "in1_Up2", "in2_int", "in3_x_row", "out0_y"));
}

TEST(KernelNames, StandWhereWordsAreOperands) {
  const std::vector<std::string> arguments = {"gate", "up"};
  const std::vector<std::string> outputs = {"y"};
  const auto named = [&](std::string_view text) { return with_names(text, arguments, outputs); };
  EXPECT_EQ(named("in0_lanes[lane] * in1; out0_data = in0"),
            "in0_gate_lanes[lane] * in1_up; out0_y_data = in0_gate");
  EXPECT_EQ(named("in2 in in_0 inner min0 xin0 in0x int out outer"),
            "in2 in in_0 inner min0 xin0 in0x int out outer");
  EXPECT_EQ(named(""), "");
  EXPECT_EQ(with_names("in0 out0", {}, {}), "in0 out0");
}

TEST(KernelNames, DoNotSayThePositionTwice) {
  EXPECT_THAT(identifiers_of({"in0", "in1", "in1"}, "out"),
              ElementsAre("in0", "in1", "in2_in1", "out0"));
  EXPECT_THAT(identifiers_of({"in0"}, "out0"), ElementsAre("in0", "out0"));
  EXPECT_THAT(identifiers_of({"in0"}, ""), ElementsAre("in0", "out0"));
}

// C++ keeps names with two underscores in a row, and has no other letters everywhere.
TEST(KernelNames, HaveLettersDigitsAndSingleUnderscores) {
  EXPECT_THAT(identifiers_of({"__x__y", "_", "",
                              "gr\xc3\xb6\xc3\x9f"
                              "e",
                              "a b\nc", "9"},
                             "\xff"),
              ElementsAre("in0_x_y", "in1", "in2", "in3_gr_e", "in4_a_b_c", "in5_9", "out0"));
}

TEST(KernelNames, AreOfAModestLengthAndDistinct) {
  const std::string name(5000, 'n');
  const std::vector<std::string> found = identifiers_of({name + "1", name + "2", name}, name);
  EXPECT_EQ(std::set(found.begin(), found.end()).size(), found.size());
  for (const std::string& identifier : found) EXPECT_LE(identifier.size(), 64u);
}

TEST(KernelNames, BeginAsNoIdentifierOfThePreambleDoes) {
  using preamble::Device;
  const std::regex identifier(R"(\b(in|out)[0-9]\w*)");
  for (const Device device : {Device::host, Device::amd, Device::nvidia}) {
    const std::string text = preamble::text(preamble::all(device), device);
    for (std::sregex_iterator at(text.begin(), text.end(), identifier), end; at != end; ++at)
      ADD_FAILURE() << "the preamble has " << at->str();
  }
}

// The text without its comments is that of harmless names.
TEST(KernelNames, CannotLeaveTheirComment) {
  const auto code = [](const std::string& name, const std::string& function) {
    const TypedGraph graph = sum_of({name, "b"}, name);
    std::vector<Operand> operands(3);
    for (Operand& operand : operands) operand.strides = {1};
    operands[2].output = true;
    const Layout layout = plan_layout({1024}, operands, Backend::amd);
    const auto moves = element_moves(graph, layout.schedule, Accuracy::storage);
    const std::string text = readable(emit(graph, layout.schedule, moves, Accuracy::storage).source,
                                      function, function, graph.argument_names, graph.output_names);
    EXPECT_EQ(text.find('\0'), std::string::npos);
    // As a compiler does: first lines that end in a backslash are joined to the next ones.
    const std::string joined = std::regex_replace(text, std::regex(R"(\\[ \t\v\f\r]*\n)"), "");
    return std::regex_replace(joined, std::regex("//[^\n\r]*"), "");
  };
  const std::string harmless = code("", "f");
  for (const std::string name : {"\\", "\\ ", "\n", "\r", "*/", "\\\n", "\\\t"}) {
    EXPECT_EQ(code(name, "f"), harmless) << ::testing::PrintToString(name);
    EXPECT_EQ(code("", name), harmless) << ::testing::PrintToString(name);
  }
  EXPECT_EQ(code(std::string(1, '\0'), "f"), harmless);
}

}  // namespace
}  // namespace kiln::fusion
