// What kiln::configure() has set, for those who read settings.
#pragma once

#include <string_view>

#include "kiln/configure.hpp"

namespace kiln::base {

/// The configuration of this process. The first call ends the time in which it can be set:
/// `reader`, such as "the cache", is who the error of a later configure() names.
const Configuration& configuration(std::string_view reader);

}  // namespace kiln::base
