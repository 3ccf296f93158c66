// resources(): what is read from real code objects of each kind, and from bytes that are none.
#include "jit/compilers/resources.hpp"

#include <gtest/gtest.h>

#include <random>

#include "jit/service/compile.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

TEST(Resources, refuse_what_is_not_an_elf_image) {
  EXPECT_THROW(resources("", "k"), Error);
  EXPECT_THROW(
      resources("not an image at all, but long enough to be one: 64 bytes and some more", "k"),
      Error);
}

TEST(Resources, of_a_cubin_are_its_registers_shared_memory_and_code) {
  CompileRequest request;
  request.entry = "kiln_tile";
  request.target = "sm_80";
  request.options = compile_options("sm_80", false);
  request.source = R"(extern "C" __global__ void kiln_tile(float* x, int n) {
  __shared__ float tile[256];
  float mine[128];
  for (int i = 0; i < n; ++i) mine[(i * 7 + n) & 127] = x[i];
  tile[threadIdx.x] = mine[n & 127];
  __syncthreads();
  x[threadIdx.x] = tile[255 - threadIdx.x];
})";
  try {
    toolchain(ToolchainKind::nvrtc);
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  const std::string code = compile(request).code;
  const Resources found = resources(code, "kiln_tile");
  EXPECT_GT(found.vgprs.value_or(0), 4);
  EXPECT_EQ(found.lds, 1024);
  EXPECT_GE(found.scratch.value_or(0), 512);
  EXPECT_GT(found.code_bytes, 100U);
  EXPECT_EQ(resources(code, "no_such_kernel").code_bytes, 0U);
}

TEST(Resources, of_a_damaged_image_never_read_outside_it) {
  CompileRequest request;
  request.entry = "kiln_one";
  request.target = "cpu";
  request.options = compile_options("cpu", false);
  request.source = "extern \"C\" void kiln_one(float* x) { *x = 1; }\n";
  const std::string code = compile(request).code;
  ASSERT_GT(resources(code, "kiln_one").code_bytes, 0U);
  for (std::size_t size = 64; size < code.size(); size += 61) {
    EXPECT_NO_THROW(resources(std::string(code, 0, size), "kiln_one"));
  }
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    std::string damaged = code;
    for (int k = 0; k < 8; ++k)
      damaged[16 + random() % (damaged.size() - 16)] = static_cast<char>(random());
    EXPECT_NO_THROW(resources(damaged, "kiln_one"));
  }
}

}  // namespace
}  // namespace kiln::jit
