// Pictures of measurements, as SVG: a file that a browser, a README and a word processor show
// alike.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kiln::tool {

struct Bar {
  std::string label;
  double value = 0;
  std::string note;  ///< written behind the bar
};

/// Horizontal bars from 0, one below the other, with a line at `mark` that `mark_label` names.
std::string bar_chart(std::string_view title, const std::vector<Bar>& bars, double mark,
                      std::string_view mark_label);

struct Dots {
  std::string label;
  std::vector<double> values;
  std::vector<double> expected;  ///< drawn as strokes above the dots
  std::string note;              ///< written behind them
};

/// Dots from 0, a row for each group, with a line at `mark` that `mark_label` names.
std::string dot_chart(std::string_view title, const std::vector<Dots>& rows, double mark,
                      std::string_view mark_label);

}  // namespace kiln::tool
