// From kernels' texts to their code objects: found in the cache, or compiled and published, several
// as one translation unit. What is loaded, and who waits for it, is in kernel_table.hpp.
//
// Most of a compile is the same for one kernel and for several. Measured with one kernel and with
// eight in a unit, in milliseconds per kernel: HIP 5.2 347 and 82, NVRTC 13 104 and 52, clang 14
// for the host 155 and 41; with sixteen little is gained on that.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "jit/service/compile.hpp"
#include "kernel/kernel_request.hpp"
#include "kernel/named_kernel.hpp"
#include "kiln/function.hpp"

namespace kiln {

inline constexpr std::size_t kMaxKernelsPerUnit = 8;
/// Of which one build waits for compile servers, which several share.
inline constexpr std::size_t kMaxKernelsAskedFor = 32;

/// A code object and where it is from.
struct KernelCode {
  /// Of the request, or of the entry that another toolchain has made of the same source.
  NamedKernel named;
  std::string code;
  std::string log;  ///< of the compiler, if it ran
  CacheState state = CacheState::compiled;
  double compile_ms = 0;
};

/// The entry, key, cache and compile_ms of what was built.
KernelInfo info_of(const KernelCode& code);

/// An Error as its parts: every thread that waits throws an exception of its own.
struct Failure {
  Code code = Code::internal;
  std::string message;
  bool is_verdict = false;  ///< the compiler's on the source, which it would give again
  std::optional<int> driver_code = {};
};

Error error_of(const Failure& failure);

/// What the action throws, of whatever type, as a failure.
std::optional<Failure> failure_of(const std::function<void()>& action);

struct BuildResult {
  KernelCode code;
  std::optional<Failure> failure;
};

/// The compiles of one build as other threads steer them.
class BuildControl {
 public:
  enum class Priority : std::uint8_t { background, foreground };
  explicit BuildControl(Priority priority) : priority_(priority) {}

  /// Compiles. Throws what CompileHandle::get throws, and Error(would_compile) after cancel().
  jit::CompileResult compile(jit::CompileRequest request);
  /// Somebody waits for it now: what runs and what follows overtakes what is in the background.
  void raise_priority();
  /// Gives up what runs and what follows, unless somebody waits for it.
  void cancel();
  bool is_cancelled();
  Priority priority();

 private:
  std::mutex mutex_;
  Priority priority_;
  bool cancelled_ = false;
  jit::CompileHandle handle_;
};

/// Under which keys the remote tier may have kernels, so that many are asked for at once.
class RemoteKeys {
 public:
  void add(const KernelRequest& request);
  /// Those of the requests; where there is no compiler for a target, of what any compiler has made
  /// of the same source, as far as the server has that. In no order, each once.
  std::vector<cache::Key> find() const;

 private:
  std::unordered_set<cache::Key> keys_;
  std::unordered_set<cache::Key> sources_;
};

/// The code of a named request if it is in the cache. Without a compiler for the target, what
/// another machine's compiler has made of the same source.
std::optional<KernelCode> find_code(const KernelRequest& request, const NamedKernel& named);

/// The code of each request, by its name_kernel(), in their order: what is not in the cache is
/// compiled as one translation unit and published under each kernel's own key, with the unit as its
/// source. When the unit does not compile, each is compiled alone, so that none fails with
/// another's error. While a key is compiled no other process compiles it. What no compiler is named
/// for is asked of compile servers, and if they do not give it, compiled here if it can be. All
/// requests have different keys, one target and equal kernel_options(). Throws only std::bad_alloc.
std::vector<BuildResult> build_kernels(std::span<const KernelRequest> requests,
                                       std::span<const NamedKernel> names, BuildControl& control);

/// Code that any toolchain has made of the same source with the same options: all that a machine
/// without a compiler can use. The entry has a name and a key of its own. The server is asked last,
/// if the caller can wait.
std::optional<KernelCode> find_any_toolchain(const KernelRequest& request, bool may_wait);

/// build_kernels() for one request that somebody waits for. Throws Error: compile_failed,
/// unsupported, not_found.
KernelCode build_kernel(const KernelRequest& request);

/// After a driver called `refused` invalid: moves its entry to quarantine and builds it once more.
BuildResult rebuild_kernel(const KernelRequest& request, const NamedKernel& named,
                           const KernelCode& refused, std::string_view reason,
                           BuildControl& control);

}  // namespace kiln
