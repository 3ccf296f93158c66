// What is behind the handles that several files of the C API use.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kiln/function.hpp"
#include "kiln/kernel.hpp"
#include "kiln/kiln.h"
#include "kiln/program.hpp"

namespace kiln::c {

/// What a handle tells of a function, in memory of its own.
struct Description {
  explicit Description(const Function& function)
      : name(function.name()),
        expression(function.expression()),
        arguments(argument_names(function)),
        outputs(output_names(function)) {}

  std::string name;
  std::string expression;
  std::vector<std::string> arguments;
  std::vector<std::string> outputs;
};

/// Null for an index that is too large.
inline const char* text_at(const std::vector<std::string>& texts, std::size_t index) {
  return index < texts.size() ? texts[index].c_str() : nullptr;
}

/// One kernel, in memory of its own.
struct KeptCode {
  std::string code, source, log, function, expression, entry, key, target;
  double compile_ms = 0;
  std::int32_t cache = KILN_FROM_DISK;
  std::optional<int> registers, scalar_registers, lds, scratch, spills;
};

}  // namespace kiln::c

struct kiln_code {
  std::vector<kiln::c::KeptCode> kernels;
};

struct kiln_function {
  explicit kiln_function(kiln::Function made) : function(std::move(made)), description(function) {}
  kiln::Function function;
  kiln::c::Description description;
};

struct kiln_preparation {
  explicit kiln_preparation(kiln::Preparation made) : preparation(std::move(made)) {}
  kiln::Preparation preparation;
  std::once_flag described;
  kiln::KernelInfo info;
};

struct kiln_launch {
  kiln::Launch launch;
};

struct kiln_kernel {
  kiln::Kernel kernel;
};

struct kiln_program {
  explicit kiln_program(const kiln::Function& made)
      : program(kiln::program(made)), description(made) {}
  kiln::Program program;
  kiln::c::Description description;
};
