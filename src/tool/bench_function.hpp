// A function of a corpus or a sweep on memory of its own: runs it as a program, and compares what
// it gave with the reference interpreter. How its time is taken is in bench_clock.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/device_memory.hpp"
#include "kiln/program.hpp"
#include "tool/bench_values.hpp"

namespace kiln::tool {

struct BenchArgument {
  std::string name;
  DType dtype = DType::f32;
  Dims shape;
  RandomFloats values = RandomFloats::positive;
};

/// The arguments as a call of the function would have them, in C order.
Specification specification_of(std::span<const BenchArgument> arguments);

class BenchFunction {
 public:
  /// `arguments` in any order. Plans, makes random numbers, compiles nothing. Throws UsageError if
  /// an argument of the function is missing.
  BenchFunction(const Function& function, std::span<const BenchArgument> arguments,
                jit::Backend& backend, const Stream& stream);

  const ProgramInfo& info() const { return info_; }
  void run() const { program_.run(stream_, inputs_, outputs_, workspace_); }

  /// Runs it into outputs that hold something else before. Whether every element is right.
  bool is_right();

  enum class Part : std::uint8_t { first, last };
  /// The same of a part: of the elements that the function gives for the first or last elements of
  /// its arguments, which are those of arrays of the shapes in `part`, arguments in the order of
  /// the constructor's. No element may depend on what lies outside.
  bool is_right(std::span<const BenchArgument> part, Part which);

 private:
  struct Outputs;
  struct Array {
    DType dtype = DType::f32;
    Dims shape;
  };

  void fill(const DeviceMemory& memory, std::size_t bytes, std::span<const std::byte> values);
  bool agrees(std::span<const Dims> shapes, Part which);
  Outputs reference(std::span<const Dims> shapes, Part which, Rounding rounding) const;
  bool agrees(std::size_t output, const Outputs& wanted, Part which, double slack) const;
  bool views_bits() const;

  Function function_;
  Program program_;
  jit::Backend& backend_;
  const Stream& stream_;
  std::vector<std::size_t> order_;  ///< of each argument of the function: its place in the list
  std::vector<Array> arguments_;
  std::vector<std::vector<std::byte>> values_;  ///< of each argument, which repeat
  std::vector<DeviceMemory> memory_;
  std::vector<Argument> inputs_;
  std::vector<View> outputs_;
  View workspace_;
  ProgramInfo info_;
};

}  // namespace kiln::tool
