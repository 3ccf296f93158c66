// Shared libraries that are loaded at run time, if they are there. Nothing here knows which.
#pragma once

#include <span>
#include <string>

namespace kiln::base {

/// Move-only owner of a dlopen handle.
class DynamicLibrary {
 public:
  DynamicLibrary() = default;
  explicit DynamicLibrary(const std::string& name) : DynamicLibrary(std::span(&name, 1)) {}
  /// Loads the first of `names` that can be loaded. If none can, the object is empty and `error()`
  /// holds the loader's reason for each.
  explicit DynamicLibrary(std::span<const std::string> names);
  /// The library of that name if this process has loaded it already, else an empty object.
  static DynamicLibrary find_loaded(const std::string& name);
  ~DynamicLibrary();
  DynamicLibrary(DynamicLibrary&& other) noexcept;
  DynamicLibrary& operator=(DynamicLibrary&& other) noexcept;

  explicit operator bool() const { return handle_ != nullptr; }
  const std::string& error() const { return error_; }
  /// The address of that symbol, or null.
  void* symbol(const char* name) const;
  /// The file that it was loaded from; empty if that is not known.
  std::string path() const;
  /// Keeps the library loaded until the process ends.
  void keep_loaded() { kept_ = true; }

 private:
  void* handle_ = nullptr;
  bool kept_ = false;
  std::string error_;
};

}  // namespace kiln::base
