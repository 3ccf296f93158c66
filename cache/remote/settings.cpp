#include "cache/remote/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/text.hpp"
#include "cache/config.hpp"
#include "cache/entry.hpp"
#include "kiln/error.hpp"

namespace kiln::cache {
namespace {

[[noreturn]] void refuse(std::string_view what) {
  throw Error(Code::invalid_argument,
              fmt::format("remote cache: the URL {}; expected redis://[user:password@]host[:port]"
                          "[/database], rediss://... or redis+unix://[user:password@]/path",
                          what));
}

std::optional<std::uint64_t> parse_number(std::string_view text, std::uint64_t largest) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, status] = std::from_chars(text.data(), end, number);
  if (text.empty() || status != std::errc() || rest != end || number > largest) return {};
  return number;
}

std::string decode_percent(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    unsigned value = 0;
    const std::string_view digits = text.substr(i + 1, 2);
    const auto [rest, status] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() != 2 || status != std::errc() || rest != digits.data() + 2 || value == 0) {
      refuse("has a % without two hexadecimal digits after it");
    }
    decoded += static_cast<char>(value);
    i += 2;
  }
  return decoded;
}

/// "200ms", "30s", "15m", "12h", "30d".
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  constexpr std::uint64_t kMost = 100'000;  // days, which is more than a server keeps
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string_view unit = text.substr(digits);
  const std::uint64_t factor = unit == "ms"  ? 1
                               : unit == "s" ? 1000
                               : unit == "m" ? 60'000
                               : unit == "h" ? 3'600'000
                               : unit == "d" ? 86'400'000
                                             : 0;
  if (factor == 0) return {};
  const auto number = parse_number(text.substr(0, digits), kMost * (86'400'000 / factor));
  if (!number) return {};
  return std::chrono::milliseconds(*number * factor);
}

void set_database(RemoteSettings& settings, std::string_view text) {
  const auto number = parse_number(text, 1 << 20);
  if (!number) refuse("has a database that is not a number");
  settings.database = static_cast<int>(*number);
}

void set_option(RemoteSettings& settings, std::string_view name, const std::string& value) {
  const auto duration = [&](std::chrono::milliseconds least) {
    const auto parsed = parse_duration(value);
    if (!parsed || *parsed < least) {
      refuse(fmt::format("has an option {} that is not a time such as 200ms, 5s or 30d", name));
    }
    return *parsed;
  };
  if (name == "db") {
    set_database(settings, value);
  } else if (name == "prefix") {
    settings.prefix = value;
  } else if (name == "ttl") {
    settings.ttl = duration(std::chrono::milliseconds(0));
  } else if (name == "wait") {
    settings.wait = duration(std::chrono::milliseconds(1));
  } else if (name == "answer") {
    settings.answer = duration(std::chrono::milliseconds(1));
  } else if (name == "lease") {
    settings.lease = duration(std::chrono::milliseconds(10));
  } else if (name == "ca") {
    settings.ca = value;
  } else if (name == "max") {
    const auto bytes = parse_size(value);
    if (!bytes || *bytes == 0 || *bytes > kMaxEntryBytes) {
      refuse("has an option max that is not a size from 1 to 256M");
    }
    settings.max_value = *bytes;
  } else {
    refuse("has an option other than db, prefix, ttl, wait, answer, lease, max and ca");
  }
}

void set_host(RemoteSettings& settings, std::string_view text) {
  std::string_view port;
  if (text.starts_with('[')) {  // an IPv6 address
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) refuse("has a [ without a ]");
    settings.host = text.substr(1, end - 1);
    port = text.substr(end + 1);
    if (!port.empty() && port.front() != ':') refuse("has something after its ]");
  } else {
    const std::size_t colon = std::min(text.find(':'), text.size());
    settings.host = decode_percent(text.substr(0, colon));
    port = text.substr(colon);
  }
  if (settings.host.empty()) refuse("has no host");
  if (port.empty()) return;
  const auto number = parse_number(port.substr(1), 65535);
  if (!number || *number == 0) refuse("has a port that is not a number from 1 to 65535");
  settings.port = static_cast<int>(*number);
}

}  // namespace

std::string RemoteSettings::display() const {
  if (!socket.empty()) return fmt::format("redis+unix://{}?db={}", socket, database);
  const bool address = host.find(':') != std::string::npos;
  return fmt::format("{}://{}{}{}:{}/{}", tls ? "rediss" : "redis", address ? "[" : "", host,
                     address ? "]" : "", port, database);
}

std::string RemoteSettings::name(std::string_view kind, std::string_view rest) const {
  return fmt::format("{}:1:{}:{}", prefix, kind, rest);
}

RemoteSettings parse_remote_url(std::string_view url) {
  RemoteSettings settings;
  const std::size_t colon = url.find("://");
  const std::string_view scheme = url.substr(0, std::min(colon, url.size()));
  const bool is_unix = scheme == "redis+unix";
  settings.tls = scheme == "rediss";
  if (colon == std::string_view::npos || (!is_unix && !settings.tls && scheme != "redis")) {
    refuse("starts with none of redis://, rediss:// and redis+unix://");
  }
  std::string_view rest = url.substr(colon + 3);
  std::string_view options;
  if (const std::size_t mark = rest.find('?'); mark != std::string_view::npos) {
    options = rest.substr(mark + 1);
    rest = rest.substr(0, mark);
  }
  std::string_view path;
  if (const std::size_t slash = rest.find('/'); slash != std::string_view::npos) {
    path = rest.substr(slash);
    rest = rest.substr(0, slash);
  }
  if (path.find('@') != std::string_view::npos) {
    refuse("has an @ after a /: write / as %2F in a password and @ as %40 in a path");
  }
  if (const std::size_t at = rest.rfind('@'); at != std::string_view::npos) {
    const std::string_view who = rest.substr(0, at);
    const std::size_t separator = who.find(':');
    if (separator == std::string_view::npos) refuse("has a user without a password");
    settings.user = decode_percent(who.substr(0, separator));
    settings.password = decode_percent(who.substr(separator + 1));
    rest = rest.substr(at + 1);
  }
  if (is_unix) {
    if (!rest.empty()) refuse("has a host before the path of a socket");
    settings.socket = decode_percent(path);
    if (settings.socket.size() < 2) refuse("has no path of a socket");
  } else {
    set_host(settings, rest);
    if (path.size() > 1) set_database(settings, path.substr(1));
  }
  for (const std::string& option : base::split(options, '&')) {
    const std::size_t equals = option.find('=');
    if (equals == std::string::npos) refuse("has an option without a value");
    set_option(settings, option.substr(0, equals), decode_percent(option.substr(equals + 1)));
  }
  return settings;
}

}  // namespace kiln::cache
