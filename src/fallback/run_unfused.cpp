#include "fallback/run_unfused.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "fallback/general_launch.hpp"
#include "fallback/host_operations.hpp"
#include "fusion/graph/dtype_lattice.hpp"
#include "kiln/error.hpp"

namespace kiln {
namespace {

using fusion::Op;
using host::StridedArray;
using Operation = Instruction::Kind;

constexpr std::size_t kAlignment = 256;
// The longest row that one work item reduces alone; of others each takes kPartLength elements.
constexpr std::uint64_t kLongestPart = 128;

std::uint64_t parts_of(std::uint64_t length) { return (length + kPartLength - 1) / kPartLength; }

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Partial results of one value, and of scans what they are together, of the rows' longest chain of
// stages: a value and a place for each part.
std::size_t scratch_bytes(std::uint64_t length, std::uint64_t rows) {
  std::size_t bytes = 0;
  for (std::uint64_t left = length; left > kLongestPart;) {
    left = parts_of(left);
    bytes += 4 * aligned(static_cast<std::size_t>(rows * left * 8));
  }
  return bytes;
}

// Partial results of the stages of the tree but for the last; `stages` are those of one row.
std::size_t tree_bytes(std::span<const host::TreeStage> stages, std::uint64_t rows) {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i + 1 < stages.size(); ++i) {
    bytes += aligned(static_cast<std::size_t>(rows * stages[i].items() * 8));
  }
  return bytes;
}

// What a reduction does with the partial results of a running one.
Op reduction_of(Op op, DType dtype) {
  switch (op) {
    case Op::cumsum: return Op::sum;
    case Op::cumprod: return Op::prod;
    case Op::cummax: return dtype == DType::boolean ? Op::reduce_any : Op::reduce_max;
    default: return op;
  }
}

// The array over some axes of the kernel's space, in their order; neighbours that are one axis are
// merged.
std::optional<StridedArray> array_over(const KernelSpec& spec, const fusion::Operand& operand,
                                       const Unfused& unfused, Extent extent) {
  std::vector<std::pair<std::uint64_t, std::int64_t>> axes;
  const auto add = [&](std::int64_t size, std::int64_t stride) {
    if (size == 1) return;
    if (!axes.empty() && axes.back().second == stride * size) {
      axes.back() = {axes.back().first * static_cast<std::uint64_t>(size), stride};
      return;
    }
    axes.emplace_back(static_cast<std::uint64_t>(size), stride);
  };
  for (const std::size_t k : unfused.row_axes) add(spec.shape[k], operand.strides[k]);
  const auto add_axis = [&](std::size_t k) { add(spec.shape[k], operand.strides[k]); };
  if (has(extent, Extent::values)) add_axis(unfused.values_axis);
  if (has(extent, Extent::full)) std::ranges::for_each(unfused.own_axes, add_axis);
  if (has(extent, Extent::split)) add(unfused.splits, operand.split_stride);
  if (has(extent, Extent::depth)) add_axis(unfused.depth_axis);
  StridedArray array;
  array.data = reinterpret_cast<void*>(operand.address);
  array.offset = operand.offset;
  array.rank = std::max<std::size_t>(1, axes.size());
  if (array.rank > kMostMovedAxes) return std::nullopt;
  array.strides[0] = axes.empty() ? 1 : 0;
  for (std::size_t k = 0; k < axes.size(); ++k) {
    array.sizes[k] = axes[axes.size() - 1 - k].first;
    array.strides[k] = axes[axes.size() - 1 - k].second;
  }
  return array;
}

bool is_in_order(const StridedArray& array) { return array.rank == 1 && array.strides[0] == 1; }

// One kernel's operations, on a device.
class UnfusedRun {
 public:
  UnfusedRun(jit::Backend& backend, const Stream& stream, std::string_view function,
             const UnfusedCall& call)
      : backend_(backend),
        stream_(stream),
        function_(function),
        spec_(*call.spec),
        unfused_(unfuse(spec_, call.scalars)) {
    for (const Instruction& one : unfused_.instructions) prepare(one);
  }

  bool is_empty() const { return unfused_.rows == 0; }

  // Finds out how many rows are taken at a time.
  void plan(std::size_t memory) {
    block_ = unfused_.rows;
    while (block_ > 0 && bytes(block_) > memory) {
      if (block_ == 1) refuse_memory(memory);
      block_ /= 2;
    }
  }

  void run(std::byte* memory) {
    for (std::int64_t first = 0; first < unfused_.rows; first += block_) {
      first_ = first;
      rows_ = std::min(block_, unfused_.rows - first);
      place_slots(memory);
      for (std::size_t i = 0; i < unfused_.instructions.size(); ++i) {
        execute(unfused_.instructions[i], i);
      }
    }
  }

 private:
  struct Prepared {
    std::shared_ptr<jit::Kernel> kernel;  ///< null: by the interpreter
    StridedArray array;
    bool in_place = false;  ///< a load of what is in C order: the array itself is the value
    std::vector<host::TreeStage> stages;  ///< of one row of a reduction that follows the tree
  };

  // -- Before anything runs

  void prepare(const Instruction& one) {
    Prepared prepared;
    const auto wanted = general_kernel_of(one, spec_.function.options.accuracy);
    if (!wanted) {
      refuse(fmt::format("cannot compute {} of {}", fusion::info(one.op).name, name(one.from)));
    }
    prepared.kernel = find_general_kernel(backend_, *wanted);
    if (!prepared.kernel && stream_.device.type != DeviceType::cpu) refuse_kernel(*wanted);
    if (one.kind == Operation::load || one.kind == Operation::store ||
        one.kind == Operation::index) {
      const std::size_t value = one.kind == Operation::store ? one.inputs[0] : one.output;
      const auto array =
          array_over(spec_, operand_of(one), unfused_, unfused_.registers[value].extent);
      if (!array) refuse("reads and writes arrays of up to eight axes");
      prepared.array = *array;
      // What is stored as it was loaded may be overwritten by another store before.
      const bool only_moved = std::ranges::any_of(unfused_.instructions, [&](const auto& other) {
        return other.kind == Operation::store && other.inputs[0] == one.output;
      });
      prepared.in_place = one.kind == Operation::load && one.inputs[1] == Instruction::kNone &&
                          !is_packed(one.from) && is_in_order(*array) && !only_moved;
    }
    if (one.kind == Operation::reduce && host::follows_tree(one.op, one.from)) {
      prepared.stages = host::tree_stages(1, length_of(one), splits_of(one));
    }
    prepared_.push_back(std::move(prepared));
  }

  // That it reads or writes; places along an axis are those of an iota.
  fusion::Operand operand_of(const Instruction& one) const {
    if (one.operand != Instruction::kNone) return spec_.operands[one.operand];
    fusion::Operand operand;
    operand.iota = true;
    operand.strides = Dims(spec_.shape.size(), 0);
    operand.strides[one.axis] = 1;
    return operand;
  }

  [[noreturn]] void refuse(std::string_view limit) const {
    throw Error(
        Code::would_compile,
        fmt::format("{}: on_miss is fallback, which {}; the kernel is being compiled in the "
                    "background",
                    function_, limit));
  }

  [[noreturn]] void refuse_kernel(const GeneralKernel& kernel) const {
    const std::string target = backend_.target();
    throw Error(
        Code::would_compile,
        fmt::format(
            "{}: on_miss is fallback, and no base pack for {} is in the cache (it has no "
            "kernel '{}'): make one with kiln compile --base-pack --target {} -o "
            "base.kilnpack, and import it or add it to KILN_CACHE_READONLY_DIRS; the kernel "
            "is being compiled in the background",
            function_, target, general_request(kernel, target).function, target));
  }

  [[noreturn]] void refuse_memory(std::size_t memory) const {
    throw Error(
        Code::would_compile,
        fmt::format("{}: on_miss is fallback, which needs {} bytes for temporaries, and has "
                    "{}; the kernel is being compiled in the background",
                    function_, bytes(block_), memory));
  }

  // -- Memory

  std::size_t slot_bytes(const Register& slot, std::int64_t rows) const {
    return aligned(static_cast<std::size_t>(unfused_.count(slot.extent, rows)) *
                   static_cast<std::size_t>(slot.bytes));
  }

  std::size_t bytes(std::int64_t rows) const {
    std::size_t total = kAlignment;  // the memory may begin anywhere
    for (const Register& slot : unfused_.slots) total += slot_bytes(slot, rows);
    std::size_t most = 0;
    for (std::size_t i = 0; i < unfused_.instructions.size(); ++i) {
      const Instruction& one = unfused_.instructions[i];
      if (one.kind != Operation::reduce && one.kind != Operation::scan) continue;
      const std::vector<host::TreeStage>& stages = prepared_[i].stages;
      const std::uint64_t count = rows_of(one, rows);
      most = std::max(
          most, stages.empty() ? scratch_bytes(length_of(one), count) : tree_bytes(stages, count));
    }
    return total + most;
  }

  void place_slots(std::byte* memory) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    std::byte* at = memory + (aligned(address) - address);
    slots_.clear();
    for (const Register& slot : unfused_.slots) {
      slots_.push_back(at);
      at += slot_bytes(slot, rows_);
    }
    scratch_ = at;
    values_.assign(unfused_.registers.size(), nullptr);
  }

  void* take_scratch(std::uint64_t elements) {
    void* const taken = scratch_;
    scratch_ += aligned(static_cast<std::size_t>(elements * 8));
    return taken;
  }

  // -- Operations

  // Of what goes along rows: how long they are, how many, and their splits.
  bool is_over_depth(const Instruction& one) const {
    const Extent before = unfused_.registers[one.inputs[0]].extent;
    return has(before, Extent::depth) && !has(unfused_.registers[one.output].extent, Extent::depth);
  }
  std::uint64_t length_of(const Instruction& one) const {
    return static_cast<std::uint64_t>(is_over_depth(one) ? unfused_.depth : unfused_.length);
  }
  std::uint64_t rows_of(const Instruction& one, std::int64_t rows) const {
    const Extent along = is_over_depth(one) ? Extent::depth : Extent::full;
    const Extent before = unfused_.registers[one.inputs[0]].extent;
    return static_cast<std::uint64_t>(unfused_.count(without(before, along), rows));
  }
  std::uint64_t splits_of(const Instruction& one) const {
    const bool split = has(unfused_.registers[one.output].extent, Extent::split);
    return split ? static_cast<std::uint64_t>(unfused_.splits) : 1;
  }

  std::uint64_t count_of(std::size_t value) const {
    return static_cast<std::uint64_t>(unfused_.count(unfused_.registers[value].extent, rows_));
  }

  // Where the block of an array that is in the registers' order begins.
  std::uint64_t first_of(std::size_t value) const {
    return static_cast<std::uint64_t>(unfused_.count(unfused_.registers[value].extent, first_));
  }

  void execute(const Instruction& one, std::size_t i) {
    const Prepared& prepared = prepared_[i];
    if (one.output != Instruction::kNone)
      values_[one.output] = slots_[unfused_.registers[one.output].slot];
    switch (one.kind) {
      case Operation::load: return load(one, prepared);
      case Operation::store: return store(one, prepared);
      case Operation::index: {
        StridedArray array = prepared.array;
        return move(GeneralMove::index, DType::i64, array, values_[one.output],
                    first_of(one.output), count_of(one.output),
                    static_cast<std::uint64_t>(array.offset), prepared, {});
      }
      case Operation::fill: return fill(one, prepared);
      case Operation::expand: return expand(one, prepared);
      case Operation::convert: return convert(one, prepared);
      case Operation::map: return map(one, prepared);
      case Operation::reduce: return reduce(one, prepared);
      case Operation::scan: break;
    }
    std::byte* const scratch = scratch_;
    scan(one, prepared, values_[one.inputs[0]], values_[one.output], length_of(one));
    scratch_ = scratch;
  }

  void load(const Instruction& one, const Prepared& prepared) {
    const std::uint64_t first = first_of(one.output);
    if (prepared.in_place) {
      const auto bytes = static_cast<std::size_t>(bits(one.from) / 8);
      values_[one.output] = static_cast<std::byte*>(prepared.array.data) +
                            (static_cast<std::size_t>(prepared.array.offset) + first) * bytes;
      return;
    }
    StridedArray array = prepared.array;
    if (!is_packed(one.from)) take_offset(array, one.from);
    const host::Places places = places_of(one);
    move(places.at == nullptr ? GeneralMove::load : GeneralMove::load_at, one.from, array,
         values_[one.output], first, count_of(one.output), static_cast<std::uint64_t>(array.offset),
         prepared, places);
  }

  host::Places places_of(const Instruction& one) const {
    if (one.inputs[1] == Instruction::kNone) return {};
    return {static_cast<const std::int64_t*>(values_[one.inputs[1]]), one.places.stride,
            one.places.extent};
  }

  void store(const Instruction& one, const Prepared& prepared) {
    void* const value = values_[one.inputs[0]];
    const std::uint64_t count = count_of(one.inputs[0]);
    StridedArray array = prepared.array;
    if (!is_packed(one.to)) take_offset(array, one.to);
    const host::Places places = places_of(one);
    move(places.at == nullptr ? GeneralMove::store : GeneralMove::store_at, one.to, array, value,
         first_of(one.inputs[0]), count, static_cast<std::uint64_t>(array.offset), prepared,
         places);
  }

  static void take_offset(StridedArray& array, DType dtype) {
    array.data = static_cast<std::byte*>(array.data) + array.offset * bits(dtype) / 8;
    array.offset = 0;
  }

  void move(GeneralMove what, DType dtype, const StridedArray& array, void* value,
            std::uint64_t first, std::uint64_t count, std::uint64_t own, const Prepared& prepared,
            const host::Places& places) {
    if (!prepared.kernel) {
      switch (what) {
        case GeneralMove::load:
        case GeneralMove::load_at: return host::load(array, dtype, first, count, value, places);
        case GeneralMove::store:
        case GeneralMove::store_at: return host::store(array, dtype, first, count, value, places);
        case GeneralMove::index: return host::index(array, first, count, value);
        case GeneralMove::fill: return host::fill(value, dtype, own, count);
      }
    }
    GeneralArguments arguments(array.data);
    arguments.add(value).add(first).add(count).add(own).add(move_code(what, dtype));
    arguments.add(static_cast<const void*>(places.at)).add(places.stride).add(places.count);
    arguments.add(static_cast<std::uint32_t>(array.rank)).add(array.strides[array.rank - 1]);
    for (std::size_t k = 0; k + 1 < kMostMovedAxes; ++k) {
      arguments.add(array.sizes[k]).add(array.strides[k]);
    }
    arguments.launch(backend_, *prepared.kernel, count, jit::kCpuBlock, stream_);
  }

  void fill(const Instruction& one, const Prepared& prepared) {
    move(GeneralMove::fill, one.to, {}, values_[one.output], 0, count_of(one.output), one.bits,
         prepared, {});
  }

  // Read with no stride along the axes that the value has not.
  void expand(const Instruction& one, const Prepared& prepared) {
    const Extent before = unfused_.registers[one.inputs[0]].extent;
    const Extent after = unfused_.registers[one.output].extent;
    StridedArray array;
    array.data = values_[one.inputs[0]];
    array.rank = 0;
    std::int64_t stride = 1;
    const auto add = [&](std::int64_t size, bool moves) {
      array.sizes[array.rank] = static_cast<std::uint64_t>(size);
      array.strides[array.rank++] = moves ? stride : 0;
      if (moves) stride *= size;
    };
    const auto add_axis = [&](Extent axis, std::int64_t size) {
      if (has(after, axis)) add(size, has(before, axis));
    };
    add_axis(Extent::depth, unfused_.depth);
    add_axis(Extent::split, unfused_.splits);
    add_axis(Extent::full, unfused_.length);
    add_axis(Extent::values, unfused_.values);
    add(rows_, true);
    move(GeneralMove::load, one.from, array, values_[one.output], 0, count_of(one.output), 0,
         prepared, {});
  }

  void convert(const Instruction& one, const Prepared& prepared) {
    const void* const from = values_[one.inputs[0]];
    const std::uint64_t count = count_of(one.output);
    if (!prepared.kernel) {
      return host::convert(from, one.from, values_[one.output], one.to, count);
    }
    GeneralArguments arguments(from);
    arguments.add(values_[one.output]).add(count).add(static_cast<std::uint32_t>(one.to));
    arguments.launch(backend_, *prepared.kernel, count, jit::kCpuBlock, stream_);
  }

  void map(const Instruction& one, const Prepared& prepared) {
    std::array<const void*, 3> operands{};
    for (std::size_t k = 0; k < operands.size(); ++k) {
      if (one.inputs[k] != Instruction::kNone) operands[k] = values_[one.inputs[k]];
    }
    const std::uint64_t count = count_of(one.output);
    const auto arity = static_cast<std::size_t>(fusion::info(one.op).arity);
    if (!prepared.kernel) {
      return host::map(one.op, one.from, std::span(operands).first(arity), values_[one.output],
                       count);
    }
    GeneralArguments arguments(operands[0]);
    arguments.add(operands[1]).add(operands[2]).add(values_[one.output]).add(count);
    arguments.add(static_cast<std::uint32_t>(one.op));
    arguments.launch(backend_, *prepared.kernel, count, jit::kCpuBlock / 8, stream_);
  }

  // -- Along rows

  // By the tree of numerics.md: as the fused kernel does, bit by bit.
  void reduce_in_tree(const Instruction& one, const Prepared& prepared) {
    std::byte* const scratch = scratch_;
    const void* from = values_[one.inputs[0]];
    const void* counts = one.inputs[1] == Instruction::kNone ? nullptr : values_[one.inputs[1]];
    for (std::size_t i = 0; i < prepared.stages.size(); ++i) {
      host::TreeStage stage = prepared.stages[i];
      stage.rows = rows_of(one, rows_);
      const void* const own_counts = stage.elements == 0 ? nullptr : counts;
      void* const to =
          i + 1 == prepared.stages.size() ? values_[one.output] : take_scratch(stage.items());
      if (prepared.kernel) {
        launch_along(backend_, *prepared.kernel,
                     along_stage(along_code(one.op, true), stage, from, own_counts, to), stream_);
      } else {
        host::run_stage(one.op, one.from, stage, from, static_cast<const std::int64_t*>(own_counts),
                        to);
      }
      from = to;
    }
    scratch_ = scratch;
  }

  // In stages: each takes kPartLength elements together, the last what is left of each split.
  void reduce(const Instruction& one, const Prepared& prepared) {
    if (!prepared.stages.empty()) return reduce_in_tree(one, prepared);
    const std::uint64_t splits = splits_of(one);
    const bool places = fusion::is_arg_reduction(one.op);
    Along along{.what = along_code(one.op), .from = values_[one.inputs[0]]};
    along.rows = rows_of(one, rows_);
    along.length = length_of(one);
    if (!prepared.kernel) {
      along.part = (along.length + splits - 1) / splits;
      return host::along(one.op, one.from, one.to, along.from, values_[one.output], along.rows,
                         along.length, along.part, splits);
    }
    std::byte* const scratch = scratch_;
    while (along.length > std::max(kLongestPart, kPartLength * splits)) {
      along.part = kPartLength;
      along.parts = parts_of(along.length);
      const std::uint64_t results = along.rows * along.parts;
      along.to = take_scratch(results);
      along.to_places = places ? take_scratch(results) : nullptr;
      launch_along(backend_, *prepared.kernel, along, stream_);
      along.from = along.to;
      along.places = along.to_places;
      along.length = along.parts;
    }
    along.part = (along.length + splits - 1) / splits;
    along.parts = splits;
    along.to = places ? nullptr : values_[one.output];
    along.to_places = places ? values_[one.output] : nullptr;
    launch_along(backend_, *prepared.kernel, along, stream_);
    scratch_ = scratch;
  }

  // Long rows in three steps: what each part comes to, the running results of that, and those of
  // each part.
  void scan(const Instruction& one, const Prepared& prepared, const void* from, void* to,
            std::uint64_t length) {
    const std::uint64_t rows = rows_of(one, rows_);
    Along along{.what = along_code(one.op),
                .from = from,
                .to = to,
                .rows = rows,
                .length = length,
                .part = length};
    if (host::runs_in_blocks(one.op, one.from)) return scan_blocks(one, prepared, along);
    if (!prepared.kernel) {
      return host::along(one.op, one.from, one.to, from, to, rows, length, length, 1);
    }
    if (length > kLongestPart) {
      along.part = kPartLength;
      along.parts = parts_of(length);
      void* const sums = take_scratch(rows * along.parts);
      void* const running = take_scratch(rows * along.parts);
      Along parts = along;
      parts.what = along_code(reduction_of(one.op, one.from));
      parts.to = sums;
      launch_along(backend_, *prepared.kernel, parts, stream_);
      scan(one, prepared, sums, running, along.parts);
      along.before = running;
    }
    launch_along(backend_, *prepared.kernel, along, stream_);
  }

  // In the order of numerics.md, as the fused kernel does: blocks are added up one after the other.
  void scan_blocks(const Instruction& one, const Prepared& prepared, Along along) {
    if (!prepared.kernel) {
      return host::run_in_blocks(one.op, one.from, along.from, along.to, along.rows, along.length);
    }
    along.what = along_code(one.op, true);
    along.part = host::kRunningBlock;
    along.parts = (along.length + along.part - 1) / along.part;
    if (along.parts == 0) return;
    if (along.parts > 1) {
      Along blocks = along;
      blocks.to = nullptr;
      blocks.to_places = take_scratch(along.rows * along.parts);
      launch_along(backend_, *prepared.kernel, blocks, stream_);
      void* const running = take_scratch(along.rows * along.parts);
      launch_along(backend_, *prepared.kernel,
                   {.what = along_code(one.op),
                    .from = blocks.to_places,
                    .to = running,
                    .rows = along.rows,
                    .length = along.parts,
                    .part = along.parts},
                   stream_);
      along.before = running;
    }
    launch_along(backend_, *prepared.kernel, along, stream_);
  }

  jit::Backend& backend_;
  const Stream& stream_;
  const std::string_view function_;
  const KernelSpec& spec_;
  const Unfused unfused_;
  std::vector<Prepared> prepared_;  ///< of each instruction
  std::int64_t block_ = 0;          ///< rows that are taken at a time
  std::int64_t first_ = 0;
  std::int64_t rows_ = 0;
  std::vector<std::byte*> slots_;
  std::vector<void*> values_;  ///< of each register
  std::byte* scratch_ = nullptr;
};

}  // namespace

std::optional<GeneralKernel> general_kernel_of(const Instruction& instruction, Accuracy accuracy) {
  switch (instruction.kind) {
    case Operation::convert:
      return GeneralKernel{GeneralKernel::Kind::convert, instruction.from, Op::input, false};
    case Operation::reduce:
    case Operation::scan:
      return GeneralKernel{GeneralKernel::Kind::along, instruction.from, Op::input, false};
    case Operation::map: return general_map(instruction.op, instruction.from, accuracy);
    default: return GeneralKernel();
  }
}

void run_unfused(jit::Backend& backend, const Stream& stream, std::string_view function,
                 std::span<const UnfusedCall> kernels) {
  std::vector<UnfusedRun> runs;
  for (const UnfusedCall& call : kernels) {
    runs.emplace_back(backend, stream, function, call);
    if (runs.back().is_empty()) runs.pop_back();
  }
  if (runs.empty()) return;
  const Temporaries::Lease memory = Temporaries::of(stream.device).lease(backend, stream, function);
  for (UnfusedRun& run : runs) run.plan(memory.bytes);
  for (UnfusedRun& run : runs) run.run(memory.data);
}

}  // namespace kiln
