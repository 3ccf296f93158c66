// A process that waits for a compile that never ends, for the tests to kill: WORKER COMPILER GATE
// [fork]. With `fork` there is a copy of it, which holds all its descriptors open and does nothing.
#include <fmt/format.h>
#include <unistd.h>

#include <fstream>

#include "jit/service/service.hpp"

int main(int count, char** arguments) {
  if (count < 4) return 2;
  const std::string gate = arguments[3];
  kiln::jit::Settings settings;
  settings.worker = arguments[1];
  kiln::jit::Service service(settings);
  kiln::jit::CompileRequest request;
  request.entry = "endless";
  request.source = fmt::format("echo $PPID $$ $TMPDIR > {0}.entered; read line < {0}\n", gate);
  request.target = "cpu";
  request.toolchain = arguments[2];
  const kiln::jit::CompileHandle handle = service.compile_async(request);
  if (count > 4 && fork() == 0) {
    std::ofstream(gate + ".forked") << getpid() << '\n';
    while (true) pause();
  }
  handle.wait();
  return 1;
}
