// Programs in C.
#include "kiln/program.hpp"

#include "c/boundary.hpp"
#include "c/convert.hpp"
#include "c/handles.hpp"

namespace c = kiln::c;

kiln_status kiln_parse_program(const char* name, const char* text, const kiln_options* options,
                               kiln_program** program) {
  return c::guard(__func__, [&](const char* called) {
    c::require(program, called, "program");
    *program = new kiln_program(kiln::parse(c::require_text(name, called, "name"),
                                            c::require_text(text, called, "text"),
                                            c::to_options(options, called)));
  });
}

void kiln_program_destroy(kiln_program* program) { delete program; }

const char* kiln_program_name(const kiln_program* program) {
  return program->description.name.c_str();
}
const char* kiln_program_expression(const kiln_program* program) {
  return program->description.expression.c_str();
}
size_t kiln_program_argument_count(const kiln_program* program) {
  return program->description.arguments.size();
}
size_t kiln_program_output_count(const kiln_program* program) {
  return program->description.outputs.size();
}
const char* kiln_program_argument_name(const kiln_program* program, size_t index) {
  return c::text_at(program->description.arguments, index);
}
const char* kiln_program_output_name(const kiln_program* program, size_t index) {
  return c::text_at(program->description.outputs, index);
}

kiln_status kiln_program_workspace(const kiln_program* program, const kiln_stream* stream,
                                   const kiln_call* call, uint64_t* bytes) {
  return c::guard(__func__, [&](const char* called) {
    c::require(bytes, called, "bytes");
    const c::Operands operands(call, called);
    *bytes = c::require(program, called, "program")
                 .program.workspace_bytes(c::to_stream(stream, called), operands.inputs(),
                                          operands.outputs());
  });
}

kiln_status kiln_program_run(const kiln_program* program, const kiln_stream* stream,
                             const kiln_call* call, const kiln_view* workspace) {
  return c::guard(__func__, [&](const char* called) {
    const c::Operands operands(call, called);
    c::require(program, called, "program")
        .program.run(c::to_stream(stream, called), operands.inputs(), operands.outputs(),
                     c::to_workspace(workspace, called));
  });
}

kiln_status kiln_program_look_up(const kiln_program* program, const kiln_stream* stream,
                                 const kiln_call* call, kiln_kernel_info* info) {
  return c::guard(__func__, [&](const char* called) {
    c::require_sized(info, called, "info");
    const c::Operands operands(call, called);
    c::put_sized(info,
                 c::kept_for_thread(c::require(program, called, "program")
                                        .program.look_up(c::to_stream(stream, called),
                                                         operands.inputs(), operands.outputs())));
  });
}

kiln_status kiln_program_prepare(const kiln_program* program, kiln_device device,
                                 const kiln_call* call, kiln_preparation** preparation) {
  return c::guard(__func__, [&](const char* called) {
    c::require(preparation, called, "preparation");
    const kiln_program& prepared = c::require(program, called, "program");
    *preparation = new kiln_preparation(prepared.program.prepare(
        c::to_device(device, called),
        c::to_specification(call, prepared.description.arguments, called)));
  });
}

kiln_status kiln_program_bind(const kiln_program* program, const kiln_stream* stream,
                              const kiln_call* call, const kiln_view* workspace,
                              kiln_launch** launch) {
  return c::guard(__func__, [&](const char* called) {
    c::require(launch, called, "launch");
    const c::Operands operands(call, called);
    *launch =
        new kiln_launch{c::require(program, called, "program")
                            .program.bind(c::to_stream(stream, called), operands.inputs(),
                                          operands.outputs(), c::to_workspace(workspace, called))};
  });
}
