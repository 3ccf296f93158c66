// The frame of a kernel's text: lines, the parameter list with its declarations, and the entry by
// which a host calls it. What stands inside is for the emitter of each kind of kernel.
#pragma once

#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fusion/emit/emit.hpp"

namespace kiln::fusion {

/// An operand as the comment before a kernel names it.
struct CommentedOperand {
  std::string_view name;
  DType dtype = DType::f32;
  bool output = false;
  bool array = true;  ///< has memory, and so a type to be told
};

class KernelWriter {
 public:
  explicit KernelWriter(const Schedule& schedule)
      : wide_(schedule.wide_index), pdl_(schedule.pdl) {}

  template <class... Args>
  void line(int depth, fmt::format_string<Args...> format, Args&&... args) {
    for (int i = 0; i < depth + indent_; ++i) text_.append(std::string_view("  "));
    fmt::format_to(fmt::appender(text_), format, std::forward<Args>(args)...);
    text_.push_back('\n');
  }

  /// Lines from here on stand deeper, or less deep.
  void indent(int by) { indent_ += by; }

  /// Where the next line begins, and lines that go there once they are known.
  std::size_t here() const { return text_.size(); }
  void insert(std::size_t at, std::string_view lines);

  /// What a reader wants to know first: the expression, dtypes, layout, rounding and accuracy.
  void comment(std::string_view function, std::string_view expression,
               std::span<const CommentedOperand> operands, const Schedule& schedule,
               Rounding rounding, Accuracy accuracy);

  // The kernel's parameters, in their order.
  /// The elements of an operand: NAME_data.
  void add_pointer(std::uint32_t operand, DType dtype, bool output, std::string_view name);
  /// An argument that is a number.
  void add_scalar(std::uint32_t argument, DType dtype, std::string_view name);
  /// How many there are of something.
  void add_count(Parameter::Kind kind, std::string_view name);
  /// The place of an operand's first element, or its stride along an axis.
  void add_offset(Parameter::Kind kind, std::string_view name, std::uint32_t operand,
                  std::uint32_t axis = 0);
  /// How many there are of what a number is divided by.
  void add_divisor(Parameter::Kind kind, std::string_view name, std::uint32_t axis = 0);

  /// `KILN_KERNEL(threads, entry, parameters...) {`, and in a programmatic kernel what lets those
  /// launch that wait for it.
  /// `blocks`: that a multiprocessor of NVIDIA should have room for; 0: as many as it happens to.
  void signature(int threads, int blocks = 0, int cluster = 1);
  /// In a programmatic kernel, before it touches what another kernel may write: waits for the
  /// kernels before it.
  void await_prerequisites(int depth);
  /// Takes the number `of` apart into the coordinates at_K along the axes K in [from, to), the last
  /// the fastest.
  void coordinates(int depth, std::string_view index, std::string of, std::uint32_t from,
                   std::uint32_t to);
  /// The host's way in, for use after the kernel. `last` is a statement that ends it, if not empty.
  void host_entry(std::string_view last = {});
  KernelDescription finish(std::uint32_t block);

 private:
  void add(const Parameter& parameter, std::string_view type, std::string_view name);

  bool wide_;  ///< counts, strides and divisors have 64 bits
  bool pdl_;
  fmt::basic_memory_buffer<char, 4096> text_;
  int indent_ = 0;
  std::vector<std::string> declarations_;
  std::vector<Parameter> parameters_;
};

}  // namespace kiln::fusion
