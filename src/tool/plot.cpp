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

}  // namespace

std::string bar_chart(std::string_view title, const std::vector<Bar>& bars, double mark,
                      std::string_view mark_label) {
  double most = mark;
  for (const Bar& bar : bars) most = std::max(most, bar.value);
  const double end = std::ceil(most * 5 + 0.25) / 5;  // a fifth beyond, so that notes find room
  const double bottom = kTop + kStep * static_cast<double>(bars.size());
  const auto x_of = [&](double value) { return kAxis + kPlot * value / end; };

  Drawing drawing(bottom + 40);
  drawing.add(R"(<text x="20" y="28" font-size="16" font-weight="bold" fill="#222222">{}</text>)",
              escaped(title));
  for (int tick = 0; tick * 0.2 <= end + 1e-9; ++tick) {
    const double x = x_of(tick * 0.2);
    drawing.line(x, kTop - 6, bottom, R"(stroke="#e4e4e4")");
    drawing.text(x, bottom + 18, "middle", "#777777", fmt::format("{:.1f}", tick * 0.2));
  }
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const Bar& bar = bars[i];
    const double top = kTop + kStep * static_cast<double>(i) + (kStep - kBar) / 2;
    const double length = x_of(std::max(bar.value, 0.0)) - kAxis;
    drawing.text(kAxis - 10, top + kBar - 5, "end", "#222222", bar.label);
    drawing.add(R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}"/>)", kAxis,
                top, length, kBar, bar.value >= mark ? "#2a7f62" : "#7fb8a4");
    drawing.text(kAxis + length + 8, top + kBar - 5, "start", "#444444", bar.note);
  }
  drawing.line(x_of(mark), kTop - 6, bottom, R"(stroke="#b03a2e" stroke-dasharray="4 3")");
  drawing.text(x_of(mark), kTop - 12, "middle", "#b03a2e", mark_label);
  return drawing.finish();
}

}  // namespace kiln::tool
