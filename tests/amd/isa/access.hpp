// What memory instructions have in common: the bytes that a lane means, registers filled from them,
// atomics, and the checks of waits and races. memory.cpp and lds.cpp are the instructions.
#pragma once

#include <bit>
#include <cstdint>
#include <deque>
#include <span>
#include <string_view>

#include "tests/amd/isa/wave.hpp"

namespace kiln::amd {

using u8 = std::uint8_t;
using u32 = std::uint32_t;
using i32 = std::int32_t;
using u64 = std::uint64_t;
using i64 = std::int64_t;

/// Where bytes are, and which of them somebody has written (null: all).
struct Place {
  u8* data = nullptr;
  u8* written = nullptr;
};

/// What is in memory, and ones in the bits that nobody has written.
struct Loaded {
  std::array<u32, 4> words{};
  std::array<u32, 4> unset{};
};

/// Waits until at most that many of a counter's instructions are left, if that says which.
void finish(Wave& wave, std::deque<Outstanding>& queue, std::size_t most);

/// Puts an instruction that fills so many registers, or none, behind those that are waited for.
void issue(Wave& wave, Counter counter, const Operand* filled, u32 registers, bool is_lds_write);

/// The check for races of one access of a lane. `same` are the bytes that are there, `data` those
/// that are stored.
void touch_bytes(Wave& wave, u64 address, u32 bytes, bool writes, bool atomic, int lane,
                 bool in_lds, const u8* same, const u8* data);

Loaded load(const Place& place, u32 bytes);
/// What was loaded goes into registers from `index` on.
void fill_registers(Wave& wave, const Shape& shape, int index, int lane, Loaded loaded);
/// The bytes that a lane stores; the result has ones for those of which a bit is unwritten.
u32 data_of(const Wave& wave, const Shape& shape, int index, int lane, u8* to);
void store_bytes(Wave& wave, const Place& place, u64 address, u32 bytes, int lane, bool in_lds,
                 const u8* data);
/// An atomic: data in the registers from `data` on, compared with those from `compare` on; the old
/// value goes to the first operand if it returns one.
void modify(Wave& wave, const Operation& op, const Place& place, int lane, int data, int compare);

/// The access of one lane to LDS at that address, as `shape` says.
void load_from_lds(Wave& wave, const Shape& shape, u32 address, int index, int lane);
void store_in_lds(Wave& wave, const Shape& shape, u32 address, int index, int lane);
void modify_in_lds(Wave& wave, const Operation& op, u32 address, int lane, int data, int compare);

/// The active lanes in which some register of the operand is unwritten.
u64 unset_lanes(const Wave& wave, const Operand& operand);

template <class F>
void each_lane(u64 mask, F function) {
  for (; mask != 0; mask &= mask - 1) function(std::countr_zero(mask));
}

// ---- Mnemonics

bool take(std::string_view& text, std::string_view prefix);
/// "dwordx4", "d16_hi_b16", "ubyte_d16_hi": what is moved.
bool read_shape(std::string_view text, Shape& shape);
bool read_atomic(std::string_view text, Shape& shape);
/// Whether the instruction has no other modifiers.
bool has_only(const Instruction& instruction, std::span<const std::string_view> known);

bool translate_lds(std::string_view name, const Instruction& instruction, Operation& op);

}  // namespace kiln::amd
