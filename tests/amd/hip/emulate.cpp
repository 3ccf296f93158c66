// Linked into a program, gives it emulated AMD GPUs: when kiln asks for the kernel driver's device
// node, the answer is that it is there, and the library that kiln loads next, by its soname, is the
// one of the tests, which is loaded already. kiln itself knows nothing of this, nor do compilers,
// which run in other processes and are searched for by path.
#include "tests/amd/hip/emulate.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>

namespace kiln::amd {
namespace {

bool is_there(const char* path) { return faccessat(AT_FDCWD, path, R_OK | W_OK, 0) == 0; }

bool decide() {
  const char* const chosen = std::getenv("KILN_TEST_AMD");
  const std::string_view wanted = chosen != nullptr ? chosen : "";
  if (wanted == "emulated" || (wanted.empty() && std::getenv("KILN_TEST_AMD_TARGET") != nullptr)) {
    return true;
  }
  if (wanted.empty()) return !is_there("/dev/kfd") && !is_there("/dev/dxg");
  if (wanted == "real") return false;
  std::fprintf(stderr, "KILN_TEST_AMD=%s: expected emulated or real\n", chosen);
  std::exit(2);
}

std::atomic<void*> loaded = nullptr;

void load_library() {
  static std::once_flag once;
  std::call_once(once, [] {
    loaded = dlopen(KILN_EMULATED_HIP, RTLD_NOW | RTLD_LOCAL);
    if (loaded != nullptr) return;
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(2);
  });
}

// What a function of the library says that is not one of HIP's.
std::string text_of(const char* function) {
  if (loaded == nullptr) return {};  // nobody has asked for a device
  return reinterpret_cast<const char* (*)()>(dlsym(loaded, function))();
}

}  // namespace

bool is_emulating() {
  static const bool decided = decide();
  return decided;
}

std::string new_faults() { return text_of("kiln_amd_new_faults"); }
std::string executed() { return text_of("kiln_amd_executed"); }

Trace take_trace() {
  Trace trace;
  if (loaded == nullptr) return trace;
  reinterpret_cast<void (*)(Trace*)>(dlsym(loaded, "kiln_amd_take_trace"))(&trace);
  return trace;
}

}  // namespace kiln::amd

// In place of libc's.
extern "C" int access(const char* path, int mode) noexcept {
  if (std::strcmp(path, "/dev/kfd") == 0 && kiln::amd::is_emulating()) {
    kiln::amd::load_library();
    return 0;
  }
  return faccessat(AT_FDCWD, path, mode, 0);
}
