// Copies of a test's process, and what it and they say to each other.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <functional>
#include <stdexcept>

#include "base/io.hpp"

namespace kiln::testing {

/// Starts a copy of this process, which does `work` and exits with what that gives. Its end is
/// waited for by base::wait_for().
inline pid_t fork_child(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  if (child < 0) throw std::runtime_error("fork failed");
  return child;
}

/// From any of the processes that have it to any of them. A process that cannot send or receive
/// exits.
class Pipe {
 public:
  Pipe() {
    if (!ends_.first) throw std::runtime_error("no pipe");
  }
  template <class T>
  void send(const T& value) {
    if (::write(ends_.second.get(), &value, sizeof value) != sizeof value) ::_exit(2);
  }
  template <class T>
  T receive() {
    T value{};
    if (::read(ends_.first.get(), &value, sizeof value) != sizeof value) ::_exit(3);
    return value;
  }
  /// Whether receive() would not wait.
  bool is_readable() const {
    pollfd end{ends_.first.get(), POLLIN, 0};
    return ::poll(&end, 1, 0) > 0;
  }

 private:
  base::DescriptorPair ends_ = base::make_pipe();
};

}  // namespace kiln::testing
