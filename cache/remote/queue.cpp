#include "cache/remote/queue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "cache/remote/value.hpp"
#include "kiln/error.hpp"

namespace kiln::cache {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kGroup = "servers";
constexpr std::uint64_t kLongestQueue = 10'000;
constexpr milliseconds kVerdictKept{60'000};
constexpr milliseconds kFailureKept{10'000};  // of what may be gone when it is tried again
constexpr std::array<std::string_view, 2> kPriorities = {"foreground", "background"};

// KEYS: request, queue. ARGV: message or nothing, time to live, longest queue, source.
constexpr const char* kPost = R"(
local head = redis.pcall('getrange', KEYS[1], 0, 40)
local number = type(head) == 'string' and string.match(head, '^(%d+%-%d+) ')
if number and redis.call('xrange', KEYS[2], number, number)[1] then
  redis.call('pexpire', KEYS[1], ARGV[2])
  redis.call('pexpire', KEYS[2], 3600000)
  return 'waiting'
end
if ARGV[1] == '' then return 'absent' end
if redis.call('xlen', KEYS[2]) >= tonumber(ARGV[3]) then return 'full' end
number = redis.call('xadd', KEYS[2], '*', 'source', ARGV[4])
redis.call('set', KEYS[1], number .. ' ' .. ARGV[1], 'PX', ARGV[2])
redis.call('pexpire', KEYS[2], 3600000)
return 'waiting')";

// KEYS: queues. ARGV: group, server, how many of the first queues and of the others, how many
// queues are first, after how many milliseconds another server is gone. Nothing that is passed on
// has more than 64 bytes, whoever wrote it.
constexpr const char* kTake = R"(
local taken = {}
local function add(queue, entries, again)
  for _, entry in ipairs(entries) do
    local fields = entry and entry[2]
    if fields then
      taken[#taken + 1] = {queue, entry[1], string.sub(tostring(fields[2]), 1, 64), again}
    end
  end
end
for queue, name in ipairs(KEYS) do
  local most = tonumber(queue <= tonumber(ARGV[5]) and ARGV[3] or ARGV[4])
  if #taken < most then
    local claimed = redis.pcall('xautoclaim', name, ARGV[1], ARGV[2], ARGV[6], '0-0', 'COUNT',
                                most - #taken)
    if not claimed.err then
      add(queue, claimed[2], 1)
    elseif string.find(claimed.err, 'NOGROUP') then
      redis.pcall('xgroup', 'CREATE', name, ARGV[1], '0', 'MKSTREAM')
      redis.pcall('pexpire', name, 3600000)
    elseif not string.find(claimed.err, 'WRONGTYPE') then
      return claimed
    end
  end
  if #taken < most then
    local read = redis.pcall('xreadgroup', 'GROUP', ARGV[1], ARGV[2], 'COUNT', most - #taken,
                             'STREAMS', name, '>')
    if read and not read.err then add(queue, read[1][2], 0) end
  end
end
return taken)";

// KEYS: queue, request, served. ARGV: group, number, what to count.
constexpr const char* kFinish = R"(
redis.call('xack', KEYS[1], ARGV[1], ARGV[2])
redis.call('xdel', KEYS[1], ARGV[2])
local head = redis.pcall('getrange', KEYS[2], 0, #ARGV[2])
if type(head) ~= 'string' or head == ARGV[2] .. ' ' then redis.call('del', KEYS[2]) end
for i = 3, #ARGV do redis.call('hincrby', KEYS[3], ARGV[i], 1) end
return 1)";

// KEYS: queue. ARGV: group. Forgets servers that have taken nothing for an hour and have nothing.
constexpr const char* kTidy = R"(
local servers = redis.pcall('xinfo', 'CONSUMERS', KEYS[1], ARGV[1])
if servers.err then return 0 end
for _, server in ipairs(servers) do
  local about = {}
  for i = 1, #server, 2 do about[server[i]] = server[i + 1] end
  if about.pending == 0 and about.idle > 3600000 then
    redis.call('xgroup', 'DELCONSUMER', KEYS[1], ARGV[1], about.name)
  end
end
return 1)";

std::string_view priority_name(RequestPriority priority) {
  return kPriorities[static_cast<std::size_t>(priority)];
}

std::string queue_name(const RemoteSettings& settings, RequestPriority priority,
                       std::string_view kind) {
  return settings.name("queue", fmt::format("{}:{}", priority_name(priority), kind));
}

std::string request_name(const RemoteSettings& settings, RequestPriority priority,
                         std::string_view source) {
  return settings.name("request", fmt::format("{}:{}", priority_name(priority), source));
}

/// Whether it begins as a request does.
bool has_number(std::string_view text) {
  const std::size_t blank = text.substr(0, 64).find(' ');
  return blank != std::string_view::npos && blank > 0 &&
         text.substr(0, blank).find_first_not_of("0123456789-") == std::string_view::npos;
}

std::string milliseconds_text(milliseconds time) { return std::to_string(time.count()); }

/// The server is patient here: who is in a queue waits for a compile.
TimePoint patient_until(const RemoteSettings& settings) {
  return Clock::now() + settings.answer + milliseconds(1000);
}

std::vector<Command> no_commands() { return {}; }

/// What is waiting in a queue and what was taken, of the replies to length_commands().
std::vector<Command> length_commands(const std::string& queue) {
  return {{"XLEN", queue}, {"XPENDING", queue, std::string(kGroup)}};
}

void set_length(ServedQueue::Length& length, const Reply& all, const Reply& pending) {
  const auto count = [](const Reply& reply) {
    return static_cast<std::uint64_t>(std::max<std::int64_t>(reply.integer, 0));
  };
  length.running = pending.elements.empty() ? 0 : count(pending.elements.front());
  length.waiting = count(all) - std::min(length.running, count(all));
}

}  // namespace

RequestQueue::RequestQueue(RemoteSettings settings, Secret secret, Counters& counters)
    : secret_(std::move(secret)),
      counters_(counters),
      client_(std::move(settings), no_commands, std::chrono::minutes(1)) {}

void RequestQueue::refuse(const std::string& name, std::string_view reason) {
  counters_.add(Count::remote_refused);
  log_once(LogLevel::warning, fmt::format("remote cache {} {}", settings().display(), name),
           fmt::format("remote cache {}: the value of {} {}; not used", settings().display(), name,
                       reason));
}

RequestQueue::Answer RequestQueue::answer_of(const Key& source, const Reply& pointer,
                                             const Reply& failure) {
  Answer answer;
  if (!pointer.text.empty() && !pointer.is_error()) {
    DecodedPointer decoded = decode_pointer(source, pointer.text, secret_);
    if (!decoded.entry) refuse(settings().name("source", source.hex()), decoded.reason);
    answer.entry = decoded.entry;
  }
  if (!failure.text.empty() && !failure.is_error()) {
    auto decoded = decode_failure(source, failure.text, secret_);
    if (!decoded.body) refuse(settings().name("failure", source.hex()), decoded.reason);
    answer.failure = std::move(decoded.body);
  }
  return answer;
}

std::optional<RequestQueue::Answers> RequestQueue::look(std::span<const Key> sources,
                                                        std::string_view kind) {
  std::vector<Command> commands = {{"EXISTS", settings().name("serves", kind)}};
  const std::string last = std::to_string(kMaxFailureText + 4096);
  for (const Key& source : sources) {
    commands.push_back({"GETRANGE", settings().name("source", source.hex()), "0", "255"});
    commands.push_back({"GETRANGE", settings().name("failure", source.hex()), "0", last});
  }
  const auto replies = client_.ask(std::move(commands), patient_until(settings()));
  if (!replies) {
    counters_.add(Count::remote_failures);
    return std::nullopt;
  }
  Answers answers;
  answers.has_server = replies->front().integer > 0;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    answers.answers.push_back(answer_of(sources[i], (*replies)[1 + 2 * i], (*replies)[2 + 2 * i]));
  }
  return answers;
}

RequestQueue::Posted RequestQueue::post(
    std::span<const Key> sources, std::string_view kind, RequestPriority priority,
    const std::function<std::string(std::size_t index)>& message) {
  const auto ask = [&](std::span<const std::size_t> which, bool with_message) {
    std::vector<Command> commands;
    for (const std::size_t i : which) {
      const std::string source = sources[i].hex();
      commands.push_back({"EVAL", kPost, "2", request_name(settings(), priority, source),
                          queue_name(settings(), priority, kind), with_message ? message(i) : "",
                          milliseconds_text(2 * settings().lease), std::to_string(kLongestQueue),
                          source});
    }
    return client_.ask(std::move(commands), patient_until(settings()));
  };
  std::vector<std::size_t> which(sources.size());
  for (std::size_t i = 0; i < which.size(); ++i) which[i] = i;
  Posted posted = Posted::waiting;
  for (const bool with_message : {false, true}) {
    const auto replies = ask(which, with_message);
    if (!replies) {
      counters_.add(Count::remote_failures);
      return Posted::failed;
    }
    std::vector<std::size_t> absent;
    for (std::size_t k = 0; k < which.size(); ++k) {
      const Reply& reply = (*replies)[k];
      if (reply.text == "absent") absent.push_back(which[k]);
      if (reply.text == "full") posted = Posted::full;
      if (reply.is_error()) posted = Posted::failed;
    }
    if (absent.empty()) break;
    which = std::move(absent);
  }
  return posted;
}

ServedQueue::ServedQueue(RemoteSettings settings, Secret secret, std::string id,
                         std::vector<std::string> kinds)
    : secret_(std::move(secret)),
      id_(std::move(id)),
      kinds_(std::move(kinds)),
      client_(std::move(settings), no_commands, std::chrono::minutes(1)) {
  for (const RequestPriority priority :
       {RequestPriority::foreground, RequestPriority::background}) {
    for (const std::string& kind : kinds_) {
      queues_.push_back(queue_name(this->settings(), priority, kind));
    }
  }
  std::vector<Command> tidy;
  for (const std::string& queue : queues_) {
    tidy.push_back({"EVAL", kTidy, "1", queue, std::string(kGroup)});
  }
  client_.post(std::move(tidy), [](const auto&) {});
}

std::optional<std::vector<ServedQueue::Taken>> ServedQueue::take(std::size_t foreground,
                                                                 std::size_t background) {
  Command command = {"EVAL", kTake, std::to_string(queues_.size())};
  command.insert(command.end(), queues_.begin(), queues_.end());
  for (std::string& argument : std::array<std::string, 6>{
           std::string(kGroup), id_, std::to_string(foreground), std::to_string(background),
           std::to_string(kinds_.size()), milliseconds_text(settings().lease)}) {
    command.push_back(std::move(argument));
  }
  const auto replies = client_.ask({std::move(command)}, patient_until(settings()));
  if (!replies || replies->front().is_error()) return std::nullopt;
  std::vector<Taken> all;
  std::vector<Command> get;
  for (const Reply& one : replies->front().elements) {
    if (one.elements.size() != 4) continue;
    const std::int64_t queue = one.elements[0].integer - 1;
    if (queue < 0 || queue >= static_cast<std::int64_t>(queues_.size())) continue;
    const auto index = static_cast<std::size_t>(queue);
    Taken taken;
    taken.priority =
        index < kinds_.size() ? RequestPriority::foreground : RequestPriority::background;
    taken.kind = kinds_[index % kinds_.size()];
    taken.number = one.elements[1].text;
    taken.wanted = one.elements[2].text;
    taken.taken_over = one.elements[3].integer != 0;
    get.push_back({"GETRANGE", request_name(settings(), taken.priority, taken.wanted), "0",
                   std::to_string(kMaxMessageBytes + 64)});
    all.push_back(std::move(taken));
  }
  if (all.empty()) return all;
  const auto requests = client_.ask(std::move(get), patient_until(settings()));
  if (!requests) return std::nullopt;  // they are taken again when they have been idle for a lease
  for (std::size_t i = 0; i < all.size(); ++i) {
    Taken& taken = all[i];
    const Reply& reply = (*requests)[i];
    const std::string start = taken.number + " ";
    const auto source = Key::parse(taken.wanted);
    if (!source) {
      taken.problem = "names no kernel";
    } else if (reply.is_error()) {
      taken.problem = "is not a text";
    } else if (reply.text.starts_with(start)) {
      auto decoded =
          decode_request(*source, std::string_view(reply.text).substr(start.size()), secret_);
      taken.request = std::move(decoded.body);
      taken.problem = std::move(decoded.reason);
    } else if (reply.text.empty() || has_number(reply.text)) {
      taken.expired = true;  // or put back into the queue since
    } else {
      taken.problem = "is not a request";
    }
  }
  return all;
}

std::vector<ServedQueue::Length> ServedQueue::renew(std::span<const Taken* const> taken,
                                                    const RemoteServer& server) {
  std::vector<Command> commands;
  std::vector<Length> lengths;
  for (const std::string& queue : queues_) {
    for (Command& command : length_commands(queue)) commands.push_back(std::move(command));
  }
  const std::string lease = milliseconds_text(settings().lease);
  commands.push_back(
      {"SET", settings().name("server", id_), encode_server(server, secret_), "PX", lease});
  for (const std::string& kind : kinds_) {
    commands.push_back({"SET", settings().name("serves", kind), "1", "PX", lease});
  }
  for (const Taken* one : taken) {
    commands.push_back({"XCLAIM", queue_name(settings(), one->priority, one->kind),
                        std::string(kGroup), id_, "0", one->number, "JUSTID"});
  }
  const auto replies = client_.ask(std::move(commands), patient_until(settings()));
  if (!replies) return lengths;
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    const auto priority =
        i < kinds_.size() ? RequestPriority::foreground : RequestPriority::background;
    Length& length = lengths.emplace_back();
    length.priority = priority_name(priority);
    length.kind = kinds_[i % kinds_.size()];
    set_length(length, (*replies)[2 * i], (*replies)[2 * i + 1]);
  }
  return lengths;
}

bool ServedQueue::finish(const Taken& taken, Served result,
                         const std::optional<RemoteFailure>& failure) {
  std::vector<Command> commands;
  if (failure && Key::parse(taken.wanted)) {
    commands.push_back({"SET", settings().name("failure", taken.wanted),
                        encode_failure(taken.source(), *failure, secret_), "PX",
                        milliseconds_text(failure->is_verdict ? kVerdictKept : kFailureKept)});
  } else if (result == Served::compiled || result == Served::found) {
    commands.push_back({"DEL", settings().name("failure", taken.wanted)});
  }
  Command finish = {"EVAL",
                    kFinish,
                    "3",
                    queue_name(settings(), taken.priority, taken.kind),
                    request_name(settings(), taken.priority, taken.wanted),
                    settings().prefix + ":1:served",
                    std::string(kGroup),
                    taken.number,
                    std::string(name(result))};
  if (taken.taken_over) finish.emplace_back(name(Served::taken_over));
  commands.push_back(std::move(finish));
  const auto replies = client_.ask(std::move(commands), patient_until(settings()));
  return replies && std::ranges::none_of(*replies, &Reply::is_error);
}

void ServedQueue::withdraw() {
  client_.ask({{"DEL", settings().name("server", id_)}}, patient_until(settings()));
}

std::optional<QueueStatus> queue_status(const RemoteSettings& settings, const Secret& secret,
                                        TimePoint deadline) {
  Client client(settings, no_commands, std::chrono::minutes(1));
  const auto servers = scan_names(client, settings.name("server", ""), deadline);
  const auto queues = scan_names(client, settings.name("queue", ""), deadline);
  if (!servers || !queues) return std::nullopt;
  std::vector<Command> commands = {{"HGETALL", settings.prefix + ":1:served"}};
  for (const std::string& server : *servers) {
    commands.push_back({"GETRANGE", server, "0", std::to_string(kMaxMessageBytes)});
  }
  for (const std::string& queue : *queues) {
    for (Command& command : length_commands(queue)) commands.push_back(std::move(command));
  }
  const auto replies = client.ask(std::move(commands), deadline);
  if (!replies) return std::nullopt;
  QueueStatus status;
  const std::vector<Reply>& counts = replies->front().elements;
  for (std::size_t i = 0; i + 1 < counts.size(); i += 2) {
    for (std::size_t k = 0; k < kServed; ++k) {
      if (counts[i].text != name(static_cast<Served>(k))) continue;
      const std::string& text = counts[i + 1].text;
      std::from_chars(text.data(), text.data() + text.size(), status.served[k]);
    }
  }
  std::size_t at = 1;
  for (std::size_t i = 0; i < servers->size(); ++i) {
    const Reply& reply = (*replies)[at++];
    if (reply.text.empty()) continue;  // it has just gone
    auto decoded = decode_server(reply.text, secret);
    if (decoded.body) {
      status.servers.push_back(*std::move(decoded.body));
    } else {
      ++status.refused_servers;
    }
  }
  const std::string start = settings.name("queue", "");
  for (const std::string& queue : *queues) {
    const Reply& all = (*replies)[at++];
    const Reply& pending = (*replies)[at++];
    const std::string rest = queue.substr(start.size());
    const std::size_t colon = rest.find(':');
    if (colon == std::string::npos || all.is_error()) continue;
    ServedQueue::Length length{printable(rest.substr(0, colon)), printable(rest.substr(colon + 1)),
                               0, 0};
    set_length(length, all, pending);
    status.queues.push_back(std::move(length));
  }
  std::ranges::sort(status.servers, {}, &RemoteServer::id);
  std::ranges::sort(status.queues, {}, [](const ServedQueue::Length& one) {
    return std::pair(one.kind, one.priority != "foreground");
  });
  return status;
}

}  // namespace kiln::cache
