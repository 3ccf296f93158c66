// A shared library that is loaded at run time, if it is there. Nothing here knows which library.
#pragma once

#include <span>
#include <string>

namespace kiln::base {

/// Move-only owner of a dlopen handle.
class DynamicLibrary {
 public:
  DynamicLibrary() = default;
  /// Loads the first of `names` that can be loaded. If none can, the object is empty and `error()`
  /// holds the loader's reason for each that exists, or that none was found.
  explicit DynamicLibrary(std::span<const std::string> names);
  ~DynamicLibrary();
  DynamicLibrary(DynamicLibrary&& other) noexcept;
  DynamicLibrary& operator=(DynamicLibrary&& other) noexcept;

  explicit operator bool() const { return handle_ != nullptr; }
  const std::string& error() const { return error_; }
  /// The address of that symbol, or null.
  void* symbol(const char* name) const;
  /// Keeps the library loaded until the process ends.
  void leak() { handle_ = nullptr; }

 private:
  void* handle_ = nullptr;
  std::string error_;
};

}  // namespace kiln::base
