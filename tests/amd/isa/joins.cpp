// Where the lanes that took different paths come together, EXEC is restored before anything else
// touches vector registers: else the lanes that come from elsewhere are left out. Compilers have
// placed copies of registers too early there; what a kernel computes shows it only where such a
// lane needs the copy. Looked at in the code, executed or not.
#include <fmt/format.h>

#include <set>
#include <string_view>

#include "tests/amd/isa/wave.hpp"

namespace kiln::amd {
namespace {

bool writes_exec(const Operation& op) {
  const std::string_view name = op.instruction->mnemonic;
  return name.find("saveexec") != name.npos || name.starts_with("v_cmpx") ||
         (!op.operands.empty() && op.operands[0].is_scalar() && op.operands[0].index >= kExec &&
          op.operands[0].index <= kExec + 1);
}

bool restores_exec(const Operation& op) {
  return op.instruction->mnemonic.starts_with("s_or_b") && writes_exec(op);
}

bool is_jump(std::string_view name) {
  return name.starts_with("s_branch") || name.starts_with("s_cbranch") ||
         name.starts_with("s_call") || name.starts_with("s_setpc") ||
         name.starts_with("s_swappc") || name.starts_with("s_endpgm");
}

// Scalar registers that are kept in the lanes of vector registers have nothing to do with EXEC.
bool obeys_exec(std::string_view name) {
  return !name.starts_with("s_") && name != "v_nop" && !name.starts_with("v_readlane") &&
         !name.starts_with("v_writelane") && !name.starts_with("v_readfirstlane");
}

}  // namespace

void refuse_early_vectors(const Kernel& kernel, const Program& program) {
  std::set<std::uint32_t> heads;
  std::set<std::uint32_t> joins;  // where those go on of whom no lane takes the path
  for (const Operation& op : program.operations) {
    const std::string_view name = op.instruction->mnemonic;
    if (!name.starts_with("s_branch") && !name.starts_with("s_cbranch")) continue;
    heads.insert(op.target);
    if (name == "s_cbranch_execz") joins.insert(op.target);
  }
  for (const std::uint32_t join : joins) {
    const Operation* early = nullptr;
    for (std::uint32_t i = join; i < program.operations.size(); ++i) {
      const Operation& op = program.operations[i];
      if (i != join && heads.contains(i)) break;
      if (early != nullptr && restores_exec(op)) {
        throw Fault(fmt::format(
            "{} ({}): {} at {:#x}: EXEC is restored only after it, by {} at {:#x}, in a block "
            "where control flow joins",
            kernel.name, kernel.target, early->instruction->text, early->address,
            op.instruction->text, op.address));
      }
      if (writes_exec(op) || is_jump(op.instruction->mnemonic)) break;
      if (early == nullptr && obeys_exec(op.instruction->mnemonic)) early = &op;
    }
  }
}

}  // namespace kiln::amd
