// hiprtc, of any release from 5.2 to 7, through the few C functions that have not changed since.
// Called in a worker: it serialises compiles, and aborts on targets that it does not know.
#include <fmt/format.h>

#include <array>
#include <chrono>

#include "jit/compile/comgr.hpp"
#include "jit/compile/compiler.hpp"
#include "jit/compile/find.hpp"
#include "jit/compile/objdump.hpp"
#include "jit/compile/offload_bundle.hpp"
#include "jit/compile/symbols.hpp"

namespace kiln::jit {
namespace {

using hiprtcProgram = void*;

class Hiprtc : public Compiler {
 public:
  explicit Hiprtc(const std::string& path) : path_(path) {
    // Loading comgr by its path first makes sure that hiprtc uses the one in the toolchain's
    // identity.
    if (const auto comgr = find_comgr(path)) load_library(*comgr);
    library_ = load_library(path);
    bind(create_, "hiprtcCreateProgram");
    bind(compile_, "hiprtcCompileProgram");
    bind(destroy_, "hiprtcDestroyProgram");
    bind(code_size_, "hiprtcGetCodeSize");
    bind(code_, "hiprtcGetCode");
    bind(log_size_, "hiprtcGetProgramLogSize");
    bind(log_, "hiprtcGetProgramLog");
    bind(error_, "hiprtcGetErrorString");
  }

  CompileOutput compile(const CompileTask& task) override {
    // An empty source kills some releases.
    if (task.source.empty()) throw CompilerError(Code::invalid_argument, "the source is empty", "");
    const auto start = std::chrono::steady_clock::now();
    hiprtcProgram program = nullptr;
    const std::string file = task.entry + ".hip";
    check(create_(&program, task.source.c_str(), file.c_str(), 0, nullptr, nullptr),
          "hiprtcCreateProgram", "");
    const std::unique_ptr<void, Destroy> owner(program, Destroy{this});

    std::vector<const char*> options;
    for (const std::string& option : task.options) options.push_back(option.c_str());
    const int result = compile_(program, static_cast<int>(options.size()), options.data());
    CompileOutput output;
    output.log = log(program);
    check(result, "hiprtcCompileProgram", output.log);

    std::size_t size = 0;
    check(code_size_(program, &size), "hiprtcGetCodeSize", output.log);
    std::string code(size, '\0');
    check(code_(program, code.data()), "hiprtcGetCode", output.log);
    output.code = unbundle(std::move(code), task.target);
    output.milliseconds =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    return output;
  }

  std::string disassemble(const DisassembleTask& task) override {
    const auto comgr = find_comgr(path_);
    if (!comgr) return disassemble_with_program(task);
    return disassemble_with_comgr(*comgr, task);
  }

 private:
  struct Destroy {
    const Hiprtc* self;
    void operator()(hiprtcProgram program) const { self->destroy_(&program); }
  };

  template <class F>
  void bind(F*& function, const char* name) {
    function = find_symbol<F>(library_, name, path_);
  }

  std::string log(hiprtcProgram program) const {
    std::size_t size = 0;
    if (log_size_(program, &size) != 0 || size == 0) return {};
    // One more, since some releases forget the terminator.
    std::string text(size + 1, '\0');
    if (log_(program, text.data()) != 0) return {};
    text.resize(text.find('\0'));
    return text;
  }

  void check(int result, const char* function, const std::string& log) const {
    if (result == 0) return;
    throw CompilerError(Code::compile_failed, fmt::format("{}: {}", function, error_(result)), log);
  }

  std::string path_;
  void* library_ = nullptr;
  int (*create_)(hiprtcProgram*, const char*, const char*, int, const char**,
                 const char**) = nullptr;
  int (*compile_)(hiprtcProgram, int, const char**) = nullptr;
  int (*destroy_)(hiprtcProgram*) = nullptr;
  int (*code_size_)(hiprtcProgram, std::size_t*) = nullptr;
  int (*code_)(hiprtcProgram, char*) = nullptr;
  int (*log_size_)(hiprtcProgram, std::size_t*) = nullptr;
  int (*log_)(hiprtcProgram, char*) = nullptr;
  const char* (*error_)(int) = nullptr;
};

}  // namespace

std::unique_ptr<Compiler> open_hiprtc(const std::string& path) {
  return std::make_unique<Hiprtc>(path);
}

}  // namespace kiln::jit
