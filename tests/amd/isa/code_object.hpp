// What a code object is to those who run its kernels: bytes in memory, and text.
#pragma once

#include "tests/amd/isa/dispatch.hpp"

namespace kiln::amd {

class LoadedCode : public CodeObject {
 public:
  /// Code and constants as a loader maps them, from address 0 on.
  virtual std::span<const std::byte> memory() const = 0;
  /// A kernel of this object made ready to run, when it is first asked for.
  virtual const Program& program(const Kernel& kernel) const = 0;
};

/// Code as text, without an image: for tests of instructions. `listing` is what a disassembler
/// prints; `kernel` has all but the object filled in.
std::shared_ptr<const CodeObject> object_of_listing(std::string listing, Kernel kernel);

}  // namespace kiln::amd
