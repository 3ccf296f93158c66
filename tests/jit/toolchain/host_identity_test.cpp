// Who a host compiler is: every program, library and file of it that decides what it writes is part
// of its identity, by contents, and nothing else is.
#include "jit/toolchain/host_identity.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/retry_pause.hpp"
#include "base/temporary.hpp"
#include "base/text.hpp"
#include "jit/service/compile.hpp"
#include "jit/toolchain/file_identity.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

namespace fs = std::filesystem;

using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

// What a driver of GNU's says that it would run.
constexpr const char* kCommands = R"(
    echo " \"$here/cc1plus\" \"-quiet\" \"a \\\"quoted\\\" word\" /dev/null -o /tmp/a.s"
    echo " $here/as --64 -o /tmp/a.o /tmp/a.s"
    echo " $here/collect2 -plugin \"$here/plugin.so\" -o $out -L$here/lib -L $here/more /tmp/a.o -lgcc"
)";

// A driver that answers as GNU's and LLVM's do, about the programs and libraries beside it.
std::string driver(const std::string& commands) {
  return R"(#!/bin/sh
here=${0%/*}
case "$*" in
  --version) cat "$here/version";;
  -print-prog-name=ld) echo "$here/ld";;
  -###*)
    while [ "$1" != -o ]; do shift; done
    out=$2
    exec >&2
    echo "Reading specs from $here/specs"
    )" + commands +
         R"(
    ;;
esac
)";
}

void put(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::FILE* file = std::fopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr) << path;
  std::fwrite(text.data(), 1, text.size(), file);
  std::fclose(file);
  chmod(path.c_str(), 0700);
}

class HostIdentity : public ::testing::Test {
 protected:
  HostIdentity() : directory_("kiln-test"), tree_(directory_.path() + "/one") {
    put(tree_ / "c++", driver(kCommands));
    put(tree_ / "version", "compiler 1.2\nCopyright\n");
    for (const char* part : {"cc1plus", "as", "ld", "collect2", "plugin.so", "specs",
                             "lib/libgcc.a", "lib/libm.so", "more/libc.so"}) {
      put(tree_ / part, std::string("the first ") + part);
    }
  }
  static std::string identity(const fs::path& tree) {
    try {
      return identify_host_compiler((tree / "c++").string()).identity;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::not_found) << error.what();
      return "no answer";
    }
  }

  base::TemporaryDirectory directory_;
  fs::path tree_;
};

class EveryPart : public HostIdentity, public ::testing::WithParamInterface<const char*> {};

TEST_P(EveryPart, OfTheCompilerDecides) {
  const std::string before = identity(tree_);
  EXPECT_THAT(before, StartsWith("host compiler 1.2 "));
  put(tree_ / GetParam(),
      fs::path(GetParam()) == "c++" ? driver(kCommands) + "# patched\n" : "compiler 1.3\n");
  EXPECT_THAT(identity(tree_), StartsWith("host compiler 1."));
  EXPECT_NE(identity(tree_), before);
}

INSTANTIATE_TEST_SUITE_P(All, EveryPart,
                         ::testing::Values("c++", "version", "cc1plus", "as", "ld", "collect2",
                                           "plugin.so", "specs", "lib/libgcc.a", "lib/libm.so",
                                           "more/libc.so"));

TEST_F(HostIdentity, IsTheSameWhereverAndWheneverTheCompilerWasInstalled) {
  const fs::path other = directory_.path() + "/another/place";
  fs::create_directories(other.parent_path());
  fs::copy(tree_, other, fs::copy_options::recursive);
  EXPECT_EQ(identity(other), identity(tree_));
}

TEST_F(HostIdentity, CoversTheLibrariesThatALinkerScriptNames) {
  const std::string library = (tree_ / "lib/libm.so.6").string();
  put(library, "the first libm");
  put(tree_ / "lib/libm.so", "/* a script */\nGROUP ( " + library + " AS_NEEDED (/no/such.so) )\n");
  const std::string before = identity(tree_);
  put(library, "the second libm");
  EXPECT_NE(identity(tree_), before);
}

TEST_F(HostIdentity, CoversTheSharedLibrariesBehindAProgram) {
  std::string compiler;
  try {
    compiler = toolchain(ToolchainKind::host).path;
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  const auto build = [&](const std::string& arguments) {
    return std::system(("cd '" + tree_.string() + "' && " + compiler + " " + arguments).c_str());
  };
  const auto build_library = [&](const char* value) {
    put(tree_ / "part.cpp", std::string("int part() { return ") + value + "; }\n");
    return build("-shared -fPIC -o libpart.so part.cpp");
  };
  put(tree_ / "main.cpp", "int part(); int main() { return part(); }\n");
  ASSERT_EQ(build_library("1"), 0);
  ASSERT_EQ(build("-o cc1plus main.cpp -L. -lpart '-Wl,-rpath,$ORIGIN'"), 0);
  const std::string program = file_identity((tree_ / "cc1plus").string());
  const std::string before = identity(tree_);
  EXPECT_THAT(before, StartsWith("host "));
  ASSERT_EQ(build_library("2"), 0);
  EXPECT_EQ(file_identity((tree_ / "cc1plus").string()), program);
  EXPECT_NE(identity(tree_), before);
  fs::remove(tree_ / "libpart.so");
  EXPECT_EQ(identity(tree_), "") << "the loader does not find one of them";
  put(tree_ / "main.cpp", "int main() {}\n");
  ASSERT_EQ(build("-o cc1plus main.cpp \"-Wl,--dynamic-linker,$PWD/loader\""), 0);
  const std::string library = (tree_ / "specs").string();
  put(tree_ / "loader", "#!/bin/sh\necho '\tlibpart.so => " + library + " (0x1)'; exit 1\n");
  EXPECT_EQ(identity(tree_), "") << "the loader fails";
  put(tree_ / "loader", "#!/bin/sh\n");
  EXPECT_EQ(identity(tree_), "") << "the loader lists nothing";
  put(tree_ / "loader", "#!/bin/sh\necho '\tlibpart.so => " + library + " (0x1)'\n");
  EXPECT_THAT(identity(tree_), StartsWith("host "));
}

TEST_F(HostIdentity, IsNoneWhereAPartCannotBeFound) {
  fs::remove(tree_ / "as");
  EXPECT_EQ(identity(tree_), "");
  put(tree_ / "as", "the first as");
  EXPECT_THAT(identity(tree_), Not(IsEmpty()));
  put(tree_ / "c++", "#!/bin/sh\necho a compiler that explains nothing\n");
  EXPECT_EQ(identity(tree_), "");
  put(tree_ / "c++", "#!/bin/sh\nexit 1\n");
  EXPECT_EQ(identity(tree_), "no answer");
}

TEST_F(HostIdentity, IsNoneWhereTheCompilerNamesOnlyPartOfWhatItRuns) {
  const std::vector<std::string> lines = base::split(kCommands, '\n');
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].empty()) continue;
    std::string without;
    for (std::size_t j = 0; j < lines.size(); ++j) without += j == i ? "\n" : lines[j] + "\n";
    put(tree_ / "c++", driver(without));
    EXPECT_EQ(identity(tree_), "") << "without" << lines[i];
  }
  std::string broken_off = kCommands;
  broken_off.replace(broken_off.find(" -L $here/more"), std::string::npos, "\"");
  put(tree_ / "c++", driver(broken_off));
  EXPECT_EQ(identity(tree_), "");
}

TEST_F(HostIdentity, IsThatOfACompilerThatAssemblesItselfOrThroughAPipe) {
  const std::string link = "\necho \" $here/ld -o $out -L$here/lib -L$here/more /tmp/a.o -lgcc\"\n";
  put(tree_ / "c++", driver(R"(echo " $here/cc1plus -cc1 -o /tmp/a.o -x c++ /dev/null")" + link));
  EXPECT_THAT(identity(tree_), StartsWith("host "));
  const std::string piped = R"(echo " $here/cc1plus /dev/null -o - |")";
  put(tree_ / "c++", driver(piped + "\necho \" $here/as -o /tmp/a.o\"" + link));
  EXPECT_THAT(identity(tree_), StartsWith("host "));
  put(tree_ / "c++", driver(piped + link));
  EXPECT_EQ(identity(tree_), "") << "without the assembler";
}

// In a process of its own, as it is remembered there.
TEST_F(HostIdentity, OfThisProcessIsAskedForAgainWhereItWasNotFoundOut) {
  const auto run = [&] {
    const fs::path asked = tree_ / "asked";
    const std::string fails_at_first = "echo >> $here/asked; [ -e $here/ready ] || exit 1";
    put(tree_ / "c++", driver(fails_at_first + kCommands));
    setenv("KILN_CXX", (tree_ / "c++").c_str(), 1);
    const auto known = [] { return !toolchain(ToolchainKind::host).identity.empty(); };
    if (known() || known() || known()) return 1;
    if (fs::file_size(asked) != 1) return 2;  // once, for a second
    put(tree_ / "ready", "yes");
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    while (!known() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    if (!known()) return 3;
    return fs::file_size(asked) == 2 ? 0 : 4;
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const int status = run();
        fs::remove_all(directory_.path());
        _exit(status);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(RetryPause, LastsASecondOrTenTimesAsLongAsTheFailureTook) {
  using std::chrono::milliseconds;
  base::RetryPause pause;
  const base::RetryPause::Clock::time_point began{};
  EXPECT_TRUE(pause.is_over(began));
  const auto ends_after = [&](milliseconds took, milliseconds expected) {
    pause.start(began, began + took);
    EXPECT_FALSE(pause.is_over(began + took + expected - milliseconds(1)));
    EXPECT_TRUE(pause.is_over(began + took + expected));
  };
  ends_after(milliseconds(30), milliseconds(1000));
  ends_after(milliseconds(2000), milliseconds(20'000));
}

TEST_F(HostIdentity, HasEvidenceThatChangesWithEveryPart) {
  const auto found = identify_host_compiler((tree_ / "c++").string());
  for (const char* part : {"c++", "cc1plus", "as", "ld", "collect2", "plugin.so", "specs",
                           "lib/libgcc.a", "lib", "more", "."}) {
    const std::string path = (tree_ / part).lexically_normal().string();
    const auto one =
        found.evidence.find(path.back() == '/' ? path.substr(0, path.size() - 1) : path);
    ASSERT_NE(one, found.evidence.end()) << path;
    EXPECT_EQ(one->second, file_stamp(path));
  }
}

TEST(FileIdentity, IsTheBuildIdOfOneThatHasItAndElseTheContents) {
  const base::TemporaryDirectory directory("kiln-test");
  const std::string a = directory.write("a", "text");
  const std::string b = directory.write("b", "text");
  const std::string c = directory.write("c", "another text");
  EXPECT_EQ(file_identity(a).size(), 32U);
  EXPECT_EQ(file_identity(a), file_identity(b));
  EXPECT_NE(file_identity(a), file_identity(c));
  EXPECT_EQ(file_identity(directory.path() + "/none"), "");
  EXPECT_EQ(identity_of_all({a, c}), identity_of_all({c, a}));
  EXPECT_NE(identity_of_all({a, c}), identity_of_all({a}));
  EXPECT_EQ(identity_of_all({a, directory.path() + "/none"}), "");
}

}  // namespace
}  // namespace kiln::jit
