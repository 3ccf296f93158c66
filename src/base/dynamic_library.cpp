// See dynamic_library.hpp.
#include "base/dynamic_library.hpp"

#include <dlfcn.h>
#include <link.h>

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

DynamicLibrary DynamicLibrary::find_loaded(const std::string& name) {
  DynamicLibrary library;
  library.handle_ = dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  return library;
}

DynamicLibrary::~DynamicLibrary() {
  if (handle_ != nullptr && !kept_) dlclose(handle_);
}

DynamicLibrary::DynamicLibrary(DynamicLibrary&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)),
      kept_(other.kept_),
      error_(std::move(other.error_)) {}

DynamicLibrary& DynamicLibrary::operator=(DynamicLibrary&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(kept_, other.kept_);
  std::swap(error_, other.error_);
  return *this;
}

void* DynamicLibrary::symbol(const char* name) const {
  return handle_ != nullptr ? dlsym(handle_, name) : nullptr;
}

std::string DynamicLibrary::path() const {
  link_map* map = nullptr;
  if (handle_ == nullptr || dlinfo(handle_, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0) {
    return {};
  }
  return map != nullptr && map->l_name != nullptr ? map->l_name : std::string();
}

}  // namespace kiln::base
