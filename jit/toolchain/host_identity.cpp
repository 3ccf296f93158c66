// See host_identity.hpp.
#include "jit/toolchain/host_identity.hpp"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>

#include "base/elf.hpp"
#include "base/mapped_file.hpp"
#include "base/subprocess.hpp"
#include "base/temporary.hpp"
#include "base/text.hpp"
#include "jit/toolchain/environment.hpp"
#include "jit/toolchain/file_identity.hpp"
#include "jit/toolchain/find.hpp"
#include "jit/toolchain/host_features.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

namespace fs = std::filesystem;

void add_unique(std::vector<std::string>& list, std::string item) {
  if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(std::move(item));
}

/// The words of a command as "-###" prints it: bare, or in quotes in which a backslash escapes.
std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  bool in_word = false;
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (!quoted && c == ' ') {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (c == '"') {
      quoted = !quoted;
    } else if (quoted && c == '\\' && i + 1 < line.size()) {
      words.back() += line[++i];
    } else {
      words.back() += c;
    }
  }
  return words;
}

/// What a compile by the driver starts and reads, as far as it prints that.
struct Parts {
  std::vector<std::string> programs;     ///< names or paths
  std::vector<std::string> files;        ///< read by the programs: a linker's plugin, specs
  std::vector<std::string> directories;  ///< in which the linker searches
  std::vector<std::string> searched;     ///< in which the driver searches for programs
  /// The commands lead from the source to the object, each reading what one before it writes. Those
  /// of an answer without the compiler, the assembler or the linker, or with half a line, do not.
  bool whole = false;
};

/// `made` is the source and what is written from it, so far.
void add_command(Parts& parts, std::set<std::string>& made, const std::vector<std::string>& words,
                 const std::string& object) {
  constexpr const char* kPipe = "|";  // at the end of a command: the next one names no input
  if (words.empty()) return;
  add_unique(parts.programs, words.front());
  const bool piped = made.erase(kPipe) != 0;
  bool reads = false;
  std::string output;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const bool has_next = i + 1 < words.size();
    if (words[i] == "-o" && has_next) output = words[i + 1];
    if (made.contains(words[i])) reads = true;
    if (words[i] == "-plugin" && has_next) add_unique(parts.files, words[i + 1]);
    if (words[i] == "-L" && has_next) add_unique(parts.directories, words[i + 1]);
    if (words[i].size() > 2 && words[i].starts_with("-L"))
      add_unique(parts.directories, words[i].substr(2));
  }
  if (output == object) {
    parts.whole = reads;  // a linker is told what to link
  } else if ((reads || piped) && !output.empty()) {
    made.insert(words.back() == kPipe ? kPipe : output);
  }
}

/// What "-###" prints: a line for each command, indented, among remarks.
Parts parts_of(std::string_view dry_run, const std::string& source, const std::string& object) {
  constexpr std::string_view kSpecs = "Reading specs from ";
  constexpr std::string_view kSearched = "COMPILER_PATH=";
  Parts parts;
  std::set<std::string> made = {source};
  for (const std::string& line : base::split(dry_run, '\n')) {
    if (line.starts_with(' ')) add_command(parts, made, words_of(line), object);
    if (line.starts_with(kSpecs)) add_unique(parts.files, line.substr(kSpecs.size()));
    if (line.starts_with(kSearched))
      parts.searched = base::split(line.substr(kSearched.size()), ':');
  }
  return parts;
}

/// The files that clang names as sources of its options.
std::vector<std::string> configuration_files(std::string_view version) {
  constexpr std::string_view kFile = "Configuration file: ";
  std::vector<std::string> files;
  for (const std::string& line : base::split(version, '\n')) {
    if (line.starts_with(kFile)) files.push_back(line.substr(kFile.size()));
  }
  return files;
}

/// The file that the linker takes for "-l" + name.
std::optional<std::string> find_linked(const std::string& name,
                                       const std::vector<std::string>& directories) {
  std::error_code ignored;
  for (const std::string& directory : directories) {
    for (const char* extension : {".so", ".a"}) {
      std::string path = fmt::format("{}/lib{}{}", directory, name, extension);
      if (fs::is_regular_file(path, ignored)) return path;
    }
  }
  return std::nullopt;
}

/// The libraries that a linker script names; none of a file that is no text. Nothing if it cannot
/// be read.
std::optional<std::vector<std::string>> named_in_script(const std::string& path) {
  const base::MappedFile file(path);
  if (file.bytes().empty()) return std::nullopt;
  std::vector<std::string> names;
  if (file.bytes().size() > 4096 || file.bytes().find('\0') != std::string_view::npos) {
    return names;
  }
  std::string text(file.bytes());
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '(' || c == ')'; }, ' ');
  std::error_code ignored;
  for (std::string& word : base::split(text, ' ')) {
    if (word.starts_with('/') && fs::is_regular_file(word, ignored))
      names.push_back(std::move(word));
  }
  return names;
}

/// The dynamic loader that a program names; empty for one without any, such as a script. Nothing if
/// the program cannot be read.
std::optional<std::string> interpreter_of(const std::string& program) {
  const base::MappedFile file(program);
  if (file.bytes().empty()) return std::nullopt;
  const auto elf = base::Elf::parse(file.bytes());
  const base::ElfSection* section = elf ? elf->section(".interp") : nullptr;
  if (section == nullptr) return std::string();
  return std::string(section->bytes.substr(0, section->bytes.find('\0')));
}

/// The shared libraries that the dynamic loader gives a program, by asking it: RPATH,
/// LD_LIBRARY_PATH and its cache are its business. Empty for a program that needs none; nothing if
/// it cannot be found out, or one of them is not there.
std::optional<std::vector<std::string>> shared_libraries(const std::string& program,
                                                         const std::string& directory,
                                                         std::chrono::milliseconds deadline) {
  const auto loader = interpreter_of(program);
  if (!loader) return std::nullopt;
  std::vector<std::string> libraries;
  if (loader->empty()) return libraries;
  const base::CommandResult listed =
      run_scrubbed({*loader, "--list", program}, directory, deadline);
  if (!listed.succeeded()) return std::nullopt;
  for (const std::string& line : base::split(listed.output, '\n')) {  // "\tname => /path (0x7f...)"
    if (line.ends_with("=> not found")) return std::nullopt;
    const std::size_t begin = line.find('/');
    const std::size_t end = line.find(" (0x");
    const std::size_t arrow = line.find("=> ");
    if (begin == std::string::npos || end == std::string::npos) continue;
    const std::size_t from = arrow == std::string::npos ? begin : arrow + 3;
    libraries.push_back(line.substr(from, end - from));
  }
  if (libraries.empty()) return std::nullopt;  // the loader itself is always among them
  return libraries;
}

class Identification {
 public:
  Identification(const std::string& driver, std::chrono::milliseconds deadline)
      : directory_("kiln-cxx"), deadline_(deadline) {
    for (const char* loader : {"/etc/ld.so.cache", "/etc/ld.so.preload"}) depend_on(loader);
    for (const char* variable : {"PATH", "LD_LIBRARY_PATH", "COMPILER_PATH"}) {
      for (const std::string& path : base::split(compiler_variable(variable), ':')) depend_on(path);
    }
    depend_on(driver);
  }

  HostCompilerIdentity run(const std::string& driver) {
    const base::CommandResult version = ask({driver, "--version"});
    if (!version.succeeded() || version.output.empty()) {
      const std::string printed = base::last_lines(version.errors, 5);
      throw Error(Code::not_found,
                  fmt::format("{} --version {}{}{}", driver,
                              version.succeeded() ? "printed nothing" : version.ending,
                              printed.empty() ? "" : ": ", printed));
    }
    found_.version = version.output;
    found_.identity = "host " + found_.version.substr(0, found_.version.find('\n'));
    add_program("driver", driver);
    // GNU's driver starts the linker by way of another program, so it does not show up.
    const std::string linker = answer({driver, "-print-prog-name=ld"});
    Parts parts = parts_of(dry_run(driver), kSource, object());
    if (!parts.whole || linker.empty()) fail();
    add_unique(parts.programs, linker);
    for (const std::string& program : parts.programs) {
      add_program(fs::path(program).filename().string(), program);
    }
    for (const std::string& file : configuration_files(found_.version)) add_files(file, {file});
    for (const std::string& file : parts.files) add_files(file, {file});
    add_linked(parts.directories);
    for (const std::string& path : parts.searched) depend_on(path);
    return std::move(found_);
  }

 private:
  static constexpr const char* kSource = "/dev/null";
  std::string object() const { return directory_.path() + "/kernel.so"; }

  base::CommandResult ask(const std::vector<std::string>& command) const {
    return run_scrubbed(command, directory_.path(), deadline_);
  }
  std::string answer(const std::vector<std::string>& command) const {
    const base::CommandResult result = ask(command);
    return result.succeeded() ? result.output.substr(0, result.output.find('\n')) : std::string();
  }
  std::string dry_run(const std::string& driver) const {
    std::vector<std::string> command = {
        driver, "-###", "-x", "c++", "-O3", "-fPIC", "-shared", "-nostartfiles", "-nodefaultlibs"};
    command.insert(command.end(), {"-o", object(), kSource});
    const auto& link = host_link_options();
    command.insert(command.end(), link.begin(), link.end());
    const base::CommandResult result = ask(command);
    return result.succeeded() ? result.errors : std::string();
  }

  void depend_on(const std::string& path) {
    if (changed_just_now(path)) found_.settled = false;
    found_.evidence.try_emplace(path, file_stamp(path));
  }
  void fail() {
    failed_ = true;
    found_.identity.clear();
  }

  /// One word of the identity for all of these files.
  void add_files(const std::string& name, const std::vector<std::string>& files) {
    for (const std::string& file : files) depend_on(file);
    const std::string identity = identity_of_all(files);
    if (identity.empty()) fail();
    if (failed_) return;
    found_.identity += fmt::format(" {}:{}", fs::path(name).filename().string(), identity);
  }

  void add_program(const std::string& name, const std::string& program) {
    const auto path = find_program(program);
    if (!path) return fail();
    std::error_code ignored;
    const std::string file = fs::canonical(*path, ignored).string();
    if (std::find(programs_.begin(), programs_.end(), file) != programs_.end()) return;
    programs_.push_back(file);
    depend_on(fs::path(*path).parent_path().string());
    auto files = shared_libraries(*path, directory_.path(), deadline_);
    if (!files) return fail();
    files->insert(files->begin(), *path);
    add_files(name, *files);
  }

  /// What a compiler's own libraries put into a kernel, and what those of the system make of its
  /// calls.
  void add_linked(const std::vector<std::string>& directories) {
    std::vector<std::string> files;
    for (const std::string& option : host_link_options()) {
      if (!option.starts_with("-l")) continue;
      const auto file = find_linked(option.substr(2), directories);
      if (!file) continue;  // in the linker's own directories, or the link fails
      files.push_back(*file);
      auto named = named_in_script(*file);
      if (!named) return fail();
      for (std::string& each : *named) add_unique(files, std::move(each));
    }
    for (const std::string& directory : directories) depend_on(directory);
    add_files("libraries", files);
  }

  base::TemporaryDirectory directory_;
  std::chrono::milliseconds deadline_;
  HostCompilerIdentity found_;
  std::vector<std::string> programs_;
  bool failed_ = false;
};

}  // namespace

HostCompilerIdentity identify_host_compiler(const std::string& path,
                                            std::chrono::milliseconds deadline) {
  return Identification(path, deadline).run(path);
}

}  // namespace kiln::jit
