// Expressions that take several kernels, from outside: explained, emitted, run, and drawn.
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/src/tool/tool_process.hpp"
#include "tests/support/toolchains.hpp"

namespace kiln {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ToolProgram : public testing::ToolTest {
 protected:
  json run_json(const std::vector<std::string>& arguments) {
    const testing::Finished finished = run(arguments);
    EXPECT_EQ(finished.code, 0) << finished.err;
    return json::parse(finished.out, nullptr, false);
  }
};

TEST_F(ToolProgram, ExplainsWhyThereAreSeveralKernels) {
  KILN_NEED(host);
  const json report =
      run_json({"explain", "x / sum(x, 0) / sum(x, 1)", "--type", "x=f32[64,100]", "--json"});
  const json& program = report["program"];
  ASSERT_EQ(program["kernels"].size(), 2u);
  EXPECT_THAT(program["kernels"][1]["reason"].get<std::string>(), HasSubstr("other axes"));
  EXPECT_EQ(program["kernels"][1]["expression"], "x / sum(x, 0) / t1");
  EXPECT_EQ(program["kernels"][1]["after"], std::vector{0});
  EXPECT_EQ(program["lower_bound"], 2 * 4 * 6400);
  EXPECT_LT(program["bytes"], program["op_by_op_bytes"]);
  EXPECT_LE(program["workspace_bytes"], program["op_by_op_workspace"]);
  EXPECT_EQ(report["targets"].size(), 2u);
}

TEST_F(ToolProgram, ExplainsWhatOneKernelSaves) {
  KILN_NEED(host);
  const std::vector<std::string> arguments{"explain", "x * rsqrt(mean(x * x, -1) + 1e-5)", "--type",
                                           "x=f32[64,100]"};
  const testing::Finished shown = run(arguments);
  EXPECT_THAT(shown.out, HasSubstr("50.0 KiB per launch; unfused"));
  EXPECT_THAT(shown.out, HasSubstr("; at least 50.0 KiB"));
  const json report = run_json({arguments[0], arguments[1], arguments[2], arguments[3], "--json"});
  EXPECT_EQ(report["lower_bound"], 2 * 4 * 6400);
  EXPECT_GT(report["op_by_op_bytes"], 4 * 4 * 6400);
}

TEST_F(ToolProgram, EmitsEachKernel) {
  const json kernels = run_json({"emit", "concat(-1, x * 2.0, exp(x)), sum(x, 0) * sum(x, 1)",
                                 "--type", "x=f16[64,96]", "--target", "gfx90a", "--json"});
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_THAT(kernels[0]["source"].get<std::string>(), HasSubstr("out0_stride_0"));
}

TEST_F(ToolProgram, DrawsTheKernels) {
  const testing::Finished drawn =
      run({"explain", "y = x / sum(x, 0); y / sum(y, 1)", "--type", "x=f32[64,100]", "--dot", "-"});
  EXPECT_THAT(drawn.out, AllOf(HasSubstr("digraph"), HasSubstr("n0 -> n1"), HasSubstr("unfused")));
}

TEST_F(ToolProgram, DrawsTheKernelsAsAPictureWhereGraphvizIs) {
  const std::vector<std::string> arguments{"explain", "y = x / sum(x, 0); y / sum(y, 1)",
                                           "--type",  "x=f32[64,100]",
                                           "--svg",   path("kernels.svg")};
  const testing::Finished drawn = run(arguments);
  if (drawn.code == 0) {
    std::ifstream file(path("kernels.svg"));
    const std::string picture((std::istreambuf_iterator<char>(file)), {});
    EXPECT_THAT(picture, AllOf(HasSubstr("<svg"), HasSubstr("unfused"), HasSubstr("</svg>")));
  }
  const std::string programs = std::getenv("PATH");
  setenv("PATH", path("").c_str(), 1);
  const testing::Finished refused = run(arguments);
  setenv("PATH", programs.c_str(), 1);
  EXPECT_NE(refused.code, 0);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("--svg needs the program dot"), HasSubstr("--dot")));
}

TEST_F(ToolProgram, RotatesRealActivationsInPairs) {
  const std::string data = KILN_TEST_DATA "/tinystories-f32.safetensors:";
  KILN_NEED(host);
  for (const std::string device : {"cpu", "reference"}) {
    const json report = run_json(
        {"run",
         "q = reshape(x, 0, 8, 4, 2); c = cos0[:, None, :]; s = sin0[:, None, :]; a = q[..., 0]; "
         "b = q[..., 1]; reshape(stack(-1, a * c - b * s, a * s + b * c), 0, 64)",
         "--in", "x=" + data + "q0", "--in", "cos0=" + data + "rope_cos", "--in",
         "sin0=" + data + "rope_sin", "--expect", "out=" + data + "q0_rope", "--device", device,
         "--json"});
    EXPECT_LT(report["outputs"][0]["max_error"], 1e-6) << device;
    EXPECT_EQ(report["outputs"][0]["shape"], (std::vector{63, 64}));
  }
}

TEST_F(ToolProgram, MeasuresACorpus) {
  KILN_NEED(host);
  const std::string corpus = path("corpus.txt");
  std::ofstream(corpus) << "# a comment\n"
                           "pairs | x[..., 0::2] * x[..., 1::2] | x=f32[4,8] | x=f32[N,64]\n"
                           "columns | sum(x, 0) / sum(x) | x=f32[4,8] | x=bf16[N,256]\n"
                           "eighths | f8e4m3(silu(g) * u * 0.25) | g=bf16[8] u=bf16[8] | "
                           "g=bf16[N,4096] u=bf16[N,4096]\n"
                           "complex | x * x + x, exp(x), x / x | x=c64[8] | x=c64[N,64]\n"
                           "sensitive | cos(x * 1e4) | x=f32[8] | x=f32[N,4096]\n";
  const json report = run_json(
      {"bench", "--corpus", corpus, "--device", "cpu", "--size", "1", "--samples", "2", "--json"});
  ASSERT_EQ(report["cases"].size(), 5u);
  for (const json& item : report["cases"]) EXPECT_TRUE(item["right"]) << item;
  EXPECT_EQ(report["cases"][0]["kernels"], 1);
  EXPECT_EQ(report["cases"][0]["bytes"], (1 << 20) + (1 << 19));
  EXPECT_EQ(run({"bench", "--corpus", corpus, "rows"}).code, 2);
  std::ofstream(corpus) << "pairs | x\n";
  EXPECT_THAT(run({"bench", "--corpus", corpus}).err, HasSubstr("corpus.txt:1: expected name"));
}

// One function of each family, at both ends of its data.
TEST_F(ToolProgram, MeasuresWhatASweepDraws) {
  KILN_NEED(host);
  const std::string file = path("sweep.svg");
  const json report = run_json({"bench", "--sweep", "--count", "12", "--seed", "5", "--size", "1",
                                "--samples", "1", "--device", "cpu", "--plot", file, "--json"});
  ASSERT_EQ(report["cases"].size(), 12u);
  for (const json& item : report["cases"]) {
    EXPECT_TRUE(item.value("right", false)) << item;
    EXPECT_GT(item["forecast"], 0) << item;
    EXPECT_FALSE(item["reasons"].empty()) << item;
  }
  EXPECT_EQ(report["families"].size(), 12u);
  EXPECT_EQ(report["all"]["functions"], 12);
  std::ifstream stream(file);
  const std::string svg((std::istreambuf_iterator<char>(stream)), {});
  EXPECT_THAT(svg, AllOf(HasSubstr(">quantise</text>"), HasSubstr("<circle"), HasSubstr("</svg>")));
  const testing::Finished listed =
      run({"bench", "--sweep", "--list", "--count", "2", "--family", "scans", "--device", "cpu"});
  EXPECT_THAT(listed.out, AllOf(HasSubstr("scans_0 | "), HasSubstr("scans_1 | ")));
  EXPECT_EQ(run({"bench", "--sweep", "--family", "unknown", "--device", "cpu"}).code, 2);
  EXPECT_EQ(run({"bench", "--count", "2", "--device", "cpu"}).code, 2);
}

TEST_F(ToolProgram, SaysWhatDoesNotFit) {
  const testing::Finished wrong = run({"explain", "reshape(x, 7, -1)", "--type", "x=f32[64,100]"});
  EXPECT_NE(wrong.code, 0);
  EXPECT_THAT(wrong.err, HasSubstr("do not divide by 7"));
  const testing::Finished shaped =
      run({"explain", "transpose(x)", "--type", "x=f32[64,100]", "--shape", "2,100,64"});
  EXPECT_THAT(shaped.err, HasSubstr("their own shapes"));
}

}  // namespace
}  // namespace kiln
