// Epoch-based reclamation: what some threads read without a lock, and another takes out of their
// reach, is freed when none of them can be reading it any more.
#pragma once

#include <memory>
#include <vector>

namespace kiln::base {

/// While one lives on this thread's stack, nothing is freed that the thread can have found since
/// then. Sections nest. Takes no lock; the first one of a thread allocates.
class ReadSection {
 public:
  ReadSection();
  ~ReadSection();
  ReadSection(const ReadSection&) = delete;
  ReadSection& operator=(const ReadSection&) = delete;
};

/// To be called when nobody can find those objects any more: lets go of each once every section has
/// ended in which they may have been found. That is at once if there is none, else in a later call.
/// What the last reference destroys is destroyed on the thread that calls, which must hold no lock
/// that it needs.
void retire(std::vector<std::shared_ptr<const void>> objects);

}  // namespace kiln::base
