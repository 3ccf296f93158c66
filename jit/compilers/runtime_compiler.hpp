// The C interface that hiprtc and NVRTC share but for the names: a program from text, its code and
// its log. Called in a worker, on libraries that are found and loaded at run time.
#pragma once

#include <cstddef>
#include <string>

#include "jit/compilers/compiler.hpp"
#include "jit/compilers/symbols.hpp"

namespace kiln::jit {

class RuntimeCompiler : public Compiler {
 public:
  /// How one of the two names what both have.
  struct Names {
    std::string prefix;     ///< of every function
    std::string code;       ///< what "Get" and "Get...Size" give
    std::string extension;  ///< of the source's file in diagnostics
  };

  /// `library` has been loaded from `path`. Throws Error(not_found) that names a function it lacks.
  RuntimeCompiler(std::string path, base::DynamicLibrary library, Names names);

  /// Throws CompilerError(compile_failed) with the function that failed and the compiler's log.
  CompileOutput compile(const CompileTask& task) override;

 protected:
  /// Of a function that is found by its whole name.
  template <class F>
  void bind(F*& function, const std::string& name) {
    function = find_symbol<F>(library_, name.c_str(), path_);
  }
  void check(int result, const std::string& function, const std::string& log) const;
  const std::string& path() const { return path_; }

 private:
  struct Destroy {
    const RuntimeCompiler* self;
    void operator()(void* program) const { self->destroy_(&program); }
  };
  std::string name(const std::string& function) const { return names_.prefix + function; }
  std::string log(void* program) const;

  std::string path_;
  base::DynamicLibrary library_;
  Names names_;
  int (*create_)(void**, const char*, const char*, int, const char* const*,
                 const char* const*) = nullptr;
  int (*compile_)(void*, int, const char* const*) = nullptr;
  int (*destroy_)(void**) = nullptr;
  int (*code_size_)(void*, std::size_t*) = nullptr;
  int (*code_)(void*, char*) = nullptr;
  int (*log_size_)(void*, std::size_t*) = nullptr;
  int (*log_)(void*, char*) = nullptr;
  const char* (*error_)(int) = nullptr;
};

}  // namespace kiln::jit
