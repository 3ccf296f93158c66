#include "cache/cache.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "cache/bundle.hpp"
#include "kiln/error.hpp"
#include "kiln/version.hpp"

namespace kiln::cache {
namespace {

constexpr std::uint64_t kLookUpsPerFlush = 4096;
// How long a look-up on the server may take where no compile has been timed yet, which is less than
// any takes; and where compiles take long.
constexpr std::chrono::milliseconds kUnknownCompile{100};
constexpr std::chrono::milliseconds kLongestLookUp{2000};
constexpr std::size_t kAskedAtOnce = 128;

}  // namespace

std::shared_ptr<Cache> Cache::open(Config config) {
  return std::make_shared<Cache>(std::move(config));
}

Cache::Cache(Config config)
    : config_(std::move(config)), io_(config_.io ? *config_.io : base::system_io()) {
  const auto touch_interval =
      std::chrono::duration_cast<std::chrono::nanoseconds>(config_.touch_interval).count();
  if (!config_.directory.empty()) {
    user_ = std::make_unique<Directory>(
        io_, DirectoryOptions{config_.directory, true, config_.max_size, touch_interval},
        counters_);
  } else if (!config_.why_uncached.starts_with("KILN_CACHE=")) {  // which the user knows
    log_once(LogLevel::warning, "cache.none",
             fmt::format("cache: nothing is kept on disk: {}", config_.why_uncached));
  }
  for (const std::string& path : config_.readonly) {
    layers_.push_back(open_readonly_layer(io_, path, config_.secret, counters_));
  }
  use_remote(config_.remote, config_.secret);
}

Cache::~Cache() { flush_stats(); }

std::optional<Loaded> Cache::look_up(const Key& key, Parts parts) {
  if (user_) {
    if (auto loaded = user_->load(key, parts)) return loaded;
  }
  if (layers_.empty()) return std::nullopt;
  {
    const std::lock_guard lock(mutex_);
    if (rejected_.contains(key)) return std::nullopt;
  }
  for (const auto& layer : layers_) {
    auto loaded = layer->load(key, parts);
    if (!loaded) continue;
    if (parts == Parts::code) copy_into_user(key, std::move(loaded->bytes));
    return loaded;
  }
  return std::nullopt;
}

void Cache::copy_into_user(const Key& key, std::string bytes) {
  if (!user_) return;
  const auto copy = [this, key, bytes = std::move(bytes)] {
    {
      const std::lock_guard lock(mutex_);
      if (rejected_.contains(key)) return;
    }
    user_->publish(key, bytes);
  };
  config_.later ? config_.later(copy) : copy();
}

std::optional<Entry> Cache::find_and_count(const Key& key, bool count_miss) {
  auto loaded = look_up(key, Parts::code);
  if (loaded || count_miss) counters_.add(loaded ? Count::hits : Count::misses);
  if (!loaded) return std::nullopt;
  return std::move(loaded->entry);
}

std::optional<Entry> Cache::find(const Key& key) {
  auto entry = find_and_count(key, true);
  if (++look_ups_ % kLookUpsPerFlush == 0) flush_stats();
  return entry;
}

std::optional<Entry> Cache::read(const Key& key) {
  auto loaded = look_up(key, Parts::all);
  if (!loaded) return std::nullopt;
  return std::move(loaded->entry);
}

void Cache::use_remote(std::optional<RemoteSettings> settings, Secret secret) {
  std::shared_ptr<Remote> made;
  std::shared_ptr<RequestQueue> requests;
  if (settings) {
    requests = std::make_shared<RequestQueue>(*settings, secret, counters_);
    made = std::make_shared<Remote>(*std::move(settings), std::move(secret), counters_);
  }
  const std::lock_guard lock(mutex_);
  remote_.swap(made);
  requests_.swap(requests);
}

std::shared_ptr<Remote> Cache::remote() {
  const std::lock_guard lock(mutex_);
  return remote_;
}

std::shared_ptr<RequestQueue> Cache::requests() {
  const std::lock_guard lock(mutex_);
  return requests_;
}

bool Cache::share(const Key& key, const Key& source) {
  const std::shared_ptr<Remote> remote = this->remote();
  if (!remote) return false;
  const auto deadline = std::chrono::steady_clock::now() + remote->settings().answer;
  remote->flush(deadline);
  if (remote->fetch({&key, 1}, deadline).front()) return remote->point(key, source, deadline);
  const auto loaded = look_up(key, Parts::all);
  return loaded && remote->push(key, source, loaded->bytes, deadline) != Remote::Pushed::failed;
}

bool Cache::flush_remote(std::chrono::steady_clock::time_point deadline) {
  const std::shared_ptr<Remote> remote = this->remote();
  return !remote || remote->flush(deadline);
}

std::chrono::steady_clock::time_point Cache::remote_deadline(const Remote& remote, std::size_t keys,
                                                             std::chrono::milliseconds longest) {
  const auto now = std::chrono::steady_clock::now();
  if (remote.settings().wait.count() > 0) return now + remote.settings().wait;
  const Stats known = stats();
  std::chrono::milliseconds compile = kUnknownCompile;
  if (known[Count::compiled] > 0 && known[Count::compile_ms] > 0) {
    compile = std::chrono::milliseconds(known[Count::compile_ms] / known[Count::compiled]);
  }
  return now + std::min(compile * static_cast<int>(keys), longest);
}

std::vector<std::size_t> Cache::acceptable(std::span<const Key> keys) {
  std::vector<std::size_t> positions;
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (!rejected_.contains(keys[i])) positions.push_back(i);
  }
  return positions;
}

std::vector<std::optional<Entry>> Cache::fetch(std::span<const Key> keys) {
  std::vector<std::optional<Entry>> found(keys.size());
  const std::shared_ptr<Remote> remote = this->remote();
  if (!remote) return found;
  const std::vector<std::size_t> asked = acceptable(keys);
  if (asked.empty()) return found;
  std::vector<Key> wanted;
  for (const std::size_t i : asked) wanted.push_back(keys[i]);
  auto loaded = remote->fetch(wanted, remote_deadline(*remote, wanted.size(), kLongestLookUp));
  for (std::size_t k = 0; k < asked.size(); ++k) {
    if (!loaded[k]) continue;
    if (user_) user_->publish(wanted[k], loaded[k]->bytes);
    found[asked[k]] = std::move(loaded[k]->entry);
  }
  return found;
}

bool Cache::is_local(const Key& key) {
  return user_->exists(key) || (!layers_.empty() && look_up(key, Parts::code));
}

void Cache::ask_in_parts(Remote& remote, std::span<const Key> all,
                         const std::function<void(std::span<const Key>, TimePoint)>& ask) {
  for (std::size_t at = 0; at < all.size(); at += kAskedAtOnce) {
    const auto part = all.subspan(at, std::min(kAskedAtOnce, all.size() - at));
    ask(part, remote_deadline(remote, part.size(), remote.settings().answer));
    if (!remote.health().problem.empty()) return;
  }
}

void Cache::prefetch(std::span<const Key> keys) {
  const std::shared_ptr<Remote> remote = this->remote();
  if (!remote || !user_) return;
  std::vector<Key> missing;
  for (const std::size_t i : acceptable(keys)) {
    if (!is_local(keys[i])) missing.push_back(keys[i]);
  }
  ask_in_parts(*remote, missing, [&](std::span<const Key> part, TimePoint deadline) {
    const auto loaded = remote->fetch(part, deadline);
    for (std::size_t i = 0; i < part.size(); ++i) {
      if (!loaded[i] || !user_->publish(part[i], loaded[i]->bytes)) continue;
      const std::lock_guard lock(mutex_);
      prefetched_.insert(part[i]);
    }
  });
}

bool Cache::take_prefetched(const Key& key) {
  const std::lock_guard lock(mutex_);
  return prefetched_.erase(key) > 0;
}

std::vector<std::optional<Key>> Cache::find_sources(std::span<const Key> sources) {
  std::vector<std::optional<Key>> keys;
  if (const std::shared_ptr<Remote> remote = this->remote()) {
    ask_in_parts(*remote, sources, [&](std::span<const Key> part, TimePoint deadline) {
      const auto found = remote->find_sources(part, deadline);
      keys.insert(keys.end(), found.begin(), found.end());
    });
  }
  keys.resize(sources.size());
  return keys;
}

std::optional<Cache::Other> Cache::fetch_any_toolchain(std::span<const Ingredient> ingredients) {
  const std::shared_ptr<Remote> remote = this->remote();
  if (!remote) return std::nullopt;
  const auto wait = remote->settings().wait;
  const auto deadline =
      std::chrono::steady_clock::now() + (wait.count() > 0 ? wait : kLongestLookUp);
  const Key source = key_without_toolchain(summarise(ingredients));
  const std::optional<Key> key = remote->find_sources({&source, 1}, deadline).front();
  if (!key || acceptable({&*key, 1}).empty()) return std::nullopt;
  auto loaded = std::move(remote->fetch({&*key, 1}, deadline).front());
  if (!loaded) return std::nullopt;
  if (user_) user_->publish(*key, loaded->bytes);
  return Other{*key, std::move(loaded->entry)};
}

std::vector<Cache::Claim> Cache::claim(std::span<const Key> keys) {
  std::vector<Claim> claims(keys.size());
  const std::shared_ptr<Remote> remote = this->remote();
  if (!remote) return claims;
  const std::vector<std::size_t> asked = acceptable(keys);
  if (asked.empty()) return claims;
  std::vector<Key> wanted;
  for (const std::size_t i : asked) wanted.push_back(keys[i]);
  auto claimed = remote->claim(wanted, remote_deadline(*remote, wanted.size(), kLongestLookUp));
  for (std::size_t k = 0; k < asked.size(); ++k) {
    Claim& claim = claims[asked[k]];
    claim.lease = std::move(claimed[k].lease);
    claim.elsewhere = claimed[k].elsewhere;
    if (!claimed[k].loaded) continue;
    if (user_) user_->publish(wanted[k], claimed[k].loaded->bytes);
    claim.entry = std::move(claimed[k].loaded->entry);
  }
  return claims;
}

void Cache::pause_for_others(int turn) {
  constexpr int kLongest = 6;  // 5 ms, 10 ms, ... 320 ms
  static thread_local std::minstd_rand random{std::random_device{}()};
  const int most = 5000 << std::min(turn, kLongest);
  io_.pause(std::chrono::microseconds(std::uniform_int_distribution<int>(most / 2, most)(random)));
}

bool Cache::publish(const Key& key, const Entry& entry) {
  counters_.add(Count::compiled);
  counters_.add(Count::compile_ms, static_cast<std::uint64_t>(entry.metadata.compile_ms));
  const bool kept = keep(key, entry);
  flush_stats();
  return kept;
}

bool Cache::keep(const Key& key, const Entry& entry) {
  const std::shared_ptr<Remote> remote = this->remote();
  if (!user_ && !remote) return false;
  const auto refuse = [&](std::string_view reason) {
    log_once(LogLevel::warning, fmt::format("cache.publish:{}", reason),
             fmt::format("cache: '{}' is not kept: {}", entry.metadata.function, reason));
    return false;
  };
  if (entry.metadata.toolchain_identity.empty()) {
    return refuse(fmt::format("the identity of its toolchain ('{}') could not be established",
                              entry.metadata.toolchain));
  }
  if (const std::string reason = check_elf(entry.code); !reason.empty()) return refuse(reason);

  const bool complete = entry.metadata.created != 0 && !entry.metadata.kiln_version.empty();
  const auto store = [&](const Entry& stored) {
    const std::string file = encode(key, stored);
    if (remote) {
      remote->publish(key, key_without_toolchain(stored.metadata.ingredients), file);
    }
    return user_ && user_->publish(key, file);
  };
  if (complete) return store(entry);
  Entry stamped = entry;
  if (stamped.metadata.created == 0) stamped.metadata.created = io_.now() / 1'000'000'000;
  if (stamped.metadata.kiln_version.empty()) stamped.metadata.kiln_version = KILN_VERSION_STRING;
  return store(stamped);
}

Locked Cache::lock(const Key& key, std::chrono::steady_clock::time_point deadline) {
  if (!user_) return {};
  std::optional<Entry> entry;
  const auto find = [&] {
    entry = find_and_count(key, false);
    return entry.has_value();
  };
  auto lock = std::make_unique<KeyLock>(*user_, key, deadline, find);
  // Somebody may have published between our look and our lock.
  if (lock->state() == KeyLock::State::published || find()) {
    if (lock->waited()) counters_.add(Count::waited);
    return {std::move(entry), nullptr};
  }
  if (lock->state() == KeyLock::State::expired) {
    log(LogLevel::info, fmt::format("cache {}: another process has been compiling {} for {} ms; "
                                    "not waiting any longer",
                                    user_->path(), key.hex(), config_.wait_limit.count()));
  }
  return {std::nullopt, std::move(lock)};
}

std::optional<Key> Cache::find_any_toolchain(std::span<const Ingredient> ingredients) {
  std::call_once(indexed_, [this] {
    const auto add = [this](const Head& head) {
      Newest& newest = by_source_[key_without_toolchain(head.metadata.ingredients)];
      if (newest.key == Key{} || newest.created < head.metadata.created) {
        newest = {head.key, head.metadata.created};
      }
    };
    if (user_) user_->heads(add);
    for (const auto& layer : layers_) layer->heads(add);
  });
  const auto found = by_source_.find(key_without_toolchain(summarise(ingredients)));
  if (found == by_source_.end()) return std::nullopt;
  return found->second.key;
}

void Cache::reject(const Key& key, std::string_view reason) {
  {
    const std::lock_guard lock(mutex_);
    rejected_.insert(key);
  }
  if (user_) user_->quarantine(key, fmt::format("was refused: {}", reason));
  if (const auto remote = this->remote()) remote->reject(key, reason);
}

std::string Cache::health_error() { return user_ ? user_->health_error() : config_.why_uncached; }

Stats Cache::stats() {
  Stats sum = counters_.read();
  const std::shared_ptr<const base::UniqueFd> root = user_ ? user_->root(false) : nullptr;
  if (!root) return sum;
  const Stats kept = read_stats(io_, root->get());
  for (std::size_t i = 0; i < kCounts; ++i) sum.values[i] += kept.values[i];
  return sum;
}

bool Cache::zero_stats() {
  counters_.take();
  const std::shared_ptr<const base::UniqueFd> root = user_ ? user_->root(false) : nullptr;
  return !root || kiln::cache::zero_stats(io_, root->get());
}

void Cache::flush_stats() {
  if (counters_.read().values == Stats{}.values) return;
  const std::shared_ptr<const base::UniqueFd> root = user_ ? user_->root(false) : nullptr;
  if (!root) return;
  const Stats stats = counters_.take();
  if (add_stats(io_, root->get(), stats)) return;
  for (std::size_t i = 0; i < kCounts; ++i) {
    counters_.add(static_cast<Count>(i), stats.values[i]);
  }
}

}  // namespace kiln::cache
