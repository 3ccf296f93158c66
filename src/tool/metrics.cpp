#include "tool/metrics.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <list>
#include <utility>
#include <vector>

#include "kiln/error.hpp"

namespace kiln::tool {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostClients = 16;
constexpr std::size_t kMostRequest = 4096;
constexpr std::chrono::seconds kClientTime{2};

struct Client {
  base::UniqueFd fd;
  Clock::time_point deadline;
  std::string request;
  std::string reply;  // what is left of it
  bool answered = false;
};

std::string http_reply(const std::string& request, const std::function<std::string()>& text) {
  const std::string_view line = std::string_view(request).substr(0, request.find("\r\n"));
  const bool found = line.starts_with("GET /metrics ") || line.starts_with("GET / ");
  const std::string body = found ? text() : "see /metrics\n";
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
      "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
      found ? "200 OK" : "404 Not Found", body.size(), body);
}

// False when it is done with, in whatever way.
bool attend(Client& client, const std::function<std::string()>& text) {
  if (!client.answered) {
    char bytes[1024];
    const ssize_t count = ::recv(client.fd.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (count <= 0) return count < 0 && (errno == EAGAIN || errno == EINTR);
    client.request.append(bytes, static_cast<std::size_t>(count));
    if (client.request.find("\r\n\r\n") == std::string::npos) {
      return client.request.size() < kMostRequest;
    }
    client.reply = http_reply(client.request, text);
    client.answered = true;
  }
  const ssize_t sent = ::send(client.fd.get(), client.reply.data(), client.reply.size(),
                              MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) return errno == EAGAIN || errno == EINTR;
  client.reply.erase(0, static_cast<std::size_t>(sent));
  return !client.reply.empty();
}

std::string metric(std::string_view name, std::string_view type, std::string_view help) {
  return fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
}

}  // namespace

std::string metrics_text(const CompileServer::State& state, const cache::Stats& stats) {
  std::string text = metric("kiln_serve_requests_total", "counter",
                            "Requests that this compile server took, by what became of them.");
  for (std::size_t i = 0; i < cache::kServed; ++i) {
    const auto count = static_cast<cache::Served>(i);
    if (count == cache::Served::taken_over) continue;
    text += fmt::format("kiln_serve_requests_total{{result=\"{}\"}} {}\n", cache::name(count),
                        state.server.served[i]);
  }
  const auto one = [&](std::string_view name, std::string_view type, std::string_view help,
                       std::uint64_t value) {
    text += metric(name, type, help) + fmt::format("{} {}\n", name, value);
  };
  one("kiln_serve_taken_over_total", "counter", "Of these, requests of servers that were gone.",
      state.server.served[static_cast<std::size_t>(cache::Served::taken_over)]);
  one("kiln_serve_running", "gauge", "Requests that it has taken and not answered.",
      state.server.running);
  one("kiln_serve_jobs", "gauge", "Compiles that it runs at a time.", state.server.jobs);
  for (const bool waiting : {true, false}) {
    const std::string name = waiting ? "kiln_queue_waiting" : "kiln_queue_running";
    text += metric(name, "gauge",
                   waiting ? "Requests that no compile server has taken."
                           : "Requests that compile servers have taken and not answered.");
    for (const cache::ServedQueue::Length& queue : state.queues) {
      text += fmt::format("{}{{kind=\"{}\",priority=\"{}\"}} {}\n", name, queue.kind,
                          queue.priority, waiting ? queue.waiting : queue.running);
    }
  }
  for (std::size_t i = 0; i < cache::kCounts; ++i) {
    const auto name = cache::name(static_cast<cache::Count>(i));
    one(fmt::format("kiln_cache_{}_total", name), "counter",
        "As kiln cache stats has it, by all processes that use this machine's cache.",
        stats.values[i]);
  }
  return text;
}

MetricsPort::MetricsPort(int port, std::function<std::string()> text)
    : text_(std::move(text)),
      listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
      end_(::eventfd(0, EFD_CLOEXEC)) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const place = reinterpret_cast<sockaddr*>(&address);
  const int yes = 1;
  if (!listener_ || !end_ ||
      ::setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      ::bind(listener_.get(), place, size) != 0 || ::listen(listener_.get(), 16) != 0 ||
      ::getsockname(listener_.get(), place, &size) != 0) {
    throw Error(Code::io,
                fmt::format("serve: --metrics-port {}: {}", port, base::describe_errno(errno)));
  }
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { serve(); });
}

MetricsPort::~MetricsPort() {
  ::eventfd_write(end_.get(), 1);
  thread_.join();
}

void MetricsPort::serve() {
  std::list<Client> clients;
  while (true) {
    std::vector<pollfd> polled = {{end_.get(), POLLIN, 0}};
    // Whoever comes when there are too many waits in the kernel's queue.
    polled.push_back({clients.size() < kMostClients ? listener_.get() : -1, POLLIN, 0});
    auto soonest = Clock::now() + std::chrono::hours(1);
    for (const Client& client : clients) {
      polled.push_back(
          {client.fd.get(), static_cast<short>(client.answered ? POLLOUT : POLLIN), 0});
      soonest = std::min(soonest, client.deadline);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(soonest - Clock::now()).count();
    ::poll(polled.data(), polled.size(), static_cast<int>(std::max<std::int64_t>(left, 0)));
    if (polled[0].revents != 0) return;
    std::size_t next = 2;
    std::erase_if(clients, [&](Client& client) {
      const bool ready = polled[next++].revents != 0;
      return (ready && !attend(client, text_)) || Clock::now() >= client.deadline;
    });
    if (polled[1].revents == 0) continue;
    base::UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) clients.push_back({std::move(fd), Clock::now() + kClientTime, {}, {}, false});
  }
}

}  // namespace kiln::tool
