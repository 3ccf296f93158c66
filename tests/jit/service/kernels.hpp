// Small kernels for the tests of the compile service, without the preamble.
#pragma once

#include <fmt/format.h>

#include <string>

#include "jit/service/compile.hpp"

namespace kiln::jit::test {

/// y[i] = x[i] * `factor`: a kernel on a GPU target, a loop over everything on the host.
inline CompileRequest scale_request(const std::string& target, const std::string& entry,
                                    const std::string& factor = "2.0f") {
  const bool host = toolchain_for(target) == ToolchainKind::host;
  CompileRequest request;
  request.function = "scale";
  request.entry = entry;
  request.target = target;
  request.options = compile_options(target, false);
  request.source = host ? fmt::format(
                              "extern \"C\" void {}(const float* x, float* y, long n) {{\n"
                              "  for (long i = 0; i < n; ++i) y[i] = x[i] * {};\n}}\n",
                              entry, factor)
                        : fmt::format(
                              "extern \"C\" __global__ void {}(const float* x, float* y) {{\n"
                              "  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                              "  y[i] = x[i] * {};\n}}\n",
                              entry, factor);
  return request;
}

/// "kiln_tile" for a GPU target: 1024 bytes of shared memory, and an array of 512 bytes per thread
/// whose index is not known, which no compiler keeps in registers.
inline CompileRequest tile_request(const std::string& target) {
  CompileRequest request;
  request.function = "tile";
  request.entry = "kiln_tile";
  request.target = target;
  request.options = compile_options(target, false);
  request.source = R"(extern "C" __global__ void kiln_tile(float* x, int n) {
  __shared__ float tile[256];
  float mine[128];
  for (int i = 0; i < n; ++i) mine[(i * 7 + n) & 127] = x[i];
  tile[threadIdx.x] = mine[n & 127];
  __syncthreads();
  x[threadIdx.x] = tile[255 - threadIdx.x];
})";
  return request;
}

}  // namespace kiln::jit::test
