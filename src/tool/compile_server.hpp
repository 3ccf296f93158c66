// A compile server: takes requests of machines that cannot compile from the queue on the server of
// the remote tier, has the kernels compiled as any caller of this process would, and answers. What
// is in the queue is cache/remote/queue.hpp's, how a kernel is found, compiled and published the
// kernel table's.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/io.hpp"
#include "cache/remote/queue.hpp"
#include "kernel/kernel_table.hpp"

namespace kiln::tool {

/// The name of this machine.
std::string host_name();

class CompileServer {
 public:
  /// For targets of these kinds (kind_of). The remote tier is that of the process's cache.
  CompileServer(const cache::RemoteSettings& settings, const cache::Secret& secret,
                std::vector<std::string> kinds);

  /// Serves until `stop` is readable; then takes nothing new, and returns when what it has taken is
  /// answered, or at the second signal in `stop`, a signalfd.
  void run(int stop);

  /// What is known of it now. Any thread.
  struct State {
    cache::RemoteServer server;
    std::vector<cache::ServedQueue::Length> queues;  ///< that it serves
  };
  State state();

 private:
  struct Running {
    cache::ServedQueue::Taken taken;
    cache::Key key;
    cache::Key source;
    KernelTable::Ticket ticket;
  };
  struct Finished;

  bool take();
  void start(cache::ServedQueue::Taken taken);
  void finish_all();
  void finish(const Running& running, const KernelResult& result);
  void answer(const cache::ServedQueue::Taken& taken, cache::Served result,
              const std::optional<cache::RemoteFailure>& failure);
  void refuse(const cache::ServedQueue::Taken& taken, cache::Served result, const Failure& failure);
  void renew();

  const std::size_t capacity_;
  const std::vector<std::string> kinds_;
  cache::ServedQueue queue_;
  std::map<std::uint64_t, Running> running_;
  std::uint64_t next_ = 1;
  std::chrono::steady_clock::time_point renew_at_;
  std::shared_ptr<Finished> finished_;  ///< what the table's threads fill

  std::mutex mutex_;  ///< of what follows
  State state_;
};

}  // namespace kiln::tool
