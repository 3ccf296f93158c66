// A Redis or Valkey server of the test's own, on a Unix socket in a directory of its own; and a
// proxy in front of it, which does to what passes whatever a network and a broken server may do.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "base/io.hpp"
#include "base/subprocess.hpp"
#include "base/text.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/temporary_directory.hpp"

namespace kiln::testing {

/// The path of a server program; empty if there is none. The packages of the clients' tools have
/// the server too, as a program that checks its files when it is called by that name.
inline std::string redis_program() {
  for (const char* name :
       {"valkey-server", "redis-server", "valkey-check-rdb", "redis-check-rdb"}) {
    for (const std::string& directory : base::split(base::program_path(), ':')) {
      std::string path = directory + "/" + name;
      if (::access(path.c_str(), X_OK) == 0) return path;
    }
  }
  return {};
}

inline sockaddr_un socket_address(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  EXPECT_LT(path.size(), sizeof address.sun_path);
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

inline base::UniqueFd connect_socket(const std::string& path) {
  base::UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = socket_address(path);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return {};
  }
  return fd;
}

/// A port of the loopback address that nobody listens on; somebody may by the time it is used.
inline int unused_port() {
  const base::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const place = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(::bind(fd.get(), place, size), 0);
  EXPECT_EQ(::getsockname(fd.get(), place, &size), 0);
  return ntohs(address.sin_port);
}

class RedisServer {
 public:
  explicit RedisServer(std::vector<std::string> options = {}) : options_(std::move(options)) {
    start();
  }
  ~RedisServer() { stop(); }
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  /// Returns when it answers.
  void start() {
    const std::string program = redis_program();
    std::vector<std::string> words = {
        "redis-server", "--port", "0",     "--unixsocket",    socket(),    "--save", "",
        "--appendonly", "no",     "--dir", directory_.path(), "--logfile", log()};
    words.insert(words.end(), options_.begin(), options_.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const pid_t parent = ::getpid();
    child_ = fork_child([&] {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() == parent) ::execv(program.c_str(), arguments.data());
      return 127;
    });
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!connect_socket(socket())) {
      const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(1);
      ASSERT_FALSE(base::ends_before(child_, soon)) << "the server ended: " << read_file(log());
      ASSERT_LT(std::chrono::steady_clock::now(), limit);
    }
  }
  void stop() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    base::wait_for(child_);
    child_ = -1;
    ::unlink(socket().c_str());
  }

  std::string socket() const { return directory_.path("server"); }
  std::string log() const { return directory_.path("log"); }

 private:
  const TemporaryDirectory directory_;
  const std::vector<std::string> options_;
  pid_t child_ = -1;
};

/// Passes on what comes, until told otherwise. The settings are read whenever something passes.
class FaultProxy {
 public:
  explicit FaultProxy(std::string server) : server_(std::move(server)), path_(server_ + ".proxy") {
    ::unlink(path_.c_str());
    listener_ = base::UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_un address = socket_address(path_);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
              0);
    EXPECT_EQ(::listen(listener_.get(), 64), 0);
    thread_ = std::thread([this] { accept_all(); });
  }
  ~FaultProxy() {
    ::eventfd_write(end_.get(), 1);
    thread_.join();
    for (std::thread& one : passing_) one.join();
    ::unlink(path_.c_str());
  }
  FaultProxy(const FaultProxy&) = delete;
  FaultProxy& operator=(const FaultProxy&) = delete;

  const std::string& socket() const { return path_; }
  /// Connections that were made.
  int connections() const { return connections_; }
  /// How often something was asked after an answer, or for the first time.
  int round_trips() const { return round_trips_; }

  // What happens to replies, counted in bytes from the start of each connection.
  std::atomic<long> cut_after{-1};   ///< then it closes both ends
  std::atomic<long> change_at{-1};   ///< this byte is another one
  std::atomic<long> slow_after{-1};  ///< from here on a byte a second
  std::atomic<bool> silent{false};   ///< no reply passes
  std::atomic<int> delay_ms{0};      ///< before each
  /// In place of each reply, if it is not empty, from the second of a connection on: the first is
  /// to the greeting. Set it before something passes.
  std::string answer;

 private:
  // False: this ends.
  bool wait_readable(int a, int b, pollfd* found) const {
    found[0] = {end_.get(), POLLIN, 0};
    found[1] = {a, POLLIN, 0};
    found[2] = {b, POLLIN, 0};
    return ::poll(found, 3, -1) > 0 && found[0].revents == 0;
  }
  bool pause(int milliseconds) const {
    pollfd end = {end_.get(), POLLIN, 0};
    return ::poll(&end, 1, milliseconds) == 0;
  }
  static bool send_all(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

  void accept_all() {
    pollfd found[3];
    while (wait_readable(listener_.get(), -1, found)) {
      const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) continue;
      ++connections_;
      passing_.emplace_back([this, fd] { pass(base::UniqueFd(fd)); });
    }
  }

  void pass(base::UniqueFd client) {
    const base::UniqueFd server = connect_socket(server_);
    if (!server) return;
    std::array<char, 65536> buffer;
    long passed = 0;
    int replies = 0;
    bool is_answered = true;
    pollfd found[3];
    while (wait_readable(client.get(), server.get(), found)) {
      if (found[1].revents != 0) {
        const ssize_t count = ::recv(client.get(), buffer.data(), buffer.size(), 0);
        if (count <= 0) return;
        if (std::exchange(is_answered, false)) ++round_trips_;
        if (!send_all(server.get(), {buffer.data(), static_cast<std::size_t>(count)})) return;
      }
      if (found[2].revents != 0) {
        const ssize_t count = ::recv(server.get(), buffer.data(), buffer.size(), 0);
        if (count <= 0) return;
        is_answered = true;
        std::string bytes(buffer.data(), static_cast<std::size_t>(count));
        if (++replies > 1 && !answer.empty()) bytes = answer;
        if (silent) continue;
        if (delay_ms > 0 && !pause(delay_ms)) return;
        if (!reply(client.get(), bytes, passed)) return;
        passed += static_cast<long>(bytes.size());
      }
    }
  }

  bool reply(int client, std::string bytes, long passed) const {
    const auto reached = [&](long at) {
      return at >= 0 && at < passed + static_cast<long>(bytes.size());
    };
    const auto index = [&](long at) { return static_cast<std::size_t>(std::max(at - passed, 0L)); };
    const long change = change_at;
    if (reached(change) && change >= passed) bytes[index(change)] ^= 0x15;
    if (reached(cut_after)) {
      send_all(client, bytes.substr(0, index(cut_after)));
      return false;
    }
    if (!reached(slow_after)) return send_all(client, bytes);
    const std::size_t quick = index(slow_after);
    if (!send_all(client, bytes.substr(0, quick))) return false;
    for (std::size_t i = quick; i < bytes.size(); ++i) {
      if (!send_all(client, bytes.substr(i, 1)) || !pause(1000)) return false;
    }
    return true;
  }

  const std::string server_;
  const std::string path_;
  const base::UniqueFd end_{::eventfd(0, EFD_CLOEXEC)};
  base::UniqueFd listener_;
  std::atomic<int> connections_{0};
  std::atomic<int> round_trips_{0};
  std::vector<std::thread> passing_;
  std::thread thread_;
};

}  // namespace kiln::testing
