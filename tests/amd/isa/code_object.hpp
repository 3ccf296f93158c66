// What a code object is to those who run its kernels: bytes in memory, and text.
#pragma once

#include <map>
#include <mutex>

#include "tests/amd/isa/dispatch.hpp"

namespace kiln::amd {

class LoadedCode : public CodeObject {
 public:
  /// Code and constants as a loader maps them, from address 0 on.
  virtual std::span<const std::byte> memory() const = 0;
  /// The disassembly of all functions.
  virtual std::string_view listing() const = 0;
};

}  // namespace kiln::amd
