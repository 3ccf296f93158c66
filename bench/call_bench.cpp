// What a call of a Function costs on the host: repeated, and with a length that was never seen but
// whose class is known. On the CPU, where the call computes too: few elements.
#include <benchmark/benchmark.h>

#include <array>
#include <string>
#include <vector>

#include "kiln/kiln.hpp"

namespace {

using kiln::Argument;
using kiln::DType;
using kiln::Function;
using kiln::View;

constexpr std::int64_t kMost = 1 << 16;

struct Form {
  const char* name;
  const char* text;
  bool is_matrix;
  bool is_reduced;
};
constexpr Form kForms[] = {
    {"elements", "a * 2 + b", false, false},
    {"broadcast", "a * 2 + b", true, false},
    {"rows", "sum(a * b, -1)", true, true},
    {"scan", "cumsum(a, -1) + b", true, false},
};

/// 256 lengths from 512 on, again and again: a signature gets a plan of its own when it has come
/// 256 times in the class's short memory, in which so many follow each other that none does. For
/// repeated calls each has come that often before.
void call(benchmark::State& state, const Form& form, bool is_new) {
  const Function f = kiln::parse(form.name, form.text, {}, std::array<std::string, 2>{"a", "b"});
  std::vector<float> memory(3 * kMost, 1.0F);
  const auto view = [&](int which, kiln::Dims shape) {
    return View(memory.data() + which * kMost, DType::f32, std::move(shape));
  };
  constexpr std::int64_t kLengths = 256;
  const auto once = [&](std::int64_t turn) {
    const std::int64_t size = 512 + 4 * (turn % kLengths);
    const Argument in[] = {form.is_matrix ? view(0, {2, size}) : view(0, {size}), view(1, {size})};
    const View out = form.is_reduced  ? view(2, {2, 1})
                     : form.is_matrix ? view(2, {2, size})
                                      : view(2, {size});
    f.call({}, in, {&out, 1});
  };
  for (std::int64_t i = 0; i < kLengths; ++i) {
    for (int times = 0; times < (is_new ? 1 : 300); ++times) once(i);
  }
  const std::uint64_t plans = kiln::statistics({}).plans;
  std::int64_t turn = 0;
  for (auto _ : state) once(turn++);
  state.counters["plans"] = static_cast<double>(kiln::statistics({}).plans - plans);
}

}  // namespace

int main(int argc, char** argv) {
  for (const Form& form : kForms) {
    for (const bool is_new : {false, true}) {
      const std::string name = std::string(form.name) + (is_new ? "/new length" : "/repeated");
      benchmark::RegisterBenchmark(name.c_str(), call, form, is_new);
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
