// What a call of a Function and a run of a Program cost on the host: repeated, and with a length
// that was never seen but whose class is known; for programs also with a plan of its own. On the
// CPU, where the call computes too: few elements. On GPUs, in bursts that fit the driver's queue,
// new lengths beside repeated ones.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "call/class_kernel.hpp"
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

/// A program on GPUs: the arrays of its call for a length.
struct Array {
  DType dtype;
  kiln::Dims shape;
};
struct GpuProgram {
  const char* name;
  const char* text;
  std::vector<Array> (*inputs)(std::int64_t length);
  std::vector<Array> (*outputs)(std::int64_t length);
};
std::vector<Array> rows_of_64(std::int64_t length) { return {{DType::f32, {length, 64}}}; }
/// One for each form of kernel, where programs have it.
const GpuProgram kGpuPrograms[] = {
    {kPrograms[0].name, kPrograms[0].text, rows_of_64, rows_of_64},
    {kPrograms[1].name, kPrograms[1].text, rows_of_64, rows_of_64},
    {"scans and elements", "y = exp(cumsum(x, 0)); y * 2 + cumsum(y, 1)", rows_of_64, rows_of_64},
    {"attention", "sum(softmax(sum(q * k, -1) * 0.125, -2) * v, -2)",
     [](std::int64_t length) -> std::vector<Array> {
       const Array keys{DType::bf16, {2, 1, length, 64}};
       return {{DType::bf16, {2, 4, 1, 64}}, keys, keys};
     },
     [](std::int64_t) -> std::vector<Array> {
       return {{DType::bf16, {2, 4, 1, 64}}};
     }},
    {"products", "h = sum(w * x, -1); y = reshape(h, 1, -1); silu(sum(u * rms_norm(y, 1e-5), -1))",
     [](std::int64_t length) -> std::vector<Array> {
       return {{DType::bf16, {length, 256}}, {DType::bf16, {256}}, {DType::bf16, {128, length}}};
     },
     [](std::int64_t) -> std::vector<Array> {
       return {{DType::bf16, {128, 1}}};
     }},
    {"packed products", "y = sum(sum(f32(w) * x, -1) * s, -2); silu(y) / (1 + sum(abs(y), 1))",
     [](std::int64_t length) -> std::vector<Array> {
       return {
           {DType::u4, {24, 4, 64}}, {DType::bf16, {length, 1, 4, 64}}, {DType::f32, {24, 4, 1}}};
     },
     [](std::int64_t length) -> std::vector<Array> {
       return {{DType::f32, {length, 24, 1, 1}}};
     }},
    {"take", "y = softmax(take(x, i), -1); y - mean(y, 0)",
     [](std::int64_t length) -> std::vector<Array> {
       return {{DType::f32, {64, length}}, {DType::i32, {7}}};
     },
     [](std::int64_t length) -> std::vector<Array> {
       return {{DType::f32, {7, length}}};
     }},
    {"put", "put(c, i, softmax(y, -1)), cumsum(y, 0)",
     [](std::int64_t length) -> std::vector<Array> {
       return {{DType::f32, {64, length}}, {DType::i32, {7}}, {DType::f32, {7, length}}};
     },
     [](std::int64_t length) -> std::vector<Array> {
       return {{DType::f32, {64, length}}, {DType::f32, {7, length}}};
     }},
};

/// On a GPU, in bursts that fit the driver's queue, repeated ones and new lengths in turns: what
/// disturbs one disturbs the other. The first calls of a burst do not count: while a queue runs
/// empty, which it does between bursts alone, caches forget the caller. Their number is drawn, and
/// so is which burst is first: a driver has work to do after so many launches, which would
/// otherwise fall into the same bursts for as long as a process lives. `call(length, is_new)` is
/// called for the same lengths again and again, with plans and without; time is that of new
/// lengths, `extra_ns` the difference of the medians, for each kernel, `planned` how many launches
/// no tape held for.
constexpr std::int64_t kGpuLengths = 32;
template <class Call>
void compare_on_gpu(benchmark::State& state, kiln::jit::Backend& backend,
                    const kiln::Stream& stream, std::size_t kernels, const Call& call) {
  constexpr int kBurst = 40;
  std::minstd_rand random;
  std::array<std::vector<double>, 2> bursts;
  std::array<std::int64_t, 2> turns{};
  const auto median = [](std::vector<double>& of) {
    const auto middle = of.begin() + std::ssize(of) / 2;
    std::ranges::nth_element(of, middle);
    return *middle;
  };
  const std::uint64_t planned = kiln::planned_launches();
  for (auto _ : state) {
    const bool first = random() % 2 == 0;
    for (const bool is_new : {first, !first}) {
      const auto uncounted = static_cast<int>(8 + random() % 16);
      backend.synchronize(stream);
      for (int i = 0; i < uncounted; ++i) call(turns[is_new]++ % kGpuLengths, is_new);
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < kBurst; ++i) call(turns[is_new]++ % kGpuLengths, is_new);
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
      bursts[is_new].push_back(passed.count() / kBurst);
    }
    state.SetIterationTime(bursts[1].back());
  }
  backend.synchronize(stream);
  state.counters["planned"] = static_cast<double>(kiln::planned_launches() - planned);
  const double repeated = median(bursts[0]);
  state.counters["kernels"] = static_cast<double>(kernels);
  state.counters["repeated_ns"] = 1e9 * repeated;
  state.counters["extra_ns"] = 1e9 * (median(bursts[1]) - repeated) / static_cast<double>(kernels);
}

/// Memory and a stream of a GPU.
class OnGpu {
 public:
  explicit OnGpu(kiln::Device device)
      : device(device), backend(kiln::jit::backend(device)), stream(backend.create_stream()) {
    for (void*& block : memory_) {
      block = backend.allocate(kBytes);
      backend.fill(block, 0, kBytes, stream);
    }
  }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;
  ~OnGpu() {
    backend.synchronize(stream);
    for (void* block : memory_) backend.free(block);
    backend.destroy_stream(stream);
  }
  View view(std::size_t which, kiln::Dims shape, DType dtype = DType::f32) const {
    return {memory_[which], dtype, std::move(shape), device};
  }
  View workspace() const { return {memory_.back(), DType::u8, {kBytes}, device}; }

  const kiln::Device device;
  kiln::jit::Backend& backend;
  const kiln::Stream stream;

 private:
  static constexpr std::int64_t kBytes = 8 * kMost;
  std::array<void*, 6> memory_{};
};

/// Lengths between which no schedule changes. An output of the first input's shape where `put`
/// updates it is that.
void run_on_gpu(benchmark::State& state, kiln::Device device, const GpuProgram& form) {
  const OnGpu gpu(device);
  const kiln::Program programs[] = {kiln::parse_program(form.name, form.text),
                                    kiln::parse_program(form.name, form.text)};
  const bool updates = std::string_view(form.text).starts_with("put(");
  std::vector<std::vector<Argument>> inputs(std::size_t{kGpuLengths});
  std::vector<std::vector<View>> outputs(std::size_t{kGpuLengths});
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::int64_t length = 768 + 2 * static_cast<std::int64_t>(i);
    std::size_t block = 0;
    for (const Array& array : form.inputs(length)) {
      inputs[i].push_back(gpu.view(block++, array.shape, array.dtype));
    }
    for (const Array& array : form.outputs(length)) {
      const std::size_t at = updates && outputs[i].empty() ? 0 : block++;
      outputs[i].push_back(gpu.view(at, array.shape, array.dtype));
    }
  }
  std::size_t kernels = 0;
  const auto once = [&](std::int64_t length, bool is_new, bool prepares) {
    const std::vector<Argument>& in = inputs[static_cast<std::size_t>(length)];
    const std::vector<View>& out = outputs[static_cast<std::size_t>(length)];
    const kiln::Program& program = programs[is_new];
    if (prepares && !is_new) program.prepare(gpu.stream, in, out);
    program.run(gpu.stream, in, out, gpu.workspace());
    if (prepares && !is_new) kernels = program.explain(gpu.stream, in, out).kernels.size();
  };
  for (const bool is_new : {false, true}) {
    for (std::int64_t i = 0; i < kGpuLengths; ++i) once(i, is_new, true);
  }
  compare_on_gpu(state, gpu.backend, gpu.stream, kernels,
                 [&](std::int64_t length, bool is_new) { once(length, is_new, false); });
}

void new_call_on_gpu(benchmark::State& state, kiln::Device device, const Form& form) {
  const OnGpu gpu(device);
  const std::array<std::string, 2> names{"a", "b"};
  const Function functions[] = {kiln::parse(form.name, form.text, {}, names),
                                kiln::parse(form.name, form.text, {}, names)};
  const auto once = [&](std::int64_t length, bool is_new, bool prepares) {
    const std::int64_t size = 1032 + 4 * length;
    const Argument in[] = {form.is_matrix ? gpu.view(0, {2, size}) : gpu.view(0, {size}),
                           gpu.view(1, {size})};
    const View out = form.is_reduced  ? gpu.view(2, {2, 1})
                     : form.is_matrix ? gpu.view(2, {2, size})
                                      : gpu.view(2, {size});
    if (prepares && !is_new) functions[0].prepare(gpu.stream, in, {&out, 1});
    functions[is_new].call(gpu.stream, in, {&out, 1});
  };
  for (const bool is_new : {false, true}) {
    for (std::int64_t i = 0; i < kGpuLengths; ++i) once(i, is_new, true);
  }
  compare_on_gpu(state, gpu.backend, gpu.stream, 1,
                 [&](std::int64_t length, bool is_new) { once(length, is_new, false); });
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
    const auto add_new = [&](const auto& form, auto measure) {
      const std::string name = kiln::to_string(device) + "/" + form.name + "/new length";
      benchmark::RegisterBenchmark(name.c_str(), measure, device, form)
          ->Iterations(100)
          ->UseManualTime();
    };
    for (const Form& form : kForms) add_new(form, new_call_on_gpu);
    for (const GpuProgram& form : kGpuPrograms) add_new(form, run_on_gpu);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
