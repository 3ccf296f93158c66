// `kiln graph`: what waits for what and why, from a manifest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/src/tool/tool_process.hpp"

namespace kiln {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::string_view kCalls =
    R"({"name": "gate", "expression": "h = silu(g) * u", "types": {"g": "f32[172]", "u": "f32[172]"}}
{"name": "scale", "expression": "x * s", "types": {"x": "f32[172]", "s": "weak f64"}, "buffers": {"x": "h", "out": "scaled"}}

{"name": "front", "expression": "a + 1", "types": {"a": "f32[16]"}, "buffers": {"a": "other", "out": "h"}}
)";

class ToolGraph : public testing::ToolTest {};

TEST_F(ToolGraph, SaysWhatWaitsForWhatAndWhy) {
  const auto result = run({"graph", put("calls.jsonl", kCalls), "--device", "cpu", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json value = json::parse(result.out);
  ASSERT_EQ(value["nodes"].size(), 3u);
  EXPECT_EQ(value["nodes"][1]["name"], "scale");
  EXPECT_THAT(value["nodes"][1]["entry"].get<std::string>(), HasSubstr("kiln_elements_"));
  ASSERT_EQ(value["edges"].size(), 2u);
  EXPECT_EQ(value["edges"][0]["from"], 0);
  EXPECT_EQ(value["edges"][0]["to"], 1);
  EXPECT_EQ(value["edges"][0]["reason"], "read after write");
  EXPECT_EQ(value["edges"][0]["bytes"], "h[0, 688)");
  EXPECT_EQ(value["edges"][1]["from"], 1);
  EXPECT_EQ(value["edges"][1]["to"], 2);
  EXPECT_EQ(value["edges"][1]["reason"], "write after read");
  EXPECT_EQ(value["edges"][1]["bytes"], "h[0, 64)");
  EXPECT_GT(value["eager"]["total_us"].get<double>(), 0);
  EXPECT_GT(value["graph"]["total_us"].get<double>(), 0);
  const auto text = run({"graph", path("calls.jsonl"), "--device", "cpu"});
  EXPECT_THAT(text.out, AllOf(HasSubstr("1 -> 2  write after read  h[0, 64)"),
                              HasSubstr("3 operations, 2 edges, 5 buffers on cpu")));
}

TEST_F(ToolGraph, WritesItForGraphviz) {
  const auto result = run({"graph", put("calls.jsonl", kCalls), "--device", "cpu", "--dot", "-"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("digraph kiln {"), HasSubstr("n0 [label=\"0 gate\"]"),
                                HasSubstr("n0 -> n1 [label=\"read after write h[0, 688)\"]")));
  const auto svg =
      run({"graph", path("calls.jsonl"), "--device", "cpu", "--svg", path("graph.svg")});
  if (svg.code == 0) {
    EXPECT_THAT(read(path("graph.svg")), HasSubstr("<svg"));
  } else {
    EXPECT_THAT(svg.err, HasSubstr("graphviz"));
  }
}

TEST_F(ToolGraph, NamesTheLineThatIsWrong) {
  const auto message = [&](std::string_view text) {
    const auto result = run({"graph", put("wrong.jsonl", text), "--device", "cpu"});
    EXPECT_NE(result.code, 0);
    return result.err;
  };
  EXPECT_THAT(message("{\"name\": \"f\"}\n"), HasSubstr("wrong.jsonl:1: "));
  EXPECT_THAT(
      message("\n{\"name\": \"f\", \"expression\": \"x+1\", \"types\": {\"x\": \"f32[4]\"}, "
              "\"buffers\": {\"y\": \"b\"}}\n"),
      HasSubstr("wrong.jsonl:2: buffers: there is no argument or output 'y'"));
  EXPECT_THAT(message(""), HasSubstr("no calls in it"));
  EXPECT_THAT(run({"graph", path("nowhere.jsonl")}).err, HasSubstr("nowhere.jsonl"));
}

}  // namespace
}  // namespace kiln
