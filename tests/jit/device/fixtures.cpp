#include "tests/jit/device/fixtures.hpp"

#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/text.hpp"
#include "jit/service/compile.hpp"
#include "tests/support/host_compiler.hpp"
#include "tests/support/temporary_directory.hpp"

namespace kiln::jit::testing {
namespace {

using kiln::testing::run_compiler;

// Written by hand: it needs no compiler on the machine, only the driver.
constexpr std::string_view kSaxpyPtx = R"(
.version 6.3
.target sm_75
.address_size 64
.visible .entry saxpy(.param .u64 p_x, .param .u64 p_y, .param .f32 p_a, .param .u64 p_n)
{
  .reg .pred %done;
  .reg .f32 %x, %y, %a;
  .reg .b32 %block, %width, %lane, %grid, %step32;
  .reg .b64 %i, %n, %step, %px, %py, %offset, %ax, %ay, %lane64;
  ld.param.u64 %px, [p_x];
  ld.param.u64 %py, [p_y];
  ld.param.f32 %a, [p_a];
  ld.param.u64 %n, [p_n];
  cvta.to.global.u64 %px, %px;
  cvta.to.global.u64 %py, %py;
  mov.u32 %block, %ctaid.x;
  mov.u32 %width, %ntid.x;
  mov.u32 %lane, %tid.x;
  mov.u32 %grid, %nctaid.x;
  mul.wide.u32 %i, %block, %width;
  cvt.u64.u32 %lane64, %lane;
  add.u64 %i, %i, %lane64;
  mul.wide.u32 %step, %grid, %width;
next:
  setp.ge.u64 %done, %i, %n;
  @%done bra end;
  shl.b64 %offset, %i, 2;
  add.u64 %ax, %px, %offset;
  add.u64 %ay, %py, %offset;
  ld.global.f32 %x, [%ax];
  ld.global.f32 %y, [%ay];
  fma.rn.f32 %y, %a, %x, %y;
  st.global.f32 [%ay], %y;
  add.u64 %i, %i, %step;
  bra next;
end:
  ret;
}
)";

constexpr const char* kSaxpyHip = R"(
extern "C" __global__ void saxpy(const float* x, float* y, float a, unsigned long long n) {
  unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
  for (; i < n; i += (unsigned long long)gridDim.x * blockDim.x) y[i] = fmaf(a, x[i], y[i]);
}
)";

constexpr const char* kSaxpyCpu = R"(
extern "C" void saxpy(void* const* arguments, unsigned long long begin, unsigned long long end) {
  const float* x = *static_cast<const float* const*>(arguments[0]);
  float* y = *static_cast<float* const*>(arguments[1]);
  const float a = *static_cast<const float*>(arguments[2]);
  for (unsigned long long i = begin; i < end; ++i) y[i] = __builtin_fmaf(a, x[i], y[i]);
}
)";

Bytes bytes(std::string_view text) {
  Bytes result(text.size());
  std::memcpy(result.data(), text.data(), text.size());
  return result;
}

// A compiler, perhaps with arguments of its own; nothing if there is none.
std::vector<std::string> host_compiler() {
  std::vector<std::string> candidates = {"c++", "g++", "clang++"};
  for (const char* variable : {"CXX", "KILN_CXX"}) {
    if (const char* value = std::getenv(variable)) candidates.insert(candidates.begin(), value);
  }
  for (const std::string& candidate : candidates) {
    const std::vector<std::string> compiler = base::split(candidate, ' ');
    std::vector<std::string> command = compiler;
    command.emplace_back("--version");
    if (run_compiler(command).succeeded()) return compiler;
  }
  return {};
}

}  // namespace

std::optional<Bytes> compile_shared_object(const std::string& source, std::string& reason) {
  static const std::vector<std::string> compiler = host_compiler();
  if (compiler.empty()) {
    reason = "no host compiler (c++, g++ or clang++)";
    return std::nullopt;
  }
  const kiln::testing::TemporaryDirectory directory;
  const std::string object = directory.path("kernel.so");
  std::vector<std::string> command = compiler;
  command.insert(command.end(),
                 {"-O2", "-shared", "-fPIC", "-o", object, directory.put("kernel.cpp", source)});
  const base::CommandResult result = run_compiler(command);
  if (!result.succeeded()) {
    reason = "the host compiler " + result.ending + ": " + result.errors;
    return std::nullopt;
  }
  return bytes(kiln::testing::read_file(object));
}

std::optional<Bytes> saxpy(Backend& backend, std::string& reason) {
  switch (backend.device().type) {
    case DeviceType::cpu: {
      static const std::optional<Bytes> image = compile_shared_object(kSaxpyCpu, reason);
      return image;
    }
    case DeviceType::cuda: return bytes(kSaxpyPtx);
    case DeviceType::hip: break;
  }
  static const Bytes code = [&] {
    CompileRequest request;
    request.function = "saxpy";
    request.entry = "saxpy";
    request.source = kSaxpyHip;
    request.target = backend.target();
    request.options = compile_options(request.target, false);
    return bytes(compile(request).code);
  }();
  return code;
}

}  // namespace kiln::jit::testing
