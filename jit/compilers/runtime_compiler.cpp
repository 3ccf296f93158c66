#include "jit/compilers/runtime_compiler.hpp"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

namespace kiln::jit {

RuntimeCompiler::RuntimeCompiler(std::string path, base::DynamicLibrary library, Names names)
    : path_(std::move(path)), library_(std::move(library)), names_(std::move(names)) {
  bind(create_, name("CreateProgram"));
  bind(compile_, name("CompileProgram"));
  bind(destroy_, name("DestroyProgram"));
  bind(code_size_, name("Get" + names_.code + "Size"));
  bind(code_, name("Get" + names_.code));
  bind(log_size_, name("GetProgramLogSize"));
  bind(log_, name("GetProgramLog"));
  bind(error_, name("GetErrorString"));
}

CompileOutput RuntimeCompiler::compile(const CompileTask& task) {
  // An empty source kills some releases.
  if (task.source.empty()) throw CompilerError(Code::invalid_argument, "the source is empty", "");
  const auto start = std::chrono::steady_clock::now();
  void* program = nullptr;
  const std::string file = task.entry + names_.extension;
  check(create_(&program, task.source.c_str(), file.c_str(), 0, nullptr, nullptr),
        name("CreateProgram"), "");
  const std::unique_ptr<void, Destroy> owner(program, Destroy{this});

  std::vector<const char*> options;
  for (const std::string& option : task.options) options.push_back(option.c_str());
  const int result = compile_(program, static_cast<int>(options.size()), options.data());
  CompileOutput output;
  output.log = log(program);
  check(result, name("CompileProgram"), output.log);

  std::size_t size = 0;
  check(code_size_(program, &size), name("Get" + names_.code + "Size"), output.log);
  output.code.resize(size);
  check(code_(program, output.code.data()), name("Get" + names_.code), output.log);
  output.milliseconds =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return output;
}

std::string RuntimeCompiler::log(void* program) const {
  std::size_t size = 0;
  if (log_size_(program, &size) != 0 || size == 0) return {};
  // One more, since some releases forget the terminator.
  std::string text(size + 1, '\0');
  if (log_(program, text.data()) != 0) return {};
  text.resize(text.find('\0'));
  return text;
}

void RuntimeCompiler::check(int result, const std::string& function, const std::string& log) const {
  if (result == 0) return;
  throw CompilerError(Code::compile_failed, fmt::format("{}: {}", function, error_(result)), log);
}

}  // namespace kiln::jit
