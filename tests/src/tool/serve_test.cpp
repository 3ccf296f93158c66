// `kiln serve` as a process beside those that ask it: machines without a compiler get their
// kernels, whatever happens to the compile servers.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/io.hpp"
#include "base/subprocess.hpp"
#include "cache/remote/queue.hpp"
#include "jit/toolchain/toolchain.hpp"
#include "tests/src/tool/tool_process.hpp"
#include "tests/support/redis_server.hpp"
#include "tests/support/toolchains.hpp"

namespace kiln {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Clock = std::chrono::steady_clock;

constexpr auto kPatience = seconds(120);

class Serve : public testing::ToolTest {
 protected:
  void SetUp() override {
    KILN_NEED(host);
    if (testing::redis_program().empty()) {
      GTEST_SKIP() << "neither valkey-server nor redis-server is installed";
    }
    server_ = std::make_unique<testing::RedisServer>();
    environment_["KILN_CACHE_SECRET"] = "0123456789abcdef0123456789abcdef";
    set_options("lease=600ms");
    environment_["KILN_CACHE_DIR"] = path("client");
    const testing::Finished finished = run({"serve", "--status"});
    if (finished.err.find("without hiredis") != std::string::npos) GTEST_SKIP() << finished.err;
  }
  void TearDown() override {
    while (!servers_.empty()) stop(servers_.back(), SIGKILL);
  }

  void set_options(const std::string& options) {
    environment_["KILN_REMOTE_CACHE"] = "redis+unix://" + server_->socket() + "?" + options;
  }
  /// A host compiler that does `before` when it compiles.
  std::string compiler(const std::string& before) {
    const char* chosen = std::getenv("KILN_CXX");
    const std::string real = chosen != nullptr ? chosen : "c++";
    const std::string file = put("compiler", "#!/bin/sh\ncase \"$*\" in *kernel.cpp*) " + before +
                                                 " ;; esac\nexec " + real + " \"$@\"\n");
    ::chmod(file.c_str(), 0700);
    return file;
  }
  /// Starts a compile server with a directory of its own.
  pid_t start(const std::string& name, const std::vector<std::string>& arguments = {}) {
    return start(name, arguments, environment_);
  }
  pid_t start(const std::string& name, const std::vector<std::string>& arguments,
              std::map<std::string, std::string> environment) {
    std::vector<std::string> command = {KILN_TOOL, "serve", "--target", "cpu", "--jobs", "2"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    environment["KILN_CACHE_DIR"] = path(name);
    constexpr int kAppend = O_WRONLY | O_CREAT | O_APPEND;
    const base::SpawnRequest request{.command = std::move(command),
                                     .environment = variables_of(environment),
                                     .redirections = {{0, "/dev/null", O_RDONLY},
                                                      {1, "/dev/null", O_WRONLY},
                                                      {2, path(name + ".log"), kAppend}}};
    servers_.push_back(base::spawn(request, "cannot start the server"));
    return servers_.back();
  }
  int stop(pid_t pid, int signal) {
    ::kill(pid, signal);
    const int status = base::wait_for(pid).value();
    servers_.erase(std::ranges::find(servers_, pid));
    return status;
  }
  std::string log_of(const std::string& name) const { return read(path(name + ".log")); }

  json run_json(const std::vector<std::string>& arguments) {
    const testing::Finished finished = run(arguments);
    EXPECT_EQ(finished.code, 0) << finished.err;
    return json::parse(finished.out, nullptr, false);
  }
  json status() { return run_json({"serve", "--status", "--json"}); }
  template <class Condition>
  void wait_until(const char* what, Condition condition) {
    const auto limit = Clock::now() + kPatience;
    while (!condition()) {
      ASSERT_LT(Clock::now(), limit) << what;
      std::this_thread::sleep_for(milliseconds(20));
    }
  }
  void wait_for_servers(std::size_t count) {
    wait_until("servers", [&] { return status()["servers"].size() == count; });
  }

  /// A machine that has no compiler, or spares its own, from now on.
  void have_no_compiler() { environment_["KILN_CXX"] = "/nowhere"; }
  std::vector<std::string> compile(const std::string& expression) {
    return {"compile", expression, "--type", "x=f32[64]", "--target", "cpu"};
  }
  json compiled(const std::string& expression) {
    std::vector<std::string> arguments = compile(expression);
    arguments.emplace_back("--json");
    const json report = run_json(arguments);
    return report.is_array() ? report[0] : json::object();
  }

  std::unique_ptr<testing::RedisServer> server_;
  std::vector<pid_t> servers_;
};

TEST_F(Serve, GivesAMachineWithoutACompilerItsKernels) {
  start("server");
  wait_for_servers(1);
  have_no_compiler();
  EXPECT_EQ(compiled("x * x + 9")["cache"], "remote");
  EXPECT_EQ(compiled("x * x + 9")["cache"], "disk");
  // For another machine it is there already, and if the server has lost it, the compile server has
  // it still.
  environment_["KILN_CACHE_DIR"] = path("second");
  EXPECT_EQ(compiled("x * x + 9")["cache"], "remote");
  EXPECT_EQ(status()["served"]["compiled"], 1);
  server_->stop();
  server_->start();
  environment_["KILN_CACHE_DIR"] = path("third");
  EXPECT_EQ(compiled("x * x + 9")["cache"], "remote");
  EXPECT_EQ(status()["served"]["found"], 1);
  EXPECT_THAT(log_of("server"), Not(HasSubstr(environment_["KILN_CACHE_SECRET"])));
}

TEST_F(Serve, CompilesForAMachineThatSparesItsCompiler) {
  environment_["KILN_COMPILE"] = "remote";
  const testing::Finished alone = run(compile("x + 1"));
  EXPECT_EQ(alone.code, 0) << "nothing fails because nobody answers: " << alone.err;
  EXPECT_THAT(alone.err, HasSubstr("compiling here"));
  EXPECT_EQ(run({"serve", "--target", "cpu"}).code, 1) << "it would ask itself";
  environment_.erase("KILN_COMPILE");
  start("server");
  wait_for_servers(1);
  environment_["KILN_COMPILE"] = "remote";
  EXPECT_EQ(compiled("x + 2")["cache"], "remote");
}

TEST_F(Serve, WithoutACompileServerTheErrorSaysWhatToDo) {
  have_no_compiler();
  const auto before = Clock::now();
  const testing::Finished finished = run(compile("x + 1"));
  EXPECT_EQ(finished.code, 1);
  EXPECT_LT(Clock::now() - before, seconds(20)) << "nobody is waited for who is not there";
  EXPECT_THAT(finished.err, AllOf(HasSubstr("no compile server for x86-64 answered within"),
                                  HasSubstr("kiln serve --target"), HasSubstr("/nowhere")));
}

TEST_F(Serve, GivesTheCompilersLogOfWhatDoesNotCompile) {
  environment_["KILN_CXX"] = compiler("echo 'x.cpp:3:1: error: not today' >&2; exit 1");
  start("server");
  wait_for_servers(1);
  have_no_compiler();
  const testing::Finished finished = run(compile("x + 1"));
  EXPECT_EQ(finished.code, 1);
  EXPECT_THAT(finished.err, AllOf(HasSubstr("on the compile server"), HasSubstr("not today")));
  EXPECT_EQ(status()["served"]["failed"], 1);
  run(compile("x + 1"));
  EXPECT_EQ(status()["served"]["failed"], 1) << "the answer is kept for a while";
}

TEST_F(Serve, FinishesWhatItHasTakenWhenItIsToEnd) {
  environment_["KILN_CXX"] = compiler("sleep 1");
  const pid_t server = start("server");
  wait_for_servers(1);
  have_no_compiler();
  testing::Finished finished;
  std::thread client(
      [&] { finished = run(compile("x + 1"), {}, path("client.out"), path("client.err")); });
  wait_until("the request to be taken", [&] { return status()["running"] == 1; });
  const int ended = stop(server, SIGTERM);
  EXPECT_TRUE(WIFEXITED(ended) && WEXITSTATUS(ended) == 0) << log_of("server");
  client.join();
  EXPECT_EQ(finished.code, 0) << read(path("client.err"));
  const json after = status();
  EXPECT_EQ(after["servers"].size(), 0u);
  EXPECT_EQ(after["served"]["compiled"], 1);
  EXPECT_EQ(after["waiting"], 0);
  EXPECT_EQ(after["running"], 0);
}

TEST_F(Serve, RefusesToStartWithoutACompilerAndWithAPasswordThatAllCanRead) {
  have_no_compiler();
  testing::Finished finished = run({"serve", "--target", "cpu"});
  EXPECT_EQ(finished.code, 1);
  EXPECT_THAT(finished.err, HasSubstr("/nowhere"));
  finished = run({"serve", "--remote", "redis://:hunter2@127.0.0.1:1"});
  EXPECT_EQ(finished.code, 2);
  EXPECT_THAT(finished.err, AllOf(HasSubstr("KILN_REMOTE_CACHE"), Not(HasSubstr("hunter2"))));
  environment_.erase("KILN_CACHE_SECRET");
  finished = run({"serve", "--status"});
  EXPECT_EQ(finished.code, 1);
  EXPECT_THAT(finished.err, HasSubstr("KILN_CACHE_SECRET"));
}

// Signed by who has the secret, and still not believed.
TEST_F(Serve, RefusesARequestThatIsForAnotherKernelOrHasOtherOptions) {
  start("server");
  wait_for_servers(1);
  const std::string kind = status()["servers"][0]["kinds"][0];
  cache::Counters counters;
  cache::RequestQueue queue(cache::parse_remote_url(environment_["KILN_REMOTE_CACHE"]),
                            cache::Secret(environment_["KILN_CACHE_SECRET"]), counters);
  cache::RemoteRequest request;
  request.text = "extern \"C\" void kiln_kernel_entry() {}";
  request.target = jit::host_target();
  request.options = jit::compile_options(request.target, false);
  const auto refused = [&](const cache::Key& source) -> std::string {
    queue.post({&source, 1}, kind, cache::RequestPriority::foreground,
               [&](std::size_t) { return queue.sign(source, request); });
    std::optional<cache::RequestQueue::Answers> found;
    wait_until("an answer", [&] {
      found = queue.look({&source, 1}, kind);
      return found && found->answers[0].failure;
    });
    return found->answers[0].failure->message;
  };
  EXPECT_THAT(refused({1, 2}), HasSubstr("makes another kernel"));
  request.options.emplace_back("-fplugin=/tmp/plugin.so");
  EXPECT_THAT(refused({3, 4}), HasSubstr("other options"));
  request.target = "; rm -rf /";
  EXPECT_THAT(refused({5, 6}), HasSubstr("expected an AMD processor"));
  request.target = jit::host_target();
  request.options = jit::compile_options(request.target, false);
  request.text = "no place";
  EXPECT_THAT(refused({7, 8}), HasSubstr("no place"));
  EXPECT_EQ(status()["served"]["refused"], 4);
}

TEST_F(Serve, WithAnotherSecretNobodyIsAnswered) {
  start("server");
  wait_for_servers(1);
  const std::string secret = environment_["KILN_CACHE_SECRET"];
  have_no_compiler();
  environment_["KILN_CACHE_SECRET"] = "fedcba9876543210fedcba9876543210";
  environment_["KILN_COMPILE_TIMEOUT"] = "1";
  const testing::Finished finished = run(compile("x + 1"));
  EXPECT_EQ(finished.code, 1);
  EXPECT_THAT(finished.err, HasSubstr("no compile server for x86-64 answered"));
  EXPECT_EQ(status()["servers_refused"], 1);
  environment_["KILN_CACHE_SECRET"] = secret;
  EXPECT_GE(status()["served"]["refused"], 1);
}

base::UniqueFd connect_to_port(int port) {
  base::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  return fd;
}

std::string get(int port, const std::string& request) {
  const base::UniqueFd fd = connect_to_port(port);
  EXPECT_EQ(::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  std::string reply;
  char bytes[4096];
  for (ssize_t count = 0; (count = ::recv(fd.get(), bytes, sizeof bytes, 0)) > 0;) {
    reply.append(bytes, static_cast<std::size_t>(count));
  }
  return reply;
}

TEST_F(Serve, GivesNumbersToPrometheusAlsoBesideSlowClients) {
  start("server", {"--metrics-port", "0"});
  wait_for_servers(1);
  int port = 0;
  const std::string before = "http://127.0.0.1:";
  const std::string log = log_of("server");
  ASSERT_NE(log.find(before), std::string::npos) << log;
  port = std::stoi(log.substr(log.find(before) + before.size()));
  std::vector<base::UniqueFd> slow;
  for (int i = 0; i < 20; ++i) slow.push_back(connect_to_port(port));
  for (const base::UniqueFd& one : slow) ::send(one.get(), "GET /met", 8, MSG_NOSIGNAL);
  const std::string reply = get(port, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(reply, AllOf(HasSubstr("200 OK"),
                           HasSubstr("kiln_serve_requests_total{result=\"compiled\"} 0"),
                           HasSubstr("kiln_queue_waiting{kind=\"x86-64"),
                           HasSubstr("kiln_cache_remote_hits_total")));
  EXPECT_THAT(get(port, "GET /other HTTP/1.1\r\n\r\n"), HasSubstr("404"));
  EXPECT_EQ(get(port, std::string(8000, 'x')).find("200"), std::string::npos);
}

// Every request is answered, though each server that has taken one may be killed at any time. What
// was compiled twice is counted in the directories of the servers, and does no harm.
class ServersKilled : public Serve {
 protected:
  void compile_while_they_die(int kernels, int each, milliseconds between) {
    constexpr std::size_t kServers = 4;
    environment_["KILN_CXX"] = compiler("sleep 0.2");
    const std::map<std::string, std::string> with_compiler = environment_;
    std::vector<pid_t> alive;
    const auto name = [](std::size_t i) { return "server" + std::to_string(i); };
    for (std::size_t i = 0; i < kServers; ++i) alive.push_back(start(name(i)));
    wait_for_servers(kServers);
    std::atomic<bool> done{false};
    int killed = 0;
    std::thread killer([&] {
      for (std::size_t i = 0; !done; i = (i + 1) % kServers, ++killed) {
        std::this_thread::sleep_for(between);
        stop(alive[i], SIGKILL);
        alive[i] = start(name(i), {}, with_compiler);
      }
    });
    have_no_compiler();
    const auto before = Clock::now();
    for (int first = 0; first < kernels; first += each) {
      std::string manifest;
      for (int k = first; k < std::min(first + each, kernels); ++k) {
        const json line = {{"name", "f" + std::to_string(k)},
                           {"expression", "x * x + " + std::to_string(k)},
                           {"types", {{"x", "f32[64]"}}}};
        manifest += line.dump() + "\n";
      }
      const testing::Finished finished =
          run({"compile", "--manifest", put("manifest", manifest), "--target", "cpu", "--json"});
      EXPECT_EQ(finished.code, 0) << finished.err;
    }
    const std::chrono::duration<double> took = Clock::now() - before;
    done = true;
    killer.join();
    EXPECT_EQ(run_json({"cache", "stats", "--json"})["entries"], kernels);
    int compiled = 0;
    for (std::size_t i = 0; i < kServers; ++i) {
      environment_["KILN_CACHE_DIR"] = path(name(i));
      compiled += run_json({"cache", "stats", "--json"})["compiled"].get<int>();
    }
    const json served = status()["served"];
    std::printf("%d kernels, %d servers killed: %d compiles, %d requests taken over, %.1f s\n",
                kernels, killed, compiled, served["taken_over"].get<int>(), took.count());
    EXPECT_GT(killed, 0);
    // A server can lose with each of its ends what it was compiling, a unit for each of its jobs.
    EXPECT_LE(compiled, kernels + killed * 16);
  }
};

TEST_F(ServersKilled, EveryRequestIsAnswered) { compile_while_they_die(12, 6, milliseconds(800)); }

TEST_F(ServersKilled, EveryOfManyRequestsIsAnswered) {
  compile_while_they_die(400, 20, milliseconds(1000));
}

}  // namespace
}  // namespace kiln
