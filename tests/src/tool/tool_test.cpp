// The tool from outside: what it computes, what it prints, and that everything a user can get wrong
// ends in an exit code and a message that says what is wrong.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "files/tensor_file.hpp"
#include "kiln/error.hpp"
#include "tests/src/tool/tool_process.hpp"
#include "tests/support/toolchains.hpp"

namespace kiln {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Tool : public testing::ToolTest {
 protected:
  std::string write(std::string_view name, const Dims& shape, const std::vector<float>& values) {
    const files::TensorData tensor{"x", DType::f32, shape, {}, values.data()};
    files::write_tensors(path(name), {&tensor, 1});
    return path(name);
  }

  static std::vector<float> floats(const std::string& file) {
    const files::HostTensor tensor = files::read_tensor(file);
    EXPECT_EQ(tensor.dtype, DType::f32);
    std::vector<float> values(tensor.bytes.size() / sizeof(float));
    std::memcpy(values.data(), tensor.data(), tensor.bytes.size());
    return values;
  }

  /// Runs it, expects an exit code, and that standard error has the message.
  void expect_error(const std::vector<std::string>& arguments, int code, std::string_view message,
                    std::string_view input = {}) {
    const testing::Finished finished = run(arguments, input);
    EXPECT_EQ(finished.code, code) << finished.err;
    EXPECT_THAT(finished.err, HasSubstr(std::string(message)));
  }

  json run_json(const std::vector<std::string>& arguments) {
    const testing::Finished finished = run(arguments);
    EXPECT_EQ(finished.code, 0) << finished.err;
    return json::parse(finished.out, nullptr, false);
  }

  std::string data_ = std::string(KILN_TEST_DATA) + "/tinystories-f32.safetensors";
};

// ---- run

TEST_F(Tool, RunsTheMainJobAndFindsItInTheCache) {
  KILN_NEED(host);
  const std::vector<std::string> command = {"run",      "y = silu(gate) * up",
                                            "--device", "cpu",
                                            "--in",     "gate=" + data_ + ":gate0",
                                            "--in",     "up=" + data_ + ":up0",
                                            "--out",    "y=" + path("y.npy"),
                                            "--expect", "y=" + data_ + ":swiglu0",
                                            "--name",   "swiglu",
                                            "--json"};
  json report = run_json(command);
  EXPECT_EQ(report["function"], "swiglu");
  EXPECT_EQ(report["device"], "cpu");
  EXPECT_EQ(report["cache"], "compiled");
  EXPECT_GT(report["compile_ms"], 0);
  EXPECT_GT(report["launch_us"], 0);
  EXPECT_GT(report["gb_per_s"], 0);
  EXPECT_FALSE(report["target"].get<std::string>().empty());
  EXPECT_FALSE(report["variant"].get<std::string>().empty());
  const json& output = report["outputs"][0];
  EXPECT_EQ(output["name"], "y");
  EXPECT_EQ(output["dtype"], "f32");
  EXPECT_EQ(output["shape"], (std::vector{63, 172}));
  EXPECT_LT(output["max_error"], 1e-6);
  EXPECT_EQ(output["mismatched"], 0);
  EXPECT_EQ(floats(path("y.npy")).size(), 63u * 172u);

  report = run_json(command);
  EXPECT_EQ(report["cache"], "disk");
  EXPECT_EQ(report["compile_ms"], 0);
  EXPECT_LT(report["outputs"][0]["max_error"], 1e-6);

  const json stats = run_json({"cache", "stats", "--json"});
  EXPECT_EQ(stats["hits"], 1);
  EXPECT_EQ(stats["compiled"], 1);
}

TEST_F(Tool, BroadcastsAndTakesScalarsAndDtypes) {
  KILN_NEED(host);
  const std::string a = write("a.npy", {2, 3}, {1, 2, 3, 4, 5, 6});
  const std::string b = write("b.npy", {3}, {10, 20, 30});
  for (const std::string_view device : {"cpu", "reference"}) {
    const json report =
        run_json({"run", "a * b + s", "--in", "a=" + a, "--in", "b=" + b, "--scalar", "s=0.5",
                  "--out", "r=" + path("r.npy"), "--device", std::string(device), "--json"});
    EXPECT_EQ(report["outputs"][0]["name"], "r") << device;
    EXPECT_EQ(floats(path("r.npy")), (std::vector<float>{10.5, 40.5, 90.5, 40.5, 100.5, 180.5}))
        << device;
  }
  const json report =
      run_json({"run", "a + 1", "--in", "a=" + a, "--out", "r=" + path("r.safetensors"),
                "--type-out", "r=bf16", "--device", "reference", "--json"});
  EXPECT_EQ(report["outputs"][0]["dtype"], "bf16");
  EXPECT_EQ(files::list_tensors(path("r.safetensors"))[0].dtype, DType::bf16);
}

TEST_F(Tool, WritesSeveralOutputsToOneFile) {
  const std::string a = write("a.npy", {2}, {3, 4});
  const std::string file = path("o.safetensors");
  const json report =
      run_json({"run", "s = a + a; a * a, s", "--in", "a=" + a, "--out", "s=" + file, "--out",
                "square=" + file + ":a2", "--device", "reference", "--json"});
  EXPECT_EQ(report["outputs"][0]["name"], "square");
  EXPECT_EQ(report["outputs"][1]["name"], "s");
  EXPECT_EQ(floats(file + ":a2"), (std::vector<float>{9, 16}));
  EXPECT_EQ(floats(file + ":s"), (std::vector<float>{6, 8}));
}

TEST_F(Tool, ReportsNaNAndInfinity) {
  const std::string a = write("a.npy", {4}, {1, NAN, INFINITY, -2});
  const json output =
      run_json({"run", "a", "--in", "a=" + a, "--device", "reference", "--json"})["outputs"][0];
  EXPECT_EQ(output["nan"], 1);
  EXPECT_EQ(output["inf"], 1);
  EXPECT_EQ(output["min"], -2);
  EXPECT_EQ(output["max"], 1);
}

// ---- what a user can get wrong

TEST_F(Tool, SaysWhatIsWrongWithTheCommandLine) {
  const std::string x = "x=" + write("x.npy", {2}, {1, 2});
  struct Case {
    std::vector<std::string> arguments;
    std::string_view message;
  };
  const Case cases[] = {
      {{}, "Show devices, compilers"},
      {{"frobnicate"}, "'frobnicate' is no command of kiln"},
      {{"run"}, "kiln run: EXPR is required"},
      {{"run", "-x", "--in", x}, "goes in parentheses: '(-x)'"},
      {{"run", "x", "--in", x, "--frob"}, "--frob"},
      {{"run", "x", "--in", x, "--round", "never"}, "never not in {once,each}"},
      {{"run", "x", "--in", x, "--repeat", "0"}, "--repeat"},
      {{"run", "x", "--in", x, "--device", "tpu"}, "expected auto, cpu, hip, hip:N, cuda"},
      {{"run", "x"}, "the expression reads 'x': give --in x=FILE[:TENSOR] or --scalar x=VALUE"},
      {{"run", "x", "--in", "x"}, "--in x: expected NAME=VALUE"},
      {{"run", "x", "--in", x, "--in", x}, "'x' was given before"},
      {{"run", "x", "--in", x, "--scalar", "x=1"}, "'x' is given by --in and --scalar"},
      {{"run", "x", "--in", x, "--scalar", "s=1"}, "the expression reads no 's'; it reads x"},
      {{"run", "x * s", "--in", x, "--scalar", "s=one"}, "expected a number, True or False"},
      {{"run", "y = x", "--in", x, "--out", "z=z.npy"},
       "there is no output 'z'; the outputs are y"},
      {{"run", "y = x", "--in", x, "--type-out", "y=f33"},
       "'f33' is no dtype; expected one of bool"},
      {{"run", "exq(x)", "--in", x}, "unknown function 'exq'; did you mean 'exp'?"},
      {{"run", "exp(x, x)", "--in", x}, "exp: expected 1 argument, got 2"},
      {{"run", "x * (x + )", "--in", x}, "line 1, column 10: expected a value, found ')'"},
      {{"emit", "x", "--target", "gfx90a"}, "give --type x=DTYPE[SHAPE]"},
      {{"emit", "x", "--type", "x=f32[2"}, "expected ']'"},
      {{"emit", "x", "--type", "x=f32[2,]"}, "expected integers separated by commas"},
      {{"emit", "x", "--type", "x=f32[-2]"}, "expected integers separated by commas"},
      {{"emit", "x", "--type", "x=f32[2,3]@1"}, "1 strides for 2 axes"},
      {{"emit", "x", "--type", "x=f32[2]", "--target", "gfx90a,,cpu"}, "an empty name"},
      {{"compile", "x", "--type", "x=f32[2]"}, "kiln compile: --target is required"},
      {{"cache", "trim"}, "expected at least one of --max-size"},
      {{"cache", "trim", "--max-size", "big"}, "expected a size such as 4096, 512M or 2G"},
      {{"cache", "trim", "--older-than", "5 weeks"},
       "expected a time such as 90s, 10m, 12h or 30d"},
      {{"cache", "ls", "--sort", "taste"}, "taste not in"},
  };
  for (const Case& wrong : cases) expect_error(wrong.arguments, 2, wrong.message);
}

TEST_F(Tool, SaysWhatIsWrongWithShapesAndDtypes) {
  const std::string x = "x=" + write("x.npy", {2}, {1, 2});
  const std::string y = "y=" + write("y.npy", {3}, {1, 2, 3});
  expect_error({"run", "x + y", "--in", x, "--in", y, "--device", "reference"}, 1, "[3]");
  expect_error({"run", "x & 1", "--in", x, "--device", "reference"}, 1,
               "expected integers or bool, got f32");
  expect_error({"run", "x", "--in", x, "--type-out", "out=i32", "--device", "reference"}, 1, "i32");
  expect_error({"run", "x", "--in", x, "--expect", "x=" + path("y.npy"), "--device", "reference"},
               1, "its shape is [3], the output's is [2]");
}

TEST_F(Tool, SaysWhatIsWrongWithFiles) {
  const std::string good = read(write("x.npy", {2}, {1, 2}));
  const auto with = [&](const std::string& file) {
    return std::vector<std::string>{"run", "x", "--in", "x=" + file, "--device", "reference"};
  };
  expect_error(with(path("no.npy")), 1, "No such file or directory");
  expect_error(with(put("short.npy", good.substr(0, good.size() - 3))), 1, "truncated");
  expect_error(with(put("empty.npy", "")), 1, "the file is empty");
  expect_error(with(put("x.txt", good)), 1, "ends in .npy or .safetensors");
  expect_error(with(path("")), 1, "ends in .npy or .safetensors");
  expect_error(with(data_), 1, "tensors; name one as");
  expect_error(with(data_ + ":nothing"), 1, "no tensor 'nothing'");
  expect_error(with(put("lies.safetensors", std::string("\x02\0\0\0\0\0\0\0[]", 10))), 1,
               "the header is not a JSON object");
  expect_error(with(put("huge.safetensors", std::string(8, '\x7f') + "{}")), 1, "a header of");
}

TEST_F(Tool, SaysThatAnOutputCannotBeWrittenBeforeItComputes) {
  const std::string x = "x=" + write("x.npy", {2}, {1, 2});
  const auto to = [&](const std::string& file) {
    return std::vector<std::string>{"run", "y = x", "--in", x, "--out", "y=" + file};
  };
  expect_error(to(path("no/y.npy")), 1, "no/y.npy: No such file or directory");
  expect_error(to(path("y.txt")), 1, "ends in .npy or .safetensors");
  std::filesystem::create_directory(path("d.npy"));
  expect_error(to(path("d.npy")), 1, "a directory");
  std::vector<std::string> bf16 = to(path("y.npy"));
  bf16.insert(bf16.end(), {"--type-out", "y=bf16"});
  expect_error(bf16, 1, ".npy has no type for bf16; write a .safetensors file");
  EXPECT_FALSE(std::filesystem::exists(path("cache"))) << "a kernel was compiled";
}

TEST_F(Tool, WritesAnErrorAsJson) {
  const testing::Finished finished =
      run({"run", "x", "--in", "x=" + path("no.npy"), "--json", "--device", "reference"});
  EXPECT_EQ(finished.code, 1);
  const json report = json::parse(finished.out, nullptr, false);
  EXPECT_EQ(report["error"]["code"], "not_found");
  EXPECT_THAT(report["error"]["message"].get<std::string>(), HasSubstr("no.npy"));

  const testing::Finished usage = run({"run", "--json"});
  EXPECT_EQ(usage.code, 2);
  EXPECT_EQ(json::parse(usage.out, nullptr, false)["error"]["code"], "usage");
}

TEST_F(Tool, FailsWhenStandardOutputIsFull) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full on this system";
  const testing::Finished finished = run({"cache", "path"}, {}, "/dev/full");
  EXPECT_EQ(finished.code, 1);
  EXPECT_THAT(finished.err, HasSubstr("standard output: No space left on device"));
}

TEST_F(Tool, FailsWhenStandardOutputIsFullWhateverItPrints) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full on this system";
  for (const std::vector<std::string>& command : {std::vector<std::string>{"--help"},
                                                  {"--version"},
                                                  {"manual"},
                                                  {"cache", "path", "--json"}}) {
    const testing::Finished finished = run(command, {}, "/dev/full");
    EXPECT_EQ(finished.code, 1) << command[0];
    EXPECT_THAT(finished.err, HasSubstr("standard output: No space left on device")) << command[0];
  }
  // The error itself can still be read, and decides.
  const testing::Finished wrong = run({"run", "--json"}, {}, "/dev/full");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("standard output: No space left on device"));
}

TEST_F(Tool, AnErrorThatCannotBePrintedIsStillAnExitCode) {
  const std::vector<std::string> failing = {"run",      "x",        "--in",
                                            "x=no.npy", "--device", "reference"};
  const std::vector<std::string> wrong = {"run", "-x", "--json"};
  if (std::filesystem::exists("/dev/full")) {
    EXPECT_EQ(run(failing, {}, {}, "/dev/full").code, 1);
    EXPECT_EQ(run(wrong, {}, {}, "/dev/full").code, 2);
    EXPECT_EQ(run({"frobnicate"}, {}, {}, "/dev/full").code, 2);
    EXPECT_EQ(run({"cache", "path"}, {}, "/dev/full", "/dev/full").code, 1);
  }
  EXPECT_EQ(run(failing, {}, {}, {}, {2}).code, 1);
  EXPECT_EQ(run(wrong, {}, {}, {}, {2}).code, 2);
  EXPECT_EQ(run(failing, {}, {}, {}, {0, 1, 2}).code, 1);
  EXPECT_EQ(run({"cache", "path"}, {}, {}, {}, {2}).code, 0);
}

TEST_F(Tool, ClosedDescriptorsStopNothingThatDoesNotNeedThem) {
  KILN_NEED(host);
  const std::string x = "x=" + write("x.npy", {2}, {1, 2});
  for (const std::vector<int>& closed : std::vector<std::vector<int>>{{0}, {2}, {0, 2}}) {
    environment_["KILN_CACHE_DIR"] = path("cache" + std::to_string(closed.front() + closed.size()));
    const testing::Finished finished =
        run({"run", "x + 1", "--in", x, "--out", "r=" + path("r.npy"), "--device", "cpu"}, {}, {},
            {}, closed);
    EXPECT_EQ(finished.code, 0) << finished.err;
    EXPECT_EQ(floats(path("r.npy")), (std::vector<float>{2, 3}));
    std::filesystem::remove(path("r.npy"));
  }
  const testing::Finished closed = run({"cache", "path"}, {}, {}, {}, {1});
  EXPECT_EQ(closed.code, 1);
  EXPECT_THAT(closed.err, HasSubstr("standard output: Bad file descriptor"));
}

TEST_F(Tool, SaysWhatIsWrongWithACompilerThatIsThere) {
  const std::string broken =
      put("broken-c++", "#!/bin/sh\necho cannot find my parts >&2\nexit 3\n");
  std::filesystem::permissions(broken, std::filesystem::perms::owner_all);
  environment_["KILN_CXX"] = broken;
  const std::string x = "x=" + write("x.npy", {2}, {1, 2});
  expect_error({"run", "x + 1", "--in", x, "--device", "cpu"}, 1,
               broken + " --version exited with status 3: cannot find my parts");
}

TEST_F(Tool, SaysThatThereIsNoCompiler) {
  const std::string x = "x=" + write("x.npy", {2}, {1, 2});
  environment_["KILN_CXX"] = "/nonexistent/compiler";
  expect_error({"run", "x + 1", "--in", x, "--device", "cpu"}, 1, "/nonexistent/compiler");
  environment_["KILN_HIPRTC"] = "/nonexistent/libhiprtc.so";
  expect_error({"compile", "x", "--type", "x=f32[4]", "--target", "gfx90a"}, 1,
               "/nonexistent/libhiprtc.so");
}

TEST_F(Tool, SurvivesAnUnknownArchitecture) {
  expect_error({"emit", "x", "--type", "x=f32[4]", "--target", "potato"}, 1, "potato");
  KILN_NEED(hiprtc);
  const testing::Finished finished =
      run({"compile", "x + 1", "--type", "x=f32[4]", "--target", "gfx90a,gfx9999"});
  EXPECT_EQ(finished.code, 1);
  EXPECT_THAT(finished.err, AllOf(HasSubstr("gfx9999"), HasSubstr("does not know this target")));
  EXPECT_THAT(finished.out, AllOf(HasSubstr("gfx90a"), HasSubstr("compiled in")));
}

TEST_F(Tool, TakesVeryLongExpressions) {
  std::string chain = "x";
  for (int i = 0; i < 5000; ++i) chain += fmt::format(" + {} * x", i);
  const std::string x = "x=" + write("x.npy", {2}, {1, 2});
  const json report = json::parse(
      run({"run", "-", "--in", x, "--device", "reference", "--json"}, chain).out, nullptr, false);
  EXPECT_EQ(report["outputs"][0]["max"], 2 * (1 + 4999 * 5000 / 2));
  const testing::Finished emitted =
      run({"emit", "-", "--type", "x=f32[2]", "--target", "gfx90a"}, chain);
  EXPECT_EQ(emitted.code, 0) << emitted.err;

  const std::string name(100'000, 'n');
  expect_error({"run", "-"}, 2, "the expression reads 'nnn", name + " * 2");
  expect_error({"run", "-"}, 2, "more than 1000 brackets are open",
               std::string(100'000, '(') + "x" + std::string(100'000, ')'));
}

// ---- kernels without memory

TEST_F(Tool, EmitsForEveryFamilyWithoutACompiler) {
  environment_["KILN_CXX"] = environment_["KILN_HIPRTC"] = environment_["KILN_NVRTC"] = "/none";
  const std::vector<std::string> command = {"emit",   "silu(g) * u", "--type",  "g=bf16[64]",
                                            "--type", "u=bf16[64]",  "--target"};
  for (const std::string target : {"gfx90a", "gfx1030", "sm_90", "cpu"}) {
    std::vector<std::string> with_target = command;
    with_target.push_back(target);
    const testing::Finished plain = run(with_target);
    EXPECT_EQ(plain.code, 0) << plain.err;
    EXPECT_THAT(plain.out, AllOf(HasSubstr("g * sigmoid(g) * u"), HasSubstr("kiln_elements_")));
    with_target.push_back("--full");
    const testing::Finished full = run(with_target);
    EXPECT_GT(full.out.size(), 2 * plain.out.size());
    EXPECT_THAT(full.out, Not(HasSubstr("#include <")));
  }
}

TEST_F(Tool, CompilesIntoTheCacheAndIntoFiles) {
  KILN_NEED(host);
  const std::vector<std::string> command = {
      "compile", "x * x", "--type", "x=f32[64]", "--target", "cpu", "-o", path("out"), "--json"};
  const json first = run_json(command)[0];
  EXPECT_EQ(first["cache"], "compiled");
  ASSERT_EQ(first["files"].size(), 2u);
  EXPECT_EQ(read(first["files"][0]).substr(0, 4),
            "\x7f"
            "ELF");
  EXPECT_THAT(read(first["files"][1]), HasSubstr(first["entry"].get<std::string>()));
  EXPECT_EQ(run_json(command)[0]["cache"], "disk");
  const json entries = run_json({"cache", "ls", "--json"});
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0]["key"], first["key"]);
}

// The pack itself is tested in tests/src/fallback.
TEST_F(Tool, SaysWhatABasePackTakes) {
  const testing::Finished with_expression =
      run({"compile", "x * x", "--base-pack", "--target", "cpu", "-o", path("base.kilnpack")});
  EXPECT_EQ(with_expression.code, 2);
  EXPECT_THAT(with_expression.err, HasSubstr("compile --base-pack: expected no EXPR"));
  const testing::Finished nowhere = run({"compile", "--base-pack", "--target", "cpu"});
  EXPECT_EQ(nowhere.code, 2);
  EXPECT_THAT(nowhere.err, HasSubstr("expected --output FILE"));
}

TEST_F(Tool, DisassemblesForAmdWithoutAGpu) {
  KILN_NEED(hiprtc);
  const testing::Finished finished =
      run({"isa", "x * x", "--type", "x=f32[4096]", "--target", "gfx90a", "--json"});
  if (finished.code != 0 && finished.out.find("not_found") != std::string::npos) {
    GTEST_SKIP() << finished.err;
  }
  ASSERT_EQ(finished.code, 0) << finished.err;
  const json kernel = json::parse(finished.out)[0];
  EXPECT_THAT(kernel["isa"].get<std::string>(), HasSubstr("s_endpgm"));
  EXPECT_FALSE(kernel["memory_instructions"].empty());
  EXPECT_GT(kernel["resources"]["registers"], 0);
  EXPECT_GT(kernel["resources"]["code_bytes"], 0);
}

TEST_F(Tool, ExplainsAVariant) {
  KILN_NEED(host);
  const json report =
      run_json({"explain", "a + b", "--type", "a=f32[64,32]", "--type", "b=f32[32]", "--json"});
  EXPECT_EQ(report["outputs"][0]["shape"], (std::vector{64, 32}));
  EXPECT_FALSE(report["targets"][0]["variant"].get<std::string>().empty());
  const json& target = report["targets"][0];
  EXPECT_EQ(target["bytes"], 4 * (64 * 32 * 2 + 32));
  EXPECT_EQ(target["layout"]["axes"].size(), 2u);
  EXPECT_THAT(target["layout"]["axes"][0].get<std::string>(), HasSubstr("b repeats along it"));
  EXPECT_EQ(target["layout"]["operands"][1]["bytes"], 4 * 32);
  EXPECT_EQ(target["layout"]["operands"][2]["name"], "out");
  EXPECT_GT(target["layout"]["expected_fraction_of_copy"], 0.5);
  EXPECT_TRUE(target["layout"]["passes"].empty());
  EXPECT_TRUE(target["resources"].contains("code_bytes"));
}

TEST_F(Tool, ExplainsThePassesOverRows) {
  KILN_NEED(host);
  const json report = run_json({"explain", "softmax(x, -1)", "--type", "x=f32[64,4096]", "--json"});
  EXPECT_EQ(report["targets"][0]["layout"]["passes"],
            (std::vector<std::string>{"3: max; sum; stores", "exp kept for later passes"}));
}

TEST_F(Tool, ExplainsWhyAnAccessIsNoWider) {
  KILN_NEED(hiprtc);
  const json report = run_json({"explain", "x + y", "--type", "x=bf16[64,4096]@4100,1", "--type",
                                "y=bf16[64,4096]", "--target", "gfx90a", "--json"});
  const json& target = report["targets"][0];
  EXPECT_EQ(target["layout"]["operands"][0]["reason"],
            "its rows start 8200 bytes apart, which is no multiple of 16");
  EXPECT_GT(target["resources"]["registers"], 0);
  const testing::Finished text = run({"explain", "x + y", "--type", "x=bf16[64,4096]", "--type",
                                      "y=bf16[4096]", "--target", "gfx90a"});
  EXPECT_THAT(text.out, HasSubstr("of a copy expected"));
}

TEST_F(Tool, DrawsABenchmark) {
  KILN_NEED(host);
  const std::string file = path("bench.svg");
  const json report = run_json({"bench", "cast_f32_bf16", "dequant_u4_bf16", "softmax_172_f16",
                                "row_sum", "column_sum_64_bf16", "--size", "1", "--samples", "3",
                                "--device", "cpu", "--plot", file, "--json"});
  ASSERT_EQ(report["cases"].size(), 5u);
  for (const json& item : report["cases"]) EXPECT_TRUE(item["right"]) << item;
  std::ifstream stream(file);
  const std::string svg((std::istreambuf_iterator<char>(stream)), {});
  EXPECT_THAT(svg, AllOf(HasSubstr("<svg xmlns="), HasSubstr(">cast_f32_bf16</text>"),
                         HasSubstr(">dequant_u4_bf16</text>"), HasSubstr("</svg>")));
}

TEST_F(Tool, BenchesProductsOfWeightsWhoseFormatHasItsNanInPlaceOfMinusZero) {
  KILN_NEED(host);
  const json report =
      run_json({"bench", "matvec_f8e4m3fnuz_64", "matvec_f8e5m2fnuz_64", "matvec_f8e4m3_64",
                "--size", "1", "--samples", "2", "--device", "cpu", "--json"});
  ASSERT_EQ(report["cases"].size(), 3u);
  for (const json& item : report["cases"]) EXPECT_TRUE(item["right"]) << item;
}

TEST_F(Tool, GivesEveryOutputTheShapeOfWhatItDependsOn) {
  KILN_NEED(host);
  const std::string x = write("x.npy", {2, 3}, {1, 2, 3, 4, 5, 6});
  const std::string row = write("row.npy", {3}, {10, 20, 30});
  for (const std::string device : {"cpu", "reference"}) {
    const json report =
        run_json({"run", "sum = x + row; twice = row * 2; sum, twice", "--in", "x=" + x, "--in",
                  "row=" + row, "--out", "sum=" + path("sum.npy"), "--out",
                  "twice=" + path("twice.npy"), "--device", device, "--json"});
    EXPECT_EQ(report["outputs"][0]["shape"], (std::vector{2, 3}));
    EXPECT_EQ(report["outputs"][1]["shape"], (std::vector{3}));
    EXPECT_EQ(floats(path("sum.npy")), (std::vector<float>{11, 22, 33, 14, 25, 36}));
    EXPECT_EQ(floats(path("twice.npy")), (std::vector<float>{20, 40, 60}));
  }
  const json kernels = run_json({"emit", "x + row, row * 2", "--type", "x=f32[2,3]", "--type",
                                 "row=f32[3]", "--target", "gfx90a", "--json"});
  EXPECT_EQ(kernels.size(), 2u);
}

TEST_F(Tool, DoctorReportsDevicesCompilersAndTheCache) {
  KILN_NEED(host);
  share_toolchains();
  const json report = run_json({"doctor", "--json"});
  EXPECT_TRUE(report["works"]);
  EXPECT_EQ(report["devices"].back()["device"], "cpu");
  EXPECT_EQ(report["cache"]["directory"], path("cache"));
  EXPECT_TRUE(report["cache"]["healthy"]);
  bool host = false;
  for (const json& toolchain : report["toolchains"]) {
    EXPECT_FALSE(toolchain["path"].get<std::string>().empty());
    if (toolchain["kind"] == "host" && toolchain["used"]) {
      host = true;
      EXPECT_FALSE(toolchain["targets"].empty());
    }
  }
  EXPECT_TRUE(host);
  EXPECT_EQ(run({"doctor"}).code, 0);
}

TEST_F(Tool, DoctorSaysWhatIsMissingAndWhichPackageGivesIt) {
  environment_["KILN_HIPRTC"] = "/nonexistent/libhiprtc.so";
  const testing::Finished finished = run({"doctor"});
  EXPECT_THAT(finished.out, AllOf(HasSubstr("/nonexistent/libhiprtc.so"), HasSubstr("libamdhip64"),
                                  HasSubstr("hip-runtime-amd")));
}

}  // namespace
}  // namespace kiln
