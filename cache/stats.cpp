#include "cache/stats.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>

#include "cache/trust.hpp"

namespace kiln::cache {
namespace {

constexpr const char* kFile = "stats";
constexpr std::uint64_t kMaxFile = 4096;

// Lines of "name value", each value as wide as any, so that a new text exactly covers the old one.
std::string to_text(const Stats& stats) {
  std::string text = "kiln-stats 1\n";
  for (std::size_t i = 0; i < kCounts; ++i) {
    text += fmt::format("{:<16}{:>20}\n", name(static_cast<Count>(i)), stats.values[i]);
  }
  return text + fmt::format("{:<16}{:>20x}\n", "checksum", XXH3_64bits(text.data(), text.size()));
}

// What another kiln counts and this one does not is left out, and the other way round.
Stats from_text(std::string_view text) {
  constexpr std::size_t kName = 16, kLine = 37;
  Stats stats;
  for (std::size_t at = text.find('\n') + 1; at + kLine <= text.size(); at += kLine) {
    std::string_view title = text.substr(at, kName);
    title = title.substr(0, title.find(' '));
    std::string_view value = text.substr(at + kName, kLine - kName - 1);
    value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
    std::uint64_t number = 0;
    const bool is_last = title == "checksum";
    std::from_chars(value.data(), value.data() + value.size(), number, is_last ? 16 : 10);
    // What was torn, or is not ours: start again from nothing.
    if (is_last) return number == XXH3_64bits(text.data(), at) ? stats : Stats{};
    for (std::size_t i = 0; i < kCounts; ++i) {
      if (title == name(static_cast<Count>(i))) stats.values[i] = number;
    }
  }
  return {};
}

bool usable(base::Io& io, int fd) {
  struct stat status = {};
  return io.stat(fd, status) == 0 && S_ISREG(status.st_mode) && distrust(status).empty();
}

template <class Change>
bool change_stats(base::Io& io, int root, Change change) {
  const base::UniqueFd fd = base::open_at(io, root, kFile, O_RDWR | O_CREAT | O_NONBLOCK, 0600);
  if (!fd || !usable(io, fd.get())) return false;
  if (io.lock(fd.get(), LOCK_EX | LOCK_NB) != 0) return false;
  std::string text;
  if (!base::read_bytes(io, fd.get(), 0, kMaxFile, text)) return false;
  const bool written = base::write_bytes(io, fd.get(), to_text(change(from_text(text))));
  io.lock(fd.get(), LOCK_UN);
  return written;
}

}  // namespace

std::string_view name(Count count) {
  static constexpr std::array<std::string_view, kCounts> names = {"hits",
                                                                  "misses",
                                                                  "compiled",
                                                                  "waited",
                                                                  "published",
                                                                  "published_bytes",
                                                                  "evicted",
                                                                  "evicted_bytes",
                                                                  "quarantined",
                                                                  "compile_ms",
                                                                  "remote_hits",
                                                                  "remote_misses",
                                                                  "remote_published",
                                                                  "remote_refused",
                                                                  "remote_failures"};
  return names[static_cast<std::size_t>(count)];
}

Stats Counters::read() const {
  Stats stats;
  for (std::size_t i = 0; i < kCounts; ++i) {
    stats.values[i] = values_[i].load(std::memory_order_relaxed);
  }
  return stats;
}

Stats Counters::take() {
  Stats stats;
  for (std::size_t i = 0; i < kCounts; ++i) {
    stats.values[i] = values_[i].exchange(0, std::memory_order_relaxed);
  }
  return stats;
}

Stats read_stats(base::Io& io, int root) {
  const base::UniqueFd fd = base::open_at(io, root, kFile, O_RDONLY | O_NONBLOCK);
  std::string text;
  if (!fd || !usable(io, fd.get()) || !base::read_bytes(io, fd.get(), 0, kMaxFile, text)) return {};
  return from_text(text);
}

bool add_stats(base::Io& io, int root, const Stats& more) {
  return change_stats(io, root, [&](Stats sum) {
    for (std::size_t i = 0; i < kCounts; ++i) sum.values[i] += more.values[i];
    return sum;
  });
}

bool zero_stats(base::Io& io, int root) {
  return change_stats(io, root, [](const Stats&) { return Stats{}; });
}

}  // namespace kiln::cache
