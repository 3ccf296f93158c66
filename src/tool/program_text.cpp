#include "tool/program_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tool/drawing.hpp"

namespace kiln::tool {
namespace {

std::string moves(const ProgramKernel& kernel) {
  return fmt::format("{}, unfused {}", human_bytes(kernel.bytes),
                     human_bytes(kernel.op_by_op_bytes));
}

}  // namespace

void print_program(const ProgramInfo& program) {
  Table table;
  const std::size_t count = program.kernels.size();
  table.row({"kernels", fmt::format("{}", count)});
  table.row({"moves",
             fmt::format("{}; unfused {}; at least {}", human_bytes(program.bytes),
                         human_bytes(program.op_by_op_bytes), human_bytes(program.lower_bound))});
  table.row({"workspace", program.workspace_bytes == 0
                              ? std::string("none")
                              : fmt::format("{}; unfused {}", human_bytes(program.workspace_bytes),
                                            human_bytes(program.op_by_op_workspace))});
  for (std::size_t i = 0; i < count; ++i) {
    const ProgramKernel& kernel = program.kernels[i];
    table.row({""});
    table.row({bold(fmt::format("{} {}", kernel.call ? "call" : "kernel", i)), kernel.name});
    table.row({"because", kernel.reason});
    table.row({"computes", clip(kernel.expression, 96)});
    table.row({"reads", fmt::format("{}", fmt::join(kernel.reads, ", "))});
    table.row({"writes", fmt::format("{}", fmt::join(kernel.writes, ", "))});
    if (!kernel.after.empty()) {
      table.row({"after", fmt::format("{}", fmt::join(kernel.after, ", "))});
    }
    table.row({"moves", moves(kernel)});
  }
  table.print();
}

Json program_json(const ProgramInfo& program) {
  Json kernels = Json::array();
  for (const ProgramKernel& kernel : program.kernels) {
    kernels.push_back({{"name", kernel.name},
                       {"call", kernel.call},
                       {"expression", kernel.expression},
                       {"reason", kernel.reason},
                       {"after", kernel.after},
                       {"reads", kernel.reads},
                       {"writes", kernel.writes},
                       {"operations", kernel.operations},
                       {"bytes", kernel.bytes},
                       {"op_by_op_bytes", kernel.op_by_op_bytes}});
  }
  return {{"kernels", kernels},
          {"bytes", program.bytes},
          {"op_by_op_bytes", program.op_by_op_bytes},
          {"lower_bound", program.lower_bound},
          {"workspace_bytes", program.workspace_bytes},
          {"op_by_op_workspace", program.op_by_op_workspace}};
}

std::string program_dot(const ProgramInfo& program) {
  std::string text =
      "digraph kiln {\n  node [shape=box, fontname=monospace];\n"
      "  edge [fontname=monospace, fontsize=9];\n";
  for (std::size_t i = 0; i < program.kernels.size(); ++i) {
    const ProgramKernel& kernel = program.kernels[i];
    text += fmt::format(
        "  n{} [label={}{}];\n", i,
        dot_string(fmt::format("{}\n{}\n{}\n{}", kernel.name, clip(kernel.expression, 72),
                               kernel.reason, moves(kernel))),
        kernel.call ? ", style=dashed" : "");
    for (const std::size_t from : kernel.after) {
      text += fmt::format("  n{} -> n{};\n", from, i);
    }
  }
  return text + "}\n";
}

}  // namespace kiln::tool
