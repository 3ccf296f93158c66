#include "cache/remote/remote.hpp"

#include <fmt/format.h>

#include <utility>

#include "cache/remote/value.hpp"
#include "kiln/error.hpp"

namespace kiln::cache {

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
    : secret_(std::move(secret)), counters_(counters), client_(std::move(settings)) {}
Remote::~Remote() = default;

std::string Remote::name_of(const Key& key) const {
  return fmt::format("{}:1:entry:{}", settings().prefix, key.hex());
}

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
  counters_.add(Count::remote_refused);
  {
    const std::lock_guard lock(mutex_);
    refused_.insert(key);
  }
  log_once(LogLevel::warning, fmt::format("remote cache {} {}", settings().display(), key.hex()),
           fmt::format("remote cache {}: the value of {} {}; not used, and replaced once the "
                       "kernel is compiled",
                       settings().display(), name_of(key), reason));
}

void Remote::reject(const Key& key, std::string_view reason) {
  refuse(key, fmt::format("was refused by a driver ({})", reason));
}

void Remote::publish(const Key& key, std::string_view file) {
  if (file.size() > settings().max_value) {
    counters_.add(Count::remote_failures);
    log_once(LogLevel::warning, "remote cache size " + settings().display(),
             fmt::format("remote cache {}: an entry of {} bytes is not sent, the bound is {}",
                         settings().display(), file.size(), settings().max_value));
    return;
  }
  bool was_refused = false;
  {
    const std::lock_guard lock(mutex_);
    was_refused = refused_.erase(key) > 0;
  }
  Command set = {"SET", name_of(key), encode_value(key, file, secret_)};
  if (!was_refused) set.emplace_back("NX");
  if (settings().ttl.count() > 0) {
    set.emplace_back("PX");
    set.push_back(std::to_string(settings().ttl.count()));
  }
  const auto done = [this](const std::vector<Reply>& replies) {
    if (replies.empty()) {
      counters_.add(Count::remote_failures);
    } else if (replies.front().is_error()) {
      counters_.add(Count::remote_failures);
      log_once(LogLevel::warning, "remote cache publish " + settings().display(),
               fmt::format("remote cache {}: the server keeps nothing new: {}",
                           settings().display(), printable(replies.front().text)));
    } else if (replies.front().type != Reply::Type::nil) {  // else another machine was first
      counters_.add(Count::remote_published);
    }
  };
  if (!client_.post({std::move(set)}, done)) counters_.add(Count::remote_failures);
}

}  // namespace kiln::cache
