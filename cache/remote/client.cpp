#include "cache/remote/client.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <system_error>
#include <thread>
#include <unordered_set>
#include <utility>

#include "base/io.hpp"
#include "kiln/error.hpp"

namespace kiln::cache {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kFirstPause{250};
constexpr milliseconds kLongestPause{60'000};
constexpr int kMostDoublings = 8;  // of the first pause, which is then above the longest
constexpr std::size_t kMostPostedBytes = 64 << 20;
constexpr int kMostAttempts = 3;  // to send what is posted: it may be what the server fails on

std::size_t size_of(const std::vector<Command>& commands) {
  std::size_t size = 0;
  for (const Command& command : commands) {
    for (const std::string& text : command) size += text.size();
  }
  return size;
}

std::string_view first_word(std::string_view text) { return text.substr(0, text.find(' ')); }

/// For people. Of the reply to a command with a password only the first word, because a server that
/// does not know the command says it back.
std::string describe(const Reply& error, bool had_password) {
  const std::string_view word = first_word(error.text);
  std::string text = "answers " + printable(had_password ? word : error.text);
  if (word == "NOAUTH" || word == "WRONGPASS" || word == "NOPERM") {
    text += "; check user and password of KILN_REMOTE_CACHE";
  } else if (word == "MOVED" || word == "ASK") {
    text += "; it is a node of a cluster, which kiln cannot use: name a server that is none";
  } else if (had_password) {
    text += " to the password";
  }
  return text;
}

std::string describe(Connection::Failure failure) {
  switch (failure) {
    case Connection::Failure::lost: return "closed the connection";
    case Connection::Failure::timed_out: return "does not answer in time";
    case Connection::Failure::cancelled: return "was given up";
    case Connection::Failure::bad_reply: return "sends what is no reply, or too long a one";
  }
  return {};
}

// What the thread works on. Guarded by the state's mutex but for `commands`, which the thread has
// to itself, and `done`.
struct Request {
  std::vector<Command> commands;
  Client::Done done;  // of what is posted
  std::size_t bytes = 0;
  std::vector<Reply> replies;
  int attempts = 0;
  bool sent = false;
  bool answered = false;
  bool finished = false;   // with or without replies
  bool abandoned = false;  // who waited has stopped
};

/// Blocks all signals while it lives: a thread that is started meanwhile gets none, of which
/// SIGPIPE would end the process when a server goes away.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

std::optional<std::vector<std::string>> scan_names(Client& client, std::string_view start,
                                                   TimePoint deadline) {
  std::string pattern;
  for (const char c : start) {  // what has a meaning in a pattern stands for itself
    if (std::string_view("*?[]^\\").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  std::unordered_set<std::string> found;
  std::string cursor = "0";
  do {
    auto replies = client.ask({{"SCAN", cursor, "MATCH", pattern + "*", "COUNT", "500"}}, deadline);
    if (!replies || replies->front().elements.size() != 2) return std::nullopt;
    Reply& reply = replies->front();
    cursor = reply.elements[0].text;
    for (Reply& name : reply.elements[1].elements) {
      if (name.text.starts_with(start)) found.insert(std::move(name.text));
    }
  } while (cursor != "0" && Clock::now() < deadline);
  if (cursor != "0") return std::nullopt;
  return std::vector<std::string>(found.begin(), found.end());
}

std::string printable(std::string_view text) {
  constexpr std::size_t kMost = 160;
  std::string line(text.substr(0, kMost));
  for (char& c : line) {
    if (std::isprint(static_cast<unsigned char>(c)) == 0) c = '?';
  }
  return line;
}

bool is_failure(const Reply& reply) {
  if (!reply.is_error()) return false;
  static constexpr std::string_view kOfOneCommand[] = {"WRONGTYPE", "OOM",        "READONLY",
                                                       "MISCONF",   "NOREPLICAS", "NOGROUP"};
  return std::ranges::find(kOfOneCommand, first_word(reply.text)) == std::end(kOfOneCommand);
}

struct Client::State {
  State(const RemoteSettings& server, const Repeated& again, milliseconds every)
      : settings(server),
        repeated(again),
        interval(every),
        wake_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~State() {
    {
      const std::lock_guard lock(mutex);
      ending = true;
      wake.notify_all();
      ::eventfd_write(wake_fd.get(), 1);
    }
    if (thread.joinable()) thread.join();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // The mutex is held. False: there is no thread.
  bool start() {
    if (thread.joinable()) return true;
    const SignalsBlocked blocked;
    try {
      thread = std::thread(&State::work, this);
    } catch (const std::system_error&) {
      return false;
    }
    return true;
  }

  // The mutex is held. Whether callers may wait for the server now; if it is time, has it tried.
  bool is_usable() {
    if (!away) return !stuck;
    if (!posted.empty() || trying || Clock::now() < retry_at) return false;
    trying = true;
    wake.notify_all();
    return false;
  }

  // The mutex is held by none: what is logged calls the program.
  void report(const std::string& reason) {
    log_once(LogLevel::warning, "remote cache " + settings.display(),
             fmt::format("remote cache {}: the server {}; continuing without it, and trying again "
                         "now and then",
                         settings.display(), reason));
  }

  // The mutex is held.
  void leave_alone(const std::string& reason) {
    problem = reason;
    away = true;
    failures = std::min(failures + 1, kMostDoublings + 1);
    const auto pause = std::min(kFirstPause * (1 << (failures - 1)), kLongestPause).count();
    // So that machines that lost the server together do not come back together.
    retry_at = Clock::now() + milliseconds(std::uniform_int_distribution<std::int64_t>(
                                  pause * 3 / 4, pause * 5 / 4)(random));
    for (const auto& request : asked) request->finished = true;
    asked.clear();
  }

  // The thread's. Why there is no connection; empty: there is.
  std::string connect() {
    const TimePoint deadline = Clock::now() + settings.answer;
    auto made = std::make_unique<Connection>(settings, wake_fd.get());
    if (std::string reason = made->open(deadline); !reason.empty()) return reason;
    std::vector<Command> greeting;
    if (!settings.password.empty()) {
      greeting.push_back(settings.user.empty() ? Command{"AUTH", settings.password}
                                               : Command{"AUTH", settings.user, settings.password});
    }
    if (settings.database != 0) {
      greeting.push_back({"SELECT", std::to_string(settings.database)});
    }
    greeting.push_back({"PING"});
    const TimePoint sent = Clock::now();
    std::vector<Reply> replies;
    if (const auto failure = made->exchange(greeting, 0, deadline, replies)) {
      return describe(*failure);
    }
    for (std::size_t i = 0; i < replies.size(); ++i) {
      if (replies[i].is_error()) return describe(replies[i], greeting[i].front() == "AUTH");
    }
    const std::lock_guard lock(mutex);
    latency = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - sent);
    connection = std::move(made);
    is_fresh = true;
    return {};
  }

  // The thread's. Why there are no replies; empty: there are. A connection that was used before may
  // have been closed since, which only trying shows; what kiln sends may be sent twice.
  std::string exchange(Request& request) {
    while (true) {
      if (!connection) {
        if (std::string reason = connect(); !reason.empty()) return reason;
        const std::lock_guard lock(mutex);
        if (request.abandoned) return {};
      }
      request.sent = true;
      const auto failure = connection->exchange(request.commands, settings.max_value + 64,
                                                Clock::now() + settings.answer, request.replies);
      if (!failure) break;
      connection.reset();
      const bool again = *failure == Connection::Failure::lost && !std::exchange(is_fresh, false);
      if (!again) return describe(*failure);
    }
    is_fresh = false;
    for (const Reply& reply : request.replies) {
      if (is_failure(reply)) return describe(reply, false);
    }
    return {};
  }

  bool is_ending() {
    const std::lock_guard lock(mutex);
    return ending;
  }

  void work() {
    while (true) {
      std::shared_ptr<Request> request;
      {
        std::unique_lock lock(mutex);
        current.reset();
        idle.notify_all();
        while (!ending && !(request = take())) {
          const bool retries = away && !posted.empty();
          wake.wait_until(lock, retries ? std::min(retry_at, repeat_at) : repeat_at);
        }
        if (ending) return;
        current = request;
      }
      run(request);
    }
  }

  // What the thread does next; null: nothing now. The mutex is held.
  std::shared_ptr<Request> take() {
    std::shared_ptr<Request> request;
    if (Clock::now() >= repeat_at) {
      repeat_at = Clock::now() + interval;
      std::vector<Command> commands = repeated();
      if (!commands.empty() && !away) {
        request = std::make_shared<Request>();
        request->commands = std::move(commands);
        return request;
      }
    }
    if (away && Clock::now() < retry_at) return request;
    for (auto* const queue : {&asked, &posted}) {
      while (!request && !queue->empty()) {
        request = std::move(queue->front());
        queue->pop_front();
        if (request->abandoned) request.reset();
      }
    }
    if (!request && trying) {
      request = std::make_shared<Request>();
      request->commands = {{"PING"}};
    }
    return request;
  }

  void run(const std::shared_ptr<Request>& request) {
    constexpr const char* kTooLate = "answers later than a compile takes";
    const std::string reason = exchange(*request);
    if (is_ending()) return;
    if (!reason.empty()) {
      connection.reset();
      report(reason);
    }
    bool too_late = false;
    bool again = false;
    {
      const std::lock_guard lock(mutex);
      const bool was_only_tried = std::exchange(trying, false) && !request->done;
      stuck = false;
      connected = connection != nullptr;
      // Who asked did not get the answer in time: for them the server is of no use.
      too_late = reason.empty() && request->abandoned && request->sent;
      request->finished = true;
      request->answered = reason.empty() && request->sent;
      again = !reason.empty() && request->done && ++request->attempts < kMostAttempts;
      if (again) posted.push_front(request);
      if (request->done && !again) posted_bytes -= request->bytes;
      if (!reason.empty() || too_late) {
        leave_alone(too_late ? kTooLate : reason);
      } else {
        away = false;
        // One that answers at all may still be too slow, and is left alone longer each time.
        if (!was_only_tried) failures = 0;
        problem.clear();
      }
      idle.notify_all();
    }
    if (too_late) report(kTooLate);
    if (request->done && !again) {
      request->done(request->answered ? request->replies : std::vector<Reply>());
    }
  }

  const RemoteSettings settings;
  const Repeated repeated;
  const milliseconds interval;
  const base::UniqueFd wake_fd;  // readable when this ends
  std::mutex mutex;
  std::condition_variable wake;  // of the thread
  std::condition_variable idle;  // of who waits for it
  std::deque<std::shared_ptr<Request>> asked;
  std::deque<std::shared_ptr<Request>> posted;
  std::shared_ptr<Request> current;
  std::size_t posted_bytes = 0;
  bool ending = false;
  bool trying = false;  // the server, after its pause
  bool stuck = false;   // in something that a caller would not wait for any longer
  bool away = false;    // nobody waits for the server, until it was tried
  int failures = 0;     // one after the other
  TimePoint retry_at;
  TimePoint repeat_at = Clock::now() + interval;
  bool connected = false;
  std::string problem;
  std::chrono::microseconds latency{0};
  std::minstd_rand random{std::random_device{}()};

  // The thread's own.
  std::unique_ptr<Connection> connection;
  bool is_fresh = false;

  std::thread thread;  // last: it uses all of the above
};

struct Client::Owned {
  pid_t owner;
  State state;
};

Client::Client(RemoteSettings settings, Repeated repeated, milliseconds interval)
    : settings_(std::move(settings)), repeated_(std::move(repeated)), interval_(interval) {}

Client::~Client() {
  Owned* const owned = current_.load();
  if (owned != nullptr && owned->owner == ::getpid()) delete owned;
}

Client::State& Client::state() {
  Owned* known = current_.load(std::memory_order_acquire);
  while (known == nullptr || known->owner != ::getpid()) {
    auto* const made = new Owned{::getpid(), State(settings_, repeated_, interval_)};
    if (current_.compare_exchange_strong(known, made)) return made->state;
    delete made;
  }
  return known->state;
}

std::optional<std::vector<Reply>> Client::ask(std::vector<Command> commands, TimePoint deadline) {
  State& state = this->state();
  const auto request = std::make_shared<Request>();
  request->commands = std::move(commands);
  std::unique_lock lock(state.mutex);
  if (!state.is_usable() || !state.start()) return std::nullopt;
  state.asked.push_back(request);
  state.wake.notify_all();
  state.idle.wait_until(lock, deadline, [&] { return request->finished; });
  if (request->answered) return std::move(request->replies);
  if (!request->finished) {
    request->abandoned = true;
    state.stuck = true;
  }
  return std::nullopt;
}

bool Client::post(std::vector<Command> commands, Done done) {
  State& state = this->state();
  const auto request = std::make_shared<Request>();
  request->bytes = size_of(commands);
  request->commands = std::move(commands);
  request->done = std::move(done);
  const std::lock_guard lock(state.mutex);
  if (state.posted_bytes + request->bytes > kMostPostedBytes || !state.start()) return false;
  state.posted_bytes += request->bytes;
  state.posted.push_back(request);
  state.wake.notify_all();
  return true;
}

bool Client::flush(TimePoint deadline) {
  State& state = this->state();
  std::unique_lock lock(state.mutex);
  const auto is_done = [&] { return state.posted.empty() && !state.current; };
  // A server that was away may be there again: what is under way now shows it.
  const auto is_left_alone = [&] { return state.away && !state.current; };
  state.idle.wait_until(lock, deadline, [&] { return is_done() || is_left_alone(); });
  return is_done();
}

RemoteHealth Client::health() {
  State& state = this->state();
  const std::lock_guard lock(state.mutex);
  return {state.connected, state.problem, state.latency};
}

}  // namespace kiln::cache
