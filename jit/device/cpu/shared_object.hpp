// A shared object that is in memory, made loadable. What its functions mean is not known here.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/dynamic_library.hpp"

namespace kiln::jit::cpu {

/// Move-only owner of a loaded shared object.
class SharedObject {
 public:
  /// Loads `image` from a memory file, or from a private temporary file where the system refuses to
  /// execute those. `name` is for messages and /proc/self/maps. Throws InvalidImage when the image
  /// is not a complete ELF shared object for this machine, and Error(device) with the loader's
  /// reason when it refuses one that is.
  SharedObject(std::span<const std::byte> image, const std::string& name);

  /// Throws InvalidImage when there is no such symbol.
  void* symbol(const std::string& name) const;

 private:
  base::DynamicLibrary library_;
};

/// Why `image` can never be loaded: not ELF, another machine, shorter than its headers say, nothing
/// to map or to link. Empty if it can be tried. The dynamic loader checks not all of this and would
/// crash.
std::string why_not_loadable(std::span<const std::byte> image);

/// The two ways, for the tests: each gives the library, or an empty object and appends to `reason`.
base::DynamicLibrary load_from_memory(std::span<const std::byte> image, const std::string& name,
                                      std::string& reason);
base::DynamicLibrary load_from_file(std::span<const std::byte> image, std::string& reason);

}  // namespace kiln::jit::cpu
