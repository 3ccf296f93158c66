// Why two entries are two: which ingredients of their keys differ, in words.
#pragma once

#include <string>
#include <vector>

#include "cache/entry.hpp"

namespace kiln::cache {

struct Difference {
  std::string tag;  ///< of the ingredient
  std::string a;    ///< its value in A; empty if A has none
  std::string b;
  std::string words;  ///< a sentence
};

/// The ingredients that differ, in the order in which they are in the key. For a source, `words`
/// names the first line that differs, if both entries have theirs.
std::vector<Difference> explain(const Entry& a, const Entry& b);

}  // namespace kiln::cache
