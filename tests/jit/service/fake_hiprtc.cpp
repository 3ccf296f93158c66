// A hiprtc whose code objects hold a kernel's metadata and nothing else, for tests of what the
// service makes of it. As LLVM does, it reads an option of the code generator once in a process:
// .vgpr_count is 2 where that is -vgpr-regalloc=basic, and 1 else. A source with the word "spills"
// in it spills a scalar register, one with "scarce" takes nearly all of them, and one with
// "crashes" ends the process unless there is an option -fno-slp-vectorize, one with "always" even
// then.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "tests/support/code_object.hpp"

namespace {

struct Program {
  std::string source;
  std::string code;
};

bool has_option(int count, const char* const* options, std::string_view wanted) {
  return std::find(options, options + count, wanted) != options + count;
}

// A pair of a MessagePack map, whose number is below 128.
std::string pair(const std::string& key, std::size_t number) {
  return static_cast<char>(0xa0 | key.size()) + key + static_cast<char>(number);
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int hiprtcCreateProgram(void** program, const char* source,
                                                               const char*, int, const char**,
                                                               const char**) {
  *program = new Program{source, {}};
  return 0;
}

__attribute__((visibility("default"))) int hiprtcCompileProgram(void* program, int count,
                                                                const char** options) {
  static const bool basic = has_option(count, options, "-vgpr-regalloc=basic");
  Program& made = *static_cast<Program*>(program);
  const auto has = [&](const char* word) { return made.source.find(word) != std::string::npos; };
  if (has("crashes") && !has_option(count, options, "-fno-slp-vectorize")) std::_Exit(1);
  if (has("always")) std::_Exit(1);
  // {"amdhsa.kernels": [{".name": "k", ...}]}
  const std::string metadata = std::string("\x81\xae") + "amdhsa.kernels" +
                               "\x91\x84\xa5.name\xa1k" + pair(".vgpr_count", basic ? 2 : 1) +
                               pair(".sgpr_count", has("scarce") ? 104 : 20) +
                               pair(".sgpr_spill_count", has("spills") ? 1 : 0);
  made.code = kiln::testing::amd_code_object(metadata);
  return 0;
}

__attribute__((visibility("default"))) int hiprtcDestroyProgram(void** program) {
  delete static_cast<Program*>(*program);
  return 0;
}

__attribute__((visibility("default"))) int hiprtcGetCodeSize(void* program, std::size_t* size) {
  *size = static_cast<Program*>(program)->code.size();
  return 0;
}

__attribute__((visibility("default"))) int hiprtcGetCode(void* program, char* code) {
  const std::string& made = static_cast<Program*>(program)->code;
  std::memcpy(code, made.data(), made.size());
  return 0;
}

__attribute__((visibility("default"))) int hiprtcGetProgramLogSize(void*, std::size_t* size) {
  *size = 0;
  return 0;
}

__attribute__((visibility("default"))) int hiprtcGetProgramLog(void*, char*) { return 0; }

__attribute__((visibility("default"))) const char* hiprtcGetErrorString(int) { return "none"; }

}  // extern "C"
