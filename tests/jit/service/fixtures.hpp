// A compile service of one's own for a test, with a fake compiler that does what the "source" says.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "base/io.hpp"
#include "base/temporary.hpp"
#include "jit/service/service.hpp"
#include "kiln/error.hpp"

namespace kiln::jit::test {

class ServiceTest : public ::testing::Test {
 protected:
  ServiceTest() : directory_("kiln-test") {
    settings_.worker = KILN_TEST_WORKER;
    settings_.jobs = 2;
    settings_.deadline = std::chrono::seconds(60);
    // The source is a script; its code is the source itself.
    compiler_ = directory_.write("fake-compiler",
                                 "#!/bin/sh\n"
                                 "if [ \"$1\" = --version ]; then echo fake 1; exit; fi\n"
                                 "while [ \"$1\" != -o ]; do shift; done\n"
                                 "out=$2\n"
                                 ". \"$3\"\n"
                                 "cp \"$3\" \"$out\"\n");
    chmod(compiler_.c_str(), 0700);
  }

  std::string file(const std::string& name) const { return directory_.path() + "/" + name; }

  CompileRequest request(const std::string& entry, const std::string& script = ":") const {
    CompileRequest request;
    request.function = "f_" + entry;
    request.entry = entry;
    request.source = script + "\n# " + entry + "\n";
    request.target = "cpu";
    request.toolchain = compiler_;
    return request;
  }

  void set_fault(const std::string& fault) {
    // A sanitizer must not turn a signal into an exit of its own.
    settings_.worker_environment = {"KILN_WORKER_FAULT=" + fault, "ASAN_OPTIONS=handle_segv=0",
                                    "TSAN_OPTIONS=handle_segv=0"};
  }

  base::TemporaryDirectory directory_;
  std::string compiler_;
  Settings settings_;
};

/// A fake compile that waits until release() or the end of the gate.
class Gate {
 public:
  explicit Gate(const std::string& path) : path_(path) {
    EXPECT_EQ(mkfifo(path.c_str(), 0600), 0);
    EXPECT_EQ(mkfifo((path + ".entered").c_str(), 0600), 0);
  }
  /// For the source of a request. Everything it starts is part of the worker's process group.
  std::string script() const {
    return fmt::format("echo $$ > {0}.entered; read line < {0}", path_);
  }
  /// Waits until the compile is at the gate; gives the compiler's process id.
  int wait_entered() const { return std::stoi(base::read_whole_file(path_ + ".entered")); }
  void release() const { std::ofstream(path_) << "go\n"; }

 private:
  std::string path_;
};

/// Says whether a process, which need not be a child, ends in time.
class ProcessWatch {
 public:
  explicit ProcessWatch(int pid) : process_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {}
  bool ends() const {
    if (process_.get() < 0) return false;
    pollfd ended{process_.get(), POLLIN, 0};
    return poll(&ended, 1, 20'000) == 1;
  }

 private:
  base::UniqueFd process_;
};

/// The error that `action` throws.
inline Error error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(Code::internal, "nothing was thrown");
}

inline std::size_t open_descriptors() {
  const std::filesystem::directory_iterator list("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(list), end(list)));
}

}  // namespace kiln::jit::test
