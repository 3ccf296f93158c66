// Writes to OUT what the library would run and use: WORKER COMPILER OUT. A test gives it the rights
// of another user.
#include <fmt/format.h>
#include <sys/auxv.h>

#include <fstream>

#include "jit/service/service.hpp"
#include "jit/toolchain/environment.hpp"
#include "jit/toolchain/find.hpp"

int main(int count, char** arguments) {
  using namespace kiln::jit;
  if (count < 4) return 2;
  std::ofstream out(arguments[3]);
  Settings settings = settings_from_environment();
  out << "secure " << getauxval(AT_SECURE) << '\n';
  out << "worker " << settings.worker << '\n';
  out << "dump " << settings.dump << '\n';
  out << "memory " << settings.cache_directory << '\n';
  for (const std::string& path : find_compilers(ToolchainKind::host)) {
    out << "compiler " << path << '\n';
  }
  for (const std::string& variable : scrubbed_environment("")) out << variable << '\n';
  out << "temporary " << kiln::base::TemporaryDirectory("kiln-test").path() << '\n';
  out.flush();

  settings.worker = arguments[1];
  settings.dump.clear();
  Service service(settings);
  CompileRequest request;
  request.entry = "entry";
  request.source = fmt::format("echo source $3 >> {}\n", arguments[3]);
  request.target = "cpu";
  request.toolchain = arguments[2];
  const bool compiled = service.compile_async(request).get().code == request.source;
  std::ofstream(arguments[3], std::ios::app) << (compiled ? "compiled\n" : "something else\n");
  return 0;
}
