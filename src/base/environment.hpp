// The one place that reads environment variables, for all modules.
#pragma once

#include <optional>
#include <string>

namespace kiln::base {

/// Whether this program runs with more rights than its caller (set-user-id, set-group-id, file
/// capabilities), who must not decide what it runs and loads: not by a variable, nor by the name
/// under which it is started, nor by a directory from which it is.
bool has_more_rights_than_caller();

/// The variable's value, or empty. A program that has more rights than its caller sees none.
std::string environment(const char* name);

/// The variable's value as environment() gives it, for one whose empty value means something.
std::optional<std::string> environment_if_set(const char* name);

/// Where programs are looked for: PATH, or the system's own directories where it is not set.
std::string program_path();

}  // namespace kiln::base
