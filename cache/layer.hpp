// A place on disk where entries may be: the user's directory, a directory or bundle that came with
// an application. The cache asks them in order.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "cache/entry.hpp"

namespace kiln::cache {

struct Loaded {
  Entry entry;
  /// The entry's file as it was read, for copying it elsewhere. Of the directory that is written to
  /// only with Parts::all.
  std::string bytes;
};

class Layer {
 public:
  virtual ~Layer() = default;
  /// For people.
  virtual const std::string& path() const = 0;
  /// The entry, checked; nothing when it is not there or not usable. Never throws for what it
  /// finds.
  virtual std::optional<Loaded> load(const Key& key, Parts parts) = 0;
  /// Calls `visit` with the head of every entry that seems usable. Never throws for what it finds.
  virtual void heads(const std::function<void(const Head&)>& visit) = 0;
};

}  // namespace kiln::cache
