// The one place that reads environment variables, for all modules.
#pragma once

#include <optional>
#include <string>

namespace kiln::base {

/// The variable's value, or empty. A program that runs with more rights than its caller
/// (set-user-id, set-group-id, file capabilities) sees none: the caller must not decide what it
/// runs and loads.
std::string environment(const char* name);

/// The variable's value as environment() gives it, for one whose empty value means something.
std::optional<std::string> environment_if_set(const char* name);

/// Where programs are looked for: PATH, or the system's own directories where it is not set.
std::string program_path();

}  // namespace kiln::base
