// `kiln manifest record` and `kiln compile --manifest` from outside.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "files/tensor_file.hpp"
#include "tests/src/tool/tool_process.hpp"
#include "tests/support/toolchains.hpp"

namespace kiln {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ToolManifest : public testing::ToolTest {
 protected:
  void SetUp() override {
    ToolTest::SetUp();
    KILN_NEED(host);
    std::vector<float> values(12, 1.5f);
    const files::TensorData tensor{"x", DType::f32, {3, 4}, {}, values.data()};
    files::write_tensors(path("x.npy"), {&tensor, 1});
  }

  std::vector<std::string> run_arguments(const std::string& expression) const {
    return {"run", expression, "--in", "x=" + path("x.npy"), "--device", "cpu"};
  }

  static std::string line(const std::string& name, const std::string& expression) {
    return fmt::format(R"({{"name":"{}","expression":"{}","types":{{"x":"f32[16]"}}}})"
                       "\n",
                       name, expression);
  }
};

TEST_F(ToolManifest, WhatAProgramAskedForIsThereWhenItRunsAgain) {
  std::vector<std::string> record = {"manifest", "record", "-o", path("m.jsonl"), "--", KILN_TOOL};
  for (const std::string& argument : run_arguments("x * 2 + 1")) record.push_back(argument);
  for (int times = 0; times < 2; ++times) {
    const testing::Finished finished = run(record);
    ASSERT_EQ(finished.code, 0) << finished.err;
    EXPECT_THAT(finished.err, HasSubstr("m.jsonl has 1 line\n"));
  }
  environment_["KILN_CACHE_DIR"] = path("elsewhere");
  const testing::Finished compiled =
      run({"compile", "--manifest", path("m.jsonl"), "--target", "cpu"});
  ASSERT_EQ(compiled.code, 0) << compiled.err;
  EXPECT_THAT(compiled.out, HasSubstr("1 line for 1 target: 1 compiled, 0 already there"));
  std::vector<std::string> again = run_arguments("x * 2 + 1");
  again.emplace_back("--json");
  const testing::Finished finished = run(again);
  ASSERT_EQ(finished.code, 0) << finished.err;
  EXPECT_THAT(finished.out, HasSubstr("\"disk\""));
}

TEST_F(ToolManifest, RecordingGivesTheProgramsExitStatus) {
  EXPECT_EQ(run({"manifest", "record", "-o", path("m"), "--", "sh", "-c", "exit 7"}).code, 7);
  EXPECT_EQ(run({"manifest", "record", "-o", path("m"), "--", "sh", "-c", "kill -9 $$"}).code, 137);
  const testing::Finished absent =
      run({"manifest", "record", "-o", path("m"), "--", "/nonexistent/program"});
  EXPECT_EQ(absent.code, 1);
  EXPECT_THAT(absent.err, HasSubstr("cannot run /nonexistent/program"));
}

TEST_F(ToolManifest, WhatIsThereIsSkippedAndTheRestIsCompiled) {
  const std::string some = put("m.jsonl", line("a", "x * 3") + line("b", "x * 4"));
  EXPECT_THAT(run({"compile", "--manifest", some, "--target", "cpu"}).out,
              HasSubstr("2 lines for 1 target: 2 compiled, 0 already there, 0 failed"));
  put("m.jsonl", read(some) + line("c", "x * 5"));
  const testing::Finished finished = run({"compile", "--manifest", some, "--target", "cpu"});
  EXPECT_EQ(finished.code, 0);
  EXPECT_THAT(finished.out,
              HasSubstr("3 lines for 1 target: 1 compiled, 2 already there, 0 failed"));
  EXPECT_THAT(finished.err, AllOf(HasSubstr("a for cpu: already there"),
                                  HasSubstr("c for cpu: compiled in"), HasSubstr("3/3 ")));
}

TEST_F(ToolManifest, ProgramsAndKernelsOfOnesOwnAreCompiledToo) {
  const std::string file = put(
      "m.jsonl",
      R"j({"name":"halves","program":"a = x[..., 0::2]; a - max(a, -1)","types":{"x":"f32[16,8]"}})j"
      "\n"
      R"j({"name":"mine","kernel":"extern \"C\" __global__ void mine(float* x) { x[0] = 1; }",)j"
      R"j("parameters":["writes f32"]})j"
      "\n");
  const testing::Finished finished = run({"compile", "--manifest", file, "--target", "cpu"});
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_THAT(finished.out, HasSubstr("2 lines for 1 target: 2 compiled, 0 already there"));
  EXPECT_THAT(finished.err, HasSubstr("mine for cpu: compiled in"));
  const std::string bad = put("bad.jsonl", R"({"name":"other","kernel":"x","parameters":[]})");
  EXPECT_THAT(run({"compile", "--manifest", bad, "--target", "cpu"}).err,
              HasSubstr("bad.jsonl:1: other: source: there is no kernel of that name in it"));
  EXPECT_THAT(run({"graph", file}).err, HasSubstr("m.jsonl:1: expected the line of a function"));
}

TEST_F(ToolManifest, WhatAProgramOfSeveralKernelsAskedForIsThereToo) {
  const std::string expression = "y = x / sum(x, -1); y - max(y, 0)";
  std::vector<std::string> record = {"manifest", "record", "-o", path("m.jsonl"), "--", KILN_TOOL};
  for (const std::string& argument : run_arguments(expression)) record.push_back(argument);
  ASSERT_EQ(run(record).code, 0);
  EXPECT_THAT(read(path("m.jsonl")), HasSubstr(R"("program":)"));
  environment_["KILN_CACHE_DIR"] = path("elsewhere");
  ASSERT_EQ(run({"compile", "--manifest", path("m.jsonl"), "--target", "cpu"}).code, 0);
  std::vector<std::string> again = run_arguments(expression);
  again.emplace_back("--json");
  const testing::Finished finished = run(again);
  ASSERT_EQ(finished.code, 0) << finished.err;
  EXPECT_THAT(finished.out, Not(HasSubstr("\"compiled\"")));
}

TEST_F(ToolManifest, BadLinesAreNamedAndTheOthersCompiled) {
  const std::string file =
      put("m.jsonl", line("good", "x * 3") + "nonsense\n" + line("bad", "silu(x") +
                         R"({"name":"lacks","expression":"x + y","types":{"x":"f32[16]"}})"
                         "\n");
  const testing::Finished finished = run({"compile", "--manifest", file, "--target", "cpu"});
  EXPECT_EQ(finished.code, 1);
  EXPECT_THAT(finished.err, HasSubstr("m.jsonl:2: this is not JSON"));
  EXPECT_THAT(finished.err, HasSubstr("m.jsonl:3: parse: line 1, column 7"));
  EXPECT_THAT(finished.err,
              HasSubstr("m.jsonl:4: for cpu: lacks: no type was given for the argument 'y'"));
  EXPECT_THAT(finished.out, HasSubstr("1 compiled, 0 already there, 1 failed, 2 bad lines"));
}

TEST_F(ToolManifest, JsonIsOneValueWithoutProgress) {
  const std::string file = put("m.jsonl", line("a", "x * 3") + "nonsense\n");
  const testing::Finished finished =
      run({"compile", "--manifest", file, "--target", "cpu,gfx9999", "--json"});
  EXPECT_EQ(finished.code, 1);
  EXPECT_THAT(finished.err, Not(HasSubstr("1/2")));
  const json value = json::parse(finished.out);
  EXPECT_EQ(value["entries"], 1);
  EXPECT_EQ(value["compiled"], 1);
  EXPECT_EQ(value["failed"], 1);
  EXPECT_EQ(value["bad_lines"][0]["line"], 2);
  EXPECT_EQ(value["results"][0]["target"], "cpu");
  EXPECT_EQ(value["results"][0]["key"].get<std::string>().size(), 32u);
  EXPECT_TRUE(value["results"][1].contains("error"));
}

TEST_F(ToolManifest, ProgressIsABarOnATerminal) {
  if (std::system("command -v script >/dev/null") != 0) GTEST_SKIP() << "no script(1)";
  const std::string file = put("m.jsonl", line("a", "x * 3") + line("b", "x * 4"));
  const std::string command = fmt::format(
      "KILN_CACHE_DIR={} script -qec '{} compile --manifest {} --target cpu' /dev/null >{} 2>&1",
      path("cache"), KILN_TOOL, file, path("seen"));
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_THAT(read(path("seen")), AllOf(HasSubstr("\r\033[K[##########..........] 1/2 "),
                                        HasSubstr("[####################] 2/2 "),
                                        HasSubstr("2 lines for 1 target: 2 compiled")));
}

TEST_F(ToolManifest, WantsOneKindOfInput) {
  const testing::Finished neither = run({"compile", "--target", "cpu"});
  EXPECT_EQ(neither.code, 2);
  EXPECT_THAT(neither.err, HasSubstr("give an expression, --manifest FILE or --base-pack"));
  const testing::Finished both = run({"compile", "x", "--manifest", "m.jsonl", "--target", "cpu"});
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.err, HasSubstr("are in the manifest"));
  const testing::Finished absent =
      run({"compile", "--manifest", path("absent"), "--target", "cpu"});
  EXPECT_EQ(absent.code, 1);
  EXPECT_THAT(absent.err, HasSubstr("No such file"));
}

}  // namespace
}  // namespace kiln
