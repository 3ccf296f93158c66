// Memory instructions: device memory, scratch and scalar loads. What hardware would punish, or
// leave to chance, is a Fault.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tests/amd/isa/access.hpp"
#include "tests/amd/isa/lanes.hpp"

namespace kiln::amd {
namespace {

// ---- Device memory ----

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
                  bool is_store, bool writes_lds = false) {
  const bool stores_apart = wave.launch->program->isa.major >= 10;
  issue(wave, is_store && stores_apart ? Counter::store : Counter::load, filled, registers, false);
  if ((op.variant & kIsFlat) != 0) issue(wave, Counter::lds, filled, registers, writes_lds);
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

// Whether a flat instruction means LDS or the lane's scratch memory, by its aperture; `offset` is
// where in there.
bool is_within(u64 aperture, const Operation& op, u64 address, u64& offset) {
  offset = address - aperture;
  return (op.variant & kIsFlat) != 0 && offset < u64{1} << 32;
}

void store_in_scratch(Wave& wave, const Operation& op, int data, u64 offset, int lane) {
  const Place place = scratch(wave, offset, op.shape.bytes, lane);
  // Spilled registers may hold nothing in lanes that nobody looks at.
  std::array<u8, 16> bytes;
  const u32 unset = data_of(wave, op.shape, data, lane, bytes.data());
  std::memcpy(place.data, bytes.data(), op.shape.bytes);
  for (u32 i = 0; i < op.shape.bytes; ++i) place.written[i] = (unset >> i & 1) != 0 ? 0 : 1;
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
      u64 offset = 0;
      if (is_within(kSharedAperture, op, address, offset)) {
        load_from_lds(wave, shape, static_cast<u32>(offset), to.index, lane);
        return;
      }
      if (is_within(kPrivateAperture, op, address, offset)) {
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

void global_store(Wave& wave, const Operation& op) {
  const Shape& shape = op.shape;
  std::array<u64, kLanes> addresses;
  global_addresses(wave, op, op.operands[0], op.operands.size() > 2 ? &op.operands[2] : nullptr,
                   addresses);
  ++wave.launch->stamp;
  bool writes_lds = false;
  each_lane(wave.exec, [&](int lane) {
    const u64 address = addresses[static_cast<std::size_t>(lane)];
    u64 offset = 0;
    if (is_within(kSharedAperture, op, address, offset)) {
      store_in_lds(wave, shape, static_cast<u32>(offset), op.operands[1].index, lane);
      writes_lds = true;
      return;
    }
    if (is_within(kPrivateAperture, op, address, offset)) {
      store_in_scratch(wave, op, op.operands[1].index, offset, lane);
      return;
    }
    const Place place = device_memory(wave, address, shape.bytes, lane);
    std::array<u8, 16> data;
    if (data_of(wave, shape, op.operands[1].index, lane, data.data()) != 0) {
      fault(wave, "a store of a register that nobody has written", lane);
    }
    store_bytes(wave, place, address, shape.bytes, lane, false, data.data());
  });
  count_bytes(wave, shape.bytes, true);
  issue_memory(wave, op, nullptr, 0, true, writes_lds);
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
  bool writes_lds = false;
  each_lane(wave.exec, [&](int lane) {
    const u64 address = addresses[static_cast<std::size_t>(lane)];
    const int compare = data.index + shape.bytes / 4;
    if (u64 offset = 0; is_within(kSharedAperture, op, address, offset)) {
      modify_in_lds(wave, op, static_cast<u32>(offset), lane, data.index, compare);
      writes_lds = true;
      return;
    }
    refuse_misaligned(wave, address, shape.bytes, lane);
    const Place place = device_memory(wave, address, shape.bytes, lane);
    touch_bytes(wave, address, shape.bytes, true, true, lane, false, nullptr, nullptr);
    modify(wave, op, place, lane, data.index, compare);
  });
  count_bytes(wave, shape.bytes, false);
  count_bytes(wave, shape.bytes, true);
  issue_memory(wave, op, op.returns ? &op.operands[0] : nullptr, shape.bytes / 4U, !op.returns,
               writes_lds);
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

// ---- Translation ----

// Offsets, and cache policies, which change nothing here.
constexpr std::string_view kPolicies[] = {"offset", "glc", "slc", "dlc",   "nt",
                                          "sc0",    "sc1", "th",  "scope", "offen"};

bool translate_device(std::string_view name, const Instruction& instruction, Operation& op) {
  const bool is_flat = take(name, "flat_");
  if (!is_flat && !take(name, "global_")) return false;
  op.variant = is_flat ? kIsFlat : 0;
  op.unit = Unit::memory;
  if (name == "inv" || name == "wb" || name == "wbinv") {
    op.execute = &do_nothing;
    op.operands.clear();
    return true;
  }
  if (!has_only(instruction, kPolicies)) return false;
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
    op.execute = &do_nothing;
    op.operands.clear();
    return true;
  }
  if (!has_only(instruction, kPolicies)) return false;
  op.variant = is_buffer ? kIsBuffer : 0;
  op.offset = instruction.number("offset");
  op.execute = &scratch_access;
  op.shape.is_store = name.starts_with("store_");
  if (!take(name, "store_") && !take(name, "load_")) return false;
  return read_shape(name, op.shape) && op.operands.size() == (is_buffer ? 4 : 3);
}

bool translate_scalar_load(std::string_view name, const Instruction& instruction, Operation& op) {
  if (!take(name, "s_load_")) return false;
  op.unit = Unit::scalar;
  op.execute = &scalar_load;
  op.offset = instruction.number("offset");
  return has_only(instruction, kPolicies) && read_shape(name, op.shape) &&
         op.operands.size() >= 2 && op.operands[1].is_scalar();
}

}  // namespace

bool translate_memory(const Instruction& instruction, const Isa&, int, Operation& op) {
  const std::string_view name = instruction.mnemonic;
  op.operands = instruction.operands;
  return translate_scalar_load(name, instruction, op) || translate_device(name, instruction, op) ||
         translate_scratch(name, instruction, op) || translate_lds(name, instruction, op);
}

}  // namespace kiln::amd
