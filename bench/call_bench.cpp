// What a call of a Function and a run of a Program cost on the host: repeated, and with a length
// that was never seen but whose class is known; for programs also with a plan of its own. On the
// CPU, where the call computes too: few elements. On GPUs, the runs of programs, in bursts that fit
// the driver's queue.
#include <benchmark/benchmark.h>

#include <array>
#include <chrono>
#include <string>
#include <vector>

#include "jit/device/backend.hpp"
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

struct ProgramForm {
  const char* name;
  const char* text;
};
constexpr ProgramForm kPrograms[] = {
    {"program of two", "y = x / sum(x, 0); y / sum(y, 1)"},
    {"program of four",
     "a = softmax(x, -1); b = softmax(a * 3, 0); c = b - mean(b, -1); c / sum(c, 0)"},
};

enum class Run { repeated, new_length, new_plan };

/// The same 256 lengths again and again: repeated ones have plans, new ones the class alone, and of
/// those with a new plan each is the first run of a program.
void run(benchmark::State& state, const ProgramForm& form, Run kind) {
  std::vector<float> memory(3 * kMost, 1.0F);
  std::vector<std::uint64_t> workspace(kMost);
  const View scratch(workspace.data(), DType::u8, {8 * kMost});
  kiln::Program program = kiln::parse_program(form.name, form.text);
  constexpr std::int64_t kLengths = 256;
  const auto with_views = [&](std::int64_t turn, const auto& use) {
    const std::int64_t rows = 4 + turn % kLengths;
    const Argument in[] = {View(memory.data(), DType::f32, {rows, 64})};
    const View out(memory.data() + kMost, DType::f32, {rows, 64});
    use(std::span<const Argument>(in), std::span(&out, 1));
  };
  const auto once = [&](std::int64_t turn) {
    with_views(turn, [&](auto in, auto out) { program.run({}, in, out, scratch); });
  };
  for (std::int64_t i = 0; i < kLengths; ++i) {
    if (kind == Run::repeated) {
      with_views(i, [&](auto in, auto out) { program.prepare({}, in, out); });
    }
    once(i);
  }
  std::int64_t turn = 0;
  for (auto _ : state) {
    if (kind == Run::new_plan) {
      state.PauseTiming();
      program = kiln::parse_program(form.name, form.text);
      state.ResumeTiming();
    }
    once(turn++);
  }
  with_views(0, [&](auto in, auto out) {
    state.counters["kernels"] = static_cast<double>(program.explain({}, in, out).kernels.size());
  });
}

/// The same on a GPU, with lengths between which no schedule changes.
void run_on_gpu(benchmark::State& state, kiln::Device device, const ProgramForm& form, Run kind) {
  constexpr int kBurst = 40;
  constexpr std::int64_t kLengths = 128;
  kiln::jit::Backend& backend = kiln::jit::backend(device);
  const kiln::Stream stream = backend.create_stream();
  std::array<void*, 3> memory{};
  for (void*& block : memory) block = backend.allocate(8 * kMost);
  const View scratch(memory[2], DType::u8, {8 * kMost}, device);
  const kiln::Program program = kiln::parse_program(form.name, form.text);
  const auto once = [&](std::int64_t turn, bool prepares) {
    const std::int64_t rows = 768 + 2 * (turn % kLengths);
    const Argument in[] = {View(memory[0], DType::f32, {rows, 64}, device)};
    const View out(memory[1], DType::f32, {rows, 64}, device);
    if (prepares) program.prepare(stream, in, {&out, 1});
    program.run(stream, in, {&out, 1}, scratch);
  };
  for (std::int64_t i = 0; i < kLengths; ++i) once(i, kind == Run::repeated);
  std::int64_t turn = 0;
  for (auto _ : state) {
    backend.synchronize(stream);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kBurst; ++i) once(turn++, false);
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    state.SetIterationTime(passed.count() / kBurst);
  }
  backend.synchronize(stream);
  for (void* block : memory) backend.free(block);
  backend.destroy_stream(stream);
}

}  // namespace

int main(int argc, char** argv) {
  for (const Form& form : kForms) {
    for (const bool is_new : {false, true}) {
      const std::string name = std::string(form.name) + (is_new ? "/new length" : "/repeated");
      benchmark::RegisterBenchmark(name.c_str(), call, form, is_new);
    }
  }
  for (const ProgramForm& form : kPrograms) {
    for (const Run kind : {Run::repeated, Run::new_length, Run::new_plan}) {
      const char* const what = kind == Run::repeated     ? "/repeated"
                               : kind == Run::new_length ? "/new length"
                                                         : "/new plan";
      const std::string name = std::string(form.name) + what;
      benchmark::RegisterBenchmark(name.c_str(), run, form, kind);
    }
  }
  for (const kiln::Device device : kiln::devices()) {
    if (device.type == kiln::DeviceType::cpu || device.index != 0) continue;
    for (const ProgramForm& form : kPrograms) {
      for (const Run kind : {Run::repeated, Run::new_length}) {
        const std::string name = kiln::to_string(device) + "/" + form.name +
                                 (kind == Run::repeated ? "/repeated" : "/new length");
        benchmark::RegisterBenchmark(name.c_str(), run_on_gpu, device, form, kind)
            ->Iterations(100)
            ->UseManualTime();
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
