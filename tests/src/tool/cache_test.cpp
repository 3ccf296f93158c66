// `kiln cache` from outside, on a cache that the tool itself has filled.
#include "kiln/cache.hpp"

#include <gmock/gmock.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "cache/entry.hpp"
#include "files/tensor_file.hpp"
#include "tests/src/tool/tool_process.hpp"
#include "tests/support/redis_server.hpp"
#include "tests/support/toolchains.hpp"

namespace kiln {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ToolCache : public testing::ToolTest {
 protected:
  void SetUp() override {
    ToolTest::SetUp();
    KILN_NEED(host);
    first_ = fill("first", "x * x");
    second_ = fill("second", "x + 1");
  }

  std::string fill(const std::string& name, const std::string& expression) {
    return run_json({"compile", expression, "--name", name, "--type", "x=f32[64]", "--target",
                     "cpu", "--json"})[0]["key"];
  }

  json run_json(const std::vector<std::string>& arguments, int code = 0) {
    const testing::Finished finished = run(arguments);
    EXPECT_EQ(finished.code, code) << finished.err;
    return json::parse(finished.out, nullptr, false);
  }

  std::string entry_file(const std::string& key) const {
    return path("cache/" + key.substr(0, 2) + "/" + key + ".kiln");
  }

  std::string first_;
  std::string second_;
};

// Of what kiln hashes into a key nothing is left out, and what differs is said in words.
TEST_F(ToolCache, KeysHoldEveryIngredientAlsoOfTheEnvironment) {
  const auto tags = [&](const std::string& key) {
    std::set<std::string> all;
    const json entry = run_json({"cache", "show", key, "--json"});
    for (const json& one : entry["ingredients"]) all.insert(one["tag"].get<std::string>());
    return all;
  };
  EXPECT_THAT(tags(first_),
              ::testing::IsSupersetOf({"preamble", "source", "option", "target", "toolchain"}));
  ::setenv("CPATH", "/nowhere", 1);
  const std::string other = fill("first", "x * x");
  ::unsetenv("CPATH");
  EXPECT_NE(other, first_);
  EXPECT_THAT(tags(other), ::testing::Contains("env.CPATH"));
  EXPECT_THAT(run({"cache", "explain", first_, other}).out, HasSubstr("env.CPATH"));
  EXPECT_EQ(fill("first", "x * x"), first_);
}

// A compiler's driver is a small part of it: GNU's takes the assembler that PATH leads to.
TEST_F(ToolCache, AnotherAssemblerOnPathIsAnotherKey) {
  if (std::system("g++ --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "no g++ on PATH";
  if (std::system("test \"$(g++ -print-prog-name=as)\" = as") != 0) {
    GTEST_SKIP() << "this g++ takes its assembler from a fixed place";
  }
  environment_["KILN_CXX"] = "g++";
  const std::string before = fill("assembled", "x * 5");
  std::filesystem::create_directory(path("bin"));
  const std::string programs = std::getenv("PATH");
  put("bin/as", "#!/bin/sh\nPATH=" + programs + "\nexec as \"$@\"\n");
  std::filesystem::permissions(path("bin/as"), std::filesystem::perms::owner_all);
  environment_["PATH"] = path("bin") + ":" + programs;
  const std::string other = fill("assembled", "x * 5");
  EXPECT_NE(other, before);
  EXPECT_THAT(run({"cache", "explain", before, other}).out, HasSubstr("toolchain"));
  environment_.erase("PATH");
  EXPECT_EQ(fill("assembled", "x * 5"), before);
}

TEST_F(ToolCache, ListsAndShowsEntries) {
  EXPECT_EQ(run({"cache", "path"}).out, path("cache") + "\n");
  const json all = run_json({"cache", "ls", "--json", "--sort", "function"});
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["function"], "first");
  EXPECT_EQ(all[0]["key"], first_);
  EXPECT_EQ(all[0]["expression"], "x * x");
  EXPECT_EQ(run_json({"cache", "ls", "--json", "--function", "second"})[0]["key"], second_);
  EXPECT_EQ(run_json({"cache", "ls", "--json", "--limit", "1"}).size(), 1u);
  EXPECT_EQ(run_json({"cache", "ls", "--json", "--target", "gfx90a"}).size(), 0u);
  const testing::Finished text = run({"cache", "ls"});
  EXPECT_THAT(text.out, AllOf(HasSubstr("KEY"), HasSubstr("first"), HasSubstr("x + 1"),
                              Not(HasSubstr("\x1b"))));
  EXPECT_EQ(run_json({"cache", "show", first_.substr(0, 10), "--json"})["key"], first_);
  EXPECT_THAT(run({"cache", "show", first_}).out, HasSubstr("x * x"));
}

TEST_F(ToolCache, SaysWhichKeyIsWrong) {
  const testing::Finished unknown = run({"cache", "show", "ffffffffffffffffffffffffffffffff"});
  EXPECT_EQ(unknown.code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("ffffffff"));
  const testing::Finished text = run({"cache", "show", "xyz"});
  EXPECT_EQ(text.code, 1);
  EXPECT_THAT(text.err, HasSubstr("hex digits"));
}

TEST_F(ToolCache, ExtractsEveryPart) {
  EXPECT_THAT(
      run({"cache", "extract", first_}).out,
      AllOf(HasSubstr("// first: x * x"), HasSubstr("kiln_elements_"), HasSubstr("in0_x_data")));
  EXPECT_EQ(run({"cache", "extract", first_, "--what", "code", "-o", path("code.so")}).code, 0);
  EXPECT_EQ(read(path("code.so")).substr(0, 4),
            "\x7f"
            "ELF");
  EXPECT_EQ(run({"cache", "extract", first_, "--what", "code"}).out, read(path("code.so")));
  const json meta = json::parse(run({"cache", "extract", first_, "--what", "meta"}).out);
  EXPECT_EQ(meta["function"], "first");
  EXPECT_FALSE(meta["ingredients"].empty());
  EXPECT_EQ(run({"cache", "extract", first_, "-o", path("no/file")}).code, 1);
}

TEST_F(ToolCache, ExplainsWhyTwoEntriesAreTwo) {
  const json report = run_json({"cache", "explain", first_, second_, "--json"});
  ASSERT_EQ(report["differences"].size(), 1u);
  EXPECT_EQ(report["differences"][0]["tag"], "source");
  EXPECT_THAT(run({"cache", "explain", first_, first_}).out, HasSubstr("the same ingredients"));
}

TEST_F(ToolCache, VerifiesRepairsAndRecompiles) {
  json report = run_json({"cache", "verify", "--recompile", "--json"});
  EXPECT_EQ(report["entries"], 2);
  EXPECT_EQ(report["problems"].size(), 0u);
  EXPECT_EQ(report["recompiled"]["same"], 2);

  std::string bytes = read(entry_file(first_));
  ASSERT_FALSE(bytes.empty());
  bytes[bytes.size() / 2] ^= 1;
  std::ofstream(entry_file(first_), std::ios::binary) << bytes;
  report = run_json({"cache", "verify", "--json"}, 1);
  ASSERT_EQ(report["problems"].size(), 1u);
  EXPECT_EQ(report["problems"][0]["path"], entry_file(first_));
  run_json({"cache", "verify", "--repair", "--json"});
  EXPECT_EQ(run_json({"cache", "ls", "--json"}).size(), 1u);
  EXPECT_EQ(run_json({"cache", "stats", "--json"})["in_quarantine"], 1);
}

TEST_F(ToolCache, TrimsAndClears) {
  json report = run_json({"cache", "trim", "--function", "first", "--dry-run", "--json"});
  EXPECT_EQ(report["removed"], 1);
  EXPECT_EQ(run_json({"cache", "ls", "--json"}).size(), 2u);
  run_json({"cache", "trim", "--function", "first", "--json"});
  EXPECT_EQ(run_json({"cache", "ls", "--json"})[0]["key"], second_);
  run_json({"cache", "trim", "--older-than", "1d", "--json"});
  EXPECT_EQ(run_json({"cache", "ls", "--json"}).size(), 1u);
  run_json({"cache", "trim", "--max-size", "1", "--json"});
  EXPECT_EQ(run_json({"cache", "ls", "--json"}).size(), 0u);
  fill("third", "x - 1");
  EXPECT_EQ(run_json({"cache", "clear", "--json"})["removed"], 1);
  EXPECT_EQ(run_json({"cache", "ls", "--json"}).size(), 0u);
}

TEST_F(ToolCache, MovesEntriesToAnotherCache) {
  const json exported = run_json({"cache", "export", path("bundle"), "--json"});
  EXPECT_EQ(exported["entries"], 2);
  environment_["KILN_CACHE_DIR"] = path("other");
  EXPECT_EQ(run_json({"cache", "import", path("bundle"), "--json"})["entries"], 2);
  EXPECT_EQ(run_json({"cache", "ls", "--json"}).size(), 2u);
  EXPECT_EQ(run_json({"cache", "import", path("bundle"), "--json"})["present"], 2);
  std::string bytes = read(path("bundle"));
  bytes[bytes.size() / 2] ^= 1;
  put("bad", bytes);
  EXPECT_EQ(run({"cache", "import", path("bad")}).code, 1);
  EXPECT_EQ(run({"cache", "import", path("absent")}).code, 1);
}

TEST_F(ToolCache, ServesAMachineWithoutACompiler) {
  std::vector<float> values(64, 3);
  const files::TensorData tensor{"x", DType::f32, {64}, {}, values.data()};
  files::write_tensors(path("x.npy"), {&tensor, 1});
  const std::vector<std::string> call = {
      "run",      "x * x + 9", "--in",  "x=" + path("x.npy"), "--out", "out=" + path("y.npy"),
      "--device", "cpu",       "--json"};
  const std::string key = run_json(call)["key"];
  run_json({"cache", "export", path("bundle"), "--key", key, "--json"});
  environment_["KILN_CACHE_DIR"] = path("other");
  environment_["KILN_CXX"] = "/nowhere";
  testing::Finished finished = run(call);
  EXPECT_EQ(finished.code, 1) << "nothing was given to it yet";
  // As a layer, and imported.
  environment_["KILN_CACHE_READONLY_DIRS"] = path("bundle");
  EXPECT_EQ(run_json(call)["key"], key);
  environment_.erase("KILN_CACHE_READONLY_DIRS");
  environment_["KILN_CACHE_DIR"] = path("third");
  EXPECT_EQ(run_json({"cache", "import", path("bundle"), "--json"})["entries"], 1);
  const json report = run_json(call);
  EXPECT_EQ(report["key"], key);
  EXPECT_EQ(report["cache"], "disk");
  const files::HostTensor result = files::read_tensor(path("y.npy"));
  ASSERT_EQ(result.bytes.size(), 256u);
  float first = 0;
  std::memcpy(&first, result.data(), sizeof first);
  EXPECT_EQ(first, 18);
  // Another kernel is not there.
  finished = run({"run", "x * x - 9", "--in", "x=" + path("x.npy"), "--out", "out=" + path("z.npy"),
                  "--device", "cpu"});
  EXPECT_EQ(finished.code, 1);
  EXPECT_THAT(finished.err, HasSubstr("/nowhere"));
}

TEST_F(ToolCache, CountsAndZeroesStatistics) {
  json stats = run_json({"cache", "stats", "--json"});
  EXPECT_EQ(stats["entries"], 2);
  EXPECT_EQ(stats["compiled"], 2);
  run_json({"cache", "stats", "--zero", "--json"});
  EXPECT_EQ(run_json({"cache", "stats", "--json"})["compiled"], 0);
}

TEST_F(ToolCache, DisassemblesWithoutTheCompilerOfTheCode) {
  KILN_NEED(hiprtc);
  const std::string key = run_json(
      {"compile", "x * x", "--type", "x=f32[64]", "--target", "gfx906", "--json"})[0]["key"];
  environment_["KILN_HIPRTC"] = "/nowhere";
  const testing::Finished isa = run({"cache", "extract", key, "--what", "isa"});
  if (isa.code != 0) {
    EXPECT_THAT(isa.err, AllOf(HasSubstr("package"), HasSubstr("llvm-objdump")));
  } else {
    EXPECT_THAT(isa.out, HasSubstr("v_mul_f32"));
  }
}

TEST_F(ToolCache, SaysWhatIsNoCommand) {
  testing::Finished finished = run({"cache", "frob", "--json"});
  EXPECT_EQ(finished.code, 2);
  EXPECT_THAT(finished.err, HasSubstr("'frob' is no command of kiln cache"));
  EXPECT_EQ(json::parse(finished.out)["error"]["code"], "usage");
  finished = run({"cache"});
  EXPECT_EQ(finished.code, 2);
  EXPECT_THAT(finished.err,
              AllOf(HasSubstr("kiln cache [OPTIONS] SUBCOMMAND"), HasSubstr("verify")));
  EXPECT_EQ(run({"cache", "ls", "--limit", "-1"}).code, 2);
}

TEST_F(ToolCache, SignsWhatItExportsAndRefusesWhatIsNotSigned) {
  run_json({"cache", "export", path("plain"), "--json"});
  environment_["KILN_CACHE_SECRET"] = "0123456789abcdef0123456789abcdef";
  EXPECT_EQ(run_json({"cache", "export", path("signed"), "--json"})["signature"], "good");
  environment_["KILN_CACHE_DIR"] = path("other");
  const testing::Finished refused = run({"cache", "import", path("plain")});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("is not signed, and KILN_CACHE_SECRET is set"));
  EXPECT_THAT(run({"cache", "import", path("signed")}).out, HasSubstr("2 entries"));
  environment_["KILN_CACHE_SECRET"] = "another";
  EXPECT_EQ(run({"cache", "import", path("signed")}).code, 1);
  environment_.erase("KILN_CACHE_SECRET");
  EXPECT_THAT(run({"cache", "import", path("signed")}).out, HasSubstr("signed, not checked"));
}

// Two machines, that is directories, and a server between them.
TEST_F(ToolCache, LoadsFromTheServerWhatAnotherMachineCompiled) {
  if (testing::redis_program().empty()) {
    GTEST_SKIP() << "neither valkey-server nor redis-server is installed";
  }
  const testing::RedisServer server({"--requirepass", "hunter2"});
  environment_["KILN_REMOTE_CACHE"] = "redis+unix://:hunter2@" + server.socket() + "?wait=20s";
  environment_["KILN_CACHE_DIR"] = path("maker");
  const std::vector<std::string> call = {"compile",  "x * x - 3", "--type", "x=f32[64]",
                                         "--target", "cpu",       "--json"};
  const testing::Finished refused = run(call);
  EXPECT_EQ(refused.code, 0);
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("KILN_REMOTE_CACHE: not used"), Not(HasSubstr("hunter2"))));
  if (refused.err.find("without hiredis") != std::string::npos) GTEST_SKIP() << refused.err;
  environment_["KILN_CACHE_SECRET"] = "0123456789abcdef0123456789abcdef";
  environment_["KILN_CACHE_DIR"] = path("second");
  EXPECT_EQ(run_json(call)[0]["cache"], "compiled");
  environment_["KILN_CACHE_DIR"] = path("user");
  EXPECT_EQ(run_json(call)[0]["cache"], "remote");
  EXPECT_EQ(run_json(call)[0]["cache"], "disk");
  EXPECT_EQ(run_json({"cache", "stats", "--json"})["remote_hits"], 1);
  // A machine without a compiler.
  environment_["KILN_CACHE_DIR"] = path("without");
  environment_["KILN_CXX"] = "/nowhere";
  EXPECT_EQ(run_json(call)[0]["cache"], "remote");
  EXPECT_EQ(run_json(call)[0]["cache"], "disk");
  EXPECT_EQ(run_json({"cache", "verify", "--json"})["problems"].size(), 0u);
  // Whole caches.
  environment_["KILN_CACHE_DIR"] = path("cache");
  EXPECT_EQ(run_json({"cache", "push", "--json"})["entries"], 2);
  environment_["KILN_CACHE_DIR"] = path("pulled");
  EXPECT_EQ(run_json({"cache", "pull", "--json"})["entries"], 3);
  EXPECT_THAT(run({"cache", "pull"}).out, HasSubstr("3 were already there"));
  EXPECT_EQ(run({"cache", "pull", "--key", "12"}).code, 2);
  // What a manifest needs, by its keys and, without a compiler, by its sources.
  std::ofstream(path("two.jsonl"))
      << R"({"name": "fused", "expression": "x * x - 3", "types": {"x": "f32[64]"}}
{"name": "fused", "expression": "x * x - 4", "types": {"x": "f32[64]"}}
)";
  const std::vector<std::string> pull = {"cache",    "pull", "--manifest", path("two.jsonl"),
                                         "--target", "cpu",  "--json"};
  for (const char* compiler : {"/nowhere", ""}) {
    environment_["KILN_CXX"] = compiler;
    environment_["KILN_CACHE_DIR"] = path(compiler[0] == '\0' ? "listed" : "found");
    const json pulled = json::parse(run(pull).out);
    EXPECT_EQ(pulled["entries"], 1) << compiler;
    // The second line's kernel is not there; without a compiler not even its key is known.
    EXPECT_EQ(pulled["problems"].size(), compiler[0] == '\0' ? 1u : 0u);
  }
  EXPECT_EQ(run({"cache", "pull", "--manifest", path("two.jsonl")}).code, 2);
  environment_["KILN_CACHE_DIR"] = path("prepared");
  const json prepared = run_json(
      {"compile", "--manifest", path("two.jsonl"), "--target", "cpu", "--json"})["results"];
  EXPECT_EQ(prepared[0]["cache"], "remote");
  EXPECT_EQ(prepared[1]["cache"], "compiled");
  const json stats = run_json({"cache", "stats", "--remote", "--json"});
  EXPECT_EQ(stats["entries"], 4);
  EXPECT_EQ(stats["compiling"], 0);
  EXPECT_GT(stats["memory_bytes"], 4096);
  EXPECT_THAT(run({"cache", "stats", "--remote"}).out,
              AllOf(HasSubstr("being compiled  0"), Not(HasSubstr("hunter2"))));
  EXPECT_EQ(run({"cache", "stats", "--remote", "--zero"}).code, 2);
  // Without compilers, whose targets it would try one by one.
  for (const char* compiler : {"KILN_HIPRTC", "KILN_NVRTC", "KILN_CXX"}) {
    environment_[compiler] = "/nowhere";
  }
  const json health = json::parse(run({"doctor", "--json"}).out)["remote"];
  EXPECT_TRUE(health["healthy"]);
  EXPECT_GT(health["latency_ms"], 0);
  EXPECT_EQ(health["server"], "redis+unix://" + server.socket() + "?db=0");
  environment_.erase("KILN_CACHE_SECRET");
  EXPECT_THAT(run({"doctor"}).out,
              AllOf(HasSubstr("needs KILN_CACHE_SECRET"), Not(HasSubstr("hunter2"))));
  environment_.erase("KILN_REMOTE_CACHE");
  EXPECT_THAT(run({"cache", "push"}).err, HasSubstr("set KILN_REMOTE_CACHE"));
}

TEST_F(ToolCache, SaysThatADirectoryCannotBeUsed) {
  environment_["KILN_CACHE_DIR"] = put("file", "of the user");
  for (const char* command : {"ls", "stats", "verify", "clear"}) {
    const testing::Finished finished = run({"cache", command});
    EXPECT_EQ(finished.code, 1) << command;
    EXPECT_EQ(finished.err, "kiln: cache: " + path("file") + ": Not a directory\n") << command;
  }
}

TEST_F(ToolCache, SaysWhichSubDirectoryItCannotLookInto) {
  const std::filesystem::path shard = std::filesystem::path(entry_file(first_)).parent_path();
  ASSERT_NE(first_.substr(0, 2), second_.substr(0, 2));
  std::filesystem::permissions(
      shard, std::filesystem::perms::owner_all | std::filesystem::perms::group_all);
  const auto fails = [&](const std::vector<std::string>& arguments) {
    const testing::Finished finished = run(arguments);
    EXPECT_EQ(finished.code, 1) << arguments[1] << ": " << finished.out;
    EXPECT_THAT(finished.out + finished.err,
                AllOf(HasSubstr(shard.string()), HasSubstr("may be written by others")));
    return finished.out;
  };
  EXPECT_THAT(fails({"cache", "ls"}), HasSubstr("second"));
  EXPECT_EQ(json::parse(fails({"cache", "ls", "--json"})).size(), 1u);
  EXPECT_THAT(fails({"cache", "stats"}), HasSubstr("entries"));
  EXPECT_THAT(fails({"cache", "verify", "--repair"}), Not(HasSubstr("repaired")));
  EXPECT_THAT(fails({"cache", "export", path("bundle")}), HasSubstr("exported 1 entry"));
  const testing::Finished alone = run({"cache", "export", path("alone"), "--key", second_});
  EXPECT_EQ(alone.code, 0) << alone.out << alone.err;
  const std::string verified = fails({"cache", "verify", "--recompile"});
  EXPECT_EQ(verified.find(shard.string()), verified.rfind(shard.string())) << verified;
  fails({"cache", "show", first_});
  fails({"cache", "trim", "--older-than", "1d"});
  fails({"cache", "clear"});
  std::filesystem::permissions(shard, std::filesystem::perms::owner_all);
  EXPECT_THAT(run({"cache", "clear"}).out, HasSubstr("removed 1 entry"));
}

TEST_F(ToolCache, SaysThatThereIsNone) {
  environment_["KILN_CACHE"] = "off";
  const testing::Finished finished = run({"cache", "ls"});
  EXPECT_EQ(finished.code, 1);
  EXPECT_THAT(finished.err, AllOf(HasSubstr("no cache on disk"), HasSubstr("KILN_CACHE")));
}

TEST_F(ToolCache, ShowsMetadataOfOthersWithoutItsControlCharacters) {
  const auto cache = cache::open(path("cache"));
  const cache::Key key = *cache::Key::parse(first_);
  cache::Entry entry = cache::read(*cache, key);
  entry.metadata.function = "f\x1b[31mred";
  entry.metadata.toolchain = "gcc\x1b]0;title\x07";
  entry.metadata.options = {"-O2\r\x1b[2K"};
  std::ofstream(entry_file(first_), std::ios::binary) << cache::encode(key, entry);
  for (const std::vector<std::string>& command : {std::vector<std::string>{"cache", "show", first_},
                                                  {"cache", "ls"},
                                                  {"cache", "ls", "--json"},
                                                  {"cache", "explain", first_, second_}}) {
    const testing::Finished finished = run(command);
    EXPECT_EQ(finished.code, 0) << finished.err;
    for (const char c : finished.out) ASSERT_TRUE(c == '\n' || c >= 0x20) << finished.out;
  }
  EXPECT_THAT(run({"cache", "show", first_}).out, HasSubstr("gcc\\u001b]0;title\\u0007"));
}

TEST_F(ToolCache, ListsTheSameEntriesInEveryOrder) {
  const auto keys = [&](const std::string& sort) {
    std::vector<std::string> result;
    for (const json& entry : run_json({"cache", "ls", "--sort", sort, "--json"})) {
      result.push_back(entry["key"]);
    }
    return result;
  };
  EXPECT_EQ(keys("function"), (std::vector{first_, second_}));
  for (const std::string sort : {"created", "size", "compile", "used"}) {
    EXPECT_THAT(keys(sort), ::testing::UnorderedElementsAre(first_, second_)) << sort;
  }
  EXPECT_EQ(run_json({"cache", "ls", "--limit", "1", "--json"}).size(), 1u);
}

}  // namespace
}  // namespace kiln
