// Memory instructions: device memory, LDS, scratch, scalar loads, and what moves data between lanes
// by way of LDS. What hardware would punish, or leave to chance, is a Fault.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tests/amd/isa/lanes.hpp"

namespace kiln::amd {
namespace {

using u8 = std::uint8_t;
using u32 = std::uint32_t;
using i32 = std::int32_t;
using u64 = std::uint64_t;
using i64 = std::int64_t;

constexpr u64 kTouchedPage = 4096;

// ---- Waits ----

void issue(Wave& wave, Counter counter, const Operand* filled, u32 registers, bool is_lds_write) {
  if (!wave.launch->options->check_waits) return;
  Outstanding entry;
  entry.is_lds_write = is_lds_write;
  if (filled != nullptr && (filled->is_vector() || filled->is_scalar())) {
    entry.index = filled->index;
    entry.count = static_cast<u8>(registers);
    entry.is_vector = filled->is_vector();
    for (u32 i = 0; i < registers; ++i) {
      u8& pending = entry.is_vector ? wave.pending_vector[entry.index + i]
                                    : wave.pending_scalar[entry.index + i];
      ++pending;
      ++wave.pending;
    }
  }
  wave.outstanding[static_cast<std::size_t>(counter)].push_back(entry);
}

// ---- Races ----

struct Who {
  u32 wave = 0;   ///< plus one
  u32 block = 0;  ///< from 1
  u32 epoch = 0;
  u32 stamp = 0;
};

Who who(const Wave& wave) {
  return {wave.number + 1, wave.block->number, wave.block->epoch, wave.launch->stamp};
}

bool concurrent(const Who& me, u32 block, u32 epoch) {
  return block != me.block || epoch == me.epoch;
}

// What is wrong with this access to some bytes of a dword, or nothing.
const char* touch(Touched& touched, const Who& me, u8 bytes, bool writes, bool atomic,
                  bool in_lds) {
  // A load cannot tell whether its source was an atomic one: it may meet atomics.
  const bool both_atomic = touched.atomic && (atomic || !writes);
  const bool by_me = touched.writer == me.wave && touched.writer_block == me.block;
  // A wave replaces what it has loaded itself. Lanes without a row of their own load somebody's, to
  // drop it, and may do so at any time.
  const u32 own_bit = u32{1} << (me.wave - 1) % 32;
  const bool in_place =
      !in_lds && touched.reader_block == me.block && (touched.readers & own_bit) != 0;
  if ((touched.written_bytes & bytes) != 0 && !by_me && !both_atomic &&
      (writes || !touched.in_place) && concurrent(me, touched.writer_block, touched.writer_epoch)) {
    return writes ? "a race: another wave has written it and no barrier is between"
                  : "a race: another wave writes it and no barrier is between";
  }
  const bool readers_concurrent =
      touched.read_bytes != 0 && concurrent(me, touched.reader_block, touched.reader_epoch);
  const bool read_by_me = touched.reader == me.wave && touched.reader_block == me.block;
  if (writes) {
    if (readers_concurrent && (touched.read_bytes & bytes) != 0 &&
        (touched.many_readers || !read_by_me) && !atomic && !in_place) {
      return "a race: another wave has read it and no barrier is between";
    }
    const bool adds = by_me && touched.writer_epoch == me.epoch;
    touched.written_bytes = static_cast<u8>(adds ? touched.written_bytes | bytes : bytes);
    touched.writer = me.wave;
    touched.writer_block = me.block;
    touched.writer_epoch = me.epoch;
    touched.stamp = me.stamp;
    touched.atomic = atomic;
    touched.in_place = in_place;
    return nullptr;
  }
  if (!readers_concurrent) {
    touched.read_bytes = 0;
    touched.many_readers = false;
  } else if (!read_by_me) {
    touched.many_readers = true;
  }
  touched.read_bytes = static_cast<u8>(touched.read_bytes | bytes);
  touched.readers = (touched.reader_block == me.block ? touched.readers : 0) | own_bit;
  // Readers of several blocks are concurrent with every other block.
  touched.reader_block =
      readers_concurrent && touched.reader_block != me.block ? ~u32{0} : me.block;
  touched.reader = me.wave;
  touched.reader_epoch = me.epoch;
  return nullptr;
}

std::array<Touched, 4>& bytes_of(Touched& touched, TouchedBytes& all) {
  if (touched.parts == 0) {
    auto& parts = all.emplace_back();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      parts[i] = touched;
      parts[i].written_bytes &= static_cast<u8>(1U << i);
      parts[i].read_bytes &= static_cast<u8>(1U << i);
    }
    touched.parts = static_cast<u32>(all.size());
  }
  return all[touched.parts - 1];
}

std::vector<Touched>& touched_page(Launch& launch, u64 address) {
  const u64 page = address / kTouchedPage;
  if (launch.last_touched == nullptr || launch.last_page != page) {
    auto& found = launch.touched[page];
    if (found.empty()) found.resize(kTouchedPage / 4);
    launch.last_touched = &found;
    launch.last_page = page;
  }
  return *launch.last_touched;
}

// ---- One lane's access ----

// Where bytes are, and which of them somebody has written (null: all).
struct Place {
  u8* data = nullptr;
  u8* written = nullptr;
};

void touch_bytes(Wave& wave, u64 address, u32 bytes, bool writes, bool atomic, int lane,
                 bool in_lds, const u8* same, const u8* data) {
  if (!wave.launch->options->check_races) return;
  const Who me = who(wave);
  for (u64 at = address; at < address + bytes;) {
    const u64 dword = at & ~u64{3};
    const u64 end = std::min(dword + 4, address + bytes);
    const auto mask = static_cast<u8>(((1U << (end - at)) - 1) << (at - dword));
    const auto check = [&](Touched& touched, u8 some, u64 from, u64 count) {
      if (writes && !atomic && touched.stamp == me.stamp && (touched.written_bytes & some) != 0 &&
          std::memcmp(same + (from - address), data + (from - address), count) != 0) {
        fault(wave, fmt::format("two lanes store different values at {:#x}", from), lane);
      }
      if (const char* race = touch(touched, me, some, writes, atomic, in_lds)) {
        fault(wave, fmt::format("{} ({} {:#x})", race, in_lds ? "LDS" : "memory", from), lane);
      }
    };
    Touched& touched = in_lds ? wave.block->lds_touched[dword / 4]
                              : touched_page(*wave.launch, dword)[dword % kTouchedPage / 4];
    if (mask == 0xf && touched.parts == 0) {
      check(touched, mask, at, 4);
    } else {
      auto& parts =
          bytes_of(touched, in_lds ? wave.block->lds_touched_bytes : wave.launch->touched_bytes);
      for (u64 byte = at; byte < end; ++byte) {
        check(parts[byte - dword], static_cast<u8>(1U << (byte - dword)), byte, 1);
      }
    }
    at = end;
  }
}

Place device_memory(Wave& wave, u64 address, u32 bytes, int lane) {
  const Allocation* allocation = wave.launch->find(address, bytes);
  if (allocation == nullptr) {
    fault(wave, fmt::format("{} bytes at {:#x} are in no allocation", bytes, address), lane);
  }
  u8* written = allocation->written == nullptr
                    ? nullptr
                    : allocation->written + (address - allocation->begin);
  return {reinterpret_cast<u8*>(address), written};
}

Place lds(Wave& wave, u64 address, u32 bytes, int lane) {
  Block& block = *wave.block;
  if (address + bytes > block.lds.size()) {
    fault(wave,
          fmt::format("{} bytes at {:#x} of LDS, of which the block has {} bytes", bytes, address,
                      block.lds.size()),
          lane);
  }
  // An access of 12 bytes is aligned as one of 16; two addresses are checked one by one.
  const u32 alignment = bytes == 12 ? 16 : bytes;
  if (address % alignment != 0) {
    fault(wave, fmt::format("{} bytes of LDS at {:#x}, which is misaligned", bytes, address), lane);
  }
  return {block.lds.data() + address, block.lds_written.data() + address};
}

// Bits of halves of each dword that nobody has written.
struct Loaded {
  std::array<u32, 4> words{};
  u8 unset_low = 0;  ///< a bit for each dword
  u8 unset_high = 0;
};

Loaded load(const Place& place, u32 bytes) {
  Loaded loaded;
  std::memcpy(loaded.words.data(), place.data, bytes);
  if (place.written == nullptr) return loaded;
  for (u32 i = 0; i < bytes; ++i) {
    if (place.written[i] != 0) continue;
    u8& unset = (i & 2) == 0 ? loaded.unset_low : loaded.unset_high;
    unset = static_cast<u8>(unset | 1U << (i / 4));
  }
  return loaded;
}

void set_register(Wave& wave, int index, int lane, u32 value, bool unset_low, bool unset_high) {
  VectorRegister& to = wave.vector[static_cast<std::size_t>(index)];
  const u64 bit = u64{1} << lane;
  to.lane[static_cast<std::size_t>(lane)] = value;
  to.mark(bit, unset_low ? bit : 0, unset_high ? bit : 0);
}

// What was loaded goes into registers from `index` on.
void fill_registers(Wave& wave, const Shape& shape, int index, int lane, Loaded loaded) {
  if (shape.bytes >= 4) {
    for (int i = 0; i < shape.bytes / 4; ++i) {
      set_register(wave, index + i, lane, loaded.words[static_cast<std::size_t>(i)],
                   (loaded.unset_low >> i & 1) != 0, (loaded.unset_high >> i & 1) != 0);
    }
    return;
  }
  u32 value = loaded.words[0];
  if (shape.is_signed) {
    value = shape.bytes == 1 ? static_cast<u32>(static_cast<std::int8_t>(value))
                             : static_cast<u32>(static_cast<std::int16_t>(value));
  }
  const bool unset = loaded.unset_low != 0;
  if (shape.half < 0) {
    set_register(wave, index, lane, value, unset, unset && shape.is_signed);
    return;
  }
  const VectorRegister& old = wave.vector[static_cast<std::size_t>(index)];
  const u32 kept = old.lane[static_cast<std::size_t>(lane)];
  const bool low_unset = (old.unset_low >> lane & 1) != 0;
  const bool high_unset = (old.unset_high >> lane & 1) != 0;
  if (shape.half == 0) {
    set_register(wave, index, lane, (kept & 0xffff0000) | (value & 0xffff), unset, high_unset);
  } else {
    set_register(wave, index, lane, (kept & 0xffff) | value << 16, low_unset, unset);
  }
}

// The bytes that a lane stores, and whether any of them is unwritten.
bool data_of(const Wave& wave, const Shape& shape, int index, int lane, u8* to) {
  bool unset = false;
  std::array<u32, 4> words{};
  const u32 registers = (shape.bytes + 3U) / 4;
  for (u32 i = 0; i < registers; ++i) {
    const VectorRegister& from = wave.vector[static_cast<std::size_t>(index) + i];
    words[i] = from.lane[static_cast<std::size_t>(lane)];
    const bool low = (from.unset_low >> lane & 1) != 0;
    const bool high = (from.unset_high >> lane & 1) != 0;
    if (shape.bytes >= 4) {
      unset = unset || low || high;
    } else {
      unset = shape.half == 1 ? high : low;
      if (shape.half == 1) words[i] >>= 16;
    }
  }
  std::memcpy(to, words.data(), shape.bytes);
  return unset;
}

template <class T>
T combined_integer(Atomic atomic, T old, T data, T compare) {
  using Signed = std::make_signed_t<T>;
  const auto a = static_cast<Signed>(old);
  const auto b = static_cast<Signed>(data);
  switch (atomic) {
    case Atomic::swap: return data;
    case Atomic::compare_swap: return old == compare ? data : old;
    case Atomic::add: return old + data;
    case Atomic::sub: return old - data;
    case Atomic::min_signed: return a < b ? old : data;
    case Atomic::max_signed: return a > b ? old : data;
    case Atomic::min_unsigned: return std::min(old, data);
    case Atomic::max_unsigned: return std::max(old, data);
    case Atomic::bit_and: return old & data;
    case Atomic::bit_or: return old | data;
    case Atomic::bit_xor: return old ^ data;
    case Atomic::increment: return old >= data ? 0 : old + 1;
    case Atomic::decrement: return old == 0 || old > data ? data : old - 1;
    default: return old;
  }
}

template <class F>
F combined_float(Atomic atomic, F old, F data) {
  switch (atomic) {
    case Atomic::add_float: return old + data;
    case Atomic::min_float: return std::fmin(old, data);
    default: return std::fmax(old, data);
  }
}

u64 combined(const Shape& shape, u64 old, u64 data, u64 compare) {
  const bool is_float = shape.atomic == Atomic::add_float || shape.atomic == Atomic::min_float ||
                        shape.atomic == Atomic::max_float;
  if (shape.atomic == Atomic::add_halves) {
    u64 result = 0;
    for (int shift = 0; shift < 32; shift += 16) {
      const float sum =
          half_to_float(old >> shift & 0xffff) + half_to_float(data >> shift & 0xffff);
      result |= u64{half_of(sum)} << shift;
    }
    return result;
  }
  if (shape.bytes == 8) {
    if (is_float) {
      return as_bits(combined_float(shape.atomic, as_double(old), as_double(data)));
    }
    return combined_integer<u64>(shape.atomic, old, data, compare);
  }
  const auto old32 = static_cast<u32>(old);
  const auto data32 = static_cast<u32>(data);
  if (is_float) return as_bits(combined_float(shape.atomic, as_float(old32), as_float(data32)));
  return combined_integer<u32>(shape.atomic, old32, data32, static_cast<u32>(compare));
}

// The old value of an atomic: data in the registers from `data` on, compared with those from
// `compare` on.
void modify(Wave& wave, const Operation& op, const Place& place, int lane, int data, int compare,
            const Operand* result) {
  const Shape& shape = op.shape;
  u64 value = 0;
  u64 expected = 0;
  std::array<u8, 16> bytes{};
  bool unset = data_of(wave, shape, data, lane, bytes.data());
  std::memcpy(&value, bytes.data(), shape.bytes);
  if (shape.atomic == Atomic::compare_swap) {
    unset = data_of(wave, shape, compare, lane, bytes.data()) || unset;
    std::memcpy(&expected, bytes.data(), shape.bytes);
  }
  if (unset) fault(wave, "an atomic with a register that nobody has written", lane);
  const Loaded loaded = load(place, shape.bytes);
  if (loaded.unset_low != 0 || loaded.unset_high != 0) {
    fault(wave, "an atomic on memory that nobody has written", lane);
  }
  u64 old = 0;
  std::memcpy(&old, place.data, shape.bytes);
  const u64 now = combined(shape, old, value, expected);
  std::memcpy(place.data, &now, shape.bytes);
  if (result != nullptr) fill_registers(wave, shape, result->index, lane, loaded);
}

// ---- Device memory ----

u64 unset_lanes(const Wave& wave, const Operand& operand) {
  u64 unset = 0;
  for (u32 i = 0; i < operand.count; ++i) {
    const VectorRegister& from = wave.vector[operand.index + i];
    unset |= from.unset_low | from.unset_high;
  }
  return unset & wave.exec;
}

// The addresses of a global or flat instruction: registers, a scalar base, the offset.
void global_addresses(Wave& wave, const Operation& op, const Operand& address, const Operand* base,
                      std::array<u64, kLanes>& addresses) {
  u64 start = static_cast<u64>(op.offset);
  const bool has_base = base != nullptr && base->is_scalar();
  if (has_base) {
    if (wave.scalar_unset[base->index] != 0 || wave.scalar_unset[base->index + 1U] != 0) {
      fault(wave, "an address in scalar registers that nobody has written");
    }
    start += wave.pair(base->index);
  }
  if (const u64 unset = address.is_vector() ? unset_lanes(wave, address) : 0; unset != 0) {
    fault(wave, "an address that nobody has written", lowest_lane(unset));
  }
  const VectorRegister& low = wave.vector[address.index];
  if (has_base || address.count == 1) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) addresses[lane] = start + low.lane[lane];
    return;
  }
  const VectorRegister& high = wave.vector[address.index + 1U];
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    addresses[lane] = start + (low.lane[lane] | u64{high.lane[lane]} << 32);
  }
}

template <class F>
void each_lane(u64 mask, F function) {
  for (; mask != 0; mask &= mask - 1) function(std::countr_zero(mask));
}

// Whether all lanes of the wave read or write bytes one after the other in one allocation, of which
// all is written: the usual case, without a look at each lane.
bool is_dense(Wave& wave, const std::array<u64, kLanes>& addresses, u32 bytes) {
  if (wave.exec != wave.all() || wave.launch->options->check_races) return false;
  for (int lane = 1; lane < wave.lanes; ++lane) {
    if (addresses[static_cast<std::size_t>(lane)] !=
        addresses[0] + static_cast<u64>(lane) * bytes) {
      return false;
    }
  }
  return wave.launch->find(addresses[0], static_cast<u64>(wave.lanes) * bytes) != nullptr;
}

bool load_dense(Wave& wave, const Operation& op, const std::array<u64, kLanes>& addresses) {
  const Shape& shape = op.shape;
  if (shape.bytes < 4 || !is_dense(wave, addresses, shape.bytes)) return false;
  const u64 total = static_cast<u64>(wave.lanes) * shape.bytes;
  const Place place = device_memory(wave, addresses[0], static_cast<u32>(total), 0);
  if (place.written != nullptr && std::memchr(place.written, 0, total) != nullptr) return false;
  const u32 words = shape.bytes / 4U;
  for (u32 i = 0; i < words; ++i) {
    VectorRegister& to = wave.vector[op.operands[0].index + i];
    for (int lane = 0; lane < wave.lanes; ++lane) {
      std::memcpy(&to.lane[static_cast<std::size_t>(lane)],
                  place.data + (static_cast<u32>(lane) * words + i) * 4, 4);
    }
    to.mark(~u64{0}, 0, 0);
  }
  return true;
}

void count_bytes(Wave& wave, u32 bytes, bool writes) {
  const auto lanes = static_cast<u64>(std::popcount(wave.exec));
  (writes ? wave.launch->trace.bytes_written : wave.launch->trace.bytes_read) += lanes * bytes;
}

constexpr u32 kIsFlat = 1;

void issue_memory(Wave& wave, const Operation& op, const Operand* filled, u32 registers,
                  bool is_store) {
  const bool stores_apart = wave.launch->program->isa.major >= 10;
  issue(wave, is_store && stores_apart ? Counter::store : Counter::load, filled, registers, false);
  if ((op.variant & kIsFlat) != 0) issue(wave, Counter::lds, filled, registers, false);
}

Place scratch(Wave& wave, u64 offset, u32 bytes, int lane) {
  const u32 size = wave.launch->kernel->scratch_bytes;
  if (offset > size || bytes > size - offset) {
    fault(wave,
          fmt::format("{} bytes at {:#x} of scratch memory, of which a lane has {} bytes", bytes,
                      offset, size),
          lane);
  }
  const u64 at = static_cast<u64>(lane) * size + offset;
  return {wave.scratch.data() + at, wave.scratch_written.data() + at};
}

// Whether a flat instruction means scratch memory; `offset` is where in the lane's own.
bool is_in_scratch(const Operation& op, u64 address, u64& offset) {
  offset = address - kPrivateAperture;
  return (op.variant & kIsFlat) != 0 && offset < u64{1} << 32;
}

void store_in_scratch(Wave& wave, const Operation& op, int data, u64 offset, int lane) {
  const Place place = scratch(wave, offset, op.shape.bytes, lane);
  // Spilled registers may hold nothing in lanes that nobody looks at.
  std::array<u8, 16> bytes;
  const bool unset = data_of(wave, op.shape, data, lane, bytes.data());
  std::memcpy(place.data, bytes.data(), op.shape.bytes);
  std::memset(place.written, unset ? 0 : 1, op.shape.bytes);
}

void global_load(Wave& wave, const Operation& op) {
  const Operand& to = op.operands[0];
  const Shape& shape = op.shape;
  std::array<u64, kLanes> addresses;
  global_addresses(wave, op, op.operands[1], op.operands.size() > 2 ? &op.operands[2] : nullptr,
                   addresses);
  ++wave.launch->stamp;
  if (!load_dense(wave, op, addresses)) {
    each_lane(wave.exec, [&](int lane) {
      const u64 address = addresses[static_cast<std::size_t>(lane)];
      if (u64 offset = 0; is_in_scratch(op, address, offset)) {
        const Place own = scratch(wave, offset, shape.bytes, lane);
        fill_registers(wave, shape, to.index, lane, load(own, shape.bytes));
        return;
      }
      const Place place = device_memory(wave, address, shape.bytes, lane);
      touch_bytes(wave, address, shape.bytes, false, false, lane, false, nullptr, nullptr);
      fill_registers(wave, shape, to.index, lane, load(place, shape.bytes));
    });
  }
  count_bytes(wave, shape.bytes, false);
  issue_memory(wave, op, &to, (shape.bytes + 3U) / 4, false);
}

void store_bytes(Wave& wave, const Place& place, u64 address, u32 bytes, int lane, bool in_lds,
                 const u8* data) {
  touch_bytes(wave, address, bytes, true, false, lane, in_lds, place.data, data);
  std::memcpy(place.data, data, bytes);
  if (place.written != nullptr) std::memset(place.written, 1, bytes);
}

void global_store(Wave& wave, const Operation& op) {
  const Shape& shape = op.shape;
  std::array<u64, kLanes> addresses;
  global_addresses(wave, op, op.operands[0], op.operands.size() > 2 ? &op.operands[2] : nullptr,
                   addresses);
  ++wave.launch->stamp;
  each_lane(wave.exec, [&](int lane) {
    const u64 address = addresses[static_cast<std::size_t>(lane)];
    if (u64 offset = 0; is_in_scratch(op, address, offset)) {
      store_in_scratch(wave, op, op.operands[1].index, offset, lane);
      return;
    }
    const Place place = device_memory(wave, address, shape.bytes, lane);
    std::array<u8, 16> data;
    if (data_of(wave, shape, op.operands[1].index, lane, data.data())) {
      fault(wave, "a store of a register that nobody has written", lane);
    }
    store_bytes(wave, place, address, shape.bytes, lane, false, data.data());
  });
  count_bytes(wave, shape.bytes, true);
  issue_memory(wave, op, nullptr, 0, true);
}

void refuse_misaligned(Wave& wave, u64 address, u32 bytes, int lane) {
  if (address % bytes != 0) {
    fault(wave, fmt::format("an atomic of {} bytes at {:#x}, which is misaligned", bytes, address),
          lane);
  }
}

void global_atomic(Wave& wave, const Operation& op) {
  const Shape& shape = op.shape;
  const std::size_t at = op.returns ? 1 : 0;
  const Operand& data = op.operands[at + 1];
  std::array<u64, kLanes> addresses;
  global_addresses(wave, op, op.operands[at],
                   op.operands.size() > at + 2 ? &op.operands[at + 2] : nullptr, addresses);
  ++wave.launch->stamp;
  each_lane(wave.exec, [&](int lane) {
    const u64 address = addresses[static_cast<std::size_t>(lane)];
    refuse_misaligned(wave, address, shape.bytes, lane);
    const Place place = device_memory(wave, address, shape.bytes, lane);
    touch_bytes(wave, address, shape.bytes, true, true, lane, false, nullptr, nullptr);
    modify(wave, op, place, lane, data.index, data.index + shape.bytes / 4,
           op.returns ? &op.operands[0] : nullptr);
  });
  count_bytes(wave, shape.bytes, false);
  count_bytes(wave, shape.bytes, true);
  issue_memory(wave, op, op.returns ? &op.operands[0] : nullptr, shape.bytes / 4U, !op.returns);
}

// ---- Scratch ----

constexpr u32 kIsBuffer = 2;

// Offsets of the lanes in their scratch memory.
void scratch_offsets(Wave& wave, const Operation& op, const Operand& vector, const Operand& scalar,
                     std::array<u64, kLanes>& offsets) {
  u64 start = static_cast<u64>(op.offset);
  bool unset = false;
  u64 base = scalar_word(wave, scalar, Width::word, unset);
  if (unset) fault(wave, "an offset in scratch memory that nobody has written");
  // Buffer instructions have the offset of the wave, of all its lanes.
  if ((op.variant & kIsBuffer) != 0) base /= static_cast<u64>(wave.lanes);
  start += base;
  offsets.fill(start);
  if (!vector.is_vector()) return;
  if (const u64 lanes = unset_lanes(wave, vector); lanes != 0) {
    fault(wave, "an offset in scratch memory that nobody has written", lowest_lane(lanes));
  }
  const VectorRegister& from = wave.vector[vector.index];
  for (std::size_t lane = 0; lane < kLanes; ++lane) offsets[lane] = start + from.lane[lane];
}

void scratch_access(Wave& wave, const Operation& op) {
  const Shape& shape = op.shape;
  const bool is_buffer = (op.variant & kIsBuffer) != 0;
  if (is_buffer) {
    const Operand& resource = op.operands[2];
    if (!resource.is_scalar() || wave.pair(resource.index) != kScratchBase) {
      fault(wave, "a buffer that is not scratch memory");
    }
  }
  // buffer: data, offset, resource, scalar offset. scratch: loads have the register first.
  const std::size_t data = is_buffer || !shape.is_store ? 0 : 1;
  const std::size_t vector = is_buffer || !shape.is_store ? 1 : 0;
  const std::size_t scalar = is_buffer ? 3 : 2;
  std::array<u64, kLanes> offsets;
  scratch_offsets(wave, op, op.operands[vector], op.operands[scalar], offsets);
  each_lane(wave.exec, [&](int lane) {
    const u64 offset = offsets[static_cast<std::size_t>(lane)];
    const int index = op.operands[data].index;
    if (shape.is_store) {
      store_in_scratch(wave, op, index, offset, lane);
      return;
    }
    const Place place = scratch(wave, offset, shape.bytes, lane);
    fill_registers(wave, shape, index, lane, load(place, shape.bytes));
  });
  issue_memory(wave, op, shape.is_store ? nullptr : &op.operands[0], (shape.bytes + 3U) / 4,
               shape.is_store);
}

// ---- Scalar loads ----

void scalar_load(Wave& wave, const Operation& op) {
  const Operand& to = op.operands[0];
  const Operand& base = op.operands[1];
  const Shape& shape = op.shape;
  u64 address = wave.pair(base.index) + static_cast<u64>(op.offset);
  bool unset = wave.scalar_unset[base.index] != 0 || wave.scalar_unset[base.index + 1U] != 0;
  if (op.operands.size() > 2) {
    const Operand& offset = op.operands[2];
    const u32 word = scalar_word(wave, offset, Width::word, unset);
    // Immediate offsets are signed, registers are not.
    address += offset.is_scalar() ? u64{word} : static_cast<u64>(i64{static_cast<i32>(word)});
  }
  if (unset) fault(wave, "a scalar load from an address that nobody has written");
  const u32 alignment = std::min<u32>(shape.bytes, 4);
  if (address % alignment != 0) {
    fault(wave, fmt::format("a scalar load from {:#x}, which is misaligned", address));
  }
  ++wave.launch->stamp;
  const u32 unit = std::min<u32>(shape.bytes, 4);
  for (u32 at = 0; at < shape.bytes; at += unit) {
    const Place place = device_memory(wave, address + at, unit, -1);
    touch_bytes(wave, address + at, unit, false, false, -1, false, nullptr, nullptr);
    u32 word = load(place, unit).words[0];
    if (shape.is_signed) {
      word = unit == 1 ? static_cast<u32>(static_cast<std::int8_t>(word))
                       : static_cast<u32>(static_cast<std::int16_t>(word));
    }
    u32 missing = 0;
    for (u32 i = 0; i < unit && place.written != nullptr; ++i) {
      if (place.written[i] == 0) missing |= 0xffU << (8 * i);
    }
    wave.set_scalar(to.index + static_cast<int>(at / 4), word, missing);
  }
  wave.launch->trace.bytes_read += shape.bytes;
  const bool apart = wave.launch->program->isa.major >= 12;
  issue(wave, apart ? Counter::scalar : Counter::lds, &to, (shape.bytes + 3U) / 4, false);
}

// ---- LDS ----

void check_lds_addresses(Wave& wave, const Operand& address) {
  const u64 unset = unset_lanes(wave, address);
  if (unset != 0) fault(wave, "an address in LDS that nobody has written", lowest_lane(unset));
}

void lds_load(Wave& wave, const Operation& op) {
  const Operand& to = op.operands[0];
  const Operand& address = op.operands[1];
  const Shape& shape = op.shape;
  check_lds_addresses(wave, address);
  const VectorRegister from = wave.vector[address.index];
  const int registers = (shape.bytes + 3) / 4;
  each_lane(wave.exec, [&](int lane) {
    for (int i = 0; i < shape.addresses; ++i) {
      const u32 at = from.lane[static_cast<std::size_t>(lane)] +
                     shape.offset[static_cast<std::size_t>(i)];  // wraps
      const Place place = lds(wave, at, shape.bytes, lane);
      touch_bytes(wave, at, shape.bytes, false, false, lane, true, nullptr, nullptr);
      fill_registers(wave, shape, to.index + i * registers, lane, load(place, shape.bytes));
    }
  });
  issue(wave, Counter::lds, &to, static_cast<u32>(registers * shape.addresses), false);
}

void lds_store(Wave& wave, const Operation& op) {
  const Operand& address = op.operands[0];
  const Shape& shape = op.shape;
  check_lds_addresses(wave, address);
  const VectorRegister& from = wave.vector[address.index];
  ++wave.launch->stamp;
  each_lane(wave.exec, [&](int lane) {
    for (int i = 0; i < shape.addresses; ++i) {
      const u32 at = from.lane[static_cast<std::size_t>(lane)] +
                     shape.offset[static_cast<std::size_t>(i)];  // wraps
      const Place place = lds(wave, at, shape.bytes, lane);
      std::array<u8, 16> data;
      const bool unset = data_of(wave, shape, op.operands[static_cast<std::size_t>(i) + 1].index,
                                 lane, data.data());
      store_bytes(wave, place, at, shape.bytes, lane, true, data.data());
      // What is unwritten in the register is unwritten in LDS.
      if (unset) std::memset(place.written, 0, shape.bytes);
    }
  });
  issue(wave, Counter::lds, nullptr, 0, true);
}

void lds_atomic(Wave& wave, const Operation& op) {
  const Shape& shape = op.shape;
  const std::size_t at = op.returns ? 1 : 0;
  const Operand& address = op.operands[at];
  check_lds_addresses(wave, address);
  const VectorRegister from = wave.vector[address.index];
  // ds_cmpst has what is compared first, ds_cmpstore and all others the data.
  const bool swapped = op.variant != 0;
  const std::size_t data = at + (swapped ? 2 : 1);
  const std::size_t compare = at + (swapped ? 1 : op.operands.size() > at + 2 ? 2 : 1);
  ++wave.launch->stamp;
  each_lane(wave.exec, [&](int lane) {
    const u32 place_at = from.lane[static_cast<std::size_t>(lane)] + shape.offset[0];  // wraps
    const Place place = lds(wave, place_at, shape.bytes, lane);
    touch_bytes(wave, place_at, shape.bytes, true, true, lane, true, nullptr, nullptr);
    modify(wave, op, place, lane, op.operands[data].index, op.operands[compare].index,
           op.returns ? &op.operands[0] : nullptr);
  });
  issue(wave, Counter::lds, op.returns ? &op.operands[0] : nullptr, shape.bytes / 4U, true);
}

// ds_bpermute (each lane chooses from where) and ds_permute (each lane chooses to where).
void lds_permute(Wave& wave, const Operation& op) {
  const Operand& index = op.operands[1];
  check_lds_addresses(wave, index);
  const VectorRegister chosen = wave.vector[index.index];
  const VectorRegister data = wave.vector[op.operands[2].index];
  alignas(64) std::array<u32, kLanes> out{};
  u64 unset_low = 0;
  u64 unset_high = 0;
  const bool forward = op.variant != 0;
  each_lane(wave.exec, [&](int lane) {
    const u32 other = (chosen.lane[static_cast<std::size_t>(lane)] + op.shape.offset[0]) / 4 &
                      static_cast<u32>(wave.lanes - 1);
    const auto from = forward ? static_cast<u32>(lane) : other;
    const auto to = forward ? other : static_cast<u32>(lane);
    // A lane that is not active gives 0.
    if ((wave.exec >> from & 1) == 0) return;
    out[to] = data.lane[from];
    unset_low = (unset_low & ~(u64{1} << to)) | (data.unset_low >> from & 1) << to;
    unset_high = (unset_high & ~(u64{1} << to)) | (data.unset_high >> from & 1) << to;
  });
  write_register(wave, op.operands[0].index, wave.exec, out.data(), unset_low, unset_high);
  issue(wave, Counter::lds, &op.operands[0], 1, false);
}

// ds_swizzle: `variant` is the pattern of 16 bits.
void lds_swizzle(Wave& wave, const Operation& op) {
  const VectorRegister data = wave.vector[op.operands[1].index];
  alignas(64) std::array<u32, kLanes> out{};
  u64 unset_low = 0;
  u64 unset_high = 0;
  for (u32 lane = 0; lane < static_cast<u32>(wave.lanes); ++lane) {
    u32 from = 0;
    if ((op.variant & 0x8000) != 0) {
      from = (lane & ~3U) | (op.variant >> (2 * (lane & 3)) & 3);
    } else {
      const u32 in_half = lane & 31;
      from = (lane & 32) | (((in_half & op.variant) | op.variant >> 5) ^ op.variant >> 10) % 32;
    }
    if ((wave.exec >> from & 1) == 0) continue;
    out[lane] = data.lane[from];
    unset_low |= (data.unset_low >> from & 1) << lane;
    unset_high |= (data.unset_high >> from & 1) << lane;
  }
  write_register(wave, op.operands[0].index, wave.exec, out.data(), unset_low, unset_high);
  issue(wave, Counter::lds, &op.operands[0], 1, false);
}

void nothing(Wave&, const Operation&) {}

// ---- Translation ----

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// "dwordx4", "d16_hi_b16", "ubyte_d16_hi": what is moved.
bool read_shape(std::string_view text, Shape& shape) {
  if (take(text, "d16_hi_")) {
    shape.half = 1;
  } else if (take(text, "d16_")) {
    shape.half = 0;
  }
  if (text.ends_with("_d16_hi")) {
    shape.half = 1;
    text.remove_suffix(7);
  } else if (text.ends_with("_d16")) {
    shape.half = 0;
    text.remove_suffix(4);
  }
  struct Type {
    std::string_view name;
    u8 bytes;
    bool is_signed;
  };
  static constexpr Type kTypes[] = {
      {"dword", 4, false},    {"dwordx2", 8, false},  {"dwordx3", 12, false},
      {"dwordx4", 16, false}, {"dwordx8", 32, false}, {"dwordx16", 64, false},
      {"b32", 4, false},      {"b64", 8, false},      {"b96", 12, false},
      {"b128", 16, false},    {"b256", 32, false},    {"b512", 64, false},
      {"ubyte", 1, false},    {"sbyte", 1, true},     {"ushort", 2, false},
      {"sshort", 2, true},    {"byte", 1, false},     {"short", 2, false},
      {"u8", 1, false},       {"i8", 1, true},        {"u16", 2, false},
      {"i16", 2, true},       {"b8", 1, false},       {"b16", 2, false}};
  for (const Type& type : kTypes) {
    if (type.name != text) continue;
    shape.bytes = type.bytes;
    shape.is_signed = type.is_signed;
    return true;
  }
  return false;
}

bool read_atomic(std::string_view text, Shape& shape) {
  static constexpr std::pair<std::string_view, Atomic> kNames[] = {
      {"swap", Atomic::swap},
      {"wrxchg", Atomic::swap},
      {"storexchg", Atomic::swap},
      {"cmpswap", Atomic::compare_swap},
      {"cmpst", Atomic::compare_swap},
      {"cmpstore", Atomic::compare_swap},
      {"add", Atomic::add},
      {"sub", Atomic::sub},
      {"smin", Atomic::min_signed},
      {"umin", Atomic::min_unsigned},
      {"smax", Atomic::max_signed},
      {"umax", Atomic::max_unsigned},
      {"and", Atomic::bit_and},
      {"or", Atomic::bit_or},
      {"xor", Atomic::bit_xor},
      {"inc", Atomic::increment},
      {"dec", Atomic::decrement},
      {"min_i32", Atomic::min_signed},
      {"min_u32", Atomic::min_unsigned},
      {"max_i32", Atomic::max_signed},
      {"max_u32", Atomic::max_unsigned},
      {"min_i64", Atomic::min_signed},
      {"min_u64", Atomic::min_unsigned},
      {"max_i64", Atomic::max_signed},
      {"max_u64", Atomic::max_unsigned},
      {"add_f32", Atomic::add_float},
      {"add_f64", Atomic::add_float},
      {"min_f32", Atomic::min_float},
      {"min_f64", Atomic::min_float},
      {"max_f32", Atomic::max_float},
      {"max_f64", Atomic::max_float},
      {"min_num_f32", Atomic::min_float},
      {"max_num_f32", Atomic::max_float},
      {"pk_add_f16", Atomic::add_halves}};
  shape.bytes = text.ends_with("64") || text.ends_with("_x2") ? 8 : 4;
  if (text.ends_with("_x2")) text.remove_suffix(3);
  const auto find = [&](std::string_view name) {
    const auto found = std::ranges::find(kNames, name, &std::pair<std::string_view, Atomic>::first);
    if (found == std::end(kNames)) return false;
    shape.atomic = found->second;
    return true;
  };
  if (find(text)) return true;
  for (const std::string_view type : {"_u32", "_b32", "_u64", "_b64"}) {
    if (text.ends_with(type)) return find(text.substr(0, text.size() - type.size()));
  }
  return false;
}

bool only(const Instruction& instruction, std::span<const std::string_view> known) {
  return std::ranges::all_of(instruction.modifiers, [&](const auto& modifier) {
    return std::ranges::find(known, std::string_view(modifier.first)) != known.end();
  });
}

// Offsets, and cache policies, which change nothing here.
constexpr std::string_view kPolicies[] = {"offset", "glc", "slc", "dlc",   "nt",
                                          "sc0",    "sc1", "th",  "scope", "offen"};
constexpr std::string_view kOffsets[] = {"offset", "offset0", "offset1"};

bool translate_device(std::string_view name, const Instruction& instruction, Operation& op) {
  const bool is_flat = take(name, "flat_");
  if (!is_flat && !take(name, "global_")) return false;
  op.variant = is_flat ? kIsFlat : 0;
  op.unit = Unit::memory;
  if (name == "inv" || name == "wb" || name == "wbinv") {
    op.execute = &nothing;
    op.operands.clear();
    return true;
  }
  if (!only(instruction, kPolicies)) return false;
  op.offset = instruction.number("offset");
  if (take(name, "load_")) {
    op.execute = &global_load;
    return read_shape(name, op.shape) && op.shape.bytes <= 16 && op.operands.size() >= 2;
  }
  if (take(name, "store_")) {
    op.execute = &global_store;
    op.shape.is_store = true;
    op.first_source = 0;
    return read_shape(name, op.shape) && op.operands.size() >= 2;
  }
  if (!take(name, "atomic_") || !read_atomic(name, op.shape)) return false;
  op.execute = &global_atomic;
  op.returns = op.operands.size() == (is_flat ? 3 : 4);
  return op.operands.size() >= 2;
}

bool translate_scratch(std::string_view name, const Instruction& instruction, Operation& op) {
  const bool is_buffer = take(name, "buffer_");
  if (!is_buffer && !take(name, "scratch_")) return false;
  op.unit = Unit::memory;
  if (name.starts_with("gl0_inv") || name.starts_with("gl1_inv") || name.starts_with("wbl2") ||
      name.starts_with("wbinvl1") || name == "inv") {
    op.execute = &nothing;
    op.operands.clear();
    return true;
  }
  if (!only(instruction, kPolicies)) return false;
  op.variant = is_buffer ? kIsBuffer : 0;
  op.offset = instruction.number("offset");
  op.execute = &scratch_access;
  op.shape.is_store = name.starts_with("store_");
  if (!take(name, "store_") && !take(name, "load_")) return false;
  return read_shape(name, op.shape) && op.operands.size() == (is_buffer ? 4 : 3);
}

// The pattern of "swizzle(SWAP,16)" and its kin, or a number.
bool read_swizzle(std::string text, u32& pattern) {
  if (!text.starts_with("swizzle(")) {
    pattern = static_cast<u32>(std::strtoul(text.c_str(), nullptr, 0));
    return true;
  }
  std::erase(text, ' ');
  text = text.substr(8, text.size() - 9);
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  const auto number = [&](std::size_t i) {
    return static_cast<u32>(std::strtoul(parts.at(i).c_str(), nullptr, 0));
  };
  if (parts[0] == "SWAP") {
    pattern = number(1) << 10 | 0x1f;
  } else if (parts[0] == "REVERSE") {
    pattern = (number(1) - 1) << 10 | 0x1f;
  } else if (parts[0] == "BROADCAST") {
    pattern = number(2) << 5 | (0x1f & ~(number(1) - 1));
  } else if (parts[0] == "QUAD_PERM") {
    pattern = 0x8000 | number(1) | number(2) << 2 | number(3) << 4 | number(4) << 6;
  } else if (parts[0] == "BITMASK_PERM") {
    // Of each bit of the lane, the highest first: 0, 1, p as it is, i inverted.
    std::erase(parts[1], '"');
    if (parts[1].size() != 5) return false;
    pattern = 0;
    for (u32 i = 0; i < 5; ++i) {
      const u32 bit = 1U << (4 - i);
      switch (parts[1][i]) {
        case '0': break;
        case '1': pattern |= bit << 5; break;
        case 'p': pattern |= bit; break;
        case 'i': pattern |= bit | bit << 10; break;
        default: return false;
      }
    }
  } else {
    return false;
  }
  return true;
}

bool translate_lds(std::string_view name, const Instruction& instruction, Operation& op) {
  if (!take(name, "ds_")) return false;
  op.unit = Unit::lds;
  op.shape.addresses = 1;
  if (name == "nop") {
    op.execute = &nothing;
    return true;
  }
  if (name == "swizzle_b32") {
    op.execute = &lds_swizzle;
    const auto found = instruction.modifiers.find("offset");
    op.variant = 0;
    return found == instruction.modifiers.end() || read_swizzle(found->second, op.variant);
  }
  if (!only(instruction, kOffsets)) return false;
  op.shape.offset[0] = static_cast<u32>(instruction.number("offset"));
  if (name == "bpermute_b32" || name == "permute_b32") {
    op.execute = &lds_permute;
    op.variant = name == "permute_b32" ? 1 : 0;
    return op.operands.size() == 3;
  }
  const bool loads = take(name, "read") || take(name, "load");
  const bool stores = !loads && (name.starts_with("write") || name.starts_with("store_")) &&
                      !name.starts_with("wrxchg");
  if (stores && !take(name, "write")) take(name, "store");
  if (loads || stores) {
    u32 unit = 0;
    if (take(name, "2st64_") || take(name, "_2addr_stride64_")) {
      unit = 64;
    } else if (take(name, "2_") || take(name, "_2addr_")) {
      unit = 1;
    } else if (!take(name, "_")) {
      return false;
    }
    if (!read_shape(name, op.shape) || op.shape.bytes > 16) return false;
    if (unit != 0) {
      op.shape.addresses = 2;
      op.shape.offset = {static_cast<u32>(instruction.number("offset0")) * unit * op.shape.bytes,
                         static_cast<u32>(instruction.number("offset1")) * unit * op.shape.bytes};
    }
    op.shape.is_store = stores;
    op.execute = loads ? &lds_load : &lds_store;
    return op.operands.size() == (loads ? 2U : 1U + op.shape.addresses);
  }
  std::string plain(name);
  if (const std::size_t at = plain.find("_rtn"); at != plain.npos) {
    op.returns = true;
    plain.erase(at, 4);
  }
  op.execute = &lds_atomic;
  op.variant = plain.starts_with("cmpst_") ? 1 : 0;
  return read_atomic(plain, op.shape);
}

bool translate_scalar_load(std::string_view name, const Instruction& instruction, Operation& op) {
  if (!take(name, "s_load_")) return false;
  op.unit = Unit::scalar;
  op.execute = &scalar_load;
  op.offset = instruction.number("offset");
  return only(instruction, kPolicies) && read_shape(name, op.shape) && op.operands.size() >= 2 &&
         op.operands[1].is_scalar();
}

}  // namespace

bool translate_memory(const Instruction& instruction, const Isa&, int, Operation& op) {
  const std::string_view name = instruction.mnemonic;
  op.operands = instruction.operands;
  return translate_scalar_load(name, instruction, op) || translate_device(name, instruction, op) ||
         translate_scratch(name, instruction, op) || translate_lds(name, instruction, op);
}

}  // namespace kiln::amd
