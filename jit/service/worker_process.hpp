// One worker process as its parent sees it: started, spoken to, and ended. Which requests it gets,
// and what becomes of failures, is decided in service.cpp.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

#include "base/io.hpp"
#include "base/temporary.hpp"
#include "jit/compilers/protocol.hpp"
#include "jit/service/compile.hpp"
#include "jit/toolchain/settings.hpp"

namespace kiln::jit {

/// How one request to a worker ended.
struct Exchange {
  enum class End {
    replied,    ///< `reply` is done or failed
    died,       ///< the process ended, or closed its socket
    garbage,    ///< it wrote something that is no answer to the request
    timed_out,  ///< the deadline passed
    cancelled,  ///< the cancel descriptor became readable
  };
  End end = End::died;
  bool accepted = false;  ///< it had read the request
  Message reply;
  std::string what;    ///< for people, unless replied
  std::string output;  ///< the last of what it printed to descriptors 1 and 2
};

class WorkerProcess {
 public:
  /// Starts kiln-compile-worker for one compiler, in its own process group, with a scrubbed
  /// environment and a TMPDIR of its own. Throws Error(not_found) when the worker cannot be
  /// started, Error(io). To be called by a thread that outlives the worker: the kernel ends the
  /// worker with that thread.
  WorkerProcess(const Settings& settings, ToolchainKind kind, const std::string& path);
  /// Ends the process and its children, whatever they are doing.
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  ToolchainKind kind() const { return kind_; }
  const std::string& path() const { return path_; }
  pid_t pid() const { return pid_; }
  /// Whether it has had a request before.
  bool used() const { return next_id_ > 1; }

  /// Sends a request and waits for its end. After any end but `replied` the process is gone and the
  /// object can only be destroyed. `cancel` is a descriptor that becomes readable to cancel, or -1.
  Exchange call(MessageType type, std::string body, std::chrono::milliseconds deadline, int cancel);

 private:
  void start(const Settings& settings);
  Exchange converse(MessageType type, std::string body, std::chrono::steady_clock::time_point end,
                    int cancel);
  bool send_some(std::string& unsent);
  bool receive_some();
  void read_output();
  /// Kills the group and reaps the process; says how it ended if that was its own doing.
  std::string finish();

  ToolchainKind kind_;
  std::string path_;
  base::TemporaryDirectory temporary_;
  pid_t pid_ = -1;
  base::UniqueFd socket_;
  base::UniqueFd output_pipe_;
  FrameReader frames_;
  std::string output_;
  std::uint64_t next_id_ = 1;
};

}  // namespace kiln::jit
