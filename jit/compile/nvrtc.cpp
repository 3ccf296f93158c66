// NVRTC 11.2 and newer, straight to a cubin, so that no driver compiles PTX on the user's time.
#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "jit/compile/compiler.hpp"
#include "jit/compile/objdump.hpp"
#include "jit/compile/symbols.hpp"

namespace kiln::jit {
namespace {

using nvrtcProgram = void*;

class Nvrtc : public Compiler {
 public:
  explicit Nvrtc(const std::string& path) : path_(path), library_(load_library(path)) {
    bind(create_, "nvrtcCreateProgram");
    bind(compile_, "nvrtcCompileProgram");
    bind(destroy_, "nvrtcDestroyProgram");
    bind(code_size_, "nvrtcGetCUBINSize");
    bind(code_, "nvrtcGetCUBIN");
    bind(log_size_, "nvrtcGetProgramLogSize");
    bind(log_, "nvrtcGetProgramLog");
    bind(error_, "nvrtcGetErrorString");
    bind(count_targets_, "nvrtcGetNumSupportedArchs");
    bind(list_targets_, "nvrtcGetSupportedArchs");
  }

  CompileOutput compile(const CompileTask& task) override {
    const auto start = std::chrono::steady_clock::now();
    nvrtcProgram program = nullptr;
    const std::string file = task.entry + ".cu";
    check(create_(&program, task.source.c_str(), file.c_str(), 0, nullptr, nullptr),
          "nvrtcCreateProgram", "");
    const std::unique_ptr<void, Destroy> owner(program, Destroy{this});

    std::vector<const char*> options;
    for (const std::string& option : task.options) options.push_back(option.c_str());
    const int result = compile_(program, static_cast<int>(options.size()), options.data());
    CompileOutput output;
    output.log = log(program);
    check(result, "nvrtcCompileProgram", output.log);

    std::size_t size = 0;
    check(code_size_(program, &size), "nvrtcGetCUBINSize", output.log);
    output.code.resize(size);
    check(code_(program, output.code.data()), "nvrtcGetCUBIN", output.log);
    output.milliseconds =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    return output;
  }

  std::string disassemble(const DisassembleTask& task) override {
    const std::string bin =
        (std::filesystem::path(path_).parent_path() / "../../../bin").lexically_normal().string();
    return disassemble_with_program(task, {bin});
  }

  std::string listed_targets() override {
    int count = 0;
    check(count_targets_(&count), "nvrtcGetNumSupportedArchs", "");
    std::vector<int> numbers(static_cast<std::size_t>(count));
    check(list_targets_(numbers.data()), "nvrtcGetSupportedArchs", "");
    std::string text;
    for (const int number : numbers) text += fmt::format("sm_{}\n", number);
    return text;
  }

 private:
  struct Destroy {
    const Nvrtc* self;
    void operator()(nvrtcProgram program) const { self->destroy_(&program); }
  };

  template <class F>
  void bind(F*& function, const char* name) {
    function = find_symbol<F>(library_, name, path_);
  }

  std::string log(nvrtcProgram program) const {
    std::size_t size = 0;
    if (log_size_(program, &size) != 0 || size == 0) return {};
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
  int (*create_)(nvrtcProgram*, const char*, const char*, int, const char* const*,
                 const char* const*) = nullptr;
  int (*compile_)(nvrtcProgram, int, const char* const*) = nullptr;
  int (*destroy_)(nvrtcProgram*) = nullptr;
  int (*code_size_)(nvrtcProgram, std::size_t*) = nullptr;
  int (*code_)(nvrtcProgram, char*) = nullptr;
  int (*log_size_)(nvrtcProgram, std::size_t*) = nullptr;
  int (*log_)(nvrtcProgram, char*) = nullptr;
  const char* (*error_)(int) = nullptr;
  int (*count_targets_)(int*) = nullptr;
  int (*list_targets_)(int*) = nullptr;
};

}  // namespace

std::unique_ptr<Compiler> open_nvrtc(const std::string& path) {
  return std::make_unique<Nvrtc>(path);
}

}  // namespace kiln::jit
