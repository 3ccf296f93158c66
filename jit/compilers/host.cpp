// The host compiler, clang++ or g++, as a device compiler: source in, shared object out.
#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "base/temporary.hpp"
#include "jit/compilers/compiler.hpp"
#include "jit/compilers/objdump.hpp"
#include "jit/toolchain/environment.hpp"
#include "jit/toolchain/host_features.hpp"

namespace kiln::jit {
namespace {

class HostCompiler : public Compiler {
 public:
  explicit HostCompiler(const std::string& path) : path_(path) {}

  CompileOutput compile(const CompileTask& task) override {
    const auto start = std::chrono::steady_clock::now();
    const base::TemporaryDirectory directory("kiln-host");
    const std::string source = directory.write("kernel.cpp", task.source);
    const std::string object = directory.path() + "/kernel.so";
    std::vector<std::string> command = {path_};
    command.insert(command.end(), task.options.begin(), task.options.end());
    command.insert(command.end(), {"-o", object, source});
    const auto& link = host_link_options();
    command.insert(command.end(), link.begin(), link.end());
    const base::CommandResult result = run_scrubbed(command, directory.path());
    // The temporary file's name means nothing to the reader of the log.
    std::string log = replace_all(result.errors, source, task.entry + ".cpp");
    if (!result.succeeded()) {
      throw CompilerError(Code::compile_failed, fmt::format("{} {}", path_, result.ending), log);
    }
    CompileOutput output;
    output.code = base::read_whole_file(object);
    output.log = std::move(log);
    output.milliseconds =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    return output;
  }

  std::string disassemble(const DisassembleTask& task) override {
    return disassemble_with_program(task);
  }

 private:
  static std::string replace_all(std::string text, std::string_view from, std::string_view to) {
    for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
      text.replace(at, from.size(), to);
    }
    return text;
  }

  std::string path_;
};

}  // namespace

std::unique_ptr<Compiler> open_host_compiler(const std::string& path) {
  return std::make_unique<HostCompiler>(path);
}

}  // namespace kiln::jit
