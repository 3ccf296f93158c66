// The one exception type of kiln, and the log through which it reports what it degraded.
// Every module may use this file; it uses none of them.
#pragma once

#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)

namespace kiln {

/// What went wrong, for a program that wants to react. The message is for a person.
enum class Code {
  invalid_argument,  ///< the caller passed something that cannot be right
  unsupported,       ///< right, but not on this device, toolchain or release
  not_found,         ///< a file, tensor, entry, device or library that is not there
  compile_failed,    ///< the device compiler refused the source, crashed or ran out of time
  would_compile,     ///< the kernel is not ready: Options::on_miss, or a preparation was cancelled
  device,            ///< a driver call failed
  io,                ///< a file, directory or socket failed
  internal,          ///< a bug in kiln
};

std::string_view name(Code code);

/// Thrown by every function of kiln that fails. `what()` names the function, the argument, what was
/// expected and what was given. A value that nobody changes: threads may share one.
class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message, std::optional<int> driver_code = {})
      : std::runtime_error(message), code_(code), driver_code_(driver_code) {}
  Code code() const noexcept { return code_; }
  /// What the driver's failed call gave, a hipError_t or on NVIDIA GPUs a CUresult; nothing where
  /// no call of a driver failed.
  std::optional<int> driver_code() const noexcept { return driver_code_; }

 private:
  Code code_;
  std::optional<int> driver_code_;
};

enum class LogLevel { debug, info, warning };

/// Receives one line without a newline. May be called from any thread, never while kiln holds a
/// lock.
using LogSink = std::function<void(LogLevel, std::string_view)>;

/// Replaces the sink; an empty one silences kiln. The default prints warnings to stderr. Safe from
/// any thread; a line that another thread is logging may still go to the sink before.
void set_log(LogSink sink);

void log(LogLevel level, std::string_view message);

/// Logs `message` the first time that this process sees `key`: for what degrades and then stays so.
void log_once(LogLevel level, std::string_view key, std::string_view message);

}  // namespace kiln

#pragma GCC visibility pop
