// What a program does, for people: its kernels, why each begins, what it moves, and a picture.
#pragma once

#include <string>

#include "kiln/program.hpp"
#include "tool/print.hpp"

namespace kiln::tool {

void print_program(const ProgramInfo& program);
Json program_json(const ProgramInfo& program);
/// Kernels as boxes, values that pass between them as arrows.
std::string program_dot(const ProgramInfo& program);

}  // namespace kiln::tool
