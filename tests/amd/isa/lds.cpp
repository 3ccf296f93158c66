// Instructions on LDS, and those that move data between lanes by way of it.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/amd/isa/access.hpp"
#include "tests/amd/isa/lanes.hpp"

namespace kiln::amd {
namespace {

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

}  // namespace

void load_from_lds(Wave& wave, const Shape& shape, u32 address, int index, int lane) {
  const Place place = lds(wave, address, shape.bytes, lane);
  touch_bytes(wave, address, shape.bytes, false, false, lane, true, nullptr, nullptr);
  fill_registers(wave, shape, index, lane, load(place, shape.bytes));
}

void store_in_lds(Wave& wave, const Shape& shape, u32 address, int index, int lane) {
  const Place place = lds(wave, address, shape.bytes, lane);
  std::array<u8, 16> data;
  const u32 unset = data_of(wave, shape, index, lane, data.data());
  store_bytes(wave, place, address, shape.bytes, lane, true, data.data());
  // What is unwritten in the register is unwritten in LDS.
  for (u32 byte = 0; byte < shape.bytes; ++byte) {
    if ((unset >> byte & 1) != 0) place.written[byte] = 0;
  }
}

void modify_in_lds(Wave& wave, const Operation& op, u32 address, int lane, int data, int compare) {
  const Place place = lds(wave, address, op.shape.bytes, lane);
  touch_bytes(wave, address, op.shape.bytes, true, true, lane, true, nullptr, nullptr);
  modify(wave, op, place, lane, data, compare);
}

namespace {

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
      load_from_lds(wave, shape, at, to.index + i * registers, lane);
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
      store_in_lds(wave, shape, at, op.operands[static_cast<std::size_t>(i) + 1].index, lane);
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
    modify_in_lds(wave, op, place_at, lane, op.operands[data].index, op.operands[compare].index);
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

// ---- Translation ----

constexpr std::string_view kOffsets[] = {"offset", "offset0", "offset1"};

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

}  // namespace

bool translate_lds(std::string_view name, const Instruction& instruction, Operation& op) {
  if (!take(name, "ds_")) return false;
  op.unit = Unit::lds;
  op.shape.addresses = 1;
  if (name == "nop") {
    op.execute = &do_nothing;
    return true;
  }
  if (name == "swizzle_b32") {
    op.execute = &lds_swizzle;
    const auto found = instruction.modifiers.find("offset");
    op.variant = 0;
    return found == instruction.modifiers.end() || read_swizzle(found->second, op.variant);
  }
  if (!has_only(instruction, kOffsets)) return false;
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

}  // namespace kiln::amd
