// The compile service: source and target in, code object out. The compilers run in worker processes
// (kiln-compile-worker), because hiprtc serialises compiles and aborts its process on a target that
// it does not know.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jit/compilers/resources.hpp"  // IWYU pragma: export
#include "jit/toolchain/toolchain.hpp"  // IWYU pragma: export
#include "kiln/error.hpp"

namespace kiln::jit {

struct CompileRequest {
  std::string function;  ///< for messages: kiln's function
  std::string entry;     ///< module and kernel name
  std::string source;    ///< complete, with the preamble
  std::string target;    ///< "gfx90a:sramecc+:xnack-", "sm_90", "cpu" or a CPU feature set
  std::vector<std::string> options;
  bool background = false;  ///< overtaken by requests that somebody waits for
  std::string
      toolchain;  ///< the path of one of toolchains(); empty: the first of the target's kind
  std::string expression;  ///< for messages; may be empty
};

struct CompileResult {
  std::string code;         ///< an ELF image: AMD code object, cubin or shared object
  std::string log;          ///< of the compiler, warnings included
  double milliseconds = 0;  ///< in the compiler
};

/// An Error(compile_failed) that is the compiler's verdict on the source, which it would give
/// again. Any other error of a compile may be gone when it is asked for again.
class CompileRefused : public Error {
 public:
  explicit CompileRefused(const std::string& message) : Error(Code::compile_failed, message) {}
};

/// A compile that was asked for; copies share it. Dropping a handle does not stop it.
class CompileHandle {
 public:
  CompileHandle() = default;
  bool valid() const { return state_ != nullptr; }
  /// True when get() will not wait.
  bool ready() const;
  void wait() const;
  /// Waits; gives the result or throws what compile() documents.
  CompileResult get() const;
  /// Somebody waits for it now: it overtakes what is in the background.
  void raise_priority();
  /// Takes back the request: the compile is stopped, or never started, and get() throws
  /// Error(compile_failed).
  void cancel();

 private:
  friend class Service;
  struct State;
  std::shared_ptr<State> state_;
};

/// Asks for a compile and returns at once. Throws only Error(invalid_argument) for a request that
/// makes no sense and Error(not_found) for a toolchain or worker that is not there.
CompileHandle compile_async(CompileRequest request);

/// Compiles in a worker and waits. Throws Error(compile_failed) with the function's name, the
/// module's name, the target and the last lines of the compiler's log; Error(unsupported) for a
/// target that the toolchain does not know, which is found out once.
CompileResult compile(const CompileRequest& request);

/// How many compiles run at a time (KILN_COMPILE_JOBS).
int compile_jobs();

/// How long one compile may take (KILN_COMPILE_TIMEOUT).
std::chrono::milliseconds compile_deadline();

/// The targets of a list of well-known ones that the toolchain can compile, found by trying in a
/// worker and remembered with the toolchain's identity.
std::vector<std::string> known_targets(ToolchainKind kind);

/// Disassembles with comgr in a worker, llvm-objdump or objdump, or nvdisasm/cuobjdump, also where
/// the compiler of `target` is not. Throws Error(not_found) that names the package that would
/// provide it.
std::string disassemble(std::string_view code, std::string_view target);

}  // namespace kiln::jit
