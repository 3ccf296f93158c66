// An NVRTC for tests: compiles kernels with the host compiler into shared objects that the CUDA
// driver made for tests (hip_host_driver.cpp) loads and runs. What is not a kernel of kiln's frame,
// or shares memory between threads, is refused. Like the library that it stands for it links
// nothing of kiln but the host's preamble, and so makes its directory and starts the compiler
// itself.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <string>
#include <string_view>

#include "preamble/preamble.hpp"

namespace {

struct Program {
  std::string source;
  std::string code;
  std::string log;
};

Program& of(void* program) { return *static_cast<Program*>(program); }

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
}

// The kernel behind the preamble that the host has for it, in place of the one for NVIDIA GPUs.
std::string for_the_host(std::string_view source) {
  namespace preamble = kiln::preamble;
  using preamble::Device;
  const std::size_t size = source.size();
  for (std::size_t i = 0; i < preamble::header_count(); ++i) {
    const std::string text = preamble::text(preamble::Headers::only(i), Device::nvidia);
    if (source.starts_with(text)) source.remove_prefix(text.size());
  }
  std::string result;
  if (source.size() != size) {
    result = preamble::text(preamble::needed_by(source, Device::host), Device::host);
  }
  return result += source;
}

// The host's frame of a kernel takes a range of work items that is exact; a driver only knows the
// grid, so the loop gets the bound that it has on a GPU. What a driver must know of the parameters
// of each kernel is put behind the entries, of which a unit may have several.
std::string for_the_driver(std::string source) {
  replace_all(source, "item < Index(kiln_end)", "item < Index(count)");
  const std::regex entry(R"re(extern "C" void (\w+)\(void\* const\* arguments)re");
  const std::regex parameter(R"(\*\(([^()]*)\*\)arguments\[(\d+)\])");
  std::string known = "namespace kiln {\nextern \"C\" {\n";
  for (std::sregex_iterator match(source.begin(), source.end(), entry), end; match != end;) {
    const std::string name = (*match)[1];
    const auto from = source.begin() + match->position();
    ++match;
    const auto to = match == end ? source.end() : source.begin() + match->position();
    std::map<int, std::string> types;
    for (std::sregex_iterator at(from, to, parameter); at != end; ++at) {
      types[std::stoi((*at)[2])] = (*at)[1];
    }
    known += "unsigned long kiln_host_sizes_" + name + "[] = {";
    for (const auto& [index, type] : types) known += "sizeof(" + type + "), ";
    const bool by_block = std::string_view(from, to).find("blockIdx = {") != std::string_view::npos;
    known += "0};\nint kiln_host_by_block_" + name + (by_block ? " = 1;\n" : " = 0;\n");
  }
  return source += known + "}\n}\n";
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

extern "C" {

int nvrtcCreateProgram(void** program, const char* source, const char*, int, const char* const*,
                       const char* const*) {
  *program = new Program{source, {}, {}};
  return 0;
}
int nvrtcDestroyProgram(void** program) {
  delete static_cast<Program*>(*program);
  return 0;
}
int nvrtcCompileProgram(void* handle, int, const char* const*) {
  Program& program = of(handle);
  std::string directory = (std::filesystem::temp_directory_path() / "kiln-nvrtc-XXXXXX").string();
  if (::mkdtemp(directory.data()) == nullptr) return 1;
  std::ofstream(directory + "/kernel.cpp") << for_the_driver(for_the_host(program.source));
  const std::string command = "c++ -std=c++17 -O1 -shared -fPIC -ffp-contract=off -o " + directory +
                              "/kernel.so " + directory + "/kernel.cpp 2>" + directory + "/log";
  const bool compiled = std::system(command.c_str()) == 0;
  program.log = read(directory + "/log");
  if (compiled) program.code = read(directory + "/kernel.so");
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
  return compiled ? 0 : 6;  // NVRTC_ERROR_COMPILATION
}
int nvrtcGetCUBINSize(void* program, std::size_t* size) {
  *size = of(program).code.size();
  return 0;
}
int nvrtcGetCUBIN(void* program, char* code) {
  std::memcpy(code, of(program).code.data(), of(program).code.size());
  return 0;
}
int nvrtcGetProgramLogSize(void* program, std::size_t* size) {
  *size = of(program).log.size() + 1;
  return 0;
}
int nvrtcGetProgramLog(void* program, char* log) {
  std::strcpy(log, of(program).log.c_str());
  return 0;
}
const char* nvrtcGetErrorString(int error) { return error == 0 ? "no error" : "it failed"; }
int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return 0;
}
int nvrtcGetNumSupportedArchs(int* count) {
  *count = 1;
  return 0;
}
int nvrtcGetSupportedArchs(int* targets) {
  *targets = 90;
  return 0;
}

}  // extern "C"
