// KILN_RECORD=FILE: every function and signature that a program asks for, as lines of a manifest
// (files/manifest.hpp), so that its kernels can be compiled elsewhere before it runs again.
#pragma once

#include "call/plan.hpp"
#include "kiln/specification.hpp"

namespace kiln {

/// Whether KILN_RECORD is set.
bool recording();

/// Adds a line, unless the file has it: of all threads and processes that record into one file,
/// one writes it. A file that cannot be written is a warning, once.
void record(const Definition& definition, const Specification& specification);

/// The call without its memory.
Specification specification_of(const Definition& definition, const Call& call);

}  // namespace kiln
