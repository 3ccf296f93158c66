// The call that python_call.py makes from Python, made in C++: a shared library, so that it runs in
// the same process, on the same memory and the same stream.
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>

#include "kiln/kiln.hpp"

/// Nanoseconds of the host for each of `calls` calls of x + y -> out, which have `size` f32 each
/// and are on `device` ("cuda:0"); -1 after a message on stderr if one fails.
extern "C" [[gnu::visibility("default")]] double kiln_call_loop(const char* device, void* stream,
                                                                void* x, void* y, void* out,
                                                                std::int64_t size, int calls) try {
  using clock = std::chrono::steady_clock;
  static const kiln::Function add = kiln::parse("add", "x + y");
  const kiln::Device on = kiln::parse_device(device);
  const kiln::Stream launched_on{on, stream};
  const auto view = [&](void* data) { return kiln::View(data, kiln::DType::f32, {size}, on); };
  const std::array<kiln::Argument, 2> inputs{view(x), view(y)};
  const std::array<kiln::View, 1> outputs{view(out)};
  const clock::time_point begin = clock::now();
  for (int i = 0; i < calls; ++i) add.call(launched_on, inputs, outputs);
  const std::chrono::duration<double, std::nano> passed = clock::now() - begin;
  return passed.count() / calls;
} catch (const std::exception& error) {
  std::fprintf(stderr, "kiln_call_loop: %s\n", error.what());
  return -1;
}
