// See access.hpp.
#include "tests/amd/isa/access.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "tests/amd/isa/numbers.hpp"

namespace kiln::amd {

void finish(Wave& wave, std::deque<Outstanding>& queue, std::size_t most) {
  if (queue.size() <= most) return;
  // Scalar loads come in any order: only the wait for all of them says something.
  const bool any_order =
      std::ranges::any_of(queue, [](const Outstanding& entry) { return !entry.is_vector; });
  if (any_order && most > 0) return;
  while (queue.size() > most) {
    const Outstanding& entry = queue.front();
    for (u32 i = 0; i < entry.count; ++i) {
      u8& pending = entry.is_vector ? wave.pending_vector[entry.index + i]
                                    : wave.pending_scalar[entry.index + i];
      --pending;
      --wave.pending;
    }
    queue.pop_front();
  }
}

namespace {

// How many instructions may be under way: another one of the counter is not issued before the
// oldest of so many has ended.
std::size_t capacity(const Isa& isa, Counter counter) {
  switch (counter) {
    case Counter::lds: return isa.major == 9 ? 15 : 63;
    case Counter::scalar: return 31;
    case Counter::exports: return 7;
    default: return 63;
  }
}

}  // namespace

void issue(Wave& wave, Counter counter, const Operand* filled, u32 registers, bool is_lds_write) {
  if (!wave.launch->options->check_waits) return;
  std::deque<Outstanding>& queue = wave.outstanding[static_cast<std::size_t>(counter)];
  finish(wave, queue, capacity(wave.launch->program->isa, counter) - 1);
  Outstanding entry;
  entry.is_lds_write = is_lds_write;
  if (filled != nullptr && (filled->is_vector() || filled->is_scalar())) {
    entry.index = filled->index;
    entry.count = static_cast<u8>(registers);
    entry.half = wave.current->shape.half;
    entry.is_vector = filled->is_vector();
    for (u32 i = 0; i < registers; ++i) {
      u8& pending = entry.is_vector ? wave.pending_vector[entry.index + i]
                                    : wave.pending_scalar[entry.index + i];
      ++pending;
      ++wave.pending;
    }
  }
  queue.push_back(entry);
}

// ---- One lane ----

Loaded load(const Place& place, u32 bytes) {
  Loaded loaded;
  std::memcpy(loaded.words.data(), place.data, bytes);
  if (place.written == nullptr) return loaded;
  for (u32 i = 0; i < bytes; ++i) {
    if (place.written[i] == 0) loaded.unset[i / 4] |= u32{0xff} << (8 * (i % 4));
  }
  return loaded;
}

namespace {

void set_register(Wave& wave, int index, int lane, u32 value, u32 unset) {
  VectorRegister& to = wave.vector[static_cast<std::size_t>(index)];
  to.lane[static_cast<std::size_t>(lane)] = value;
  to.mark_bits(static_cast<std::size_t>(lane), unset);
}

// A byte or two as a word. An unwritten sign makes what it is extended to unwritten.
u32 extended(const Shape& shape, u32 word) {
  if (!shape.is_signed) return word;
  return shape.bytes == 1 ? static_cast<u32>(static_cast<std::int8_t>(word))
                          : static_cast<u32>(static_cast<std::int16_t>(word));
}

u32 with_half(int half, u32 kept, u32 word) {
  return half == 0 ? (kept & 0xffff0000) | (word & 0xffff) : (kept & 0xffff) | word << 16;
}

}  // namespace

void fill_registers(Wave& wave, const Shape& shape, int index, int lane, Loaded loaded) {
  if (shape.bytes >= 4) {
    for (int i = 0; i < shape.bytes / 4; ++i) {
      const auto at = static_cast<std::size_t>(i);
      set_register(wave, index + i, lane, loaded.words[at], loaded.unset[at]);
    }
    return;
  }
  u32 value = extended(shape, loaded.words[0]);
  u32 unset = extended(shape, loaded.unset[0]);
  if (shape.half >= 0) {
    const VectorRegister& old = wave.vector[static_cast<std::size_t>(index)];
    const auto at = static_cast<std::size_t>(lane);
    value = with_half(shape.half, old.lane[at], value);
    unset = with_half(shape.half, old.unset_in(at), unset);
  }
  set_register(wave, index, lane, value, unset);
}

u32 data_of(const Wave& wave, const Shape& shape, int index, int lane, u8* to) {
  u32 unset = 0;
  std::array<u32, 4> words{};
  const u32 registers = (shape.bytes + 3U) / 4;
  const int shift = shape.half == 1 ? 16 : 0;
  for (u32 i = 0; i < registers; ++i) {
    const VectorRegister& from = wave.vector[static_cast<std::size_t>(index) + i];
    words[i] = from.lane[static_cast<std::size_t>(lane)] >> shift;
    const u32 bits = from.unset_in(static_cast<std::size_t>(lane)) >> shift;
    for (u32 byte = 0; bits != 0 && byte < 4; ++byte) {
      if ((bits >> (8 * byte) & 0xff) != 0) unset |= 1U << (4 * i + byte);
    }
  }
  std::memcpy(to, words.data(), shape.bytes);
  return unset & ((1U << shape.bytes) - 1);
}

void store_bytes(Wave& wave, const Place& place, u64 address, u32 bytes, int lane, bool in_lds,
                 const u8* data) {
  touch_bytes(wave, address, bytes, true, false, lane, in_lds, place.data, data);
  std::memcpy(place.data, data, bytes);
  if (place.written != nullptr) std::memset(place.written, 1, bytes);
}

u64 unset_lanes(const Wave& wave, const Operand& operand) {
  u64 unset = 0;
  for (u32 i = 0; i < operand.count; ++i) {
    const VectorRegister& from = wave.vector[operand.index + i];
    unset |= from.unset_low | from.unset_high;
  }
  return unset & wave.exec;
}

// ---- Atomics ----

namespace {

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

}  // namespace

void modify(Wave& wave, const Operation& op, const Place& place, int lane, int data, int compare) {
  const Shape& shape = op.shape;
  u64 value = 0;
  u64 expected = 0;
  std::array<u8, 16> bytes{};
  u32 unset = data_of(wave, shape, data, lane, bytes.data());
  std::memcpy(&value, bytes.data(), shape.bytes);
  if (shape.atomic == Atomic::compare_swap) {
    unset |= data_of(wave, shape, compare, lane, bytes.data());
    std::memcpy(&expected, bytes.data(), shape.bytes);
  }
  if (unset != 0) fault(wave, "an atomic with a register that nobody has written", lane);
  const Loaded loaded = load(place, shape.bytes);
  if ((loaded.unset[0] | loaded.unset[1]) != 0) {
    fault(wave, "an atomic on memory that nobody has written", lane);
  }
  u64 old = 0;
  std::memcpy(&old, place.data, shape.bytes);
  const u64 now = combined(shape, old, value, expected);
  std::memcpy(place.data, &now, shape.bytes);
  if (op.returns) fill_registers(wave, shape, op.operands[0].index, lane, loaded);
}

// ---- Mnemonics ----

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

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

bool has_only(const Instruction& instruction, std::span<const std::string_view> known) {
  return std::ranges::all_of(instruction.modifiers, [&](const auto& modifier) {
    return std::ranges::find(known, std::string_view(modifier.first)) != known.end();
  });
}

}  // namespace kiln::amd
