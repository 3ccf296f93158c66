// `kiln manual`: the manual page, written from the command line's own description. What is no
// option (environment, files, exit status) is here.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>

#include "kiln/version.hpp"
#include "tool/cli_text.hpp"
#include "tool/commands.hpp"
#include "tool/print.hpp"

namespace kiln::tool {
namespace {

struct Setting {
  std::string_view name;
  std::string_view text;
};
constexpr Setting kEnvironment[] = {
    {"KILN_CACHE_DIR",
     "The directory of the cache (default $XDG_CACHE_HOME/kiln, or else ~/.cache/kiln)."},
    {"KILN_CACHE", "off: store nothing on disk, and use no layer and no remote cache."},
    {"KILN_CACHE_MAX_SIZE",
     "The largest size of the cache, such as 512M (default 1G; 0: no limit). The least recently "
     "used "
     "entries are removed."},
    {"KILN_CACHE_READONLY_DIRS",
     "More caches or bundles, separated by colons, which are only read."},
    {"KILN_CACHE_SECRET",
     "A secret of 32 or more random characters that machines which exchange kernels share: exports "
     "are signed with it, and only bundles that are signed with it are imported. Several, "
     "separated "
     "by commas: the first one signs, and all are accepted."},
    {"KILN_REMOTE_CACHE",
     "A Redis or Valkey server that machines share, asked for what is not on disk: "
     "redis://[user:password@]host[:port][/database], rediss://... (over TLS) or "
     "redis+unix://[user:password@]/path. Needs KILN_CACHE_SECRET. Options after a question mark, "
     "separated by &: ttl=30d (how long entries "
     "stay), prefix=kiln (of their names), wait=TIME (of a look-up; without it, what a compile has "
     "taken here), answer=5s (after which the server is left alone for a while), lease=15s (after "
     "which the kernel of a machine that died is compiled by another), max=64M (largest entry), "
     "ca=FILE (certificates of authorities, rediss:// only; default: the system's)."},
    {"KILN_HIPRTC", "The hiprtc library to use."},
    {"KILN_NVRTC", "The NVRTC library to use."},
    {"KILN_CXX", "The host compiler to use."},
    {"KILN_COMPILE",
     "inprocess: compile in the program itself, without worker processes. remote: have compile "
     "servers (kiln serve) compile, and compile here only what they do not."},
    {"KILN_COMPILE_JOBS", "Number of parallel compiles (default: usable cores)."},
    {"KILN_COMPILE_TIMEOUT", "Time limit of one compile in seconds (default 120)."},
    {"KILN_COMPILE_MEMORY", "Memory limit of one worker in MiB (default 4096)."},
    {"KILN_CPU_THREADS", "Number of threads of the CPU device (default: usable cores)."},
    {"KILN_DUMP", "A directory for the source, log, ISA and command of every compile."},
    {"KILN_FALLBACK_MEMORY",
     "Bytes that calls which are served until their kernel is compiled (OnMiss::fallback) may have "
     "on each device for temporaries (default: none)."},
    {"KILN_MEMORY_LIMIT",
     "Bytes that the plans of a device may take in a process, and as many its loaded kernels "
     "(default 256M; 0: no limit)."},
    {"KILN_PROFILER_RANGES",
     "on: every call is a range of its function's name for profilers, by roctx or NVTX; a path: by "
     "that library; off: none are (default: where the process has loaded one of these libraries, "
     "or runs under a profiler of NVIDIA's)."},
    {"KILN_RECORD",
     "A manifest file to which every function, program and signature that is called is added, and "
     "every kernel of the program's own."},
    {"KILN_WORKER", "The path of kiln-compile-worker, if it was moved after installation."},
    {"NO_COLOR", "If set, output has no colours, even on a terminal."},
};

constexpr Setting kFiles[] = {
    {"<cache>/3f/3f<30 hex digits>.kiln", "A cache entry: source, code object and metadata."},
    {"<cache>/quarantine/",
     "Damaged entries, and entries that a driver refused; at most 64 files."},
    {"<cache>/stats", "The counters that kiln cache stats shows."},
};

/// Text in roff: a backslash, a hyphen and a dot at the start of a line mean themselves.
std::string roff(std::string_view text) {
  std::string result;
  bool start = true;
  for (const char c : text) {
    if (start && (c == '.' || c == '\'')) result += "\\&";
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else {
      result += c;
    }
    start = c == '\n';
  }
  return result;
}

std::string bold_roff(std::string_view text) { return fmt::format("\\fB{}\\fR", roff(text)); }
std::string italic_roff(std::string_view text) { return fmt::format("\\fI{}\\fR", roff(text)); }

void print_option(const OptionText& option) {
  std::vector<std::string> flags;
  for (const std::string& flag : option.flags) flags.push_back(bold_roff(flag));
  std::string head = fmt::format("{}", fmt::join(flags, ", "));
  if (!option.name.empty()) head = italic_roff(option.name);
  if (option.name.empty() && !option.value.empty()) head += " " + italic_roff(option.value);
  std::string text = option.description;
  if (!text.empty() && text.back() != '.') text += '.';
  if (option.required && option.name.empty()) text += " Required.";
  if (option.repeated) text += " May be given several times.";
  if (!option.initial.empty()) text += fmt::format(" The default is {}.", option.initial);
  print(".TP\n{}\n{}\n", head, roff(text));
}

std::string synopsis(const CommandText& command) {
  std::string line = bold_roff(command.path);
  if (!command.subcommands.empty()) line += " " + italic_roff("COMMAND");
  for (const OptionText& positional : command.positionals) {
    const std::string name = italic_roff(positional.name) + (positional.repeated ? "..." : "");
    line += positional.required ? " " + name : fmt::format(" [{}]", name);
  }
  return line + " [" + italic_roff("OPTIONS") + "]";
}

void print_command(const CommandText& command) {
  print(".SS {}\n{}\n.PP\n", roff(command.path), synopsis(command));
  print("{}.\n", roff(command.description));
  for (const OptionText& option : command.positionals) print_option(option);
  for (const OptionText& option : command.options) print_option(option);
  if (!command.footer.empty()) print(".PP\n.nf\n{}\n.fi\n", roff(command.footer));
}

void print_settings(std::string_view title, std::span<const Setting> settings) {
  print(".SH {}\n", title);
  for (const Setting& setting : settings) {
    print(".TP\n{}\n{}\n", bold_roff(setting.name), roff(setting.text));
  }
}

}  // namespace

int run_manual(const CLI::App& app) {
  const CommandText root = describe(app);
  print(".\\\" Written by kiln manual.\n.TH KILN 1 \"\" \"kiln {}\" \"User Commands\"\n",
        KILN_VERSION_STRING);
  print(".SH NAME\nkiln \\- fuse chains of array operations into kernels, compiled at run time\n");
  print(".SH SYNOPSIS\n");
  for_each_command(root, [](const CommandText& command) {
    if (command.subcommands.empty()) print("{}\n.br\n", synopsis(command));
  });
  print(".SH DESCRIPTION\n{}\n.SH COMMANDS\n",
        roff("kiln runs and compiles expressions on arrays, and manages the cache of compiled "
             "kernels, which all programs that use libkiln share. An "
             "expression has Python's operators and precedence, calls by name, casts by dtype "
             "name, and ';' between statements."));
  for_each_command(root, print_command);
  print_settings("ENVIRONMENT", kEnvironment);
  print_settings("FILES", kFiles);
  print(".SH EXIT STATUS\n0 on success, 1 on failure, 2 if the command line is wrong.\n");
  return kSuccess;
}

}  // namespace kiln::tool
