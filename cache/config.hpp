// The settings of the cache, and the one place that reads them from kiln::configure() and the
// environment.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/io.hpp"
#include "cache/mac.hpp"
#include "cache/remote/settings.hpp"

namespace kiln::cache {

struct Config {
  /// Absolute path of the user's directory, made when first needed; empty: nothing is kept on disk.
  std::string directory;
  /// Why `directory` is empty, for people.
  std::string why_uncached;
  /// Bytes of entries above which the least recently used go; 0 is no bound.
  std::uint64_t max_size = std::uint64_t{1} << 30;
  /// Directories and bundles that are read and never written, in the order they are asked.
  std::vector<std::string> readonly;
  /// With one, a bundle that was not signed with it is refused. The remote tier needs one.
  Secret secret;
  /// The server that is asked last, if there is one.
  std::optional<RemoteSettings> remote;
  /// Why KILN_REMOTE_CACHE is not used, for people; empty if it is, or is not set.
  std::string why_no_remote;
  /// How long a caller waits for another one who compiles the same key before it compiles alone.
  std::chrono::milliseconds wait_limit{60'000};
  /// An entry's time of last use is renewed at most this often.
  std::chrono::seconds touch_interval{600};
  std::shared_ptr<base::Io> io;  ///< empty: the system's
  /// Does later what a look-up need not wait for: copying what another layer has into `directory`.
  /// The cache must live for as long. Empty: it is done at once.
  std::function<void(std::function<void()>)> later;

  /// What kiln::configure() has set, and for the rest KILN_CACHE=off; KILN_CACHE_DIR, else
  /// $XDG_CACHE_HOME/kiln, else $HOME/.cache/kiln; KILN_CACHE_MAX_SIZE (bytes, or with K, M, G, T);
  /// KILN_CACHE_READONLY_DIRS (separated by colons); KILN_CACHE_SECRET; KILN_REMOTE_CACHE (a URL),
  /// of which is logged why it is not used if it cannot be. A set-user-id program sees none of the
  /// variables. A `directory` that is not empty comes before what all these say of it.
  static Config from_environment(const std::string& directory = {});
};

/// "512M", "1.5GiB", "4096": bytes, in powers of 1024; nothing for any other text.
std::optional<std::uint64_t> parse_size(std::string_view text);

}  // namespace kiln::cache
