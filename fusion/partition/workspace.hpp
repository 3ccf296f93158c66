// Where the temporaries between kernels lie in one workspace, by when each is written and read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kiln::fusion {

/// A temporary is written by kernel `first` and read for the last time by kernel `last`.
struct Lifetime {
  std::uint64_t bytes = 0;
  std::size_t first = 0;
  std::size_t last = 0;
};

struct Workspace {
  std::vector<std::uint64_t> offsets;  ///< of each temporary, multiples of 256
  std::uint64_t bytes = 0;
};

/// What a temporary of that many bytes takes of the workspace.
std::uint64_t aligned_bytes(std::uint64_t bytes);

/// Temporaries that live at the same time do not overlap. Each takes the lowest free offset, in the
/// order in which they are written or by their size, whichever needs fewer bytes.
Workspace plan_workspace(std::span<const Lifetime> lifetimes);
/// Whether what lives at some time takes so many bytes: then no workspace is smaller.
bool lives_together(std::span<const Lifetime> lifetimes, std::uint64_t bytes);
/// The same as plan_workspace() for at most kFewLifetimes without an allocation: writes an offset
/// for each, and gives the bytes.
inline constexpr std::size_t kFewLifetimes = 1024;
std::uint64_t plan_few(std::span<const Lifetime> lifetimes, std::span<std::uint64_t> offsets);

}  // namespace kiln::fusion
