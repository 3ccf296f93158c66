#include "jit/compilers/objdump.hpp"

#include <fmt/format.h>

#include "base/temporary.hpp"
#include "jit/toolchain/environment.hpp"
#include "jit/toolchain/find.hpp"

namespace kiln::jit {
namespace {

constexpr int kNewestLlvm = 25;  // Debian's packages of one release have its number in their names
constexpr int kOldestLlvm = 11;

struct Programs {
  const char* file;                                ///< name that the code is given
  std::vector<std::vector<std::string>> commands;  ///< the preferred first, without the file
  std::vector<std::string> directories;            ///< besides PATH
  const char* missing;
};

void add_versions_of_llvm(std::vector<std::vector<std::string>>& commands) {
  const std::vector<std::string> plain = commands.front();
  for (int version = kNewestLlvm; version >= kOldestLlvm; --version) {
    commands.push_back(plain);
    commands.back().front() += fmt::format("-{}", version);
  }
}

Programs programs_for(const std::string& target) {
  switch (toolchain_for(target)) {
    case ToolchainKind::hiprtc: {
      const std::string cpu = "--mcpu=" + target.substr(0, target.find(':'));
      Programs programs{
          "kernel.hsaco",
          {{"llvm-objdump", "-d", "--no-show-raw-insn", cpu}},
          {"/opt/rocm/llvm/bin"},
          "disassembly of AMD code needs libamd_comgr (Debian, Ubuntu: libamd-comgr2; "
          "AMD's packages: comgr) or llvm-objdump (package llvm)"};
      add_versions_of_llvm(programs.commands);
      return programs;
    }
    case ToolchainKind::nvrtc:
      return {"kernel.cubin",
              {{"nvdisasm"}, {"cuobjdump", "-sass"}},
              {"/usr/local/cuda/bin"},
              "disassembly of a cubin needs nvdisasm or cuobjdump (NVIDIA's packages: "
              "cuda-nvdisasm or cuda-cuobjdump; Debian: nvidia-cuda-toolkit)"};
    case ToolchainKind::host: break;
  }
  return {"kernel.so",
          {{"llvm-objdump", "-d", "--no-show-raw-insn"}, {"objdump", "-d", "--no-show-raw-insn"}},
          {},
          "disassembly of host code needs objdump (package binutils) or llvm-objdump (package "
          "llvm)"};
}

std::optional<std::string> find_in(const std::string& name,
                                   const std::vector<std::string>& directories) {
  if (auto program = find_program(name)) return program;
  for (const std::string& directory : directories) {
    if (auto program = find_program(directory + "/" + name)) return program;
  }
  return std::nullopt;
}

// The directory is of no interest to a reader, and another one each time.
std::string without_directory(std::string text, const std::string& directory) {
  for (std::size_t at = 0; (at = text.find(directory, at)) != text.npos;) {
    text.erase(at, directory.size());
  }
  return text;
}

}  // namespace

std::string disassemble_with_program(const DisassembleTask& task,
                                     const std::vector<std::string>& directories,
                                     std::chrono::milliseconds deadline) {
  Programs programs = programs_for(task.target);
  programs.directories.insert(programs.directories.begin(), directories.begin(), directories.end());
  const base::TemporaryDirectory directory("kiln-isa");
  const std::string file = directory.write(programs.file, task.code);
  for (std::vector<std::string> command : programs.commands) {
    const auto program = find_in(command.front(), programs.directories);
    if (!program) continue;
    command.front() = *program;
    command.push_back(file);
    const base::CommandResult result = run_scrubbed(command, directory.path(), deadline);
    if (result.succeeded()) return without_directory(result.output, directory.path() + "/");
    throw CompilerError(Code::internal, fmt::format("{} {}", *program, result.ending),
                        result.errors);
  }
  throw CompilerError(Code::not_found, programs.missing, "");
}

}  // namespace kiln::jit
