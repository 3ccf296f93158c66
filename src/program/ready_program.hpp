// A program that is ready to run for calls of one signature: the plans of its kernels, and where
// their operands are in the memories of a call.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "call/plan.hpp"
#include "core/plan_table.hpp"
#include "core/view_bytes.hpp"
#include "program/plan.hpp"

namespace kiln {

class ReadyProgram {
 public:
  struct Step {
    std::shared_ptr<const Plan> plan;         ///< null where the kernel is not there, or else
    std::shared_ptr<const LibraryCall> call;  ///< of the caller
    std::vector<PlacedOperands::Place> inputs;
    std::vector<PlacedOperands::Place> outputs;
  };

  /// For calls like this one; both of the others must live as long as this does. Finds the kernels
  /// or makes them as `on_miss` says, several side by side. Throws Error.
  ReadyProgram(const Definition& definition, const ProgramPlan& plan, const Call& call,
               OnMiss on_miss);
  /// The same without looking for any kernel: says where the operands of its steps are.
  ReadyProgram(const Definition& definition, const ProgramPlan& plan, const Call& call);

  std::span<const Step> steps() const { return steps_; }
  /// False under OnMiss::fallback while kernels are being compiled: then run() serves their steps
  /// without them.
  bool is_complete() const { return missing_.empty(); }
  /// Those kernels.
  std::span<const WantedKernel> missing() const { return missing_; }
  /// What all kernels are together; the text is the first one's.
  KernelInfo info() const;
  /// The same of calls like this one as they would run now; compiles nothing. Throws Error.
  static KernelInfo look_up(const Definition& definition, const ProgramPlan& plan,
                            const Call& call);

  /// The memories of a call that the places are in: its operands' data and the workspace's.
  std::size_t memory_count() const { return reads_.size() + outputs_.size() + 1; }
  void find_memories(const Call& call, const View& workspace, std::span<void*> memories) const;
  /// Throws Error(invalid_argument) for a workspace that does not fit, and for an output that lies
  /// where something is read later or written too.
  void check(const Call& call, const View& workspace) const;
  /// Runs the caller's own step.
  void run_call(const Step& step, const Stream& stream, std::span<void* const> memories) const;
  /// No lock; no allocation unless the call has more than 63 operands.
  void run(const Call& call, const View& workspace) const;

 private:
  struct Read {
    bool is_read = false;  ///< an argument that no kernel reads may be anything
    ByteExtent extent;
  };
  void check_views(const Call& call) const;
  void check_workspace(const Call& call, const View& workspace) const;
  void check_input_and_output(const Call& call, std::size_t input, std::size_t output) const;
  void fall_back(std::size_t step, const Call& call, std::span<void* const> memories) const;

  const Definition& definition_;
  const ProgramPlan& plan_;
  std::vector<Step> steps_;
  std::vector<WantedKernel> missing_;
  std::vector<Read> reads_;          ///< of each input
  std::vector<ByteExtent> outputs_;  ///< of each output
};

/// The plan of a program for calls of one signature.
class CachedProgramPlan final : public CachedPlan {
 public:
  /// `definition` must live as long as this does. Compiles nothing. Throws Error.
  CachedProgramPlan(const Definition& definition, const Call& call);

  std::size_t bytes() const override;
  std::vector<std::shared_ptr<jit::Kernel>> loaded_kernels() const override;

  const ProgramPlan& plan() const { return plan_; }
  /// Null until ready() has returned.
  const ReadyProgram* ready_now() const { return ready_.load(std::memory_order_acquire); }
  /// Makes its kernels as `on_miss` says, unless they are there. Throws Error.
  const ReadyProgram& ready(const Call& call, OnMiss on_miss) const;
  /// See ReadyProgram.
  KernelInfo look_up(const Call& call) const {
    return ReadyProgram::look_up(definition_, plan_, call);
  }
  /// Runs a call under OnMiss::fallback: with the kernels that are there. Throws Error.
  void run_with_fallback(const Call& call, const View& workspace) const;

 private:
  const ReadyProgram& keep(std::unique_ptr<const ReadyProgram> made) const;

  const Definition& definition_;
  const ProgramPlan plan_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<const ReadyProgram> made_;
  mutable std::atomic<const ReadyProgram*> ready_ = nullptr;  ///< what made_ is
};

}  // namespace kiln
