// The frame of a kernel's text: lines, the parameter list with its declarations, and the entry by
// which a host calls it. What stands inside is for the emitter of each kind of kernel.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fusion/emit.hpp"

namespace kiln::fusion {

class KernelWriter {
 public:
  template <class... Args>
  void line(int depth, fmt::format_string<Args...> format, Args&&... args) {
    text_.append(static_cast<std::size_t>(depth) * 2, ' ');
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }

  void add_parameter(const Parameter& parameter, std::string declaration);
  /// `KILN_KERNEL(threads, entry, parameters...) {`
  void signature(int threads);
  /// The host's way in, for use after the kernel.
  void host_entry();
  KernelDescription finish(std::uint32_t block);

 private:
  std::string text_;
  std::vector<std::string> declarations_;
  std::vector<Parameter> parameters_;
};

}  // namespace kiln::fusion
