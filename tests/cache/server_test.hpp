// What tests on a real server have in common.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/cache.hpp"
#include "cache/remote/connection.hpp"
#include "sample.hpp"
#include "tests/support/redis_server.hpp"

namespace kiln::cache {

/// What a build of kernels does with one key.
inline Entry build(Cache& cache, const Key& key, const std::function<Entry()>& compile) {
  if (auto found = cache.find(key)) return *std::move(found);
  const auto deadline = std::chrono::steady_clock::now() + cache.config().wait_limit;
  const Locked locked = cache.lock(key, deadline);
  if (locked.entry) return *locked.entry;
  if (auto fetched = std::move(cache.fetch({&key, 1}).front())) return *std::move(fetched);
  for (int turn = 0;; ++turn) {
    Cache::Claim claim = std::move(cache.claim({&key, 1}).front());
    if (claim.entry) return *std::move(claim.entry);
    if (!claim.elsewhere || std::chrono::steady_clock::now() >= deadline) {
      Entry entry = compile();
      cache.publish(key, entry);
      return entry;
    }
    cache.pause_for_others(turn);
  }
}

/// Skipped, with the reason, where there can be no server.
class ServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = remote_unsupported({}); !reason.empty()) GTEST_SKIP() << reason;
    if (testing::redis_program().empty()) {
      GTEST_SKIP() << "neither valkey-server nor redis-server is installed";
    }
    server_ = std::make_unique<testing::RedisServer>();
  }

  static constexpr std::string_view kMachineSecret = "0123456789abcdef0123456789abcdef";

  /// The cache of a machine of that name, which waits so long for who compiles what it needs.
  std::shared_ptr<Cache> machine(const std::string& name, const std::string& options,
                                 std::chrono::milliseconds wait_limit) {
    Config config = config_for(temporary_.path(name));
    config.secret = Secret(kMachineSecret);
    config.remote = settings_at(server_->socket(), options);
    config.wait_limit = wait_limit;
    return Cache::open(config);
  }

  static RemoteSettings settings_at(const std::string& socket, const std::string& options) {
    return parse_remote_url("redis+unix://" + socket + "?" + options);
  }
  static bool flush(Cache& cache) {
    return cache.flush_remote(std::chrono::steady_clock::now() + std::chrono::seconds(60));
  }
  /// What the server says to a command, asked past any proxy.
  Reply ask(const Command& command) {
    const RemoteSettings settings = settings_at(server_->socket(), "");
    const TimePoint deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    Connection connection(settings, -1);
    std::vector<Reply> replies;
    EXPECT_EQ(connection.open(deadline), "");
    EXPECT_FALSE(connection.exchange({&command, 1}, 64 << 20, deadline, replies));
    return replies.empty() ? Reply{} : std::move(replies.front());
  }

  const TemporaryDirectory temporary_{fast_directory(256 << 20)};
  std::unique_ptr<testing::RedisServer> server_;
};

}  // namespace kiln::cache
