// The service's compiles: one of them, on a thread of the pool, and what becomes of its failure.
#include <fmt/format.h>

#include "jit/service/diagnostics.hpp"
#include "jit/service/outcome.hpp"
#include "jit/service/service.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {

namespace {

// Fewer than these were never too few: the largest group that kernels load at once, 16, can begin
// at register 84 on gfx9 and at 88 on later targets. Copies that split a register's life can be
// there without a spill.
constexpr int kScarceScalars = 84;

bool lacks_scalars(const Toolchain& toolchain, const std::string& code, const std::string& entry) {
  if (toolchain.kind != ToolchainKind::hiprtc) return false;
  const Resources found = resources(code, entry);
  return found.scalar_spills.value_or(0) > 0 || found.sgprs.value_or(0) >= kScarceScalars;
}

// hiprtc 5.2 takes the options of LLVM's code generator and has forgotten them when it gets there.
bool passes_on_backend_options(const Toolchain& toolchain) {
  return !toolchain.version.starts_with("HIP 5.2.");
}

std::string encoded_task(const CompileRequest& request) {
  return encode(CompileTask{request.entry, request.source, request.target, request.options});
}

Error unsupported(const CompileRequest& request, const Toolchain& toolchain, std::string_view log) {
  return Error(
      Code::unsupported,
      describe_failure(request, toolchain,
                       fmt::format("{} does not know this target", toolchain.path), log, ""));
}

}  // namespace

CompileResult Service::compile_now(const CompileRequest& request, const Toolchain& toolchain,
                                   int cancel) {
  if (targets_.lookup(toolchain, request.target) == false) {
    throw unsupported(request, toolchain, "");
  }
  CompileRequest task = request;
  Exchange answer = exchange(toolchain, MessageType::compile, encoded_task(task), cancel);
  if (answer.end == Exchange::End::died) {
    for (std::string& option : crash_options(task.target))
      task.options.push_back(std::move(option));
    if (task.options.size() > request.options.size()) {
      log(LogLevel::info,
          fmt::format("function '{}' (module {}) crashes the compiler for {}: it is compiled again",
                      request.function, request.entry, request.target));
      Exchange again = exchange(toolchain, MessageType::compile, encoded_task(task), cancel);
      // Where that does not help, the error is the first crash.
      if (again.end == Exchange::End::replied && again.reply.type == MessageType::done) {
        answer = std::move(again);
      } else {
        task = request;
      }
    }
  }
  CompileResult result = conclude(std::move(answer), task, toolchain, cancel);
  if (!lacks_scalars(toolchain, result.code, request.entry)) return result;
  if (!passes_on_backend_options(toolchain)) {
    log_once(LogLevel::warning, "jit.scarce_registers " + toolchain.path,
             fmt::format("{} may place copies of registers wrongly in kernels that use nearly all "
                         "scalar registers, as function '{}' (module {}) does for {}, and cannot "
                         "be told to do otherwise; HIP 5.7 and later can",
                         toolchain.version, request.function, request.entry, request.target));
    return result;
  }
  CompileResult again = compile_again(std::move(task), toolchain, cancel);
  again.milliseconds += result.milliseconds;
  return again;
}

CompileResult Service::compile_again(CompileRequest request, const Toolchain& toolchain,
                                     int cancel) {
  for (std::string& option : scarce_register_options(request.target)) {
    request.options.push_back(std::move(option));
  }
  log(LogLevel::info,
      fmt::format("function '{}' (module {}) lacks scalar registers on {}: it is compiled again",
                  request.function, request.entry, request.target));
  Exchange answer;
  try {
    answer = exchange_apart(toolchain, MessageType::compile, encoded_task(request), cancel);
  } catch (const Error& error) {
    throw Error(error.code(),
                describe_failure(request, toolchain,
                                 fmt::format("lacks scalar registers, and is to be compiled with "
                                             "options for a process of its own: {}",
                                             error.what()),
                                 "", ""));
  }
  return conclude(std::move(answer), request, toolchain, cancel);
}

CompileResult Service::conclude(Exchange answer, const CompileRequest& request,
                                const Toolchain& toolchain, int cancel) {
  const bool replied = answer.end == Exchange::End::replied;
  if (replied && answer.reply.type == MessageType::done) {
    CompileOutput output = decode_compile_output(answer.reply.body);
    targets_.learn(toolchain, request.target);
    if (!output.log.empty() && !answer.output.empty()) output.log += '\n';
    output.log += answer.output;
    if (!settings_.dump.empty()) {
      const Exchange isa = exchange(toolchain, MessageType::disassemble,
                                    encode(DisassembleTask{output.code, request.target}), cancel);
      const bool have = isa.end == Exchange::End::replied && isa.reply.type == MessageType::done;
      dump_compile(settings_.dump, settings_.worker, request, toolchain, output.log, output.code,
                   have ? decode_compile_output(isa.reply.body).code : "");
    }
    log(LogLevel::info,
        fmt::format("compiled function '{}' (module {}) for {} in {:.0f} ms{}", request.function,
                    request.entry, request.target, output.milliseconds,
                    output.log.empty() ? "" : ", with warnings"));
    return {std::move(output.code), std::move(output.log), output.milliseconds};
  }

  if (answer.end == Exchange::End::cancelled) throw cancelled_error(request);
  Failure failure;
  if (replied) {
    failure = decode_failure(answer.reply.body);
  } else {
    failure.message = fmt::format("the compile worker {}", answer.what);
  }
  if (!settings_.dump.empty()) {
    dump_compile(settings_.dump, settings_.worker, request, toolchain, failure.log + answer.output,
                 "", "");
  }
  const bool may_be_the_target = failure.code == Code::compile_failed &&
                                 (replied || answer.end == Exchange::End::died) &&
                                 toolchain.kind != ToolchainKind::host;
  if (may_be_the_target && target_is_unknown(toolchain, request.target, cancel)) {
    throw unsupported(request, toolchain, failure.log);
  }
  const std::string text =
      describe_failure(request, toolchain, failure.message, failure.log, answer.output);
  if (replied && failure.code == Code::compile_failed && is_verdict(failure.log)) {
    throw CompileRefused(text);
  }
  throw Error(failure.code, text);
}

// Tries the smallest kernel there is, to distinguish a crash on an unknown target from one on a
// source.
bool Service::target_is_unknown(const Toolchain& toolchain, const std::string& target, int cancel) {
  const auto known = targets_.find_out(toolchain, target, [&] {
    return knows_target(target, sure_targets(toolchain.kind),
                        [&](const std::string& each) { return probe(toolchain, each, cancel); });
  });
  return known == false;
}

std::optional<bool> Service::probe(const Toolchain& toolchain, const std::string& target,
                                   int cancel) {
  const CompileRequest request = probe_request(toolchain, target);
  const Exchange answer = exchange(
      toolchain, MessageType::compile,
      encode(CompileTask{request.entry, request.source, request.target, request.options}), cancel);
  if (answer.end == Exchange::End::replied) {
    if (answer.reply.type == MessageType::done) return true;
    if (decode_failure(answer.reply.body).code == Code::compile_failed) return false;
    return std::nullopt;
  }
  // The system's killing of a worker says nothing about the target.
  if (answer.end != Exchange::End::died || !answer.accepted ||
      answer.what.find("signal 9 ") != std::string::npos) {
    return std::nullopt;
  }
  return false;
}

}  // namespace kiln::jit
