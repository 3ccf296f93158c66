// What a wave, its block and its launch consist of while they run, and instructions ready to run.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/amd/isa/dispatch.hpp"
#include "tests/amd/isa/instruction.hpp"

namespace kiln::amd {

inline constexpr int kLanes = 64;

/// A vector register: its lanes, and which halves of them hold nothing that anybody has written.
struct alignas(64) VectorRegister {
  std::array<std::uint32_t, kLanes> lane;
  std::uint64_t unset_low = ~std::uint64_t{0};   ///< a bit for each lane: bits 0 to 15
  std::uint64_t unset_high = ~std::uint64_t{0};  ///< bits 16 to 31
  std::uint64_t by_bits = 0;                     ///< lanes of which `unset` has the bits, too
  std::array<std::uint32_t, kLanes> unset;

  /// Of those lanes; the low and the high halves that are unwritten now.
  void mark(std::uint64_t lanes, std::uint64_t low, std::uint64_t high) {
    unset_low = (unset_low & ~lanes) | (low & lanes);
    unset_high = (unset_high & ~lanes) | (high & lanes);
    by_bits &= ~lanes;
  }
  /// Ones in the bits of the lane that are unwritten.
  std::uint32_t unset_in(std::size_t at) const {
    const std::uint64_t bit = std::uint64_t{1} << at;
    if ((by_bits & bit) != 0) return unset[at];
    return ((unset_low & bit) != 0 ? 0xffffU : 0U) | ((unset_high & bit) != 0 ? 0xffff0000U : 0U);
  }
  void mark_bits(std::size_t at, std::uint32_t bits) {
    const std::uint64_t bit = std::uint64_t{1} << at;
    mark(bit, (bits & 0xffff) != 0 ? bit : 0, (bits & 0xffff0000) != 0 ? bit : 0);
    if (bits == 0) return;
    by_bits |= bit;
    unset[at] = bits;
  }
  /// The lanes of which one of these bits is unwritten.
  std::uint64_t unset_lanes(std::uint32_t bits) const {
    std::uint64_t lanes =
        ((bits & 0xffff) != 0 ? unset_low : 0) | ((bits & 0xffff0000) != 0 ? unset_high : 0);
    for (std::uint64_t left = lanes & by_bits; left != 0; left &= left - 1) {
      const auto at = static_cast<std::size_t>(std::countr_zero(left));
      if ((unset[at] & bits) == 0) lanes &= ~(std::uint64_t{1} << at);
    }
    return lanes;
  }
};

/// Which generation of the ISA, as far as its generations differ: 9, 10, 11, 12.
struct Isa {
  int major = 9;
  bool has_accumulators = false;  ///< gfx90a, gfx942, gfx950
  bool has_ocp_fp8 = false;       ///< else FNUZ
  bool packs_ids = false;         ///< work-item ids in one register
  bool has_ttmp_ids = false;      ///< block ids in TTMPs
};
Isa isa_of(std::string_view target);

/// The counters that s_waitcnt and its kin wait for. gfx9: vm and lgkm; gfx10 and gfx11 have
/// stores apart; gfx12 has all of them. Memory instructions count by what they are, waits of older
/// targets wait for several.
enum class Counter : std::uint8_t { load, store, lds, scalar, exports };
inline constexpr std::size_t kCounters = 5;

/// A memory instruction that has been issued and not been waited for.
struct Outstanding {
  std::uint16_t index = 0;  ///< the first register that it fills
  std::uint8_t count = 0;
  std::int8_t half = -1;  ///< as in Shape
  bool is_vector = true;
  bool is_lds_write = false;
};

/// What an atomic does with the old value.
enum class Atomic : std::uint8_t {
  none,
  swap,
  compare_swap,
  add,
  sub,
  min_signed,
  min_unsigned,
  max_signed,
  max_unsigned,
  bit_and,
  bit_or,
  bit_xor,
  increment,
  decrement,
  add_float,
  min_float,
  max_float,
  add_halves
};

/// What a memory instruction moves.
struct Shape {
  std::uint8_t bytes = 4;  ///< of a lane, at one address
  bool is_signed = false;
  std::int8_t half = -1;       ///< 0 and 1: that half of the register, the other one is kept
  std::uint8_t addresses = 1;  ///< 2 for the LDS instructions of two addresses
  std::array<std::uint32_t, 2> offset{};  ///< of these
  Atomic atomic = Atomic::none;
  bool is_store = false;
};

struct VectorEntry;
struct Wave;
struct Block;
struct Launch;
struct Operation;

using Execute = void (*)(Wave&, const Operation&);

/// An instruction ready to run.
struct Operation {
  Execute execute = nullptr;
  const Instruction* instruction = nullptr;
  const VectorEntry* entry = nullptr;  ///< of a vector instruction (lanewise.hpp)
  std::vector<Operand> operands;       ///< destinations first
  std::uint64_t address = 0;
  Unit unit = Unit::other;
  std::uint8_t first_source = 1;
  // What the handlers look at instead of the text.
  std::uint32_t variant = 0;  ///< the handler's own
  std::int64_t offset = 0;
  Shape shape;
  std::uint32_t next = 0;      ///< index of the instruction after it
  std::uint32_t target = 0;    ///< index of a branch's target
  bool reads_doubles = false;  ///< 32-bit literals are the upper half of what they mean
  bool clamp = false;
  bool zeroes_high = false;    ///< 16-bit result that clears the other half
  bool returns = false;        ///< an atomic's old value
  float scale = 1;             ///< output modifier
  std::uint8_t select = 0;     ///< op_sel, a bit for each source, then the destination
  std::uint8_t select_hi = 7;  ///< op_sel_hi
  std::uint8_t negate_lo = 0;
  std::uint8_t negate_hi = 0;
  // SDWA: 0 to 3 a byte, 4 and 5 a word, 6 all.
  bool is_sdwa = false;
  std::array<std::uint8_t, 2> source_select{6, 6};
  std::uint8_t destination_select = 6;
  std::uint8_t unused = 0;  ///< 0 pad, 1 sign-extend, 2 preserve
  // DPP: for each lane the lane that it reads, or -1.
  bool is_dpp = false;
  bool bound_ctrl = false;
  bool fetch_inactive = false;
  std::array<std::int8_t, kLanes> from{};
  std::uint64_t dpp_rows = ~std::uint64_t{0};  ///< lanes in the rows and banks that are enabled
  /// The other instruction of a pair (VOPD).
  std::unique_ptr<Operation> paired;
};

struct Program {
  std::deque<Instruction> instructions;
  std::vector<Operation> operations;
  std::unordered_map<std::uint64_t, std::uint32_t> at_address;
  Isa isa;
  std::uint32_t entry = 0;
};

/// A dword of LDS or device memory as the check for races remembers it, or a byte of it where not
/// all of the dword is accessed at once.
struct Touched {
  std::uint32_t writer = 0;  ///< wave plus one
  std::uint32_t reader = 0;  ///< wave plus one; the last one of those that differ from the writer
  std::uint32_t writer_epoch = 0;
  std::uint32_t reader_epoch = 0;
  std::uint32_t reader_block = 0;
  std::uint32_t writer_block = 0;
  std::uint8_t written_bytes = 0;
  std::uint8_t read_bytes = 0;
  std::uint32_t stamp = 0;    ///< of the instruction that wrote
  std::uint32_t readers = 0;  ///< a bit for each wave of the reader's block
  bool atomic = false;
  bool in_place = false;      ///< who wrote it had loaded it
  bool many_readers = false;  ///< of several waves, in the reader's epoch
  std::uint32_t parts = 0;    ///< not 0: which records of bytes replace this one, from 1
};
using TouchedBytes = std::deque<std::array<Touched, 4>>;

struct Launch {
  const Dispatch* dispatch = nullptr;
  const Memory* memory = nullptr;
  const Options* options = nullptr;
  const Kernel* kernel = nullptr;
  const Program* program = nullptr;
  std::uint64_t code_base = 0;  ///< host address of address 0 of the code object
  /// What kernels may read besides the caller's memory: code, arguments, the dispatch packet.
  std::vector<Allocation> own;
  std::unordered_map<std::uint64_t, std::vector<Touched>> touched;  ///< by address / kTouchedPage
  TouchedBytes touched_bytes;
  Trace trace;
  std::uint32_t stamp = 0;  ///< of the memory instruction that runs
  const Allocation* last = nullptr;
  std::uint64_t last_page = 0;
  std::vector<Touched>* last_touched = nullptr;

  /// The allocation that holds all of the bytes, or null.
  const Allocation* find(std::uint64_t address, std::uint64_t bytes);
};

struct Block {
  Launch* launch = nullptr;
  std::array<std::uint32_t, 3> id{};
  std::uint32_t number = 0;  ///< from 1
  std::vector<std::uint8_t> lds;
  std::vector<std::uint8_t> lds_written;
  std::vector<Touched> lds_touched;
  TouchedBytes lds_touched_bytes;
  std::uint32_t epoch = 0;  ///< barriers passed
};

struct Wave {
  Block* block = nullptr;
  Launch* launch = nullptr;
  std::uint32_t number = 0;  ///< in its block
  int lanes = kLanes;
  std::uint32_t pc = 0;
  std::uint64_t exec = 0;
  std::array<std::uint32_t, kScalars> scalar{};
  std::array<std::uint32_t, kScalars> scalar_unset{};  ///< a bit for each bit
  bool scc = false;
  bool scc_unset = true;
  bool ended = false;
  bool at_barrier = false;
  bool signalled = false;
  std::vector<VectorRegister> vector;
  std::vector<std::uint8_t> scratch;  ///< of lane 0, then of lane 1...
  std::vector<std::uint8_t> scratch_written;
  std::array<std::deque<Outstanding>, kCounters> outstanding;
  std::vector<std::uint8_t> pending_vector;  ///< loads that have yet to fill the register
  std::array<std::uint8_t, kScalars> pending_scalar{};
  std::uint32_t pending = 0;
  std::uint64_t executed = 0;  ///< instructions
  const Operation* current = nullptr;

  std::uint64_t all() const { return lanes == 64 ? ~std::uint64_t{0} : 0xffffffff; }
  std::uint64_t pair(int index) const {
    return scalar[static_cast<std::size_t>(index)] |
           std::uint64_t{scalar[static_cast<std::size_t>(index) + 1]} << 32;
  }
  /// A mask of lanes: two registers, or one in waves of 32.
  std::uint64_t mask(int index) const {
    return lanes == 64 ? pair(index) : scalar[static_cast<std::size_t>(index)];
  }
  std::uint64_t mask_unset(int index) const {
    const auto at = static_cast<std::size_t>(index);
    return lanes == 64 ? scalar_unset[at] | std::uint64_t{scalar_unset[at + 1]} << 32
                       : scalar_unset[at];
  }
  void set_mask(int index, std::uint64_t value, std::uint64_t unset);
  void set_scalar(int index, std::uint32_t value, std::uint32_t unset = 0) {
    scalar[static_cast<std::size_t>(index)] = value;
    scalar_unset[static_cast<std::size_t>(index)] = unset;
    if (index >= kExec) exec_changed();
  }
  void exec_changed();
};

/// What caches and schedulers are told.
inline void do_nothing(Wave&, const Operation&) {}

/// Throws a Fault at the wave's current instruction.
[[noreturn]] void fault(const Wave& wave, const std::string& what, int lane = -1);

/// Makes the program of a kernel from its listing. Throws Fault for what it does not know.
std::unique_ptr<Program> translate(const Kernel& kernel, std::string_view listing);

/// Throws Fault if a vector instruction stands between the head of a block where control flow joins
/// and the instruction that restores EXEC there.
void refuse_early_vectors(const Kernel& kernel, const Program& program);

/// Each sets what `operation` needs to run, or gives false if the mnemonic is none of its own.
bool translate_vector(const Instruction& instruction, const Isa& isa, int lanes,
                      Operation& operation);
bool translate_scalar(const Instruction& instruction, const Isa& isa, int lanes,
                      Operation& operation);
bool translate_memory(const Instruction& instruction, const Isa& isa, int lanes,
                      Operation& operation);

/// The scalar instructions that are not made of vector instructions' functions: the mnemonics of
/// each, which targets call differently.
std::vector<std::vector<std::string>> scalar_names();

/// Runs until `wave` has ended, is at a barrier or has executed that many instructions.
void run_wave(Wave& wave, std::uint32_t instructions);

/// The address that stands for scratch memory in the resource of buffer instructions.
inline constexpr std::uint64_t kScratchBase = 0x7c0000000000;

inline int lowest_lane(std::uint64_t mask) { return mask == 0 ? 0 : std::countr_zero(mask); }

}  // namespace kiln::amd
