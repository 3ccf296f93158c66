// The compile service behind compile.hpp: which worker gets which request, and what becomes of a
// worker's failure. Each request is one compile; that a kernel is asked for once is the business of
// kernel/kernel_table.hpp. One instance serves the process; tests make their own.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "jit/compilers/compiler.hpp"
#include "jit/service/compile.hpp"
#include "jit/service/pool.hpp"
#include "jit/service/target_knowledge.hpp"
#include "jit/service/worker_process.hpp"
#include "jit/toolchain/found_toolchain.hpp"
#include "jit/toolchain/settings.hpp"

namespace kiln::jit {

class Service {
 public:
  explicit Service(Settings settings);
  /// Stops every compile and ends every worker. Handles may outlive the service.
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  /// The one of this process, with the settings of the environment; a forked child gets its own.
  static Service& instance();

  /// A failure, be it of the source, a worker, a thread, the disk or the memory, is one of this
  /// request: the next one tries again.
  CompileHandle compile_async(CompileRequest request);
  std::vector<std::string> known_targets(const Toolchain& toolchain);
  std::string disassemble(std::string_view code, std::string_view target);

  struct Counters {
    std::uint64_t workers_started = 0;
    std::uint64_t exchanges = 0;  ///< requests that were sent to a worker, or made in-process
  };
  Counters counters() const { return {workers_started_, exchanges_}; }
  std::size_t idle_workers() const;
  int jobs() const { return settings_.jobs; }
  std::chrono::milliseconds deadline() const { return settings_.deadline; }

 private:
  struct Outcome;
  struct Posted;
  friend class CompileHandle;

  Toolchain toolchain_of(const CompileRequest& request);
  CompileResult compile_now(const CompileRequest& request, const Toolchain& toolchain, int cancel);
  /// What a kernel that lacks scalar registers is compiled with once more.
  CompileResult compile_again(CompileRequest request, const Toolchain& toolchain, int cancel);
  /// What became of a compile's exchange: its output, or an error for people.
  CompileResult conclude(Exchange answer, const CompileRequest& request, const Toolchain& toolchain,
                         int cancel);
  bool target_is_unknown(const Toolchain& toolchain, const std::string& target, int cancel);
  /// Whether the smallest kernel compiles for the target; nothing where that is not known.
  std::optional<bool> probe(const Toolchain& toolchain, const std::string& target, int cancel);
  Exchange exchange(const Toolchain& toolchain, MessageType type, const std::string& body,
                    int cancel);
  Exchange exchange_in_process(const Toolchain& toolchain, MessageType type,
                               const std::string& body);
  /// With a worker that is started for it and ends with it, also where compilers run in-process.
  Exchange exchange_apart(const Toolchain& toolchain, MessageType type, const std::string& body,
                          int cancel);
  std::string run_job(const Toolchain& toolchain, MessageType type, const std::string& body);
  /// `dropped` is what comes of it if it is cancelled before it runs, or the service ends.
  Posted post(std::function<CompileResult(int cancel)> action, const Error& dropped,
              bool background);

  std::unique_ptr<WorkerProcess> take_worker(const Toolchain& toolchain);
  void keep_worker(std::unique_ptr<WorkerProcess> worker);
  std::optional<Pool::TimePoint> end_idle_workers();

  struct IdleWorker {
    std::unique_ptr<WorkerProcess> worker;
    Pool::TimePoint since;
  };

  const Settings settings_;
  TargetKnowledge targets_;
  std::atomic<std::uint64_t> workers_started_{0};
  std::atomic<std::uint64_t> exchanges_{0};

  mutable std::mutex
      mutex_;  // of what follows; never held while a compiler or a process is waited for
  std::list<IdleWorker> idle_;                        // the one used last is first
  std::map<std::string, FoundToolchain> toolchains_;  // by path
  std::mutex compilers_mutex_;
  std::map<std::string, std::unique_ptr<Compiler>> compilers_;  // in-process only

  std::unique_ptr<Pool> pool_;  // last: its threads use all of the above
};

}  // namespace kiln::jit
