// Numbers for Prometheus over HTTP, for this machine only.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "base/io.hpp"
#include "cache/stats.hpp"
#include "tool/compile_server.hpp"

namespace kiln::tool {

/// A compile server's counts and queues and its cache's counts, in Prometheus' text format.
std::string metrics_text(const CompileServer::State& state, const cache::Stats& stats);

/// Answers GET /metrics on a port of 127.0.0.1, on one thread. A client has two seconds in all, and
/// few are served at a time; the others wait.
class MetricsPort {
 public:
  /// Port 0 is one of the kernel's choice. Throws Error(io) if it cannot be had.
  MetricsPort(int port, std::function<std::string()> text);
  ~MetricsPort();
  MetricsPort(const MetricsPort&) = delete;
  MetricsPort& operator=(const MetricsPort&) = delete;
  int port() const { return port_; }

 private:
  void serve();

  const std::function<std::string()> text_;
  base::UniqueFd listener_;
  base::UniqueFd end_;
  int port_ = 0;
  std::thread thread_;
};

}  // namespace kiln::tool
