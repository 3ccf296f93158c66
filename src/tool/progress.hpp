// How far a long command is, on standard error: a bar on a terminal, a line for each step
// elsewhere, nothing with --json.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace kiln::tool {

class Progress {
 public:
  enum class Style { bar, lines, none };
  /// The style for this command's standard error.
  static Style style(bool json);

  Progress(Style style, std::size_t total) : style_(style), total_(total) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// One step more is done; `what` says which, and what became of it.
  void step(std::string_view what);
  /// Takes the bar away, for something else to be printed.
  void clear();

 private:
  const Style style_;
  const std::size_t total_;
  std::size_t done_ = 0;
  bool shown_ = false;
};

/// How far a command is whose steps are many and short: a bar on a terminal, nothing elsewhere.
class Counter {
 public:
  /// `what` the command does: "exporting".
  Counter(std::string what, bool json);
  ~Counter() { clear(); }
  Counter(const Counter&) = delete;
  Counter& operator=(const Counter&) = delete;

  /// To be called with how many of how many are done; empty where nothing is shown.
  std::function<void(std::uint64_t done, std::uint64_t total)> step();
  void clear();

 private:
  const std::string what_;
  const bool shows_;
  bool shown_ = false;
  std::uint64_t last_ = 0;  ///< hundredths that are shown
};

/// "[######..............] 3/10 what", at most `columns` wide.
std::string progress_bar(std::size_t done, std::size_t total, std::string_view what,
                         std::size_t columns);

}  // namespace kiln::tool
