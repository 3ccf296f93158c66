// See environment.hpp.
#include "base/environment.hpp"

#include <sys/auxv.h>
#include <unistd.h>

#include <cstdlib>

namespace kiln::base {

bool has_more_rights_than_caller() { return ::getauxval(AT_SECURE) != 0; }

std::optional<std::string> environment_if_set(const char* name) {
  const char* const value = ::secure_getenv(name);
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

std::string environment(const char* name) {
  return environment_if_set(name).value_or(std::string());
}

std::string program_path() {
  if (auto path = environment_if_set("PATH")) return *std::move(path);
  std::string path(::confstr(_CS_PATH, nullptr, 0), '\0');
  ::confstr(_CS_PATH, path.data(), path.size());
  while (!path.empty() && path.back() == '\0') path.pop_back();
  return path;
}

}  // namespace kiln::base
