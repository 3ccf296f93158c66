// `kiln serve`: a compile server for machines that cannot compile, and what all of them do.
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <optional>

#include "jit/service/compile.hpp"
#include "kernel/process_cache.hpp"
#include "kernel/remote_compile.hpp"
#include "kernel/target.hpp"
#include "kiln/error.hpp"
#include "tool/arguments.hpp"
#include "tool/commands.hpp"
#include "tool/compile_server.hpp"
#include "tool/metrics.hpp"
#include "tool/print.hpp"

namespace kiln::tool {
namespace {

struct Tier {
  cache::RemoteSettings settings;
  cache::Secret secret;
};

/// The server of --remote, or else of KILN_REMOTE_CACHE; the process's cache uses it from now on.
Tier use_tier(const ServeOptions& options) {
  cache::Cache& cache = process_cache();
  const cache::Secret& secret = cache.config().secret;
  if (options.remote.empty()) {
    if (cache.config().remote) return {*cache.config().remote, secret};
    const std::string& why = cache.config().why_no_remote;
    throw Error(Code::not_found,
                fmt::format("serve: {}", why.empty() ? "there is no server: give --remote, or set "
                                                       "KILN_REMOTE_CACHE, and KILN_CACHE_SECRET"
                                                     : "KILN_REMOTE_CACHE: " + why));
  }
  cache::RemoteSettings settings = cache::parse_remote_url(options.remote);
  if (!settings.password.empty()) {
    throw UsageError(
        "serve: --remote: a password in an argument can be read by everybody on this machine; set "
        "KILN_REMOTE_CACHE instead");
  }
  if (const std::string problem = cache::remote_problem(settings, secret); !problem.empty()) {
    throw Error(Code::invalid_argument, fmt::format("serve: --remote: {}", problem));
  }
  cache.use_remote(settings, secret);
  return {std::move(settings), secret};
}

/// What this machine's compilers make, or as much of it as was asked for.
std::vector<std::string> served_kinds(const std::vector<std::string>& targets) {
  std::vector<std::string> kinds;
  const auto add = [&](const std::string& target) {
    const std::string kind = kind_of(resolve_target(target));
    if (std::ranges::find(kinds, kind) == kinds.end()) kinds.push_back(kind);
  };
  for (const std::string& target : targets) {
    const jit::Toolchain toolchain = jit::toolchain(jit::toolchain_for(target));
    if (toolchain.identity.empty()) {
      throw Error(Code::unsupported,
                  fmt::format("serve: --target {}: cannot tell which compiler {} is, so nobody can "
                              "use what it makes",
                              target, toolchain.path));
    }
    add(target);
  }
  if (!targets.empty()) return kinds;
  for (const jit::ToolchainKind kind :
       {jit::ToolchainKind::hiprtc, jit::ToolchainKind::nvrtc, jit::ToolchainKind::host}) {
    try {
      if (jit::toolchain(kind).identity.empty()) continue;
      for (const std::string& target : jit::known_targets(kind)) add(target);
    } catch (const Error& error) {
      if (error.code() != Code::not_found) throw;
    }
  }
  if (kinds.empty()) {
    throw Error(Code::not_found, "serve: this machine has no compiler; see kiln doctor");
  }
  return kinds;
}

std::string processors_of(const std::vector<std::string>& kinds) {
  std::string text;
  for (const std::string& kind : kinds) {
    text += (text.empty() ? "" : " ") + kind.substr(0, kind.find('@'));
  }
  return text;
}

Json served_json(const cache::ServedCounts& served) {
  Json json = Json::object();
  for (std::size_t i = 0; i < cache::kServed; ++i) {
    json[std::string(cache::name(static_cast<cache::Served>(i)))] = served[i];
  }
  return json;
}

Json status_json(const cache::QueueStatus& status, const std::string& server) {
  Json json = {{"server", server}};
  Json servers = Json::array();
  for (const cache::RemoteServer& one : status.servers) {
    servers.push_back({{"id", one.id},
                       {"host", one.host},
                       {"pid", one.pid},
                       {"version", one.version},
                       {"started", iso_time(static_cast<std::int64_t>(one.started))},
                       {"jobs", one.jobs},
                       {"running", one.running},
                       {"kinds", one.kinds},
                       {"served", served_json(one.served)}});
  }
  json["servers"] = std::move(servers);
  json["servers_refused"] = status.refused_servers;
  Json queues = Json::array();
  std::uint64_t waiting = 0, running = 0;
  for (const cache::ServedQueue::Length& queue : status.queues) {
    waiting += queue.waiting;
    running += queue.running;
    if (queue.waiting + queue.running == 0) continue;
    queues.push_back({{"kind", queue.kind},
                      {"priority", queue.priority},
                      {"waiting", queue.waiting},
                      {"running", queue.running}});
  }
  json["waiting"] = waiting;
  json["running"] = running;
  json["queues"] = std::move(queues);
  json["served"] = served_json(status.served);
  return json;
}

int show_status(const Tier& tier, bool json) {
  const auto limit = 2 * tier.settings.answer + std::chrono::seconds(1);
  const auto status =
      cache::queue_status(tier.settings, tier.secret, std::chrono::steady_clock::now() + limit);
  if (!status) {
    throw Error(Code::io, fmt::format("serve --status: {}: the server does not answer; see kiln "
                                      "doctor",
                                      tier.settings.display()));
  }
  if (json) {
    print_json(status_json(*status, tier.settings.display()));
    return kSuccess;
  }
  print("{}\n", tier.settings.display());
  if (status->servers.empty()) print("no compile server is alive\n");
  Table servers({"SERVER", "JOBS", "RUNNING", "COMPILED", "FOUND", "FAILED", "REFUSED", "FOR"});
  for (std::size_t column = 1; column < 7; ++column) servers.align_right(column);
  const auto count = [](const cache::ServedCounts& served, cache::Served one) {
    return fmt::format("{}", served[static_cast<std::size_t>(one)]);
  };
  for (const cache::RemoteServer& one : status->servers) {
    servers.row({fmt::format("{}:{}", one.host, one.pid), fmt::format("{}", one.jobs),
                 fmt::format("{}", one.running), count(one.served, cache::Served::compiled),
                 count(one.served, cache::Served::found), count(one.served, cache::Served::failed),
                 count(one.served, cache::Served::refused), processors_of(one.kinds)});
  }
  if (!status->servers.empty()) servers.print();
  Table queues({"QUEUE", "PRIORITY", "WAITING", "RUNNING"});
  queues.align_right(2);
  queues.align_right(3);
  bool any = false;
  for (const cache::ServedQueue::Length& queue : status->queues) {
    if (queue.waiting + queue.running == 0) continue;
    any = true;
    queues.row({queue.kind, queue.priority, fmt::format("{}", queue.waiting),
                fmt::format("{}", queue.running)});
  }
  if (any) queues.print();
  Table totals;
  totals.row({dim("answered so far, by all"), ""});
  totals.align_right(1);
  for (std::size_t i = 0; i < cache::kServed; ++i) {
    const auto one = static_cast<cache::Served>(i);
    const std::string name(cache::name(one));
    totals.row(
        {one == cache::Served::taken_over ? "taken over" : name, count(status->served, one)});
  }
  totals.print();
  return kSuccess;
}

/// Readable when somebody wants this process to end. Before any thread is started.
base::UniqueFd stop_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return base::UniqueFd(::signalfd(-1, &signals, SFD_CLOEXEC));
}

void log_with_time() {
  set_log([](LogLevel level, std::string_view message) {
    if (level == LogLevel::debug) return;
    print(stderr, "{} {}{}\n", iso_time(static_cast<std::int64_t>(std::time(nullptr))),
          level == LogLevel::warning ? "warning: " : "", message);
  });
}

}  // namespace

int run_serve(const ServeOptions& options) {
  if (options.status) return show_status(use_tier(options), options.json);
  if (options.json) throw UsageError("serve: --json is for --status");
  if (jit::compiles_remotely()) {
    throw Error(Code::invalid_argument,
                "serve: KILN_COMPILE=remote: a compile server compiles here");
  }
  const base::UniqueFd stop = stop_signals();
  // What a compile of this process may use is read when the first is asked for.
  if (options.jobs > 0) ::setenv("KILN_COMPILE_JOBS", std::to_string(options.jobs).c_str(), 1);
  log_with_time();
  const Tier tier = use_tier(options);
  CompileServer server(tier.settings, tier.secret, served_kinds(parse_targets(options.targets)));
  std::unique_ptr<MetricsPort> metrics;
  if (options.metrics_port) {
    metrics = std::make_unique<MetricsPort>(*options.metrics_port, [&server] {
      return metrics_text(server.state(), process_cache().stats());
    });
    log(LogLevel::info,
        fmt::format("serve: metrics at http://127.0.0.1:{}/metrics", metrics->port()));
  }
  log(LogLevel::info, fmt::format("serve: {}: {} at a time, for {}", tier.settings.display(),
                                  jit::compile_jobs(), processors_of(server.state().server.kinds)));
  server.run(stop.get());
  return kSuccess;
}

}  // namespace kiln::tool
