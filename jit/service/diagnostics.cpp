// See diagnostics.hpp.
#include "jit/service/diagnostics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <fstream>

#include "base/text.hpp"
#include "jit/toolchain/environment.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

constexpr int kShownLines = 60;

// The number at the end of `text` after an opening ':' or '(': "k.hip:12:5" gives 12 for clang and
// gcc, "k.cu(12)" for NVRTC. `text` is what stands before "error" in its line.
int line_number(std::string_view text) {
  const auto parse = [](std::string_view digits) {
    int value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size() ? value : 0;
  };
  while (!text.empty() && (text.back() == ':' || text.back() == ' ')) text.remove_suffix(1);
  if (!text.empty() && text.back() == ')') {
    const std::size_t open = text.rfind('(');
    if (open == std::string_view::npos) return 0;
    return parse(text.substr(open + 1, text.size() - open - 2));
  }
  const std::size_t column = text.rfind(':');
  if (column == std::string_view::npos || column == 0) return 0;
  const std::size_t line = text.rfind(':', column - 1);
  if (line == std::string_view::npos) return parse(text.substr(column + 1));
  return parse(text.substr(line + 1, column - line - 1));
}

std::string_view source_line(std::string_view source, int number) {
  for (; number > 1; --number) {
    const std::size_t end = source.find('\n');
    if (end == std::string_view::npos) return {};
    source.remove_prefix(end + 1);
  }
  return source.substr(0, source.find('\n'));
}

std::string shell_word(std::string_view argument) {
  std::string text = "'";
  for (const char c : argument) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string_view extension(ToolchainKind kind) {
  switch (kind) {
    case ToolchainKind::hiprtc: return "hip";
    case ToolchainKind::nvrtc: return "cu";
    case ToolchainKind::host: break;
  }
  return "cpp";
}

std::string_view code_extension(ToolchainKind kind) {
  switch (kind) {
    case ToolchainKind::hiprtc: return "hsaco";
    case ToolchainKind::nvrtc: return "cubin";
    case ToolchainKind::host: break;
  }
  return "so";
}

bool write_file(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  return static_cast<bool>(file);
}

}  // namespace

namespace {

int first_error_line(std::string_view log, bool or_fatal) {
  for (std::size_t at = 0; at < log.size();) {
    const std::size_t end = std::min(log.find('\n', at), log.size());
    const std::string_view line = log.substr(at, end - at);
    const std::size_t error = line.find("error");
    const std::size_t fatal = line.find("fatal error");
    if (error != std::string_view::npos && (or_fatal || fatal == std::string_view::npos)) {
      if (const int number = line_number(line.substr(0, std::min(error, fatal)))) return number;
    }
    at = end + 1;
  }
  return 0;
}

}  // namespace

int first_error_line(std::string_view log) { return first_error_line(log, true); }

bool is_verdict(std::string_view log) { return first_error_line(log, false) != 0; }

std::string describe_failure(const CompileRequest& request, const Toolchain& toolchain,
                             std::string_view what, std::string_view log, std::string_view output) {
  std::string text =
      fmt::format("compile of function '{}' (module {}) for {} with {} failed: {}",
                  request.function, request.entry, request.target, toolchain.version, what);
  if (!request.expression.empty()) text += fmt::format("\nexpression: {}", request.expression);
  if (const int line = first_error_line(log)) {
    text += fmt::format("\ngenerated line {}: {}", line, source_line(request.source, line));
  }
  if (!log.empty()) text += fmt::format("\ncompiler log:\n{}", base::last_lines(log, kShownLines));
  if (!output.empty()) {
    text += fmt::format("\ncompiler output:\n{}", base::last_lines(output, kShownLines));
  }
  return text;
}

void dump_compile(const std::string& directory, const std::string& worker,
                  const CompileRequest& request, const Toolchain& toolchain, std::string_view log,
                  std::string_view code, std::string_view isa) {
  std::string stem = fmt::format("{}/{}.{}", directory, request.entry, request.target);
  std::replace(stem.begin() + static_cast<std::ptrdiff_t>(directory.size()) + 1, stem.end(), ':',
               '_');
  const std::string source = fmt::format("{}.{}", stem, extension(toolchain.kind));
  const std::string object = fmt::format("{}.{}", stem, code_extension(toolchain.kind));
  std::string command = "#!/bin/sh\n";
  for (const auto& [name, value] : compiler_environment()) {
    command += fmt::format("{}={} ", name, shell_word(value));
  }
  command +=
      fmt::format("AMD_COMGR_CACHE=0 {} --compile {} {} {} {} {} {} --", shell_word(worker),
                  name(toolchain.kind), shell_word(toolchain.path), shell_word(request.entry),
                  shell_word(request.target), shell_word(source), shell_word(object));
  for (const std::string& option : request.options)
    command += fmt::format(" {}", shell_word(option));
  command += "\n";

  std::error_code error;
  std::filesystem::create_directories(directory, error);
  bool written = write_file(source, request.source) && write_file(stem + ".command", command) &&
                 write_file(stem + ".log", log);
  if (!code.empty()) written = write_file(object, code) && written;
  if (!isa.empty()) written = write_file(stem + ".isa", isa) && written;
  if (!written) {
    log_once(LogLevel::warning, "jit.dump " + directory,
             fmt::format("KILN_DUMP={}: cannot be written", directory));
  }
}

}  // namespace kiln::jit
