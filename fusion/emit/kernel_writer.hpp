// The frame of a kernel's text: lines, the parameter list with its declarations, and the entry by
// which the CPU calls it. The emitter of each form of kernel writes what is inside.
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
  bool array = true;  ///< has memory, and so a dtype to print
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

  /// Indents the lines that follow by so much more, or less.
  void indent(int by) { indent_ += by; }
  /// What a line at a depth begins with.
  std::string indentation(int depth) const {
    return std::string(2 * static_cast<std::size_t>(depth + indent_), ' ');
  }

  /// Where the next line begins, and lines that go there once they are known.
  std::size_t here() const { return text_.size(); }
  void insert(std::size_t at, std::string_view lines);

  /// What comes before the signature: a comment with dtypes, schedule, rounding and accuracy, and
  /// the namespace.
  void open(std::span<const CommentedOperand> operands, const Schedule& schedule, Rounding rounding,
            Accuracy accuracy);

  // The kernel's parameters, in their order.
  /// The elements of an operand: NAME_data.
  void add_pointer(std::uint32_t operand, DType dtype, bool output, std::string_view name);
  /// An argument that is a number.
  void add_scalar(std::uint32_t argument, DType dtype, std::string_view name);
  /// A number of things.
  void add_count(Parameter::Kind kind, std::string_view name);
  /// The offset of an operand's first element, or its stride along an axis.
  void add_offset(Parameter::Kind kind, std::string_view name, std::uint32_t operand,
                  std::uint32_t axis = 0);
  /// A divisor (preamble/divide.h), of an axis or of an operand.
  void add_divisor(Parameter::Kind kind, std::string_view name, std::uint32_t axis = 0,
                   std::uint32_t operand = 0);

  /// `KILN_KERNEL(threads, entry, parameters...) {`. `blocks`: how many an NVIDIA multiprocessor
  /// must have room for; 0: no such demand.
  void signature(int threads, int blocks = 0, int cluster = 1);
  /// The PDL trigger, where the schedule says `pdl`.
  void pdl_trigger();
  /// The PDL wait, where the schedule says `pdl`: before the kernel accesses memory that another
  /// kernel may write.
  void pdl_wait(int depth);
  /// Splits the number `of` into the coordinates at_K along the axes K in [from, to), the last the
  /// fastest; they are variables where `change`.
  void coordinates(int depth, std::string_view index, std::string of, std::uint32_t from,
                   std::uint32_t to, bool change = false);
  /// Ends the kernel and the namespace; then comes the entry by which the CPU calls the kernel,
  /// with `last` as a statement at its end, if not empty.
  void close(std::string_view last = {});
  KernelDescription finish(std::uint32_t block);

 private:
  void host_entry(std::string_view last);
  void add(const Parameter& parameter, std::string_view type, std::string_view name);

  bool wide_;  ///< counts, strides and divisors have 64 bits
  bool pdl_;
  fmt::basic_memory_buffer<char, 4096> text_;
  int indent_ = 0;
  std::vector<std::string> declarations_;
  std::vector<Parameter> parameters_;
};

}  // namespace kiln::fusion
