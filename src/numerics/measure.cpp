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

#include "fusion/bound.hpp"
#include "fusion/composition.hpp"
#include "fusion/infer.hpp"
#include "fusion/reference.hpp"
#include "fusion/reference_operation.hpp"
#include "fusion/text.hpp"
#include "jit/backend.hpp"
#include "jit/compile.hpp"
#include "kiln/error.hpp"
#include "kiln/function.hpp"
#include "numerics/inputs.hpp"
#include "numerics/subjects.hpp"
#include "tool/device_memory.hpp"

namespace kiln::numerics {
namespace {

constexpr std::uint64_t kChunk = 1 << 20;  // inputs of one launch
constexpr std::size_t kGroup = 8;          // functions of one kernel: larger ones compile slowly

using Bytes = std::vector<std::byte>;

std::uint64_t read_bits(const Bytes& bytes, std::size_t width, std::uint64_t index) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data() + index * width, width);
  return value;
}

long double number(DType dtype, std::uint64_t bits) {
  return fusion::reference::decode(dtype, bits).real;
}

// What was found so far, merged from all threads.
struct Found {
  std::uint64_t misrounded = 0;
  double largest = 0;
  std::uint64_t at = 0;  ///< the index of the inputs

  void add(double error, double counted, std::uint64_t index) {
    if (error > 0.5) ++misrounded;
    if (counted <= largest) return;
    largest = counted;
    at = index;
  }
  void join(const Found& other) {
    misrounded += other.misrounded;
    if (other.largest > largest || (other.largest == largest && other.at < at)) {
      largest = other.largest;
      at = other.at;
    }
  }
};

// One function's exact results.
class Exact {
 public:
  Exact(const Subject& subject, DType dtype) : subject_(subject), dtype_(dtype) {
    if (subject.op) {
      node_.op = *subject.op;
      node_.dtype = dtype;
      node_.arity = static_cast<std::uint8_t>(subject.arity);
      return;
    }
    const std::array<fusion::ArgumentType, 1> types = {{{dtype, false, false}}};
    const std::array stored = {DType::f64};
    graph_ =
        fusion::infer(fusion::parse(subject.text()), types, stored, Rounding::once, subject.name);
  }

  /// Compares results [begin, end) of a chunk, after an error of `largest` was found in others.
  Found compare(const std::vector<Bytes>& operands, const Bytes& results, std::uint64_t begin,
                std::uint64_t end, std::uint64_t first, double largest) const {
    return subject_.op ? compare_op(operands, results, begin, end, first, largest)
                       : compare_composition(operands[0], results, begin, end, first);
  }

 private:
  std::size_t width() const { return static_cast<std::size_t>(bits(dtype_) / 8); }

  Found compare_op(const std::vector<Bytes>& operands, const Bytes& results, std::uint64_t begin,
                   std::uint64_t end, std::uint64_t first, double largest) const {
    Found found;
    std::array<long double, 3> reals{};
    std::array<fusion::reference::Value, 3> values;
    const auto arity = static_cast<std::size_t>(subject_.arity);
    const bool quick = dtype_ == DType::f32 && arity == 1;
    for (std::uint64_t i = begin; i < end; ++i) {
      if (quick && is_clear(operands[0], results, i, std::max(largest, found.largest))) continue;
      for (std::size_t k = 0; k < arity; ++k) {
        values[k] = fusion::reference::decode(dtype_, read_bits(operands[k], width(), i));
        reals[k] = values[k].real;
      }
      // The sign of a NaN is nobody's promise.
      if (node_.op == fusion::Op::copysign && std::isnan(reals[1])) continue;
      const long double exact =
          fusion::reference::operate(node_, std::span(values).first(arity), Rounding::once).real;
      const long double actual = number(dtype_, read_bits(results, width(), i));
      const double error = fusion::ulp_error(actual, exact, dtype_);
      const double counted = error > 0.5
                                 ? fusion::counted_error(node_.op, actual, exact,
                                                         std::span(reals).first(arity), dtype_)
                                 : error;
      found.add(error, counted, first + i);
    }
    return found;
  }

  // Whether f64 shows that result `i` adds nothing: it is exact, or the nearest number where errors
  // that are shown as a rounding's were found before. Between two neighbours, where f64 might not
  // tell which is nearest, it must be clear by far more than f64's own error.
  bool is_clear(const Bytes& operand, const Bytes& results, std::uint64_t i, double largest) const {
    const auto value = [&](const Bytes& bytes) {
      return std::bit_cast<float>(static_cast<std::uint32_t>(read_bits(bytes, 4, i)));
    };
    const float actual = value(results);
    const double exact = fusion::reference::operate_quickly(node_.op, value(operand));
    if (std::isnan(exact)) return std::isnan(actual);
    if (actual == 0 || exact == 0)
      return actual == exact && std::signbit(actual) == std::signbit(exact);
    if (actual == exact) return true;
    constexpr double kDoubt = 0x1p-45;
    return largest > 0.499 && static_cast<float>(exact * (1 - kDoubt)) == actual &&
           static_cast<float>(exact * (1 + kDoubt)) == actual;
  }

  Found compare_composition(const Bytes& operand, const Bytes& results, std::uint64_t begin,
                            std::uint64_t end, std::uint64_t first) const {
    std::vector<double> exact(end - begin);
    const fusion::ReferenceOperand input = {
        const_cast<std::byte*>(operand.data()) + begin * width(), dtype_, {1}, 0};
    const fusion::ReferenceOperand output = {exact.data(), DType::f64, {1}, 0};
    fusion::evaluate(graph_, {static_cast<std::int64_t>(end - begin)}, {&input, 1}, {&output, 1});
    Found found;
    for (std::uint64_t i = begin; i < end; ++i) {
      const long double actual = number(dtype_, read_bits(results, width(), i));
      const long double x = number(dtype_, read_bits(operand, width(), i));
      const double error = fusion::ulp_error(actual, exact[i - begin], dtype_);
      const long double term = fusion::largest_term(subject_.name, x);
      found.add(error, fusion::counted_error(term, actual, exact[i - begin], dtype_), first + i);
    }
    return found;
  }

  const Subject& subject_;
  DType dtype_;
  fusion::TypedNode node_;
  fusion::TypedGraph graph_;
};

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

// Nothing is promised of an f32 that a composition gives, and its reference is slow: a stride will
// do.
Inputs inputs_for(DType dtype, const Subject& subject, const Request& request) {
  const int arity = subject.arity;
  const bool complete = request.complete && subject.op.has_value();
  if (arity > 1) return Inputs::tuples(sample(dtype, set_size(dtype, arity, request.pairs)), arity);
  if (bits(dtype) == 16) return Inputs::all(dtype);
  if (dtype == DType::f64) return Inputs::list(sample(dtype, 100'000));
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
    std::vector<Exact> exact;
    for (const Subject* subject : subjects_) exact.emplace_back(*subject, dtype_);
    for (std::uint64_t first = 0; first < inputs_.count(); first += kChunk) {
      const std::uint64_t count = std::min(kChunk, inputs_.count() - first);
      launch(first, count);
      for (std::size_t k = 0; k < subjects_.size(); ++k) {
        const double largest = found[k].largest;
        found[k].join(tbb::parallel_reduce(
            tbb::blocked_range<std::uint64_t>(0, count, 4096), Found{},
            [&](const tbb::blocked_range<std::uint64_t>& range, Found so_far) {
              so_far.join(exact[k].compare(operands_, results_[k], range.begin(), range.end(),
                                           first, largest));
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

  View view(std::size_t buffer, std::uint64_t count) const {
    return {memory_[buffer].data(), dtype_, {static_cast<std::int64_t>(count)}, backend_.device()};
  }
  std::vector<Argument> arguments(std::uint64_t count) const {
    std::vector<Argument> all;
    for (std::size_t i = 0; i < operands_.size(); ++i) all.emplace_back(view(i, count));
    return all;
  }
  std::vector<View> outputs(std::uint64_t count) const {
    std::vector<View> all;
    for (std::size_t i = 0; i < results_.size(); ++i)
      all.push_back(view(operands_.size() + i, count));
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
    if (subject.op) {
      const fusion::OpInfo& op = fusion::info(*subject.op);
      row.bound = fusion::error_bound(op, dtype_, accuracy, device);
      row.library = fusion::is_library_function(op, dtype_, accuracy, device);
    } else {
      row.bound = fusion::composition_bound(dtype_, accuracy, device);
    }
    return row;
  }

  jit::Backend& backend_;
  tool::OwnedStream stream_;
  std::vector<const Subject*> subjects_;
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

// An exact f64 chain would need more digits than the reference keeps.
bool is_measurable(const Subject& subject, DType dtype) {
  return subject.op.has_value() || dtype != DType::f64;
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
      if (!is_measurable(*subject, dtype)) continue;
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

std::vector<Measurement> measure(Device device, const Request& request) {
  for (const DType dtype : request.dtypes) {
    if (dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f32 || dtype == DType::f64)
      continue;
    throw Error(
        Code::invalid_argument,
        fmt::format("numerics: {} is not measured; f16, bf16, f32 and f64 are", name(dtype)));
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
