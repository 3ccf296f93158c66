// Dependencies from byte ranges: a map of memory remembers who wrote each part last and who has
// read it since; what an operation finds there are its candidates, and those that follow from
// others are dropped. See dependencies.hpp.
#include "jit/device/dependencies.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace kiln::jit {
namespace {

constexpr std::uint32_t kNobody = std::numeric_limits<std::uint32_t>::max();

/// What happened last to a part of memory, whose begin is its key in the map.
struct Part {
  std::uintptr_t end = 0;
  std::uint32_t writer = kNobody;
  std::vector<std::uint32_t> readers;  ///< since that write
};

/// Disjoint parts, in the order of their addresses.
class MemoryMap {
 public:
  /// Calls `visit(range, part)` for the parts that make up `range`. They are split so that each
  /// lies inside it, and made where nothing was known.
  template <class Visit>
  void visit(ByteRange range, Visit visit) {
    if (range.begin >= range.end) return;
    split(range.begin);
    split(range.end);
    std::uintptr_t at = range.begin;
    auto next = parts_.lower_bound(at);
    while (at < range.end) {
      if (next == parts_.end() || next->first > at) {  // a gap
        const std::uintptr_t end =
            next == parts_.end() ? range.end : std::min(next->first, range.end);
        next = parts_.emplace_hint(next, at, Part{end, kNobody, {}});
      }
      visit(ByteRange{at, next->second.end}, next->second);
      at = next->second.end;
      ++next;
    }
  }

 private:
  /// Makes `at` a boundary if it lies inside a part.
  void split(std::uintptr_t at) {
    auto after = parts_.upper_bound(at);
    if (after == parts_.begin()) return;
    auto part = std::prev(after);
    if (part->first == at || part->second.end <= at) return;
    Part right = part->second;
    part->second.end = at;
    parts_.emplace_hint(after, at, std::move(right));
  }

  std::map<std::uintptr_t, Part> parts_;
};

/// Who comes before whom, as a bit for each pair.
class Ancestors {
 public:
  explicit Ancestors(std::size_t count) : words_((count + 63) / 64), bits_(count * words_) {}

  bool contains(std::uint32_t of, std::uint32_t node) const {
    return ((bits_[of * words_ + node / 64] >> (node % 64)) & 1) != 0;
  }
  /// `parent` and all that come before it come before `of`.
  void add(std::uint32_t of, std::uint32_t parent) {
    for (std::size_t w = 0; w < words_; ++w) bits_[of * words_ + w] |= bits_[parent * words_ + w];
    bits_[of * words_ + parent / 64] |= std::uint64_t{1} << (parent % 64);
  }

 private:
  std::size_t words_;
  std::vector<std::uint64_t> bits_;
};

/// Everything that must come right before operation `node`, one entry for each reason.
std::vector<Dependency> candidates(MemoryMap& memory, const Access& access, std::uint32_t node) {
  std::vector<Dependency> found;
  for (ByteRange range : access.reads) {
    memory.visit(range, [&](ByteRange bytes, const Part& part) {
      if (part.writer == kNobody) return;
      found.push_back({part.writer, node, Hazard::read_after_write, bytes});
    });
  }
  for (ByteRange range : access.writes) {
    memory.visit(range, [&](ByteRange bytes, const Part& part) {
      for (std::uint32_t reader : part.readers) {
        found.push_back({reader, node, Hazard::write_after_read, bytes});
      }
      // Where there are readers, they wait for the writer already.
      if (part.readers.empty() && part.writer != kNobody) {
        found.push_back({part.writer, node, Hazard::write_after_write, bytes});
      }
    });
  }
  return found;
}

void remember(MemoryMap& memory, const Access& access, std::uint32_t node) {
  for (ByteRange range : access.reads) {
    memory.visit(range, [&](ByteRange, Part& part) {
      if (part.readers.empty() || part.readers.back() != node) part.readers.push_back(node);
    });
  }
  for (ByteRange range : access.writes) {
    memory.visit(range, [&](ByteRange, Part& part) {
      part.writer = node;
      part.readers.clear();
    });
  }
}

/// One reason for each pair, the latest operation first: the first hazard by name, lowest bytes
/// first.
void keep_one_reason(std::vector<Dependency>& found) {
  const auto order = [](const Dependency& d) {
    return std::tuple(~d.from, d.hazard, d.bytes.begin);
  };
  std::sort(found.begin(), found.end(),
            [&](const Dependency& a, const Dependency& b) { return order(a) < order(b); });
  found.erase(
      std::unique(found.begin(), found.end(),
                  [](const Dependency& a, const Dependency& b) { return a.from == b.from; }),
      found.end());
}

}  // namespace

std::string_view name(Hazard hazard) {
  switch (hazard) {
    case Hazard::read_after_write: return "read after write";
    case Hazard::write_after_read: return "write after read";
    case Hazard::write_after_write: return "write after write";
  }
  return "unknown";
}

std::vector<Dependency> dependencies(std::span<const Access> operations) {
  MemoryMap memory;
  Ancestors ancestors(operations.size());
  std::vector<Dependency> edges;
  for (std::uint32_t node = 0; node < operations.size(); ++node) {
    std::vector<Dependency> found = candidates(memory, operations[node], node);
    keep_one_reason(found);
    const auto first = static_cast<std::ptrdiff_t>(edges.size());
    for (const Dependency& edge : found) {
      // A path to `node` leads through a later operation, which has been seen by now.
      if (ancestors.contains(node, edge.from)) continue;
      ancestors.add(node, edge.from);
      edges.push_back(edge);
    }
    std::reverse(edges.begin() + first, edges.end());
    remember(memory, operations[node], node);
  }
  return edges;
}

std::vector<bool> may_begin_early(std::span<const Access> operations) {
  std::map<std::uintptr_t, std::uintptr_t>
      written;  // disjoint ranges: the end of each by its begin
  const auto is_written = [&](const ByteRange& range) {
    const auto behind = written.lower_bound(range.end);
    return range.begin < range.end && behind != written.begin() &&
           std::prev(behind)->second > range.begin;
  };
  const auto write = [&](ByteRange range) {
    if (range.begin >= range.end) return;
    auto next = written.upper_bound(range.begin);
    if (next != written.begin() && std::prev(next)->second >= range.begin) --next;
    while (next != written.end() && next->first <= range.end) {
      range.begin = std::min(range.begin, next->first);
      range.end = std::max(range.end, next->second);
      next = written.erase(next);
    }
    written.emplace_hint(next, range.begin, range.end);
  };
  std::vector<bool> may;
  for (const Access& access : operations) {
    may.push_back(std::none_of(access.early.begin(), access.early.end(), is_written));
    std::for_each(access.writes.begin(), access.writes.end(), write);
  }
  return may;
}

}  // namespace kiln::jit
