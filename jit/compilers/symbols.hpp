// Loading a compiler's library for the life of the process: none of them survives being unloaded.
#pragma once

#include <dlfcn.h>
#include <fmt/format.h>

#include <string>

#include "kiln/error.hpp"

namespace kiln::jit {

/// Throws Error(not_found) with the loader's reason.
inline void* load_library(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* reason = dlerror();
    throw Error(Code::not_found, fmt::format("cannot load {}: {}", path,
                                             reason != nullptr ? reason : "no reason given"));
  }
  return library;
}

/// Throws Error(not_found) that names the library and the function.
template <class F>
F* find_symbol(void* library, const char* name, const std::string& path) {
  void* address = dlsym(library, name);
  if (address == nullptr) throw Error(Code::not_found, fmt::format("{} has no {}", path, name));
  return reinterpret_cast<F*>(address);
}

}  // namespace kiln::jit
