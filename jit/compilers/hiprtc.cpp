// hiprtc, of any release from 5.2 to 7, through the few C functions that have not changed since.
// Called in a worker: it serialises compiles, and aborts on targets that it does not know.
#include "jit/compilers/comgr.hpp"
#include "jit/compilers/objdump.hpp"
#include "jit/compilers/offload_bundle.hpp"
#include "jit/compilers/runtime_compiler.hpp"
#include "jit/toolchain/find.hpp"

namespace kiln::jit {
namespace {

// Loading comgr by its path first makes sure that hiprtc uses the one in the toolchain's identity.
base::DynamicLibrary load_with_comgr(const std::string& path) {
  if (const auto comgr = find_comgr(path)) load_library(*comgr);
  return load_library(path);
}

class Hiprtc : public RuntimeCompiler {
 public:
  explicit Hiprtc(const std::string& path)
      : RuntimeCompiler(path, load_with_comgr(path), {"hiprtc", "Code", ".hip"}) {}

  CompileOutput compile(const CompileTask& task) override {
    CompileOutput output = RuntimeCompiler::compile(task);
    output.code = unbundle(std::move(output.code), task.target);
    return output;
  }

  std::string disassemble(const DisassembleTask& task) override {
    const auto comgr = find_comgr(path());
    if (!comgr) return disassemble_with_program(task);
    return disassemble_with_comgr(*comgr, task);
  }
};

}  // namespace

std::unique_ptr<Compiler> open_hiprtc(const std::string& path) {
  return std::make_unique<Hiprtc>(path);
}

}  // namespace kiln::jit
