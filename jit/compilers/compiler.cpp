// See compiler.hpp.
#include "jit/compilers/compiler.hpp"

#include <fmt/format.h>

#include <new>

namespace kiln::jit {
namespace {

CompileOutput perform(Compiler& compiler, const Message& request) {
  switch (request.type) {
    case MessageType::compile: return compiler.compile(decode_compile_task(request.body));
    case MessageType::disassemble:
      return {compiler.disassemble(decode_disassemble_task(request.body)), "", 0};
    case MessageType::targets: return {compiler.listed_targets(), "", 0};
    default: break;
  }
  throw Error(Code::internal,
              fmt::format("compile protocol: {} is not a request", static_cast<int>(request.type)));
}

}  // namespace

std::unique_ptr<Compiler> open_compiler(ToolchainKind kind, const std::string& path) {
  switch (kind) {
    case ToolchainKind::hiprtc: return open_hiprtc(path);
    case ToolchainKind::nvrtc: return open_nvrtc(path);
    case ToolchainKind::host: break;
  }
  return open_host_compiler(path);
}

Message answer_request(Compiler& compiler, const Message& request) {
  Failure failure;
  try {
    return {MessageType::done, request.id, encode(perform(compiler, request))};
  } catch (const CompilerError& error) {
    failure = {error.code(), error.what(), error.log()};
  } catch (const Error& error) {
    failure = {error.code(), error.what(), ""};
  } catch (const std::bad_alloc&) {
    failure = {Code::io, "out of memory (KILN_COMPILE_MEMORY sets a worker's limit)", ""};
  } catch (const std::exception& error) {
    failure = {Code::internal, error.what(), ""};
  }
  return {MessageType::failed, request.id, encode(failure)};
}

}  // namespace kiln::jit
