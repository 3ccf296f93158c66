#include "tool/plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace kiln::tool {
namespace {

// In pixels. Labels are right-aligned at the axis, notes follow their bar.
constexpr double kWidth = 860;
constexpr double kAxis = 230;
constexpr double kPlot = 430;
constexpr double kTop = 70;
constexpr double kStep = 30;
constexpr double kBar = 18;

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      default: result += c;
    }
  }
  return result;
}

class Drawing {
 public:
  explicit Drawing(double height) {
    add(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}" )"
        R"(font-family="sans-serif" font-size="13">)",
        kWidth, height);
    add(R"(<rect width="{}" height="{}" fill="#ffffff"/>)", kWidth, height);
  }

  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }
  void text(double x, double y, std::string_view anchor, std::string_view color,
            std::string_view words) {
    add(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}" fill="{}">{}</text>)", x, y, anchor, color,
        escaped(words));
  }
  void line(double x, double from, double to, std::string_view style) {
    add(R"(<line x1="{0:.1f}" y1="{1:.1f}" x2="{0:.1f}" y2="{2:.1f}" {3}/>)", x, from, to, style);
  }
  std::string finish() { return text_ + "</svg>\n"; }

 private:
  std::string text_;
};

// A title, a scale from 0 beyond `most`, one row of labels below the other, a line at a mark.
class Chart {
 public:
  Chart(std::string_view title, std::size_t rows, double most)
      : end_(std::ceil(most * 5 + 0.25) / 5),  // a fifth beyond, so that notes find room
        bottom_(kTop + kStep * static_cast<double>(rows)),
        drawing_(bottom_ + 40) {
    drawing_.add(
        R"(<text x="20" y="28" font-size="16" font-weight="bold" fill="#222222">{}</text>)",
        escaped(title));
    for (int tick = 0; tick * 0.2 <= end_ + 1e-9; ++tick) {
      const double x = x_of(tick * 0.2);
      drawing_.line(x, kTop - 6, bottom_, R"(stroke="#e4e4e4")");
      drawing_.text(x, bottom_ + 18, "middle", "#777777", fmt::format("{:.1f}", tick * 0.2));
    }
  }

  Drawing& drawing() { return drawing_; }
  double x_of(double value) const { return kAxis + kPlot * value / end_; }
  double top_of(std::size_t row) const {
    return kTop + kStep * static_cast<double>(row) + (kStep - kBar) / 2;
  }
  void label(std::size_t row, std::string_view label) {
    drawing_.text(kAxis - 10, top_of(row) + kBar - 5, "end", "#222222", label);
  }
  void note(std::size_t row, double value, std::string_view note) {
    drawing_.text(x_of(value) + 8, top_of(row) + kBar - 5, "start", "#444444", note);
  }
  std::string finish(double mark, std::string_view label) {
    drawing_.line(x_of(mark), kTop - 6, bottom_, R"(stroke="#b03a2e" stroke-dasharray="4 3")");
    drawing_.text(x_of(mark), kTop - 12, "middle", "#b03a2e", label);
    return drawing_.finish();
  }

 private:
  double end_;
  double bottom_;
  Drawing drawing_;
};

}  // namespace

std::string bar_chart(std::string_view title, const std::vector<Bar>& bars, double mark,
                      std::string_view mark_label) {
  double most = mark;
  for (const Bar& bar : bars) most = std::max(most, bar.value);
  Chart chart(title, bars.size(), most);
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const Bar& bar = bars[i];
    const double end = std::max(bar.value, 0.0);
    chart.label(i, bar.label);
    chart.drawing().add(R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}"/>)",
                        kAxis, chart.top_of(i), chart.x_of(end) - kAxis, kBar,
                        bar.value >= mark ? "#2a7f62" : "#7fb8a4");
    chart.note(i, end, bar.note);
  }
  return chart.finish(mark, mark_label);
}

std::string dot_chart(std::string_view title, const std::vector<Dots>& rows, double mark,
                      std::string_view mark_label) {
  double most = mark;
  for (const Dots& row : rows) {
    for (const double value : row.values) most = std::max(most, value);
  }
  Chart chart(title, rows.size(), most);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double middle = chart.top_of(i) + kBar / 2;
    chart.label(i, rows[i].label);
    for (const double value : rows[i].expected) {
      const double x = chart.x_of(std::clamp(value, 0.0, most));
      chart.drawing().line(x, chart.top_of(i) - 3, chart.top_of(i) + 3, R"(stroke="#888888")");
    }
    for (const double value : rows[i].values) {
      chart.drawing().add(
          R"(<circle cx="{:.1f}" cy="{:.1f}" r="4" fill="{}" fill-opacity="0.55"/>)",
          chart.x_of(std::max(value, 0.0)), middle, value >= mark ? "#2a7f62" : "#7fb8a4");
    }
    chart.note(i, most, rows[i].note);
  }
  return chart.finish(mark, mark_label);
}

}  // namespace kiln::tool
