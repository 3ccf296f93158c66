// Machine code of kernels for targets that need not be here, to look for instructions in.
#pragma once

#include <gtest/gtest.h>

#include <iterator>
#include <regex>
#include <string>
#include <vector>

#include "ahead/compile_only.hpp"
#include "jit/compilers/resources.hpp"
#include "kiln/error.hpp"
#include "tests/support/devices.hpp"

namespace kiln::testing {

/// The targets of a compiler, or none if it is not on this machine.
inline std::vector<std::string> targets_of(jit::ToolchainKind kind) {
  try {
    return jit::known_targets(kind);
  } catch (const Error& error) {
    if (error.code() != Code::not_found) throw;
    return {};
  }
}

/// For tests by target.
inline std::string target_name(const ::testing::TestParamInfo<std::string>& test) {
  return test.param;
}

struct Machine {
  jit::Resources resources;
  std::string assembly;

  int count(const std::string& pattern) const {
    const std::regex regex(pattern);
    return static_cast<int>(
        std::distance(std::sregex_iterator(assembly.begin(), assembly.end(), regex), {}));
  }
};

inline Machine machine_code(const std::string& text, const std::vector<ArgumentSpec>& arguments,
                            const std::string& target) {
  Specification specification;
  specification.arguments = arguments;
  const CompiledKernel kernel = compile_for(parse("checked", text), specification, target);
  return {kernel.resources, jit::disassemble(kernel.code, target)};
}

}  // namespace kiln::testing
