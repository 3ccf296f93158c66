// See toolchain_cache.hpp.
#include "jit/toolchain/toolchain_cache.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "base/atomic_file.hpp"
#include "cache/trust.hpp"
#include "jit/toolchain/file_identity.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

using cache::Opened;

constexpr const char* kFile = "toolchains.json";
constexpr int kFormat = 3;
constexpr int kMaxDepth = 5;  // of what this file nests
constexpr std::size_t kMaxBytes = 1 << 20;

/// The file's text, or nothing and why not; no reason where there is simply no file yet.
std::pair<std::optional<std::string>, std::string> read_trusted(const std::string& directory) {
  base::Io& io = base::system_io();
  const Opened opened = cache::open_trusted(io, directory, false);
  if (opened.state != Opened::State::open) return {};  // logged when it is to be written
  // Whatever lies there: a pipe that nobody writes to must not be waited for.
  const base::UniqueFd file =
      base::open_at(io, opened.directory.get(), kFile, O_RDONLY | O_NONBLOCK);
  struct stat status {};
  if (!file || io.stat(file.get(), status) != 0) {
    return {std::nullopt, errno == ENOENT ? "" : base::describe_errno(errno)};
  }
  if (!S_ISREG(status.st_mode)) return {std::nullopt, "is not a regular file"};
  if (std::string reason = cache::distrust(status); !reason.empty()) {
    return {std::nullopt, std::move(reason)};
  }
  if (std::cmp_greater(status.st_size, kMaxBytes)) {
    return {std::nullopt,
            fmt::format("has {} bytes, expected at most {}", status.st_size, kMaxBytes)};
  }
  std::string text;
  if (!base::read_bytes(io, file.get(), 0, static_cast<std::uint64_t>(status.st_size), text)) {
    return {std::nullopt, base::describe_errno(errno)};
  }
  return {std::move(text), {}};
}

/// Why it was not written; empty if it was.
std::string write_trusted(const std::string& directory, const std::string& text) {
  base::Io& io = base::system_io();
  const Opened opened = cache::open_trusted(io, directory, true);
  if (opened.state != Opened::State::open) return opened.reason;
  base::AtomicFile file(io, opened.directory.get(), kFile, {.mode = 0600});
  return file.write(text) && file.commit() ? std::string() : base::describe_errno(file.error());
}

}  // namespace

ToolchainCache::ToolchainCache(std::string directory) : directory_(std::move(directory)) {
  if (directory_.empty()) return;
  path_ = fmt::format("{}/{}", directory_, kFile);
  content_ = read();
}

ToolchainCache::Content ToolchainCache::read() const {
  auto [text, reason] = read_trusted(directory_);
  if (text) {
    try {
      return parse(*text);
    } catch (const std::exception& error) {
      reason = error.what();
    }
  }
  if (!reason.empty()) {
    log_once(LogLevel::info, "jit.toolchain_cache.read " + path_,
             fmt::format("{} is ignored ({}): compilers are identified anew", path_, reason));
  }
  return {};
}

// Throws for what is not the content of such a file.
ToolchainCache::Content ToolchainCache::parse(const std::string& text) {
  // What is deeper than anything that is written here is dropped while it is read.
  const auto shallow = [](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    return depth <= kMaxDepth;
  };
  const auto json = nlohmann::json::parse(text, shallow);
  Content content;
  if (json.at("format").get<int>() != kFormat) return content;  // of another release
  for (const auto& [name, compiler] : json.at("compilers").items()) {
    Remembered& remembered = content.compilers[name];
    compiler.at("version").get_to(remembered.compiler.version);
    compiler.at("identity").get_to(remembered.compiler.identity);
    compiler.at("evidence").get_to(remembered.evidence);
  }
  json.at("targets").get_to(content.targets);
  return content;
}

std::string ToolchainCache::text_of(const Content& content) {
  auto compilers = nlohmann::json::object();
  for (const auto& [name, remembered] : content.compilers) {
    compilers[name] = {{"version", remembered.compiler.version},
                       {"identity", remembered.compiler.identity},
                       {"evidence", remembered.evidence}};
  }
  const nlohmann::json json = {
      {"format", kFormat}, {"compilers", std::move(compilers)}, {"targets", content.targets}};
  // A compiler may call itself something in another encoding than UTF-8, which JSON cannot hold.
  return json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void ToolchainCache::write() const {
  if (path_.empty()) return;
  std::string text = text_of(content_);
  // It grows with every compiler that there ever was; what is still true is soon found again.
  if (text.size() > kMaxBytes) text = text_of({});
  if (const std::string reason = write_trusted(directory_, text); !reason.empty()) {
    log_once(
        LogLevel::info, "jit.toolchain_cache " + path_,
        fmt::format("{} cannot be written ({}): what is found out about compilers is found out "
                    "again by every process",
                    path_, reason));
  }
}

std::optional<ToolchainCache::Compiler> ToolchainCache::compiler(const std::string& name) const {
  const auto found = content_.compilers.find(name);
  if (found == content_.compilers.end()) return std::nullopt;
  for (const auto& [path, stamp] : found->second.evidence) {
    if (file_stamp(path) != stamp) return std::nullopt;
  }
  return found->second.compiler;
}

void ToolchainCache::remember_compiler(const std::string& name, const Compiler& compiler,
                                       const std::map<std::string, std::string>& evidence) {
  if (path_.empty() || compiler.identity.empty()) return;
  content_ = read();  // what others wrote since
  content_.compilers.insert_or_assign(name, Remembered{compiler, evidence});
  write();
}

std::map<std::string, bool> ToolchainCache::targets(const std::string& identity) const {
  const auto found = content_.targets.find(identity);
  return found != content_.targets.end() ? found->second : std::map<std::string, bool>{};
}

void ToolchainCache::remember_targets(const std::string& identity,
                                      const std::map<std::string, bool>& targets) {
  if (path_.empty()) return;
  content_ = read();
  for (const auto& [target, known] : targets) content_.targets[identity][target] = known;
  write();
}

}  // namespace kiln::jit
