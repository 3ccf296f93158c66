// Code without a device, in C.
#include <memory>
#include <string>
#include <utility>

#include "ahead/compile_only.hpp"
#include "c/boundary.hpp"
#include "c/convert.hpp"
#include "c/handles.hpp"
#include "kiln/error.hpp"
#include "kiln/kernel.hpp"

namespace c = kiln::c;

namespace {

c::KeptCode keep(kiln::CompiledKernel kernel) {
  return {std::move(kernel.code),
          std::move(kernel.source),
          std::move(kernel.log),
          std::move(kernel.info.function),
          std::move(kernel.info.expression),
          std::move(kernel.info.entry),
          std::move(kernel.info.key),
          std::move(kernel.info.target),
          kernel.info.compile_ms,
          static_cast<int32_t>(kernel.info.cache),
          kernel.resources.vgprs,
          kernel.resources.sgprs,
          kernel.resources.lds,
          kernel.resources.scratch,
          kernel.resources.spills};
}

}  // namespace

kiln_status kiln_function_compile(const kiln_function* function, const kiln_call* call,
                                  const char* target, kiln_code** code) {
  return c::guard(__func__, [&](const char* called) {
    c::require(code, called, "code");
    c::require(target, called, "target");
    const kiln_function& compiled = c::require(function, called, "function");
    const kiln::Specification specification =
        c::to_specification(call, compiled.description.arguments, called);
    auto result = std::make_unique<kiln_code>();
    for (const kiln::KernelSpec& kernel : kiln::kernel_specs(compiled.function, specification)) {
      result->kernels.push_back(keep(kiln::compile_for(kernel, target)));
    }
    *code = result.release();
  });
}

kiln_status kiln_compile_source(const char* name, const char* source,
                                const kiln_kernel_parameter* parameters, size_t parameter_count,
                                const kiln_options* options, const char* target, kiln_code** code) {
  return c::guard(__func__, [&](const char* called) {
    c::require(code, called, "code");
    c::require(target, called, "target");
    const kiln::Kernel kernel = kiln::kernel(
        c::require_text(name, called, "name"), c::require_text(source, called, "source"),
        c::to_parameters(parameters, parameter_count, called), c::to_options(options, called));
    auto result = std::make_unique<kiln_code>();
    result->kernels.push_back(keep(kiln::compile_for(kernel, target)));
    *code = result.release();
  });
}

size_t kiln_code_count(const kiln_code* code) { return code->kernels.size(); }

kiln_status kiln_code_describe(const kiln_code* code, size_t index, kiln_code_info* info) {
  return c::guard(__func__, [&](const char* called) {
    c::require_sized(info, called, "info");
    if (index >= c::require(code, called, "code").kernels.size()) {
      throw kiln::Error(kiln::Code::invalid_argument, std::string(called) +
                                                          ": index: expected one below " +
                                                          std::to_string(code->kernels.size()) +
                                                          ", got " + std::to_string(index));
    }
    const c::KeptCode& kept = code->kernels[index];
    kiln_code_info result{};
    result.code = kept.code.data();
    result.code_bytes = kept.code.size();
    result.source = kept.source.c_str();
    result.log = kept.log.c_str();
    result.function = kept.function.c_str();
    result.expression = kept.expression.c_str();
    result.entry = kept.entry.c_str();
    result.key = kept.key.c_str();
    result.target = kept.target.c_str();
    result.compile_ms = kept.compile_ms;
    result.cache = kept.cache;
    result.registers = kept.registers.value_or(-1);
    result.scalar_registers = kept.scalar_registers.value_or(-1);
    result.lds = kept.lds.value_or(-1);
    result.scratch = kept.scratch.value_or(-1);
    result.spills = kept.spills.value_or(-1);
    c::put_sized(info, result);
  });
}

void kiln_code_destroy(kiln_code* code) { delete code; }
