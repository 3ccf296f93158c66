// A measurement in three steps: kernels of several functions each are compiled side by side, run
// over the inputs in chunks, and every result is compared on all cores.
#include "numerics/measure.hpp"

#include <fmt/format.h>
#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>
#include <tbb/parallel_reduce.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <future>
#include <memory>
#include <span>

#if defined(__GLIBC__)
#include <gnu/libc-version.h>
#endif

#include "core/device_memory.hpp"
#include "fusion/reference/bound.hpp"
#include "jit/device/backend.hpp"
#include "jit/service/compile.hpp"
#include "kiln/error.hpp"
#include "kiln/function.hpp"
#include "numerics/inputs.hpp"
#include "numerics/judge.hpp"
#include "numerics/subjects.hpp"

namespace kiln::numerics {
namespace {

constexpr std::array kMeasured = {DType::f16, DType::bf16, DType::f32, DType::f64, DType::c64};
constexpr std::uint64_t kChunk = 1 << 20;  // inputs of one launch
constexpr std::size_t kGroup = 8;          // functions of one kernel: larger ones compile slowly

std::uint64_t set_size(DType dtype, int arity, std::size_t pairs) {
  const bool narrow = bits(dtype) == 16;
  if (arity == 2) return narrow ? pairs : pairs / 3;
  return narrow ? 128 : 64;
}

// Inputs in which sweeps through every f32 found the largest errors of functions that are not
// correctly rounded, which a stride would miss.
std::vector<std::uint64_t> worst_known() {
  return {0xc2a2c637, 0x40204407, 0x3ec6548b, 0x3f347d05, 0x3eceba14, 0xbd7c40c8,
          0xc05bfd04, 0x3f8f02ed, 0x2c80cab3, 0x439558a9, 0x79e45ba5, 0x365a0304};
}

// What a composition is made of is tried completely: a stride will do for it.
Inputs inputs_for(DType dtype, const Subject& subject, const Request& request) {
  const int arity = subject.arity;
  const bool complete = request.complete && subject.op.has_value();
  if (arity > 1) return Inputs::tuples(sample(dtype, set_size(dtype, arity, request.pairs)), arity);
  if (bits(dtype) == 16) return Inputs::all(dtype);
  if (bits(dtype) == 64) return Inputs::list(sample(dtype, 100'000));
  if (complete) return Inputs::all(dtype);
  std::vector<std::uint64_t> others = sample(dtype, 20'000);
  for (const std::uint64_t bits : worst_known()) others.push_back(bits);
  return Inputs::every(dtype, request.stride, std::move(others));
}

// Several functions of the same dtype and arity as one kernel, with their memory.
class Group {
 public:
  Group(jit::Backend& backend, std::vector<const Subject*> subjects, DType dtype,
        const Request& request, int number)
      : backend_(backend),
        stream_(backend),
        subjects_(std::move(subjects)),
        dtype_(dtype),
        arity_(subjects_.front()->arity),
        inputs_(inputs_for(dtype, *subjects_.front(), request)),
        function_(parse(fmt::format("numerics_{}_{}_{}", name(dtype), arity_, number), text(),
                        Options{Rounding::once, request.accuracy, OnMiss::compile})) {
    for (const Subject* subject : subjects_) judges_.emplace_back(*subject, dtype_);
    const std::size_t bytes = std::min(kChunk, inputs_.count()) * width();
    for (int i = 0; i < arity_; ++i) memory_.emplace_back(backend_, bytes);
    for (std::size_t i = 0; i < subjects_.size(); ++i) memory_.emplace_back(backend_, bytes);
    operands_.assign(static_cast<std::size_t>(arity_), Bytes(bytes));
    results_.assign(subjects_.size(), Bytes(bytes));
  }

  void compile() {
    const std::uint64_t count = std::min(kChunk, inputs_.count());
    function_.prepare(stream_.get(), arguments(count), outputs(count));
  }

  std::vector<Measurement> run(Accuracy accuracy) {
    std::vector<Found> found(subjects_.size());
    for (std::uint64_t first = 0; first < inputs_.count(); first += kChunk) {
      const std::uint64_t count = std::min(kChunk, inputs_.count() - first);
      launch(first, count);
      for (std::size_t k = 0; k < subjects_.size(); ++k) {
        found[k].join(tbb::parallel_reduce(
            tbb::blocked_range<std::uint64_t>(0, count, 4096), Found{},
            [&](const tbb::blocked_range<std::uint64_t>& range, Found so_far) {
              so_far.join(
                  judges_[k].compare(operands_, results_[k], range.begin(), range.end(), first));
              return so_far;
            },
            [](Found a, const Found& b) {
              a.join(b);
              return a;
            }));
      }
    }
    std::vector<Measurement> measurements;
    for (std::size_t k = 0; k < subjects_.size(); ++k)
      measurements.push_back(describe(*subjects_[k], found[k], accuracy));
    return measurements;
  }

 private:
  std::size_t width() const { return static_cast<std::size_t>(bits(dtype_) / 8); }

  std::string text() const {
    std::string all;
    for (const Subject* subject : subjects_) all += (all.empty() ? "" : ", ") + subject->text();
    return all;
  }

  View view(std::size_t buffer, DType dtype, std::uint64_t count) const {
    return {memory_[buffer].data(), dtype, {static_cast<std::int64_t>(count)}, backend_.device()};
  }
  std::vector<Argument> arguments(std::uint64_t count) const {
    std::vector<Argument> all;
    for (std::size_t i = 0; i < operands_.size(); ++i) all.emplace_back(view(i, dtype_, count));
    return all;
  }
  std::vector<View> outputs(std::uint64_t count) const {
    std::vector<View> all;
    for (std::size_t i = 0; i < results_.size(); ++i)
      all.push_back(view(operands_.size() + i, judges_[i].result(), count));
    return all;
  }

  // Fills the operands with inputs [first, first + count) and fetches the results.
  void launch(std::uint64_t first, std::uint64_t count) {
    const Stream& stream = stream_.get();
    for (int k = 0; k < arity_; ++k) {
      Bytes& operand = operands_[static_cast<std::size_t>(k)];
      tbb::parallel_for(tbb::blocked_range<std::uint64_t>(0, count, 1 << 14),
                        [&](const tbb::blocked_range<std::uint64_t>& range) {
                          for (std::uint64_t i = range.begin(); i < range.end(); ++i) {
                            const std::uint64_t value = inputs_.operand(k, first + i);
                            std::memcpy(operand.data() + i * width(), &value, width());
                          }
                        });
      backend_.copy_in(memory_[static_cast<std::size_t>(k)].data(), operand.data(), count * width(),
                       stream);
    }
    function_.call(stream, arguments(count), outputs(count));
    backend_.synchronize(stream);
    for (std::size_t i = 0; i < results_.size(); ++i) {
      backend_.copy_out(results_[i].data(), memory_[operands_.size() + i].data(), count * width(),
                        stream);
    }
    backend_.synchronize(stream);
  }

  Measurement describe(const Subject& subject, const Found& found, Accuracy accuracy) const {
    Measurement row;
    row.function = subject.name;
    row.dtype = dtype_;
    row.inputs = inputs_.count();
    row.complete = inputs_.complete();
    row.misrounded = found.misrounded;
    row.largest = found.largest;
    for (int k = 0; k < arity_; ++k) row.worst.push_back(inputs_.operand(k, found.at));
    const DeviceType device = backend_.device().type;
    if (dtype_ == DType::c64) {
      row.bound = fusion::info(*subject.op).c64->error;
    } else if (subject.op) {
      const fusion::OpInfo& op = fusion::info(*subject.op);
      row.bound = fusion::error_bound(op, dtype_, accuracy, device);
      row.library = fusion::is_library_function(op, dtype_, accuracy, device);
    } else {
      const fusion::Composition& composition = *fusion::find_composition(subject.name);
      row.bound = fusion::composition_bound(composition, dtype_, accuracy, device);
      row.library = fusion::is_library_function(composition, dtype_, accuracy, device);
    }
    if (!row.bound) row.fast = found.fast;
    return row;
  }

  jit::Backend& backend_;
  tool::OwnedStream stream_;
  std::vector<const Subject*> subjects_;
  std::vector<Judge> judges_;
  DType dtype_;
  int arity_;
  Inputs inputs_;
  Function function_;
  std::vector<tool::DeviceMemory> memory_;  ///< of the operands, then of the results
  std::vector<Bytes> operands_;
  std::vector<Bytes> results_;
};

std::vector<const Subject*> chosen_subjects(const Request& request) {
  std::vector<const Subject*> chosen;
  for (const Subject& subject : all_subjects()) {
    if (request.functions.empty() || std::ranges::count(request.functions, subject.name) != 0)
      chosen.push_back(&subject);
  }
  for (const std::string& function : request.functions) {
    if (std::ranges::find(all_subjects(), function, &Subject::name) == all_subjects().end()) {
      throw Error(Code::invalid_argument,
                  fmt::format("numerics: no measured function is called '{}'", function));
    }
  }
  return chosen;
}

std::vector<std::unique_ptr<Group>> make_groups(Device device, const Request& request) {
  jit::Backend& backend = jit::backend(device);
  std::vector<std::unique_ptr<Group>> groups;
  const std::vector<const Subject*> chosen = chosen_subjects(request);
  for (const DType dtype : request.dtypes) {
    std::vector<const Subject*> pending;
    const auto flush = [&] {
      if (pending.empty()) return;
      const auto number = static_cast<int>(groups.size());
      groups.push_back(
          std::make_unique<Group>(backend, std::move(pending), dtype, request, number));
      pending.clear();
    };
    for (const Subject* subject : chosen) {
      if (!subject->takes(dtype)) continue;
      const bool alike =
          pending.empty() || (pending.front()->arity == subject->arity &&
                              pending.front()->op.has_value() == subject->op.has_value());
      if (!alike) flush();
      pending.push_back(subject);
      if (pending.size() == kGroup) flush();
    }
    flush();
  }
  return groups;
}

}  // namespace

double Measurement::rounded_share() const {
  if (inputs == 0) return 1;
  return 1 - static_cast<double>(misrounded) / static_cast<double>(inputs);
}

bool Measurement::exceeded() const {
  return (bound && largest > *bound) || (fast && *fast > fusion::kFastBound);
}

std::vector<Measurement> measure(Device device, const Request& request) {
  for (const DType dtype : request.dtypes) {
    if (std::ranges::count(kMeasured, dtype) != 0) continue;
    throw Error(
        Code::invalid_argument,
        fmt::format("numerics: {} is not measured; f16, bf16, f32, f64 and c64 are", name(dtype)));
  }
  const std::vector<std::unique_ptr<Group>> groups = make_groups(device, request);
  std::vector<std::future<void>> compiles;
  for (const auto& group : groups)
    compiles.push_back(std::async(std::launch::async, [&group] { group->compile(); }));
  for (std::future<void>& compile : compiles) compile.get();

  std::vector<Measurement> all;
  for (const auto& group : groups) {
    std::vector<Measurement> rows = group->run(request.accuracy);
    std::ranges::move(rows, std::back_inserter(all));
  }
  return all;
}

std::string library_version(Device device) {
  const std::string target = jit::backend(device).target();
  std::string version = jit::toolchain(jit::toolchain_for(target)).version;
#if defined(__GLIBC__)
  if (device.type == DeviceType::cpu) version += fmt::format(", glibc {}", gnu_get_libc_version());
#endif
  return version;
}

}  // namespace kiln::numerics
