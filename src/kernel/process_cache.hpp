// The cache of this process.
#pragma once

#include "cache/cache.hpp"

namespace kiln {

/// Opened on first use with the settings of the environment.
cache::Cache& process_cache();

}  // namespace kiln
