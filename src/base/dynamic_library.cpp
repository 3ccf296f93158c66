// See dynamic_library.hpp.
#include "base/dynamic_library.hpp"

#include <dlfcn.h>

#include <utility>

namespace kiln::base {

DynamicLibrary::DynamicLibrary(std::span<const std::string> names) {
  for (const std::string& name : names) {
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      error_.clear();
      return;
    }
    const char* reason = dlerror();
    if (!error_.empty()) error_ += "; ";
    error_ += reason != nullptr ? reason : name + ": cannot be loaded";
  }
}

DynamicLibrary::~DynamicLibrary() {
  if (handle_ != nullptr) dlclose(handle_);
}

DynamicLibrary::DynamicLibrary(DynamicLibrary&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)), error_(std::move(other.error_)) {}

DynamicLibrary& DynamicLibrary::operator=(DynamicLibrary&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(error_, other.error_);
  return *this;
}

void* DynamicLibrary::symbol(const char* name) const {
  return handle_ != nullptr ? dlsym(handle_, name) : nullptr;
}

}  // namespace kiln::base
