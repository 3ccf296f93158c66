#include "cache/remote/remote.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <random>
#include <utility>

#include "cache/remote/value.hpp"
#include "kiln/error.hpp"

namespace kiln::cache {
namespace {

// Only who has a lease renews it and gives it back: it may have run out, and be another's by now.
constexpr const char* kRenew =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) end "
    "return 0";
constexpr const char* kRelease =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end return 0";

/// Of a line "name:value" of INFO; empty if there is none.
std::string_view info_value(std::string_view text, std::string_view name) {
  const std::string start = fmt::format("\n{}:", name);
  const std::size_t at = text.find(start);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = text.substr(at + start.size());
  return rest.substr(0, rest.find_first_of("\r\n"));
}

}  // namespace

std::string remote_problem(const RemoteSettings& settings, const Secret& secret) {
  if (!secret) {
    return "it needs KILN_CACHE_SECRET, the same on all machines (openssl rand -hex 32): a code "
           "object is code, and is taken from a server only if it was signed";
  }
  if (!secret.is_strong()) {
    return fmt::format(
        "each secret in KILN_CACHE_SECRET must have {} or more characters; make one "
        "with openssl rand -hex 32",
        kStrongSecret);
  }
  return remote_unsupported(settings);
}

Remote::Remote(RemoteSettings settings, Secret secret, Counters& counters)
    : secret_(std::move(secret)),
      counters_(counters),
      client_(
          settings, [this] { return renewals(); }, settings.lease / 3) {}
Remote::~Remote() = default;

std::string Remote::name_of(const Key& key) const { return settings().name("entry", key.hex()); }

std::vector<std::optional<Loaded>> Remote::fetch(std::span<const Key> keys, TimePoint deadline) {
  std::vector<std::optional<Loaded>> found(keys.size());
  std::vector<Command> commands;
  // One byte more than may be there tells what is too long, without reading all of it.
  const std::string last = std::to_string(settings().max_value + kRemoteHead);
  for (const Key& key : keys) commands.push_back({"GETRANGE", name_of(key), "0", last});
  const auto replies = client_.ask(std::move(commands), deadline);
  if (!replies) {
    counters_.add(Count::remote_failures);
    return found;
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    found[i] = take(keys[i], (*replies)[i]);
    counters_.add(found[i] ? Count::remote_hits : Count::remote_misses);
  }
  return found;
}

std::string Remote::lease_of(const Key& key) const { return settings().name("lease", key.hex()); }

std::string Remote::source_of(const Key& source) const {
  return settings().name("source", source.hex());
}

std::vector<Remote::Claim> Remote::claim(std::span<const Key> keys, TimePoint deadline) {
  std::vector<Claim> claims(keys.size());
  std::vector<Command> commands;
  std::vector<std::string> tokens;
  const std::string last = std::to_string(settings().max_value + kRemoteHead);
  for (const Key& key : keys) {
    std::random_device random;
    tokens.push_back(
        fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random()));
    commands.push_back({"SET", lease_of(key), tokens.back(), "NX", "PX",
                        std::to_string(settings().lease.count())});
    // After it: whoever had the lease before has published before giving it back.
    commands.push_back({"GETRANGE", name_of(key), "0", last});
  }
  const auto replies = client_.ask(std::move(commands), deadline);
  if (!replies) return claims;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const Reply& granted = (*replies)[2 * i];
    if (granted.type == Reply::Type::text) {
      const std::lock_guard lock(mutex_);
      leases_[keys[i]] = {tokens[i], ::getpid()};
      claims[i].lease = std::make_unique<Lease>(shared_from_this(), keys[i]);
    }
    claims[i].loaded = take(keys[i], (*replies)[2 * i + 1]);
    if (claims[i].loaded) {
      claims[i].lease.reset();
      counters_.add(Count::remote_hits);
    } else {
      claims[i].elsewhere = granted.type == Reply::Type::nil;
    }
  }
  return claims;
}

std::vector<Command> Remote::renewals() {
  std::vector<Command> commands;
  const std::lock_guard lock(mutex_);
  for (const auto& [key, held] : leases_) {
    if (held.owner != ::getpid()) continue;
    commands.push_back(
        {"EVAL", kRenew, "1", lease_of(key), held.token, std::to_string(settings().lease.count())});
  }
  return commands;
}

std::optional<Command> Remote::take_release(const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto held = leases_.find(key);
  if (held == leases_.end() || held->second.owner != ::getpid()) return std::nullopt;
  Command release = {"EVAL", kRelease, "1", lease_of(key), held->second.token};
  leases_.erase(held);
  return release;
}

void Remote::release(const Key& key) {
  if (auto command = take_release(key)) client_.post({*std::move(command)}, [](const auto&) {});
}

Lease::~Lease() { remote_->release(key_); }

std::optional<Loaded> Remote::take(const Key& key, const Reply& reply) {
  if (reply.type != Reply::Type::text) {
    refuse(key, "is not a text");
    return std::nullopt;
  }
  if (reply.text.empty()) return std::nullopt;
  if (reply.text.size() > settings().max_value + kRemoteHead) {
    refuse(key, fmt::format("is longer than {} bytes", settings().max_value));
    return std::nullopt;
  }
  DecodedValue decoded = decode_value(key, reply.text, secret_);
  if (!decoded.loaded) refuse(key, decoded.reason);
  return std::move(decoded.loaded);
}

void Remote::refuse(const Key& key, std::string_view reason) {
  {
    const std::lock_guard lock(mutex_);
    refused_.insert(key);
  }
  report(name_of(key), reason);
}

void Remote::report(const std::string& name, std::string_view reason) {
  counters_.add(Count::remote_refused);
  log_once(LogLevel::warning, fmt::format("remote cache {} {}", settings().display(), name),
           fmt::format("remote cache {}: the value of {} {}; not used, and replaced once the "
                       "kernel is compiled",
                       settings().display(), name, reason));
}

void Remote::reject(const Key& key, std::string_view reason) {
  refuse(key, fmt::format("was refused by a driver ({})", reason));
}

std::vector<std::optional<Key>> Remote::find_sources(std::span<const Key> sources,
                                                     TimePoint deadline) {
  std::vector<std::optional<Key>> found(sources.size());
  std::vector<Command> commands;
  for (const Key& source : sources) commands.push_back({"GETRANGE", source_of(source), "0", "255"});
  const auto replies = client_.ask(std::move(commands), deadline);
  if (!replies) {
    counters_.add(Count::remote_failures);
    return found;
  }
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const Reply& reply = (*replies)[i];
    if (reply.type == Reply::Type::text && reply.text.empty()) {
      counters_.add(Count::remote_misses);
      continue;
    }
    DecodedPointer decoded = decode_pointer(sources[i], reply.text, secret_);
    if (!decoded.entry) report(source_of(sources[i]), decoded.reason);
    found[i] = decoded.entry;
  }
  return found;
}

RemoteHealth Remote::check(TimePoint deadline) {
  const bool answered = client_.ask({{"PING"}}, deadline).has_value();
  RemoteHealth health = client_.health();
  if (!answered && health.problem.empty()) health.problem = "does not answer in time";
  return health;
}

Command Remote::pointing(const Key& key, const Key& source) const {
  Command point = {"SET", source_of(source), encode_pointer(source, key, secret_)};
  expire(point);
  return point;
}

void Remote::expire(Command& set) const {
  if (settings().ttl.count() == 0) return;
  set.emplace_back("PX");
  set.push_back(std::to_string(settings().ttl.count()));
}

std::vector<Command> Remote::publication(const Key& key, const Key& source, std::string_view file) {
  bool was_refused = false;
  {
    const std::lock_guard lock(mutex_);
    was_refused = refused_.erase(key) > 0;
  }
  Command set = {"SET", name_of(key), encode_value(key, file, secret_)};
  if (!was_refused) set.emplace_back("NX");
  expire(set);
  // The newest entry of a source is the one to be found.
  return {std::move(set), pointing(key, source)};
}

Remote::Pushed Remote::count_publication(const std::vector<Reply>& replies) {
  if (replies.empty() || replies.front().is_error()) {
    counters_.add(Count::remote_failures);
    if (!replies.empty()) {
      log_once(LogLevel::warning, "remote cache publish " + settings().display(),
               fmt::format("remote cache {}: the server keeps nothing new: {}",
                           settings().display(), printable(replies.front().text)));
    }
    return Pushed::failed;
  }
  if (replies.front().type == Reply::Type::nil) return Pushed::present;
  counters_.add(Count::remote_published);
  return Pushed::sent;
}

bool Remote::fits(std::string_view file) {
  if (file.size() <= settings().max_value) return true;
  counters_.add(Count::remote_failures);
  log_once(LogLevel::warning, "remote cache size " + settings().display(),
           fmt::format("remote cache {}: an entry of {} bytes is not sent, the bound is {}",
                       settings().display(), file.size(), settings().max_value));
  return false;
}

void Remote::publish(const Key& key, const Key& source, std::string_view file) {
  if (!fits(file)) return;
  std::vector<Command> commands = publication(key, source, file);
  if (auto release = take_release(key)) commands.push_back(*std::move(release));
  const auto done = [this](const std::vector<Reply>& replies) { count_publication(replies); };
  if (!client_.post(std::move(commands), done)) counters_.add(Count::remote_failures);
}

Remote::Pushed Remote::push(const Key& key, const Key& source, std::string_view file,
                            TimePoint deadline) {
  if (!fits(file)) return Pushed::failed;
  const auto replies = client_.ask(publication(key, source, file), deadline);
  return count_publication(replies ? *replies : std::vector<Reply>());
}

bool Remote::point(const Key& key, const Key& source, TimePoint deadline) {
  const auto replies = client_.ask({pointing(key, source)}, deadline);
  return replies && !replies->front().is_error();
}

std::optional<std::vector<Key>> Remote::scan(std::string_view kind, TimePoint deadline) {
  const std::string start = settings().name(kind, "");
  const auto names = scan_names(client_, start, deadline);
  if (!names) return std::nullopt;
  std::vector<Key> keys;
  for (const std::string& name : *names) {
    if (const auto key = Key::parse(name.substr(start.size()))) keys.push_back(*key);
  }
  return keys;
}

std::optional<Remote::Usage> Remote::usage(TimePoint deadline) {
  const auto entries = scan("entry", deadline);
  const auto leases = scan("lease", deadline);
  const auto replies = client_.ask({{"INFO"}}, deadline);
  if (!entries || !leases || !replies) return std::nullopt;
  Usage usage;
  usage.entries = entries->size();
  usage.compiling = leases->size();
  const std::string& text = replies->front().text;
  const auto number = [&](std::string_view name) {
    const std::string_view value = info_value(text, name);
    std::uint64_t parsed = 0;
    std::from_chars(value.data(), value.data() + value.size(), parsed);
    return parsed;
  };
  usage.memory = number("used_memory");
  usage.max_memory = number("maxmemory");
  usage.evicted = number("evicted_keys");
  const std::string_view valkey = info_value(text, "valkey_version");
  usage.version = valkey.empty() ? fmt::format("Redis {}", info_value(text, "redis_version"))
                                 : fmt::format("Valkey {}", valkey);
  usage.version = printable(usage.version);
  return usage;
}

}  // namespace kiln::cache
