// How far a long command is, on standard error: a bar on a terminal, a line for each step
// elsewhere, nothing with --json.
#pragma once

#include <chrono>
#include <cstddef>
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

/// "[######..............] 3/10 what", at most `columns` wide.
std::string progress_bar(std::size_t done, std::size_t total, std::string_view what,
                         std::size_t columns);

}  // namespace kiln::tool
