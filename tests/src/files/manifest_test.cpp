// Manifests as text: what is written is read as the same, and a bad line says where and why.
#include "files/manifest.hpp"

#include <gmock/gmock.h>

namespace kiln::files {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr auto kSwiglu =
    R"({"name":"swiglu","expression":"silu(gate) * up","types":{"gate":"bf16[64,172]",)"
    R"("up":"bf16[64,172]@1,64+2"},"options":{"round":"each","accuracy":"fast"}})";

std::string problem_of(std::string_view line) {
  const Manifest manifest = parse_manifest(line);
  EXPECT_THAT(manifest.lines, IsEmpty());
  EXPECT_THAT(manifest.problems, SizeIs(1));
  return manifest.problems.empty() ? "" : manifest.problems[0].message;
}

TEST(Manifest, a_line_has_what_its_text_says) {
  const Manifest manifest = parse_manifest(kSwiglu);
  ASSERT_THAT(manifest.problems, IsEmpty());
  ASSERT_THAT(manifest.lines, SizeIs(1));
  const ManifestLine& line = manifest.lines[0];
  EXPECT_EQ(line.name, "swiglu");
  EXPECT_EQ(line.text, "silu(gate) * up");
  EXPECT_EQ(line.options.rounding, Rounding::each);
  EXPECT_EQ(line.options.accuracy, Accuracy::fast);
  ASSERT_THAT(line.specification.arguments, SizeIs(2));
  EXPECT_EQ(line.specification.arguments[0].name, "gate");
  EXPECT_EQ(line.specification.arguments[0].shape, (Dims{64, 172}));
  EXPECT_TRUE(line.specification.arguments[0].strides.empty());
  EXPECT_EQ(line.specification.arguments[1].strides, (Dims{1, 64}));
  EXPECT_EQ(line.specification.arguments[1].misalignment, 2u);
}

TEST(Manifest, what_is_written_is_read_as_the_same) {
  ManifestLine written;
  written.name = "na\"me\n\\ \xff";
  written.text = "where(x > s, x, y) * t";
  written.specification.arguments = {
      {"y", DType::f8e4m3, {2, 3}, {-3, 0}, false, false, 0},
      {"s", DType::f64, {}, {}, true, true, 0},
      {"t", DType::i32, {}, {}, true, false, 0},
      {"x", DType::u4, {}, {}, false, false, 12, 7, 64},
  };
  written.specification.outputs = {DType::f32, DType::bf16};
  written.specification.layouts = {{{2, 3}, {1, 2}, 4}, {{2, 3}, {}, 0}};
  const std::string line = manifest_line(written);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const Manifest manifest = parse_manifest(line);
  ASSERT_THAT(manifest.problems, IsEmpty());
  EXPECT_EQ(manifest_line(manifest.lines.at(0)), line);
  EXPECT_EQ(manifest.lines[0].specification.arguments[0].strides, (Dims{-3, 0}));
  EXPECT_TRUE(manifest.lines[0].specification.arguments[1].weak);
  EXPECT_FALSE(manifest.lines[0].specification.arguments[2].weak);
  EXPECT_EQ(manifest.lines[0].specification.arguments[3].misalignment, 12u);
  EXPECT_EQ(manifest.lines[0].specification.arguments[3].memory, 7u);
  EXPECT_EQ(manifest.lines[0].specification.arguments[3].element, 64);
  EXPECT_EQ(manifest.lines[0].specification.layouts[0].strides, (Dims{1, 2}));
}

TEST(Manifest, has_lines_of_programs_and_kernels) {
  const Manifest manifest = parse_manifest(
      R"({"name":"halves","program":"x[..., 0::2]","types":{"x":"f32[8]"}})"
      "\n"
      R"({"name":"scale","kernel":"__global__","parameters":["reads f32","reads and writes bf16","writes u4","i32"]})"
      "\n");
  ASSERT_THAT(manifest.problems, IsEmpty());
  ASSERT_THAT(manifest.lines, SizeIs(2));
  EXPECT_EQ(manifest.lines[0].kind, ManifestKind::program);
  EXPECT_EQ(manifest.lines[0].text, "x[..., 0::2]");
  const ManifestLine& kernel = manifest.lines[1];
  EXPECT_EQ(kernel.kind, ManifestKind::kernel);
  EXPECT_EQ(kernel.text, "__global__");
  ASSERT_THAT(kernel.parameters, SizeIs(4));
  using Kind = KernelParameter::Kind;
  EXPECT_EQ(kernel.parameters[0].kind, Kind::reads);
  EXPECT_EQ(kernel.parameters[1].kind, Kind::reads_and_writes);
  EXPECT_EQ(kernel.parameters[1].dtype, DType::bf16);
  EXPECT_EQ(kernel.parameters[2].kind, Kind::writes);
  EXPECT_EQ(kernel.parameters[3].kind, Kind::scalar);
  for (const ManifestLine& line : manifest.lines) {
    const std::string text = manifest_line(line);
    EXPECT_EQ(manifest_line(parse_manifest(text).lines.at(0)), text);
  }
}

TEST(Manifest, a_bad_line_is_reported_by_number_and_hurts_no_other) {
  const Manifest manifest =
      parse_manifest(std::string(kSwiglu) + "\r\n\n  \nnonsense\n" + kSwiglu + "\n{\"name\":");
  ASSERT_THAT(manifest.lines, SizeIs(2));
  EXPECT_EQ(manifest.lines[0].number, 1u);
  EXPECT_EQ(manifest.lines[1].number, 5u);
  ASSERT_THAT(manifest.problems, SizeIs(2));
  EXPECT_EQ(manifest.problems[0].line, 4u);
  EXPECT_EQ(manifest.problems[1].line, 6u);
}

TEST(Manifest, says_what_is_wrong_with_a_line) {
  EXPECT_THAT(problem_of("3"), HasSubstr("expected a JSON object, found number"));
  EXPECT_THAT(problem_of("{"), HasSubstr("not JSON"));
  EXPECT_THAT(problem_of(R"({"name":"a","types":{}})"), HasSubstr("'expression' is missing"));
  EXPECT_THAT(problem_of(R"({"name":"","expression":"x","types":{}})"), HasSubstr("is empty"));
  EXPECT_THAT(problem_of(R"({"name":1,"expression":"x","types":{}})"),
              HasSubstr("name: expected text, found number"));
  EXPECT_THAT(problem_of(R"({"name":"a","expression":"x","types":[]})"),
              HasSubstr("types: expected an object, found array"));
  EXPECT_THAT(problem_of(R"({"name":"a","expression":"x","types":{"x":"f32","x":"f16"}})"),
              HasSubstr("'x' stands twice"));
  EXPECT_THAT(problem_of(R"({"name":"a","expression":"x","types":{},"shape":1})"),
              HasSubstr("found 'shape'"));
  EXPECT_THAT(problem_of(R"({"name":"a","expression":"x","types":{},"options":{"round":"twice"}})"),
              HasSubstr("options: round: expected once or each, found 'twice'"));
  EXPECT_THAT(problem_of(R"({"name":"a","expression":"x","types":{},"options":{"speed":"9"}})"),
              HasSubstr("found 'speed'"));
  EXPECT_THAT(problem_of(R"({"name":"a","expression":"x","types":{},"outputs":["f32[3]","f32"]})"),
              HasSubstr("either every output has a shape, or none has"));
  EXPECT_THAT(problem_of(R"({"name":"a","expression":"x","program":"x","types":{}})"),
              HasSubstr("expected one of expression and program"));
  EXPECT_THAT(problem_of(R"({"name":"a","kernel":"x"})"), HasSubstr("'parameters' is missing"));
  EXPECT_THAT(problem_of(R"({"name":"a","kernel":"x","parameters":[],"types":{}})"),
              HasSubstr("'types' does not go with 'kernel'"));
  EXPECT_THAT(problem_of(R"({"name":"a","program":"x","types":{},"parameters":[]})"),
              HasSubstr("'parameters' does not go with 'program'"));
  EXPECT_THAT(problem_of(R"({"name":"a","kernel":"x","parameters":["reads float"]})"),
              HasSubstr("'float' is no dtype"));
}

TEST(Manifest, says_what_is_wrong_with_a_type) {
  const auto problem = [](const std::string& type) {
    return problem_of(R"({"name":"a","expression":"x","types":{"x":")" + type + "\"}}");
  };
  EXPECT_THAT(problem("float[3]"), HasSubstr("'float' is no dtype; expected one of bool u8"));
  EXPECT_THAT(problem("f32[3"), HasSubstr("'x: f32[3': expected ']'"));
  EXPECT_THAT(problem("f32[3,]"), HasSubstr("expected integers separated by commas"));
  EXPECT_THAT(problem("f32[-1]"), HasSubstr("expected integers separated by commas"));
  EXPECT_THAT(problem("f32[99999999999999999999]"), HasSubstr("expected integers"));
  EXPECT_THAT(problem("f32[3]4"), HasSubstr("expected '@' and strides"));
  EXPECT_THAT(problem("f32[3]@1,2"), HasSubstr("2 strides for 1 axes"));
  EXPECT_THAT(problem("f32[3]+16"), HasSubstr("0 to 15 bytes"));
  EXPECT_THAT(problem("weak f32[3]"), HasSubstr("'weak f32' is no dtype"));
}

}  // namespace
}  // namespace kiln::files
