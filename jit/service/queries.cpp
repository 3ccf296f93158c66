// What the service is asked besides compiles: known targets and disassembly.
#include <fmt/format.h>

#include "base/text.hpp"
#include "jit/compilers/objdump.hpp"
#include "jit/service/diagnostics.hpp"
#include "jit/service/outcome.hpp"
#include "jit/service/service.hpp"
#include "jit/toolchain/toolchain.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {

namespace {

Error ending_error() { return Error(Code::compile_failed, "the compile service is ending"); }

}  // namespace

std::string Service::run_job(const Toolchain& toolchain, MessageType type,
                             const std::string& body) {
  Exchange answer;
  const auto ask = [&](int cancel) {
    answer = exchange(toolchain, type, body, cancel);
    return CompileResult{};
  };
  post(ask, ending_error(), false).outcome.get().get();
  const char* what = type == MessageType::disassemble ? "disassemble" : "known_targets";
  if (answer.end != Exchange::End::replied) {
    throw Error(Code::compile_failed,
                fmt::format("{} with {}: the compile worker {}\n{}", what, toolchain.version,
                            answer.what, base::last_lines(answer.output, 60)));
  }
  if (answer.reply.type == MessageType::failed) {
    const Failure failure = decode_failure(answer.reply.body);
    throw Error(failure.code, fmt::format("{} with {}: {}\n{}", what, toolchain.version,
                                          failure.message, base::last_lines(failure.log, 60)));
  }
  return decode_compile_output(answer.reply.body).code;
}

std::string Service::disassemble(std::string_view code, std::string_view target) {
  const DisassembleTask task{std::string(code), std::string(target)};
  std::optional<Toolchain> made_by;
  try {
    made_by = toolchain(toolchain_for(target));
  } catch (const Error& error) {  // the compiler need not be where its code is looked at
    if (error.code() != Code::not_found) throw;
  }
  if (!made_by) return disassemble_with_program(task, {}, settings_.deadline);
  return run_job(*made_by, MessageType::disassemble, encode(task));
}

std::vector<std::string> Service::known_targets(const Toolchain& toolchain) {
  std::vector<std::string> candidates = well_known_amd_targets();
  if (toolchain.kind == ToolchainKind::host) return {host_target()};
  if (toolchain.kind == ToolchainKind::nvrtc) {
    candidates.clear();
    std::string text = run_job(toolchain, MessageType::targets, {});
    for (std::size_t end = 0; (end = text.find('\n')) != std::string::npos;
         text.erase(0, end + 1)) {
      candidates.push_back(text.substr(0, end));
    }
    return candidates;
  }
  std::vector<Posted> probes;
  for (const std::string& candidate : candidates) {
    if (targets_.lookup(toolchain, candidate)) continue;
    const auto try_it = [&](int cancel) {
      target_is_unknown(toolchain, candidate, cancel);
      return CompileResult{};
    };
    probes.push_back(post(try_it, ending_error(), false));
  }
  for (const Posted& probe : probes) probe.outcome.wait();  // all, before the first may throw
  for (const Posted& probe : probes) probe.outcome.get().get();
  targets_.keep(toolchain);
  std::erase_if(candidates, [&](const std::string& candidate) {
    return targets_.lookup(toolchain, candidate) != true;
  });
  return candidates;
}

}  // namespace kiln::jit
