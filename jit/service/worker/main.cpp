// kiln-compile-worker: runs one compiler for a parent process, or one compile by hand. Users do not
// call it; KILN_DUMP writes commands that do.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "base/temporary.hpp"
#include "jit/compilers/compiler.hpp"
#include "jit/service/worker/serve.hpp"

namespace {

using namespace kiln::jit;

constexpr std::string_view kUsage =
    "usage: kiln-compile-worker --compile KIND COMPILER ENTRY TARGET SOURCE OUTPUT -- OPTION...\n"
    "  compiles SOURCE with hiprtc, nvrtc or the host compiler (KIND) at COMPILER, as kiln does\n";

// Nothing can be done about a standard error that takes nothing.
void print_error(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

bool parse_kind(std::string_view text, ToolchainKind& kind) {
  for (const ToolchainKind each :
       {ToolchainKind::hiprtc, ToolchainKind::nvrtc, ToolchainKind::host}) {
    if (name(each) != text) continue;
    kind = each;
    return true;
  }
  return false;
}

int compile_by_hand(int count, char** arguments, ToolchainKind kind) {
  CompileTask task;
  task.entry = arguments[4];
  task.target = arguments[5];
  task.source = kiln::base::read_whole_file(arguments[6]);
  task.options.assign(arguments + 9, arguments + count);
  try {
    const CompileOutput output = open_compiler(kind, arguments[3])->compile(task);
    std::ofstream file(arguments[7], std::ios::binary);
    file << output.code;
    file.close();
    print_error(fmt::format("{}{}: {} bytes, {:.1f} ms\n", output.log, arguments[7],
                            output.code.size(), output.milliseconds));
    return file ? 0 : 1;
  } catch (const CompilerError& error) {
    print_error(fmt::format("{}{}\n", error.log(), error.what()));
    return 1;
  }
}

}  // namespace

int main(int count, char** arguments) {
  const std::string_view mode = count > 2 ? arguments[1] : "";
  ToolchainKind kind = ToolchainKind::host;
  const bool known = count > 2 && parse_kind(arguments[2], kind);
  try {
    if (mode == "--serve" && count == 5 && known) {
      serve({kind, arguments[3], std::strtoull(arguments[4], nullptr, 10)});
    }
    if (mode == "--compile" && count >= 9 && known && std::string_view(arguments[8]) == "--") {
      return compile_by_hand(count, arguments, kind);
    }
  } catch (const std::exception& error) {
    print_error(fmt::format("kiln-compile-worker: {}\n", error.what()));
    return 1;
  }
  print_error(kUsage);
  return 2;
}
