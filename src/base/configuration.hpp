// What kiln::configure() has set, for those who read settings.
#pragma once

#include <string_view>

#include "kiln/configure.hpp"

namespace kiln::base {

/// The configuration of this process. The first call ends the time in which it can be set:
/// `reader`, such as "the cache", is who the error of a later configure() names.
const Configuration& configuration(std::string_view reader);

/// What a call does on a miss whose Options say `own`.
OnMiss on_miss_of(OnMiss own);
/// The same as configured so far, which may still change.
OnMiss on_miss_so_far(OnMiss own);

}  // namespace kiln::base
