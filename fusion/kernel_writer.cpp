#include "fusion/kernel_writer.hpp"

namespace kiln::fusion {

void KernelWriter::add_parameter(const Parameter& parameter, std::string declaration) {
  parameters_.push_back(parameter);
  declarations_.push_back(std::move(declaration));
}

void KernelWriter::signature(int threads) {
  constexpr std::size_t kColumns = 98;
  std::string current = fmt::format("KILN_KERNEL({}, {}", threads, kEntryMarker);
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
