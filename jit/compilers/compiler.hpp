// A compiler that has been loaded into this process. Three kinds implement it: hiprtc.cpp and
// nvrtc.cpp, which share runtime_compiler.cpp, and host.cpp. Normally "this process" is a worker;
// it is the caller's own with KILN_COMPILE=inprocess.
#pragma once

#include <memory>
#include <string>

#include "jit/compilers/protocol.hpp"
#include "jit/toolchain/toolchain.hpp"

namespace kiln::jit {

/// What a Compiler throws. The compiler's log is apart from the message, because only the parent
/// has the source that its lines refer to.
class CompilerError : public Error {
 public:
  CompilerError(Code code, const std::string& message, std::string log)
      : Error(code, message), log_(std::move(log)) {}
  const std::string& log() const noexcept { return log_; }

 private:
  std::string log_;
};

class Compiler {
 public:
  virtual ~Compiler() = default;
  /// Throws CompilerError.
  virtual CompileOutput compile(const CompileTask& task) = 0;
  /// Throws CompilerError.
  virtual std::string disassemble(const DisassembleTask& task) = 0;
  /// The targets that the compiler itself lists, one a line; empty if it has no such list.
  virtual std::string listed_targets() { return {}; }
};

/// Loads the compiler at `path`, as find_compilers() gives it. Throws Error(not_found) with the
/// loader's reason.
std::unique_ptr<Compiler> open_compiler(ToolchainKind kind, const std::string& path);

/// The answer, `done` or `failed` with the request's id, to a request of the protocol. Throws only
/// what is no std::exception.
Message answer_request(Compiler& compiler, const Message& request);

std::unique_ptr<Compiler> open_hiprtc(const std::string& path);
std::unique_ptr<Compiler> open_nvrtc(const std::string& path);
std::unique_ptr<Compiler> open_host_compiler(const std::string& path);

}  // namespace kiln::jit
