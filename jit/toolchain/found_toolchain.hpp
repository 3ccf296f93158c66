// What is remembered of a toolchain that was found.
#pragma once

#include <optional>
#include <utility>

#include "base/retry_pause.hpp"
#include "jit/toolchain/toolchain.hpp"

namespace kiln::jit {

/// One without an identity is looked for again after a pause: what kept it from being identified
/// may be over. Not thread-safe.
class FoundToolchain {
 public:
  using Clock = base::RetryPause::Clock;

  /// Null if it is to be looked for, for the first time or again.
  const Toolchain* get() const {
    return toolchain_ && (!toolchain_->identity.empty() || !pause_.is_over()) ? &*toolchain_
                                                                              : nullptr;
  }
  /// What was found by a search that began then; does not replace one that another search has
  /// identified meanwhile by one without an identity.
  const Toolchain& set(Toolchain found, Clock::time_point began) {
    const bool identified = !found.identity.empty();
    if (identified || !toolchain_ || toolchain_->identity.empty()) toolchain_ = std::move(found);
    if (!identified) pause_.start(began);
    return *toolchain_;
  }

 private:
  std::optional<Toolchain> toolchain_;
  base::RetryPause pause_;
};

}  // namespace kiln::jit
