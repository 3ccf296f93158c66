// Loading a compiler's library for the life of the process: none of them survives being unloaded.
#pragma once

#include <fmt/format.h>

#include <string>

#include "base/dynamic_library.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {

/// Throws Error(not_found) with the loader's reason.
inline base::DynamicLibrary load_library(const std::string& path) {
  base::DynamicLibrary library(path);
  if (!library) {
    throw Error(Code::not_found, fmt::format("cannot load {}: {}", path, library.error()));
  }
  library.keep_loaded();
  return library;
}

/// Throws Error(not_found) that names the library and the function.
template <class F>
F* find_symbol(const base::DynamicLibrary& library, const char* name, const std::string& path) {
  void* address = library.symbol(name);
  if (address == nullptr) throw Error(Code::not_found, fmt::format("{} has no {}", path, name));
  return reinterpret_cast<F*>(address);
}

}  // namespace kiln::jit
