// Which module may include which: the order of the modules, read off their sources. Includes go
// down only, so that a module can be read, built and tested without those above it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {
namespace {

namespace fs = std::filesystem;

// The modules and their parts from the ground up; a file may include what stands in its own line or
// in one before. "src" itself is no part: its headers are included from there.
const std::vector<std::vector<std::string>> kOrder = {
    {"src/kiln", "src/base"},
    {"preamble"},
    {"fusion/graph"},
    {"fusion/text"},
    {"fusion/infer"},
    {"fusion/reference"},
    {"fusion/passes"},
    {"fusion/partition"},
    {"fusion/schedule"},
    {"fusion/emit"},
    {"cache"},
    {"jit/toolchain"},
    {"jit/compilers"},
    {"jit/service", "jit/device"},
    {"src/core"},
    {"src/files"},
    {"src/trace"},
    {"src/kernel"},
    {"src/fallback"},
    {"src/call"},
    {"src/graph"},
    {"src/program"},
    {"src/ahead"},
    {"src/c"},
    {"src/python"},
    {"src/numerics"},
    {"src/tool"},
};

// What a module does without, although it comes before, but for these files.
struct Apart {
  std::string module;
  std::string other;
  std::vector<std::string> allowed = {};
};
const std::vector<Apart> kApart = {
    {"src/kiln", "src/base"},
    {"fusion", "src/base"},
    {"fusion", "preamble"},
    {"cache", "fusion"},
    {"src/python", "src/base"},
    {"src/python", "src/core"},
    {"src/python", "fusion"},
    {"src/python", "cache"},
    {"src/python", "jit"},
    {"cache", "preamble"},
    {"jit", "fusion"},
    {"jit", "preamble"},
    {"jit/toolchain", "cache", {"cache/config.hpp", "cache/trust.hpp"}},
    {"jit/compilers", "cache"},
    {"jit/service", "cache"},
    {"jit/device", "cache"},
    {"jit/service", "jit/device"},
    {"jit/device", "jit/service"},
    {"jit/device", "jit/compilers"},
};

bool is_in(const std::string& path, const std::string& directory) {
  return path.starts_with(directory + "/");
}

// The place of a file in the order; -1 for one that is in none.
int level_of(const std::string& path) {
  for (std::size_t level = 0; level < kOrder.size(); ++level) {
    const auto in = [&](const std::string& part) { return is_in(path, part); };
    if (std::ranges::any_of(kOrder[level], in)) return static_cast<int>(level);
  }
  return -1;
}

// What is wrong with `file` including `included`, both from the top of the sources; or nothing.
std::string fault_of(const std::string& file, const std::string& included) {
  const int own = level_of(file);
  const int other = level_of(included);
  if (own < 0) return file + " is in no module that this test knows";
  if (other < 0) return file + " includes " + included + ", which is in no module";
  if (other > own) return file + " includes " + included + ", which stands above it";
  for (const Apart& apart : kApart) {
    if (is_in(file, apart.module) && is_in(included, apart.other) &&
        std::ranges::find(apart.allowed, included) == apart.allowed.end()) {
      return file + " includes " + included + ", but " + apart.module + " does without " +
             apart.other;
    }
  }
  return {};
}

// The paths that a source includes in quotes, from the top of the sources.
std::vector<std::string> includes_of(const std::string& text, const fs::path& top) {
  std::vector<std::string> found;
  const std::regex line("(?:^|\n)[ \t]*#[ \t]*include[ \t]*\"([^\"]+)\"");
  for (std::sregex_iterator at(text.begin(), text.end(), line), end; at != end; ++at) {
    const std::string path = (*at)[1];
    found.push_back(fs::exists(top / path) ? path : "src/" + path);
  }
  return found;
}

constexpr std::string_view kExtensions[] = {".cpp", ".hpp", ".inl", ".h"};

void for_each_source(const fs::path& top,
                     const std::function<void(const std::string&, const std::string&)>& visit) {
  for (const char* module : {"fusion", "cache", "jit", "src"}) {
    for (const auto& entry : fs::recursive_directory_iterator(top / module)) {
      const std::string extension = entry.path().extension();
      if (std::ranges::find(kExtensions, extension) == std::end(kExtensions)) continue;
      std::stringstream text;
      text << std::ifstream(entry.path()).rdbuf();
      visit(fs::relative(entry.path(), top).string(), text.str());
    }
  }
}

TEST(Includes, GoDownOnly) {
  const fs::path top = KILN_SOURCE_DIR;
  std::size_t files = 0;
  std::size_t includes = 0;
  for_each_source(top, [&](const std::string& file, const std::string& text) {
    ++files;
    for (const std::string& included : includes_of(text, top)) {
      ++includes;
      const std::string fault = fault_of(file, included);
      EXPECT_EQ(fault, "");
    }
  });
  EXPECT_GT(files, 200U);
  EXPECT_GT(includes, 600U);
}

TEST(Includes, ThatGoUpAreFound) {
  EXPECT_NE(fault_of("fusion/graph/graph.cpp", "fusion/text/text.hpp"), "");
  EXPECT_NE(fault_of("fusion/emit/emit.cpp", "cache/cache.hpp"), "");
  EXPECT_NE(fault_of("cache/cache.cpp", "fusion/graph/graph.hpp"), "");
  EXPECT_NE(fault_of("src/kernel/kernel_table.cpp", "src/call/plan.hpp"), "");
  EXPECT_NE(fault_of("src/base/elf.cpp", "jit/toolchain/find.hpp"), "");
  EXPECT_NE(fault_of("src/new_module/file.cpp", "src/kiln/error.hpp"), "");
  EXPECT_NE(fault_of("src/kiln/view.hpp", "src/base/io.hpp"), "");
  EXPECT_NE(fault_of("fusion/text/parser.cpp", "src/base/text.hpp"), "");
  EXPECT_NE(fault_of("fusion/emit/emit.cpp", "preamble/preamble.hpp"), "");
  EXPECT_NE(fault_of("jit/compilers/compiler.cpp", "preamble/preamble.hpp"), "");
  EXPECT_NE(fault_of("jit/toolchain/settings.cpp", "cache/cache.hpp"), "");
  EXPECT_NE(fault_of("jit/service/service.cpp", "cache/config.hpp"), "");
  EXPECT_NE(fault_of("jit/service/service.cpp", "jit/device/backend.hpp"), "");
  EXPECT_NE(fault_of("jit/device/backend.cpp", "jit/service/service.hpp"), "");
  EXPECT_NE(fault_of("jit/device/hip/cuda/hip/hip_runtime_api.h", "jit/compilers/symbols.hpp"), "");
  EXPECT_EQ(fault_of("jit/toolchain/settings.cpp", "cache/config.hpp"), "");
  EXPECT_EQ(fault_of("jit/device/backend.cpp", "jit/toolchain/settings.hpp"), "");
  EXPECT_EQ(fault_of("fusion/graph/graph.cpp", "src/kiln/error.hpp"), "");
  EXPECT_EQ(fault_of("src/kernel/kernel_table.cpp", "jit/device/backend.hpp"), "");
  EXPECT_EQ(fault_of("fusion/emit/emit.cpp", "fusion/schedule/layout.hpp"), "");
}

}  // namespace
}  // namespace kiln
