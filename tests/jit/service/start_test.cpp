// How workers, threads and commands are started, and what becomes of it when that fails: whoever
// asked gets an error, nobody waits for ever, and the next request tries again.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/stat.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>

#include "base/subprocess.hpp"
#include "jit/toolchain/environment.hpp"
#include "jit/toolchain/toolchain.hpp"
#include "tests/jit/service/fixtures.hpp"
#include "tests/support/no_threads.hpp"

namespace kiln::jit {
namespace {

using test::error_of;
using test::Gate;
using ::testing::HasSubstr;
using ::testing::Not;

class CompileStart : public test::ServiceTest {
 protected:
  std::string script(const std::string& name, const std::string& text) const {
    std::string path = directory_.write(name, "#!/bin/sh\n" + text + "\n");
    chmod(path.c_str(), 0755);
    return path;
  }

  // Starts `arguments` with descriptor 3 a copy of `socket`, or closed; gives its status.
  static int status_of(std::vector<std::string> arguments, std::vector<std::string> variables,
                       int socket) {
    const base::SpawnRequest request{.command = std::move(arguments),
                                     .environment = std::move(variables),
                                     .redirections = {{.descriptor = 3, .copy_of = socket}},
                                     .own_group = true};
    return base::wait_for(base::spawn(request, "cannot start a shell")).value();
  }

  // Starts arguments[0] under another name; gives its status.
  static int status_as(const std::string& name, std::vector<std::string> arguments,
                       std::vector<std::string> variables) {
    std::vector<char*> values = {const_cast<char*>(name.c_str())};
    for (std::size_t i = 1; i < arguments.size(); ++i) values.push_back(arguments[i].data());
    values.push_back(nullptr);
    std::vector<char*> environment;
    for (std::string& variable : variables) environment.push_back(variable.data());
    environment.push_back(nullptr);
    pid_t pid = -1;
    EXPECT_EQ(posix_spawn(&pid, arguments[0].c_str(), nullptr, nullptr, values.data(),
                          environment.data()),
              0);
    return base::wait_for(pid).value();
  }

  // Whether the failure of that compile, each of two times alike, is the compiler's verdict.
  bool is_refused(const std::string& entry, const std::string& text) {
    Service service(settings_);
    const CompileRequest wanted =
        request(entry, fmt::format("echo >> {}\n{}", file(entry + ".runs"), text));
    const std::string first = error_of([&] { service.compile_async(wanted).get(); }).what();
    bool refused = false;
    try {
      service.compile_async(wanted).get();
      ADD_FAILURE() << entry << " compiles";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::compile_failed);
      EXPECT_EQ(error.what(), first);
      refused = dynamic_cast<const CompileRefused*>(&error) != nullptr;
    }
    EXPECT_EQ(base::read_whole_file(file(entry + ".runs")).size(), 2U) << "not tried again";
    return refused;
  }
};

// --- by hand and through a script ---

TEST_F(CompileStart, a_worker_started_by_hand_deletes_nothing_and_kills_nobody) {
  const std::string precious = file("precious");
  std::filesystem::create_directory(precious);
  std::ofstream(precious + "/file") << "kept";
  auto [here, foreign] = base::make_socket_pair();
  ASSERT_TRUE(here);
  here.reset();  // at its end, as the worker sees its parent's
  for (const char* arguments : {"host /bin/true 0", "host /bin/true 1 0"}) {
    for (const int socket : {-1, foreign.get()}) {
      const std::string survived = file("survived");
      std::filesystem::remove(survived);
      const int status = status_of({"/bin/sh", "-c",
                                    fmt::format("{} --serve {} 2>/dev/null; echo $? > {}",
                                                KILN_TEST_WORKER, arguments, survived)},
                                   {"TMPDIR=" + precious, "PATH=/usr/bin:/bin"}, socket);
      EXPECT_EQ(status, 0) << arguments;
      EXPECT_TRUE(std::filesystem::exists(precious + "/file")) << arguments;
      ASSERT_TRUE(std::filesystem::exists(survived)) << arguments;
      EXPECT_THAT(base::read_whole_file(survived), ::testing::AnyOf("1\n", "2\n")) << arguments;
    }
  }
}

TEST_F(CompileStart, a_worker_may_be_started_by_a_script) {
  for (const char* call : {"{} \"$@\"", "exec {} \"$@\"", "{} \"$@\"; exit $?"}) {
    settings_.worker = script("wrapper", fmt::format(fmt::runtime(call), KILN_TEST_WORKER));
    Service service(settings_);
    EXPECT_EQ(service.compile_async(request("a")).get().code, request("a").source) << call;
    EXPECT_EQ(service.compile_async(request("b")).get().code, request("b").source) << call;
    EXPECT_EQ(service.counters().workers_started, 1U) << call;
  }
}

TEST_F(CompileStart, what_a_script_has_started_is_stopped_with_it) {
  settings_.worker = script("wrapper", fmt::format("{} \"$@\"; exit $?", KILN_TEST_WORKER));
  Service service(settings_);
  const Gate gate(file("gate"));
  CompileHandle handle = service.compile_async(request("running", gate.script()));
  const test::ProcessWatch compiler_end(gate.wait_entered());
  handle.cancel();
  EXPECT_THAT(error_of([&] { handle.get(); }).what(), HasSubstr("was cancelled"));
  EXPECT_TRUE(compiler_end.ends());
}

// --- what is remembered ---

TEST_F(CompileStart, a_killed_worker_is_noticed_while_its_compiler_runs_and_not_remembered) {
  settings_.deadline = std::chrono::hours(24);  // nothing else would end the wait
  Service service(settings_);
  const std::string gate = file("gate");
  ASSERT_EQ(mkfifo(gate.c_str(), 0600), 0);
  ASSERT_EQ(mkfifo((gate + ".entered").c_str(), 0600), 0);
  const CompileRequest wanted =
      request("victim", fmt::format("if [ ! -e {0}.again ]; then\n  touch {0}.again\n"
                                    "  echo $PPID $$ > {0}.entered\n  read line < {0}\nfi",
                                    gate));
  const CompileHandle handle = service.compile_async(wanted);
  int worker = 0;
  int compiler = 0;
  std::ifstream(gate + ".entered") >> worker >> compiler;
  ASSERT_GT(worker, 1);
  const test::ProcessWatch compiler_end(compiler);
  kill(worker, SIGKILL);
  EXPECT_THAT(error_of([&] { handle.get(); }).what(), HasSubstr("killed by signal 9"));
  EXPECT_TRUE(compiler_end.ends());
  EXPECT_EQ(service.compile_async(wanted).get().code, wanted.source);
}

TEST_F(CompileStart, idle_workers_that_were_killed_are_replaced_unseen) {
  Service service(settings_);
  const Gate one(file("one"));
  const Gate two(file("two"));
  const std::string pids = file("pids");
  const auto gated = [&](const std::string& entry, const Gate& gate) {
    return service.compile_async(
        request(entry, fmt::format("echo $PPID >> {}\n{}", pids, gate.script())));
  };
  const CompileHandle first = gated("one", one);
  const CompileHandle second = gated("two", two);
  one.wait_entered();
  two.wait_entered();
  one.release();
  two.release();
  first.get();
  second.get();
  std::ifstream list(pids);
  for (int worker = 0; list >> worker;) {
    const test::ProcessWatch end(worker);
    kill(worker, SIGKILL);
    EXPECT_TRUE(end.ends());
  }
  EXPECT_EQ(service.compile_async(request("next")).get().code, request("next").source);
}

TEST_F(CompileStart, an_error_at_a_line_of_the_source_is_the_compilers_verdict) {
  EXPECT_TRUE(is_refused("verdict", "echo 'kernel.cpp:3:1: error: no such register' >&2; exit 1"));
}

TEST_F(CompileStart, a_full_disk_a_signal_and_the_deadline_are_no_verdict_and_are_tried_again) {
  EXPECT_FALSE(is_refused("full",
                          "echo 'kernel.cpp:3:1: fatal error: error writing to /tmp/x.s: No "
                          "space left on device' >&2; exit 1"));
  EXPECT_FALSE(
      is_refused("killed", "echo 'fatal error: Killed signal terminated program' >&2; exit 1"));
  EXPECT_FALSE(is_refused("quiet", "exit 1"));
  EXPECT_FALSE(is_refused("signal", "kill -9 $$"));
  settings_.deadline = std::chrono::milliseconds(300);
  EXPECT_FALSE(is_refused("slow", "while :; do sleep 1000; done"));
}

// --- threads ---

TEST_F(CompileStart, a_request_that_no_thread_can_be_started_for_fails_and_the_next_one_does_not) {
  Service service(settings_);
  {
    const kiln::testing::NoThreads none;
    const Error error = error_of([&] { service.compile_async(request("a")).get(); });
    EXPECT_EQ(error.code(), Code::io);
    EXPECT_THAT(error.what(), HasSubstr("cannot start a thread"));
  }
  EXPECT_EQ(service.compile_async(request("a")).get().code, request("a").source);
}

TEST_F(CompileStart, a_worker_that_cannot_be_started_leaves_the_next_request_alone) {
  const std::string worker = file("late-worker");
  settings_.worker = worker;
  Service service(settings_);
  EXPECT_EQ(error_of([&] { service.compile_async(request("a")).get(); }).code(), Code::not_found);
  std::filesystem::create_symlink(KILN_TEST_WORKER, worker);
  EXPECT_EQ(service.compile_async(request("a")).get().code, request("a").source);
}

TEST(CompileTargets, a_probe_that_throws_lets_the_next_one_try) {
  TargetKnowledge knowledge("");
  Toolchain toolchain;
  toolchain.path = "compiler";
  EXPECT_THROW(knowledge.find_out(toolchain, "gfx900",
                                  []() -> std::optional<bool> {
                                    throw Error(Code::io, "no process can be started");
                                  }),
               Error);
  EXPECT_EQ(knowledge.find_out(toolchain, "gfx900", [] { return std::optional(true); }), true);
}

TEST(CompileTargets, only_one_refused_before_and_after_another_one_compiles_is_unknown) {
  using Answer = std::optional<bool>;
  using Answers = std::map<std::string, std::vector<Answer>>;  // the last one goes on
  const auto known = [](Answers answers) {
    return knows_target("new", {"new", "one", "two"}, [&](const std::string& target) {
      std::vector<Answer>& list = answers.at(target);
      const Answer answer = list.front();
      if (list.size() > 1) list.erase(list.begin());
      return answer;
    });
  };
  EXPECT_EQ(known({{"new", {true}}}), true);
  EXPECT_EQ(known({{"new", {std::nullopt}}}), std::nullopt);
  EXPECT_EQ(known({{"new", {false}}, {"one", {true}}}), false);
  EXPECT_EQ(known({{"new", {false}}, {"one", {false}}, {"two", {true}}}), false);
  EXPECT_EQ(known({{"new", {false}}, {"one", {std::nullopt}}, {"two", {false}}}), std::nullopt);
  // What kept it from compiling is over with the other one's turn.
  EXPECT_EQ(known({{"new", {false, true}}, {"one", {true}}}), true);
  EXPECT_EQ(known({{"new", {false, std::nullopt}}, {"one", {true}}}), std::nullopt);
}

// --- commands ---

TEST_F(CompileStart, a_command_that_hangs_is_stopped_with_what_it_started) {
  const std::string child = file("child");
  const std::string hangs = script(
      "hangs", fmt::format("sleep 1000000 & echo $! > {0}.new; mv {0}.new {0}; wait", child));
  const base::CommandResult result =
      run_scrubbed({hangs}, directory_.path(), std::chrono::milliseconds(3000));
  EXPECT_TRUE(result.stopped);
  EXPECT_FALSE(result.succeeded());
  EXPECT_EQ(result.ending, "did not end within 3000 ms and was stopped");
  int pid = 0;
  std::ifstream(child) >> pid;
  if (pid == 0) GTEST_SKIP() << "this machine is too slow to start a shell in three seconds";
  // Gone, or about to be.
  EXPECT_TRUE(kill(pid, 0) != 0 || test::ProcessWatch(pid).ends());
}

TEST_F(CompileStart, a_command_with_a_deadline_is_not_stopped_before) {
  const base::CommandResult result =
      run_scrubbed({"/bin/sh", "-c", "echo out; echo err >&2; exit 7"}, directory_.path(),
                   std::chrono::minutes(10));
  EXPECT_FALSE(result.stopped);
  EXPECT_EQ(result.ending, "exited with status 7");
  EXPECT_EQ(result.output, "out\n");
  EXPECT_EQ(result.errors, "err\n");
}

TEST_F(CompileStart, a_command_can_print_where_no_file_can_be_written) {
  const base::CommandResult result =
      run_scrubbed({"/bin/sh", "-c", "echo out; echo err >&2"}, file("no such directory"));
  EXPECT_EQ(result.output, "out\n");
  EXPECT_EQ(result.errors, "err\n");
}

TEST_F(CompileStart, a_compiler_that_does_not_say_its_version_is_named_with_what_it_said) {
  const std::string broken = script("broken", "echo my library is gone >&2; exit 127");
  const Error error = error_of([&] { toolchain_at(ToolchainKind::host, broken); });
  EXPECT_EQ(error.code(), Code::not_found);
  EXPECT_THAT(error.what(), HasSubstr(broken + " --version exited with status 127: my library"));
  const std::string silent = script("silent", "exit 0");
  EXPECT_THAT(error_of([&] { toolchain_at(ToolchainKind::host, silent); }).what(),
              HasSubstr("--version printed nothing"));
  const std::string hanging = script("hanging", "exec sleep 1000000");
  setenv("KILN_COMPILE_TIMEOUT", "1", 1);
  const Error late = error_of([&] { toolchain_at(ToolchainKind::host, hanging); });
  unsetenv("KILN_COMPILE_TIMEOUT");
  EXPECT_THAT(late.what(), HasSubstr("--version did not end within 1000 ms and was stopped"));
}

// --- descriptors ---

TEST_F(CompileStart, works_with_any_of_the_standard_descriptors_closed) {
  for (int closed = 1; closed < 8; ++closed) {
    std::array<base::UniqueFd, 3> saved;
    std::fflush(nullptr);
    for (int fd = 0; fd < 3; ++fd) {
      if ((closed >> fd & 1) == 0) continue;
      saved[static_cast<std::size_t>(fd)] = base::UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 10));
      close(fd);
    }
    std::string code;
    std::string error;
    try {
      Service service(settings_);
      code = service.compile_async(request("a")).get().code;
    } catch (const Error& thrown) {
      error = thrown.what();
    }
    for (int fd = 0; fd < 3; ++fd) {
      const int original = saved[static_cast<std::size_t>(fd)].get();
      if (original >= 0) dup2(original, fd);
    }
    EXPECT_EQ(code, request("a").source) << "closed: " << closed << "; " << error;
  }
}

// --- privileges ---

TEST_F(CompileStart, a_set_user_id_program_runs_nothing_that_its_caller_names) {
  struct stat root {};
  if (stat("/", &root) != 0 || (root.st_mode & S_IXOTH) == 0) {
    GTEST_SKIP() << "only root may enter this system's directories, libraries among them";
  }
  chmod(directory_.path().c_str(), 0755);
  chmod(compiler_.c_str(), 0755);
  const std::string program = file("program");
  std::filesystem::copy_file(KILN_TEST_PRIVILEGED, program);
  const std::string callers = file("callers");
  std::filesystem::create_directory(callers);
  for (const char* name : {"g++", "clang++", "c++"}) {
    std::filesystem::create_symlink(compiler_, callers + "/" + name);
  }
  const std::vector<std::string> variables = {
      "KILN_WORKER=" + callers + "/worker",   "KILN_DUMP=" + callers,
      "PATH=" + callers + ":/usr/bin:/bin",   "TMPDIR=" + callers,
      "LD_LIBRARY_PATH=" + callers,           "CPATH=" + callers,
      "KILN_CACHE_DIR=" + callers + "/cache", "HOME=" + callers,
      "XDG_CACHE_HOME=" + callers + "/.cache"};
  // Beside what the caller says that it starts.
  const std::string name = callers + "/program";
  for (const std::string& path : {name, callers + "/kiln-compile-worker"}) {
    std::ofstream(path) << "#!/bin/sh\n";
    chmod(path.c_str(), 0755);
  }
  const std::string out = file("out");
  const auto run = [&](const std::vector<std::string>& environment) {
    std::filesystem::remove(out);
    EXPECT_EQ(status_as(name, {program, KILN_TEST_WORKER, compiler_, out}, environment), 0);
    return std::filesystem::exists(out) ? base::read_whole_file(out) : "";
  };
  const std::vector<std::string> no_worker(variables.begin() + 1, variables.end());
  EXPECT_THAT(run(no_worker), Not(HasSubstr("worker " + callers)));
  const std::string plain = run(variables);
  EXPECT_THAT(plain, HasSubstr("worker " + callers));
  EXPECT_THAT(plain, HasSubstr("compiler " + callers));
  EXPECT_THAT(plain, HasSubstr("temporary " + callers));
  EXPECT_THAT(plain, HasSubstr("compiled"));

  constexpr uid_t kNobody = 65534;
  if (chown(program.c_str(), kNobody, static_cast<gid_t>(-1)) != 0) {
    GTEST_SKIP() << "only root can make a set-user-id program of another user";
  }
  chmod(program.c_str(), 04755);
  ASSERT_EQ(chown(directory_.path().c_str(), kNobody, static_cast<gid_t>(-1)), 0);
  const std::string privileged = run(variables);
  if (privileged.find("secure 0") != std::string::npos) {
    GTEST_SKIP() << "set-user-id means nothing on the file system of temporary files";
  }
  EXPECT_THAT(privileged, HasSubstr("secure 1"));
  EXPECT_THAT(privileged, Not(HasSubstr(callers)));
  EXPECT_THAT(privileged, HasSubstr("compiled"));
  EXPECT_THAT(privileged, HasSubstr("/kiln-worker-"));
}

}  // namespace
}  // namespace kiln::jit
