// A launch: kernels made ready, registers filled in, waves in turns, barriers.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <random>

#include "tests/amd/isa/code_object.hpp"
#include "tests/amd/isa/lanes.hpp"

namespace kiln::amd {
namespace {

// What gets in where an instruction is not known: it is one's fault who comes there.
void unknown(Wave& wave, const Operation&) { fault(wave, "the instruction is not known"); }

void nowhere(Wave& wave, const Operation&) { fault(wave, "a branch to where no instruction is"); }

void run_pair(Wave& wave, const Operation& op) {
  // Both read before either writes: the first one's result waits for the second one.
  const auto first = op.operands[0].index;
  const VectorRegister old = wave.vector[first];
  op.execute(wave, op);
  const VectorRegister result = wave.vector[first];
  wave.vector[first] = old;
  op.paired->execute(wave, *op.paired);
  wave.vector[first] = result;
}

bool translate_one(const Instruction& instruction, const Isa& isa, int lanes, Operation& op) {
  op.instruction = &instruction;
  op.address = instruction.address;
  if (instruction.mnemonic.empty()) return false;
  if (translate_scalar(instruction, isa, lanes, op)) return true;
  if (instruction.mnemonic.starts_with("v_")) return translate_vector(instruction, isa, lanes, op);
  return translate_memory(instruction, isa, lanes, op);
}

// A register beyond those that the kernel has declared is none.
bool fits(const Kernel& kernel, const Operation& op) {
  const auto last_scalar = [&](const Operand& operand) {
    return operand.index >= kVcc || operand.index + operand.count <= std::min(kernel.sgprs, 106U);
  };
  return std::ranges::all_of(op.operands, [&](const Operand& operand) {
    if (operand.is_vector()) return operand.index + operand.count <= kernel.vgprs;
    return !operand.is_scalar() || last_scalar(operand);
  });
}

void beyond(Wave& wave, const Operation&) {
  fault(wave, fmt::format("a register beyond the {} vector and {} scalar ones that are declared",
                          wave.launch->kernel->vgprs, wave.launch->kernel->sgprs));
}

Operation unknown_operation(const Instruction& instruction) {
  Operation op;
  op.instruction = &instruction;
  op.address = instruction.address;
  op.execute = &unknown;
  return op;
}

// Programs are kept with their code object, which outlives every launch.
const Program& program_of(const Kernel& kernel) {
  return dynamic_cast<const LoadedCode&>(*kernel.object).program(kernel);
}

}  // namespace

Isa isa_of(std::string_view target) {
  const std::string_view name = target.substr(3, target.find(':') - 3);
  Isa isa;
  isa.major = name.size() > 3 ? std::stoi(std::string(name.substr(0, 2))) : 9;
  isa.has_accumulators =
      name == "90a" || name == "940" || name == "941" || name == "942" || name == "950";
  isa.has_ocp_fp8 = isa.major >= 12 || name == "950";
  isa.packs_ids = isa.has_accumulators || isa.major >= 11;
  isa.has_ttmp_ids = isa.major >= 12;
  return isa;
}

std::unique_ptr<Program> translate(const Kernel& kernel, std::string_view listing) {
  auto program = std::make_unique<Program>();
  program->isa = isa_of(kernel.target);
  for (Instruction& instruction : parse_listing(listing, kernel.accumulators)) {
    program->instructions.push_back(std::move(instruction));
  }
  const int lanes = static_cast<int>(kernel.wave_size);
  for (const Instruction& instruction : program->instructions) {
    Operation op;
    bool known = translate_one(instruction, program->isa, lanes, op);
    if (known && !instruction.paired.empty()) {
      op.paired = std::make_unique<Operation>();
      known = translate_one(instruction.paired[0], program->isa, lanes, *op.paired) &&
              fits(kernel, *op.paired);
    }
    if (!known) op = unknown_operation(instruction);
    if (!fits(kernel, op)) op.execute = &beyond;
    const auto index = static_cast<std::uint32_t>(program->operations.size());
    op.next = index + 1;
    program->at_address[instruction.address] = index;
    program->operations.push_back(std::move(op));
  }
  for (Operation& op : program->operations) {
    const std::string& name = op.instruction->mnemonic;
    if (!name.starts_with("s_branch") && !name.starts_with("s_cbranch") &&
        !name.starts_with("s_call")) {
      continue;
    }
    const auto found = program->at_address.find(static_cast<std::uint64_t>(op.offset));
    if (found == program->at_address.end()) {
      op.execute = &nowhere;
    } else {
      op.target = found->second;
    }
  }
  const auto entry = program->at_address.find(kernel.entry);
  if (entry == program->at_address.end()) {
    throw Fault(fmt::format("{}: no instruction at its entry {:#x}", kernel.name, kernel.entry));
  }
  program->entry = entry->second;
  refuse_early_vectors(kernel, *program);
  return program;
}

Coverage coverage_of(const Kernel& kernel) {
  Coverage coverage;
  for (const Operation& op : program_of(kernel).operations) {
    if (!op.instruction->mnemonic.empty()) coverage.mnemonics.insert(op.instruction->mnemonic);
    if (op.execute == &unknown || op.execute == &nowhere || op.execute == &beyond) {
      coverage.unknown.push_back(op.instruction->text);
    }
  }
  return coverage;
}

void Wave::exec_changed() { exec = mask(kExec); }

void Wave::set_mask(int index, std::uint64_t value, std::uint64_t unset) {
  const auto at = static_cast<std::size_t>(index);
  scalar[at] = static_cast<std::uint32_t>(value);
  scalar_unset[at] = static_cast<std::uint32_t>(unset);
  if (lanes == 64) {
    scalar[at + 1] = static_cast<std::uint32_t>(value >> 32);
    scalar_unset[at + 1] = static_cast<std::uint32_t>(unset >> 32);
  }
  if (index >= kExec) exec_changed();
}

const Allocation* Launch::find(std::uint64_t address, std::uint64_t bytes) {
  const auto holds = [&](const Allocation& allocation) {
    return address >= allocation.begin && bytes <= allocation.bytes &&
           address - allocation.begin <= allocation.bytes - bytes;
  };
  if (last != nullptr && holds(*last)) return last;
  for (const Allocation& allocation : own) {
    if (holds(allocation)) return last = &allocation;
  }
  const Allocation* found = memory->find(address);
  if (found == nullptr || !holds(*found)) return nullptr;
  return last = found;
}

void fault(const Wave& wave, const std::string& what, int lane) {
  const Operation* op = wave.current;
  const Block& block = *wave.block;
  throw Fault(
      fmt::format("{} ({}): {} at {:#x}: {} (block {},{},{}, wave {}{})", wave.launch->kernel->name,
                  wave.launch->kernel->target, op == nullptr ? "?" : op->instruction->text,
                  op == nullptr ? 0 : op->address, what, block.id[0], block.id[1], block.id[2],
                  wave.number, lane < 0 ? "" : fmt::format(", lane {}", lane)));
}

namespace {

// Loads of one kind return in order: one may fill what another has yet to fill. Those of gfx12 from
// memory write their registers in any order, but for the other half of one.
bool fills_after(const Wave& wave, const Operation& op, std::uint32_t index) {
  const bool loads = (op.unit == Unit::memory || op.unit == Unit::lds) && !op.shape.is_store &&
                     op.shape.atomic == Atomic::none;
  if (!loads || op.instruction->mnemonic.starts_with("flat_")) return false;
  const auto counter = op.unit == Unit::memory ? Counter::load : Counter::lds;
  const bool halves_alone = op.unit == Unit::memory && wave.launch->program->isa.major >= 12;
  const auto in_order = std::ranges::count_if(
      wave.outstanding[static_cast<std::size_t>(counter)], [&](const Outstanding& entry) {
        return entry.is_vector && index >= entry.index && index - entry.index < entry.count &&
               (!halves_alone || entry.half == 1 - op.shape.half);
      });
  return wave.pending_vector[index] == in_order;
}

// Registers are waited for whole: a load of one half may change the other half while it is on its
// way (gfx11, gfx12).
void refuse_pending(const Wave& wave, const Operation& op) {
  for (const Operand& operand : op.operands) {
    for (std::uint32_t i = 0; i < operand.count; ++i) {
      const std::uint32_t index = operand.index + i;
      const bool pending = operand.is_vector()   ? wave.pending_vector[index] != 0
                           : operand.is_scalar() ? wave.pending_scalar[index] != 0
                                                 : false;
      const bool is_destination = &operand == op.operands.data();
      if (pending && !(is_destination && operand.is_vector() && fills_after(wave, op, index))) {
        fault(wave, fmt::format("{}{} is to be filled by a load that has not been waited for",
                                operand.is_vector() ? "v" : "s", index));
      }
    }
  }
}

}  // namespace

void run_wave(Wave& wave, std::uint32_t instructions) {
  Launch& launch = *wave.launch;
  const std::vector<Operation>& operations = launch.program->operations;
  if (wave.executed > launch.options->most_instructions) {
    fault(wave, fmt::format("the wave has executed {} instructions: a loop without an end",
                            wave.executed));
  }
  std::uint32_t executed = 0;
  for (; executed < instructions && !wave.ended && !wave.at_barrier; ++executed) {
    if (wave.pc >= operations.size()) fault(wave, "the wave runs off the end of the code");
    const Operation& op = operations[wave.pc];
    wave.current = &op;
    wave.pc = op.next;
    if (wave.pending != 0) {
      refuse_pending(wave, op);
      if (op.paired) refuse_pending(wave, *op.paired);
    }
    Trace::Count& count = launch.trace.units[static_cast<std::size_t>(op.unit)];
    ++count.instructions;
    if (op.unit != Unit::scalar && op.unit != Unit::other) {
      count.lanes += static_cast<std::uint64_t>(std::popcount(wave.exec));
    }
    if (op.paired) {
      run_pair(wave, op);
    } else {
      op.execute(wave, op);
    }
  }
  wave.executed += executed;
}

namespace {

constexpr std::uint16_t kPrivateBuffer = 1;
constexpr std::uint16_t kDispatchPointer = 2;
constexpr std::uint16_t kQueuePointer = 4;
constexpr std::uint16_t kArgumentPointer = 8;
constexpr std::uint16_t kDispatchId = 16;
constexpr std::uint16_t kFlatScratchPointer = 32;
constexpr std::uint16_t kPrivateSize = 64;

// What every wave of a launch starts from.
struct Start {
  std::vector<std::uint32_t> arguments;  ///< the argument segment
  std::array<std::uint32_t, 16> packet{};
};

void put(std::vector<std::uint32_t>& words, std::uint32_t offset, std::uint32_t bytes,
         std::uint64_t value) {
  std::memcpy(reinterpret_cast<char*>(words.data()) + offset, &value, bytes);
}

// hsa_kernel_dispatch_packet_t: sizes of blocks and of the grid in threads.
void make_packet(const Dispatch& dispatch, Start& start) {
  const auto& threads = dispatch.threads;
  start.packet[1] = threads[0] | threads[1] << 16;
  start.packet[2] = threads[2];
  for (std::size_t i = 0; i < 3; ++i) start.packet[3 + i] = dispatch.blocks[i] * threads[i];
  start.packet[6] = dispatch.kernel->scratch_bytes;
  start.packet[7] = dispatch.kernel->lds_bytes + dispatch.dynamic_lds;
}

void make_arguments(const Dispatch& dispatch, Start& start) {
  const Kernel& kernel = *dispatch.kernel;
  start.arguments.assign((kernel.segment_bytes + 3U) / 4 + 2, 0);
  if (dispatch.arguments.size() < kernel.argument_bytes) {
    throw Fault(fmt::format("{}: {} bytes of arguments were given, it takes {}", kernel.name,
                            dispatch.arguments.size(), kernel.argument_bytes));
  }
  std::memcpy(start.arguments.data(), dispatch.arguments.data(), kernel.argument_bytes);
  for (const KernelArgument& argument : kernel.arguments) {
    if (!argument.hidden()) continue;
    const std::size_t axis = argument.kind.ends_with("_x")   ? 0
                             : argument.kind.ends_with("_y") ? 1
                                                             : 2;
    std::uint64_t value = 0;
    if (argument.kind.starts_with("hidden_block_count")) {
      value = dispatch.blocks[axis];
    } else if (argument.kind.starts_with("hidden_group_size")) {
      value = dispatch.threads[axis];
    } else if (argument.kind == "hidden_grid_dims") {
      value = dispatch.blocks[2] * dispatch.threads[2] > 1   ? 3
              : dispatch.blocks[1] * dispatch.threads[1] > 1 ? 2
                                                             : 1;
    } else if (argument.kind == "hidden_dynamic_lds_size") {
      value = dispatch.dynamic_lds;
    }
    put(start.arguments, argument.offset, argument.bytes, value);
  }
}

void start_scalars(Wave& wave, const Start& start) {
  const Kernel& kernel = *wave.launch->kernel;
  const Isa& isa = wave.launch->program->isa;
  int next = 0;
  const auto word = [&](std::uint32_t value) { wave.set_scalar(next++, value); };
  const auto pair = [&](std::uint64_t value) {
    word(static_cast<std::uint32_t>(value));
    word(static_cast<std::uint32_t>(value >> 32));
  };
  if ((kernel.properties & kPrivateBuffer) != 0) {
    pair(kScratchBase);
    pair(0);
  }
  if ((kernel.properties & kDispatchPointer) != 0) {
    pair(reinterpret_cast<std::uint64_t>(start.packet.data()));
  }
  if ((kernel.properties & kQueuePointer) != 0) pair(0);
  if ((kernel.properties & kArgumentPointer) != 0) {
    pair(reinterpret_cast<std::uint64_t>(start.arguments.data()));
  }
  if ((kernel.properties & kDispatchId) != 0) pair(0);
  if ((kernel.properties & kFlatScratchPointer) != 0) pair(0);
  if ((kernel.properties & kPrivateSize) != 0) word(kernel.scratch_bytes);
  const std::uint32_t preloaded = kernel.preload & 0x7f;
  for (std::uint32_t i = 0; i < preloaded; ++i) {
    word(start.arguments.at((kernel.preload >> 7) + i));
  }
  next = static_cast<int>(kernel.resources2 >> 1 & 0x1f);
  const auto& id = wave.block->id;
  if (isa.has_ttmp_ids) {
    wave.set_scalar(kTtmp + 9, id[0]);
    wave.set_scalar(kTtmp + 7, (id[1] & 0xffff) | id[2] << 16);
  } else {
    for (std::size_t axis = 0; axis < 3; ++axis) {
      if ((kernel.resources2 >> (7 + axis) & 1) != 0) word(id[axis]);
    }
    if ((kernel.resources2 >> 10 & 1) != 0) word(0);
    // The offset of the wave's scratch memory.
    if ((kernel.resources2 & 1) != 0) word(0);
  }
}

void start_vectors(Wave& wave, const std::array<std::uint32_t, 3>& threads) {
  const std::uint32_t first = wave.number * static_cast<std::uint32_t>(wave.lanes);
  const std::uint32_t ids = wave.launch->kernel->resources2 >> 11 & 3;
  const std::uint64_t all = wave.all();
  for (std::uint32_t lane = 0; lane < static_cast<std::uint32_t>(wave.lanes); ++lane) {
    const std::uint32_t thread = first + lane;
    const std::uint32_t id[3] = {thread % threads[0], thread / threads[0] % threads[1],
                                 thread / threads[0] / threads[1]};
    if (wave.launch->program->isa.packs_ids) {
      wave.vector[0].lane[lane] = id[0] | id[1] << 10 | id[2] << 20;
      continue;
    }
    for (std::uint32_t axis = 0; axis <= std::min(ids, 2U) && axis < wave.vector.size(); ++axis) {
      wave.vector[axis].lane[lane] = id[axis];
    }
  }
  const std::uint32_t filled = wave.launch->program->isa.packs_ids ? 1 : std::min(ids, 2U) + 1;
  for (std::uint32_t i = 0; i < filled && i < wave.vector.size(); ++i) {
    wave.vector[i].mark(all, 0, 0);
  }
}

void start_wave(Wave& wave, const Start& start, const Dispatch& dispatch) {
  const Kernel& kernel = *dispatch.kernel;
  wave.lanes = static_cast<int>(kernel.wave_size);
  wave.pc = wave.launch->program->entry;
  wave.scalar.fill(0xdeadbeef);
  wave.scalar_unset.fill(~std::uint32_t{0});
  wave.vector.resize(kernel.vgprs);
  for (VectorRegister& reg : wave.vector) {
    reg.lane.fill(0xdeadbeef);
    reg.mark(~std::uint64_t{0}, ~std::uint64_t{0}, ~std::uint64_t{0});
  }
  wave.pending_vector.assign(kernel.vgprs, 0);
  const std::size_t scratch = std::size_t{kernel.scratch_bytes} * kernel.wave_size;
  wave.scratch.assign(scratch, 0xcd);
  wave.scratch_written.assign(scratch, 0);
  const std::uint64_t threads =
      std::uint64_t{dispatch.threads[0]} * dispatch.threads[1] * dispatch.threads[2];
  const std::uint64_t left = threads - std::uint64_t{wave.number} * kernel.wave_size;
  const std::uint64_t mask = left >= kernel.wave_size ? wave.all() : (std::uint64_t{1} << left) - 1;
  wave.set_mask(kExec, mask, 0);
  wave.scalar_unset[kExec + 1] = 0;
  wave.set_scalar(kPrivateBase, 0);
  wave.set_scalar(kPrivateBase + 1, static_cast<std::uint32_t>(kPrivateAperture >> 32));
  wave.set_scalar(kSharedBase, 0);
  wave.set_scalar(kSharedBase + 1, static_cast<std::uint32_t>(kSharedAperture >> 32));
  wave.scalar[kExec + 1] = static_cast<std::uint32_t>(wave.exec >> 32);
  start_scalars(wave, start);
  start_vectors(wave, dispatch.threads);
}

// Waves take turns of random lengths in a random order until all have ended.
void run_block(std::vector<Wave>& waves, Block& block, std::mt19937_64& random) {
  while (true) {
    std::vector<Wave*> ready;
    Wave* waiting = nullptr;
    bool all_ended = true;
    for (Wave& wave : waves) {
      if (wave.ended) continue;
      all_ended = false;
      if (wave.at_barrier) {
        waiting = &wave;
      } else {
        ready.push_back(&wave);
      }
    }
    if (all_ended) return;
    if (!ready.empty()) {
      Wave& wave = *ready[random() % ready.size()];
      const std::uint32_t turn =
          waves.size() == 1 ? 1U << 16 : 1 + static_cast<std::uint32_t>(random() % 200);
      run_wave(wave, turn);
      continue;
    }
    const auto ended = std::ranges::find(waves, true, &Wave::ended);
    if (ended != waves.end()) {
      fault(*waiting,
            fmt::format("wave {} has ended and never comes to this barrier", ended->number));
    }
    ++block.epoch;
    for (Wave& wave : waves) wave.at_barrier = wave.signalled = false;
  }
}

// A field of COMPUTE_PGM_RSRC1 and what is modelled of it. From 12 on there is one behaviour in
// place of DX10_CLAMP and IEEE_MODE, that which these bits ask for.
struct ModeField {
  const char* name;
  std::uint32_t shift;
  std::uint32_t width;
  std::uint32_t modelled;
  int before = 100;  ///< the generation that has it no more
};
constexpr ModeField kModes[] = {
    {"FLOAT_ROUND_MODE_32", 12, 2, 0},      // nearest even
    {"FLOAT_ROUND_MODE_16_64", 14, 2, 0},   // nearest even
    {"FLOAT_DENORM_MODE_32", 16, 2, 3},     // subnormals are kept
    {"FLOAT_DENORM_MODE_16_64", 18, 2, 3},  // subnormals are kept
    {"ENABLE_DX10_CLAMP", 21, 1, 1, 12},    // clamp makes 0 of NaN
    {"ENABLE_IEEE_MODE", 23, 1, 1, 12},     // minimum and maximum quieten signalling NaN
    {"FP16_OVFL", 26, 1, 0},                // halves overflow to infinity
};

void check_modes(const Kernel& kernel) {
  const int generation = isa_of(kernel.target).major;
  for (const ModeField& mode : kModes) {
    const std::uint32_t value = kernel.resources1 >> mode.shift & ((1U << mode.width) - 1);
    if (generation >= mode.before || value == mode.modelled) continue;
    throw Fault(fmt::format("{} ({}): its descriptor has {} = {}, of which {} alone is modelled",
                            kernel.name, kernel.target, mode.name, value, mode.modelled));
  }
}

void check_dispatch(const Dispatch& dispatch) {
  const Kernel& kernel = *dispatch.kernel;
  check_modes(kernel);
  std::uint64_t threads = 1;
  for (std::size_t i = 0; i < 3; ++i) {
    threads *= dispatch.threads[i];
    if (dispatch.blocks[i] == 0 || dispatch.threads[i] == 0) {
      throw Fault(fmt::format("{}: a launch of no blocks or no threads", kernel.name));
    }
  }
  if (threads > kernel.max_threads) {
    throw Fault(fmt::format("{}: a launch of {} threads in a block, of which it allows {}",
                            kernel.name, threads, kernel.max_threads));
  }
  constexpr std::uint32_t kMostLds = 160 * 1024;  // of gfx950; others have 64 KiB
  const std::uint32_t most =
      isa_of(kernel.target).has_ocp_fp8 && kernel.target.starts_with("gfx950") ? kMostLds
                                                                               : 64 * 1024;
  if (std::uint64_t{kernel.lds_bytes} + dispatch.dynamic_lds > most) {
    throw Fault(fmt::format("{}: a launch with {} bytes of LDS, of which there are {}", kernel.name,
                            std::uint64_t{kernel.lds_bytes} + dispatch.dynamic_lds, most));
  }
}

}  // namespace

Trace execute(const Dispatch& dispatch, const Memory& memory, const Options& options) {
  check_dispatch(dispatch);
  const Kernel& kernel = *dispatch.kernel;
  Launch launch;
  launch.dispatch = &dispatch;
  launch.memory = &memory;
  launch.options = &options;
  launch.kernel = &kernel;
  launch.program = &program_of(kernel);
  std::mt19937_64 random(options.seed);
  Start start;
  make_packet(dispatch, start);
  make_arguments(dispatch, start);
  const auto code = dynamic_cast<const LoadedCode&>(*kernel.object).memory();
  launch.code_base = reinterpret_cast<std::uint64_t>(code.data());
  launch.own = {
      {launch.code_base, code.size(), nullptr},
      {reinterpret_cast<std::uint64_t>(start.arguments.data()), start.arguments.size() * 4,
       nullptr},
      {reinterpret_cast<std::uint64_t>(start.packet.data()), sizeof start.packet, nullptr}};
  const std::uint64_t threads =
      std::uint64_t{dispatch.threads[0]} * dispatch.threads[1] * dispatch.threads[2];
  const auto waves_of_block =
      static_cast<std::uint32_t>((threads + kernel.wave_size - 1) / kernel.wave_size);
  const std::size_t lds = std::size_t{kernel.lds_bytes} + dispatch.dynamic_lds;
  Block block;
  block.launch = &launch;
  std::vector<Wave> waves(waves_of_block);
  for (std::uint32_t z = 0; z < dispatch.blocks[2]; ++z) {
    for (std::uint32_t y = 0; y < dispatch.blocks[1]; ++y) {
      for (std::uint32_t x = 0; x < dispatch.blocks[0]; ++x) {
        block.id = {x, y, z};
        ++block.number;
        block.epoch = 0;
        block.lds.assign(lds, 0xcd);
        block.lds_written.assign(lds, 0);
        block.lds_touched.assign(lds / 4 + 1, {});
        block.lds_touched_bytes.clear();
        for (std::uint32_t i = 0; i < waves_of_block; ++i) {
          Wave& wave = waves[i];
          std::vector<VectorRegister> registers = std::move(wave.vector);
          wave = Wave();
          wave.vector = std::move(registers);
          wave.block = &block;
          wave.launch = &launch;
          wave.number = i;
          start_wave(wave, start, dispatch);
        }
        run_block(waves, block, random);
        launch.trace.waves += waves_of_block;
      }
    }
  }
  return launch.trace;
}

}  // namespace kiln::amd
