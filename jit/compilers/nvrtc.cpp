// NVRTC 11.2 and newer, straight to a cubin, so that no driver compiles PTX on the user's time.
#include <fmt/format.h>

#include <filesystem>

#include "jit/compilers/objdump.hpp"
#include "jit/compilers/runtime_compiler.hpp"

namespace kiln::jit {
namespace {

class Nvrtc : public RuntimeCompiler {
 public:
  explicit Nvrtc(const std::string& path)
      : RuntimeCompiler(path, load_library(path), {"nvrtc", "CUBIN", ".cu"}) {
    bind(count_targets_, "nvrtcGetNumSupportedArchs");
    bind(list_targets_, "nvrtcGetSupportedArchs");
  }

  std::string disassemble(const DisassembleTask& task) override {
    const std::string bin =
        (std::filesystem::path(path()).parent_path() / "../../../bin").lexically_normal().string();
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
  int (*count_targets_)(int*) = nullptr;
  int (*list_targets_)(int*) = nullptr;
};

}  // namespace

std::unique_ptr<Compiler> open_nvrtc(const std::string& path) {
  return std::make_unique<Nvrtc>(path);
}

}  // namespace kiln::jit
