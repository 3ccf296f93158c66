// KILN_RECORD=FILE: every function, program and signature that the process asks for, and every
// kernel of its own, as lines of a manifest (files/manifest.hpp), so that its kernels can be
// compiled elsewhere before it runs again.
#pragma once

#include <span>
#include <string_view>

#include "call/call_types.hpp"
#include "kiln/kernel.hpp"
#include "kiln/specification.hpp"

namespace kiln {

/// Whether KILN_RECORD is set.
bool logs_manifest();

/// Adds a line, unless the file has it: of all threads and processes that write to one file, one
/// writes it. A file that cannot be written is a warning, once.
void log_function(const CallNames& names, std::string_view expression, const Options& options,
                  const Specification& specification);
/// A program without custom calls, which its text does not say.
void log_program(const Definition& definition, const Specification& specification);
void log_kernel(std::string_view name, std::string_view source,
                std::span<const KernelParameter> parameters, const Options& options);

/// The call without its memory. `places` says where its operands begin in memory that they share,
/// if that is known.
Specification specification_of(const CallNames& names, const Call& call,
                               std::span<const fusion::MemoryPlace> places = {});

}  // namespace kiln
