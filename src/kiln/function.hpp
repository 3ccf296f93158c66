// A fused function: described once, called often on memory and streams of the caller.
#pragma once

#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "kiln/error.hpp"
#include "kiln/options.hpp"
#include "kiln/specification.hpp"
#include "kiln/value.hpp"
#include "kiln/view.hpp"

#pragma GCC visibility push(default)

namespace kiln {

/// An argument of a call that is one number, passed by value. A C++ bool, integer or floating-point
/// number is weak: it takes the dtype of its partner, as a literal would. `typed` fixes the dtype.
class Scalar {
 public:
  template <class T>
  requires std::is_arithmetic_v<T> Scalar(T value);  // NOLINT: implicit on purpose
  static Scalar typed(double value, DType dtype);
  static Scalar typed(std::int64_t value, DType dtype);

  DType dtype() const { return dtype_; }
  bool weak() const { return weak_; }
  /// The bits of an f64 (floating), or of an i64 (everything else).
  std::uint64_t bits() const { return bits_; }

 private:
  Scalar(std::uint64_t bits, DType dtype, bool weak) : bits_(bits), dtype_(dtype), weak_(weak) {}
  std::uint64_t bits_;
  DType dtype_;
  bool weak_;
};

/// An array or a number.
class Argument {
 public:
  Argument(View view) : view_(std::move(view)) {}                 // NOLINT: implicit on purpose
  Argument(Scalar scalar) : scalar_(scalar), is_scalar_(true) {}  // NOLINT
  template <class T>
  requires std::is_arithmetic_v<T> Argument(T value) : Argument(Scalar(value)) {}  // NOLINT

  bool is_scalar() const { return is_scalar_; }
  const View& view() const { return view_; }
  const Scalar& scalar() const { return scalar_; }

 private:
  View view_;
  Scalar scalar_ = Scalar(0);
  bool is_scalar_ = false;
};

/// Where the kernel of a call came from; `remote` is the server of KILN_REMOTE_CACHE.
enum class CacheState : std::uint8_t { memory, disk, remote, compiled };

/// What a person or a tool wants to know about the kernel that a call would use.
struct KernelInfo {
  std::string function;    ///< the function's name
  std::string expression;  ///< in the text form
  std::string entry;       ///< the hashed module and kernel name
  std::string key;      ///< of the cache entry, 32 hex digits; empty if nothing could be persisted
  std::string target;   ///< "gfx90a:sramecc+:xnack-", "sm_90", "x86-64 ..."
  std::string variant;  ///< how the kernel runs: layout, vectors, threads
  std::string source;   ///< the kernel, without the preamble
  CacheState cache = CacheState::memory;
  double compile_ms = 0;    ///< 0 unless `cache` is compiled
  std::uint64_t bytes = 0;  ///< that a call reads and writes, every element of every operand once
  int kernels = 1;  ///< launched by a call: one for each shape among the outputs, 0 if all are
                    ///< empty. Where there are several, what stands above is the first one's, but
                    ///< `cache`, `compile_ms` and `bytes` are those of all together.
  bool fallback = false;  ///< of look_up(): it is not there, so that OnMiss::fallback would serve
                          ///< the call by its general kernels, and other choices would compile or
                          ///< throw; `entry` and `key` are empty
};

class Launch;

/// A call that is being prepared. Copies are the same one; dropping them does not stop it. Safe
/// from any thread.
class Preparation {
 public:
  Preparation() = default;
  bool valid() const { return state_ != nullptr; }
  /// True when nothing below waits any more.
  bool ready() const;
  /// Waits, and makes it overtake what nobody waits for.
  void wait() const;
  /// Waits; gives what is known of the kernel (of the first, where the call takes several), or
  /// throws compile_failed, unsupported, not_found, device, or would_compile if it was cancelled.
  KernelInfo get() const;
  /// Waits; gives what get() would throw.
  std::optional<Error> error() const;
  /// Nobody waits for it any more. What no other preparation wants is not compiled.
  void cancel();

  struct [[gnu::visibility("hidden")]] State;
  explicit Preparation(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

/// A fused function; copies are the same one. Safe from any thread: calls do not wait for each
/// other, but for the first of them that needs a kernel. What was captured from a stream while it
/// was called needs one of the copies for as long as it is replayed (kiln/statistics.hpp).
class Function {
 public:
  /// Checks, finds or makes the kernel, and launches it on `stream`; on a GPU it returns before the
  /// kernel has run. `inputs` are in the order of the function's arguments, broadcast against each
  /// other by NumPy's rules. An output has the shape of the inputs that it depends on, broadcast
  /// against each other, or any shape that this broadcasts to; outputs of one shape are computed by
  /// one kernel, and there is one for each shape. An output may be exactly the view of an input (in
  /// place); it may not overlap anything else. Throws Error: invalid_argument for a number, dtype,
  /// shape or device that does not fit or for an overlap, compile_failed, would_compile, device.
  /// Sizes, strides and alignments that are new cost a computation on the stack, and leave nothing
  /// behind, where a call was made before that had the same dtypes and numbers of axes, of which
  /// the same had one element and the same were equally long, and led to the same kernels. The
  /// first calls for which these are chosen in another way add to what is known of them, which is
  /// bounded, under a lock.
  void operator()(const Stream& stream, std::initializer_list<Argument> inputs,
                  std::initializer_list<View> outputs) const {
    call(stream, {inputs.begin(), inputs.size()}, {outputs.begin(), outputs.size()});
  }
  void call(const Stream& stream, std::span<const Argument> inputs,
            std::span<const View> outputs) const;

  /// The same without an exception: what the call would throw, nothing if it is launched. For
  /// callers that are built without exceptions.
  std::optional<Error> try_call(const Stream& stream, std::span<const Argument> inputs,
                                std::span<const View> outputs) const noexcept;

  /// The kernel that such a call uses; finds or compiles it, whatever Options::on_miss says, and
  /// launches nothing.
  KernelInfo prepare(const Stream& stream, std::span<const Argument> inputs,
                     std::span<const View> outputs) const;

  /// What such a call would use now: looks for the kernel in memory and on disk, compiles and
  /// launches nothing. KernelInfo::fallback says whether it is missing.
  KernelInfo look_up(const Stream& stream, std::span<const Argument> inputs,
                     std::span<const View> outputs) const;

  /// Finds the kernels of a call of that specification, or compiles them in the background, and
  /// loads them on the device; needs no memory and does not wait. prepare_all (kiln/prepare.hpp)
  /// does it for many calls.
  /// Throws Error(invalid_argument) for types that do not fit, not_found for a device that is not
  /// there; everything else is the preparation's.
  Preparation prepare(Device device, const Specification& specification) const;

  /// A call with everything decided but pointers and numbers: for callers who keep the same
  /// layouts. Checks and compiles as a call does, launches nothing.
  Launch bind(const Stream& stream, std::span<const Argument> inputs,
              std::span<const View> outputs) const;
  Launch bind(const Stream& stream, std::initializer_list<Argument> inputs,
              std::initializer_list<View> outputs) const;

  const std::string& name() const;
  const Options& options() const;
  std::size_t arity() const;
  std::size_t output_count() const;
  /// The function in the text form.
  std::string expression() const;

  struct [[gnu::visibility("hidden")]] Impl;
  explicit Function(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  const Impl& impl() const { return *impl_; }
  const std::shared_ptr<Impl>& shared_impl() const { return impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

/// A bound call (Function::bind, Program::bind). Launching it costs what the driver's own launches
/// cost. Not safe to use from two threads at once; make one for each.
class Launch {
 public:
  Launch(Launch&&) noexcept;
  Launch& operator=(Launch&&) noexcept;
  ~Launch();

  /// Launches on a stream of the device that it was bound for. Of a program all kernels, and calls
  /// what is the caller's, in order.
  void operator()(const Stream& stream) const;
  /// The same without an exception: what it would throw.
  std::optional<Error> try_launch(const Stream& stream) const noexcept;

  /// Other memory with the same dtype, shape and strides. Throws Error(invalid_argument) for an
  /// index that is not an array argument, and for a pointer that is aligned otherwise than the one
  /// it was bound with (modulo 16 bytes), or that makes an output overlap another operand.
  void set_input(std::size_t index, const void* data);
  void set_output(std::size_t index, void* data);
  /// Another number for a scalar argument, of the same dtype and weakness as the one it was bound
  /// with.
  void set_scalar(std::size_t index, Scalar value);

  const KernelInfo& info() const;

  struct [[gnu::visibility("hidden")]] Impl;

 private:
  friend class Function;
  friend class Program;
  explicit Launch(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

namespace detail {
Function trace(std::string_view name, std::size_t arity, const Options& options,
               const std::function<std::vector<Value>(const std::vector<Value>&)>& body);

template <class R>
std::vector<Value> as_outputs(R&& result) {
  if constexpr (std::is_convertible_v<R, Value>) {
    return {std::forward<R>(result)};
  } else {
    return std::apply([](auto&&... values) { return std::vector<Value>{values...}; },
                      std::forward<R>(result));
  }
}

template <class F, std::size_t... I>
Function fuse_indexed(std::string_view name, F&& body, const Options& options,
                      std::index_sequence<I...>) {
  return trace(name, sizeof...(I), options, [&](const std::vector<Value>& arguments) {
    return as_outputs(body(arguments[I]...));
  });
}

template <class F, std::size_t N = 0>
constexpr std::size_t arity_of() {
  constexpr auto callable = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::is_invocable_v<F, decltype((void(I), std::declval<Value>()))...>;
  };
  static_assert(N <= 64, "fuse: the callable must take between 0 and 64 kiln::Value");
  if constexpr (callable(std::make_index_sequence<N>())) {
    return N;
  } else {
    return arity_of<F, N + 1>();
  }
}
}  // namespace detail

/// Traces `body`, any callable on kiln::Value that returns a Value, or a tuple or array of them for
/// several outputs. `body` runs once, here. `name` is for people: it appears in kernel names,
/// errors and the cache. A generic callable (auto...) needs its number of arguments: fuse<2>(name,
/// body).
template <class F>
Function fuse(std::string_view name, F&& body, const Options& options = {}) {
  return detail::fuse_indexed(name, std::forward<F>(body), options,
                              std::make_index_sequence<detail::arity_of<F>()>());
}
template <std::size_t Arity, class F>
Function fuse(std::string_view name, F&& body, const Options& options = {}) {
  return detail::fuse_indexed(name, std::forward<F>(body), options,
                              std::make_index_sequence<Arity>());
}

/// A function from its text form; its arguments are the free names of `expression` in order of
/// first use (see `argument_names`). `arguments`, if given, come before those, in that order.
Function parse(std::string_view name, std::string_view expression, const Options& options = {},
               std::span<const std::string> arguments = {});
std::vector<std::string> argument_names(const Function& function);
std::vector<std::string> output_names(const Function& function);

template <class T>
requires std::is_arithmetic_v<T> Scalar::Scalar(T value) : weak_(true) {
  if constexpr (std::is_floating_point_v<T>) {
    const double wide = static_cast<double>(value);
    std::memcpy(&bits_, &wide, sizeof bits_);
    dtype_ = DType::f64;
  } else {
    bits_ = static_cast<std::uint64_t>(value);
    dtype_ = std::is_same_v<T, bool> ? DType::boolean
             : std::is_signed_v<T>   ? DType::i64
                                     : DType::u64;
  }
}

}  // namespace kiln

#pragma GCC visibility pop
