// Who a host compiler is: every program, library and file of it that decides what it writes is part
// of its identity, by contents, and nothing else is.
#include "jit/toolchain/host_identity.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

#include "base/temporary.hpp"
#include "jit/service/compile.hpp"
#include "jit/toolchain/file_identity.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

namespace fs = std::filesystem;

using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

// A driver that answers as GNU's and LLVM's do, about the programs and libraries beside it.
constexpr const char* kDriver = R"(#!/bin/sh
here=${0%/*}
case "$*" in
  --version) cat "$here/version";;
  -print-prog-name=ld) echo "$here/ld";;
  -###*)
    exec >&2
    echo "Reading specs from $here/specs"
    echo " \"$here/cc1plus\" \"-quiet\" \"a \\\"quoted\\\" word\""
    echo " $here/as --64"
    echo " $here/collect2 -plugin \"$here/plugin.so\" -L$here/lib -L $here/more -lgcc"
    ;;
esac 
)";

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
    put(tree_ / "c++", kDriver);
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
      fs::path(GetParam()) == "c++" ? std::string(kDriver) + "# patched\n" : "compiler 1.3\n");
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
