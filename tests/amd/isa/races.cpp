// The check for races: who has read and written each dword of LDS and device memory, or each byte
// of it, in which block and between which barriers.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tests/amd/isa/access.hpp"

namespace kiln::amd {
namespace {

constexpr u64 kTouchedPage = 4096;

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

}  // namespace

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

}  // namespace kiln::amd
