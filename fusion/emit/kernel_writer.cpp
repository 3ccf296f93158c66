#include "fusion/emit/kernel_writer.hpp"

#include <algorithm>

#include "fusion/emit/device_text.hpp"
#include "kiln/option_names.hpp"

namespace kiln::fusion {

void KernelWriter::insert(std::size_t at, std::string_view lines) {
  const std::string after(text_.data() + at, text_.size() - at);
  text_.resize(at);
  text_.append(lines);
  text_.append(after);
}

void KernelWriter::open(std::span<const CommentedOperand> operands, const Schedule& schedule,
                        Rounding rounding, Accuracy accuracy) {
  std::vector<std::string> names;
  std::string types;
  bool arrow = false;
  for (const CommentedOperand& operand : operands) {
    names.emplace_back(operand.name);
    if (!operand.array) continue;
    const bool first_output = operand.output && !arrow;
    types += fmt::format("{}{} {}",
                         types.empty()  ? ""
                         : first_output ? " -> "
                                        : ", ",
                         name(operand.dtype), operand.name);
    arrow = arrow || operand.output;
  }
  line(0, "// {}", types);
  line(0, "// {}", describe(schedule, names));
  line(
      0, "// rounded {}; accuracy {}",
      rounding == Rounding::once ? "once, where a value is stored or cast" : "after each operation",
      name(accuracy));
  line(0, "namespace kiln {{");
  line(0, "");
}

void KernelWriter::close(std::string_view last) {
  line(0, "}}");
  line(0, "");
  line(0, "}}  // namespace kiln");
  host_entry(last);
}

void KernelWriter::coordinates(int depth, std::string_view index, std::string of,
                               std::uint32_t from, std::uint32_t to, bool change) {
  if (from == to) return;
  const std::string_view kind = change ? "" : "const ";
  for (std::uint32_t k = to - 1; k > from; --k) {
    const std::string rest = fmt::format("rest_{}", k);
    line(depth, "const {} {} = divide({}, extent_{});", index, rest, of, k);
    line(depth, "{}{} at_{} = {} - {} * extent_{}.divisor;", kind, index, k, of, rest, k);
    of = rest;
  }
  line(depth, "{}{} at_{} = {};", kind, index, from, of);
}

void KernelWriter::add(const Parameter& parameter, std::string_view type, std::string_view name) {
  parameters_.push_back(parameter);
  declarations_.push_back(fmt::format("{} {}", type, name));
}

void KernelWriter::add_pointer(std::uint32_t operand, DType dtype, bool output,
                               std::string_view name) {
  add({Parameter::Kind::pointer, operand, 0, dtype, 8},
      fmt::format("{}{}*", output ? "" : "const ", storage_type(dtype)),
      fmt::format("{}_data", name));
}

void KernelWriter::add_scalar(std::uint32_t argument, DType dtype, std::string_view name) {
  const auto bytes = static_cast<std::uint32_t>(bits(dtype) / 8);
  add({Parameter::Kind::scalar, argument, 0, dtype, bytes}, storage_type(dtype), name);
}

void KernelWriter::add_count(Parameter::Kind kind, std::string_view name) {
  add({kind, 0, 0, DType::f32, wide_ ? 8U : 4U}, wide_ ? "u64" : "u32", name);
}

void KernelWriter::add_offset(Parameter::Kind kind, std::string_view name, std::uint32_t operand,
                              std::uint32_t axis) {
  add({kind, operand, axis, DType::f32, wide_ ? 8U : 4U}, wide_ ? "i64" : "i32", name);
}

void KernelWriter::add_divisor(Parameter::Kind kind, std::string_view name, std::uint32_t axis,
                               std::uint32_t operand) {
  add({kind, operand, axis, DType::f32, wide_ ? 8U : 12U}, wide_ ? "Divisor64" : "Divisor32", name);
}

void KernelWriter::signature(int threads, int blocks, int cluster) {
  constexpr std::size_t kColumns = 98;
  std::string current = fmt::format("KILN_KERNEL({}, {}", threads, kEntryMarker);
  if (cluster > 1) {
    current = fmt::format("KILN_CLUSTER_KERNEL({}, {}, {}, {}", threads, std::max(1, blocks),
                          cluster, kEntryMarker);
  } else if (blocks != 0) {
    current = fmt::format("KILN_DENSE_KERNEL({}, {}, {}", threads, blocks, kEntryMarker);
  }
  for (const std::string& declaration : declarations_) {
    current += ',';
    if (current.size() + declaration.size() + 2 > kColumns) {
      line(0, "{}", current);
      current = "           ";
    }
    current += ' ' + declaration;
  }
  line(0, "{}) {{", current);
}

void KernelWriter::pdl_trigger() {
  if (pdl_) line(1, "let_dependents_launch();");
}

void KernelWriter::pdl_wait(int depth) {
  if (pdl_) line(depth, "await_prerequisites();");
}

void KernelWriter::host_entry(std::string_view last) {
  line(0, "");
  line(0, "#if KILN_HOST");
  line(0, "extern \"C\" void {}(void* const* arguments, kiln::u64 begin, kiln::u64 end) {{",
       kEntryMarker);
  line(1, "using namespace kiln;");
  line(1, "{}_range(begin, end", kEntryMarker);
  for (std::size_t i = 0; i < declarations_.size(); ++i) {
    const std::string& declaration = declarations_[i];
    line(1, "    , *({}*)arguments[{}]", declaration.substr(0, declaration.rfind(' ')), i);
  }
  line(1, ");");
  if (!last.empty()) line(1, "{}", last);
  line(0, "}}");
  line(0, "#endif");
}

KernelDescription KernelWriter::finish(std::uint32_t block) {
  return {fmt::to_string(text_), std::move(parameters_), block};
}

}  // namespace kiln::fusion
