// NVIDIA's instructions and functions for a host compiler, as far as kernels with matrix
// instructions need them: part of emulated_gpu_device.h. with_emulated_instructions()
// (emulated_gpu.hpp) puts a call of one of these in the place of each asm statement. A matrix
// instruction adds up one product after the other, so that the order shows in which a kernel gives
// it elements.
#pragma once

namespace emulated {

using U32 = unsigned int;
using U16 = unsigned short;

inline unsigned bits_of(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}
inline float float_of(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline U16 half_bits(float value) {
  const Half half(value);
  U16 bits;
  std::memcpy(&bits, &half, 2);
  return bits;
}
inline float of_half(U16 bits) {
  Half half(0.0f);
  std::memcpy(&half, &bits, 2);
  return half;
}
inline U16 bfloat_bits(float value) {
  const unsigned bits = bits_of(value);
  if (std::isnan(value)) return static_cast<U16>(bits >> 16 | 64);
  return static_cast<U16>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float of_bfloat(U16 bits) { return float_of(static_cast<U32>(bits) << 16); }

// Two numbers of 16 bits in a word.
struct Bfloats {
  static float of(U32 pair, int i) { return of_bfloat(static_cast<U16>(pair >> 16 * i)); }
  static U16 bits(float value) { return bfloat_bits(value); }
};
struct Halves {
  static float of(U32 pair, int i) { return of_half(static_cast<U16>(pair >> 16 * i)); }
  static U16 bits(float value) { return half_bits(value); }
};
template <class Pairs>
void fma_pairs(U32& result, U32 a, U32 b, U32 c) {
  U32 both = 0;
  for (int i = 0; i < 2; ++i) {
    const float value = std::fma(Pairs::of(a, i), Pairs::of(b, i), Pairs::of(c, i));
    both |= static_cast<U32>(Pairs::bits(value)) << 16 * i;
  }
  result = both;
}
inline void add_halves(U32& sum, U32 a, U32 b) { fma_pairs<Halves>(sum, a, 0x3c003c00, b); }
inline void pack_halves(U32& pair, float high, float low) {
  pair = static_cast<U32>(half_bits(high)) << 16 | half_bits(low);
}
inline void half_to_float(float& result, U16 bits) { result = of_half(bits); }
inline void float_to_half(U16& bits, float value) { bits = half_bits(value); }
inline void float_to_bfloat(U16& bits, float value) { bits = bfloat_bits(value); }
inline void low_twice(U32& result, U32 pair) { result = (pair & 0xffff) * 0x10001u; }
inline void high_twice(U32& result, U32 pair) { result = (pair >> 16) * 0x10001u; }
inline void and_xor(U32& result, U32 a, U32 b, U32 c) { result = (a & b) ^ c; }
inline void reciprocal(float& result, float value) { result = 1.0f / value; }
inline void nothing() {}
[[noreturn]] inline void not_emulated(const char* instructions) {
  std::fprintf(stderr, "not emulated: %s\n", instructions);
  std::abort();
}

// Addresses of shared memory have 32 bits.
inline char shared_base = 0;
inline std::size_t shared_address(const void* place) {
  return static_cast<std::size_t>(static_cast<const char*>(place) - &shared_base);
}
inline char* shared_place(U32 address) { return &shared_base + static_cast<int>(address); }
// Policies of caches, which nothing shows.
using Policy = unsigned long long;
inline void choose_policy(Policy& policy) { policy = 0; }
inline void copy_chunk(U32 to, const void* from, Policy = 0) {
  std::memcpy(shared_place(to), from, 16);
}
inline void copy_part(U32 to, const void* from, int bytes) {
  std::memcpy(shared_place(to), from, static_cast<std::size_t>(bytes));
}
inline void wait_copies(int) {}
inline void load_word(U32& word, const void* from) { std::memcpy(&word, from, 4); }
inline void load_two(U32& a, U32& b, const void* from) {
  load_word(a, from);
  load_word(b, static_cast<const char*>(from) + 4);
}
inline void load_four(U32& a, U32& b, U32& c, U32& d, const void* from) {
  load_two(a, b, from);
  load_two(c, d, static_cast<const char*>(from) + 8);
}

inline void load_four_shared(U32& a, U32& b, U32& c, U32& d, U32 address) {
  load_four(a, b, c, d, shared_place(address));
}
inline void store_four(U32 address, U32 a, U32 b, U32 c, U32 d) {
  const U32 words[] = {a, b, c, d};
  std::memcpy(shared_place(address), words, sizeof words);
}

// What all lanes of the wave give in the same call.
constexpr int kMostGiven = 6;
inline U32 given[2][kMostThreads][kMostGiven];
inline const U32 (*exchange_all(std::initializer_list<U32> own))[kMostGiven] {
  const int turn = threads[now].turn ^ 1;
  std::copy(own.begin(), own.end(), given[turn][now]);
  exchange(0, 0);
  return &given[turn][now / EMULATED_WAVE * EMULATED_WAVE];
}
inline void synchronize_wave() { exchange(0, 0); }
inline void begin_barrier(U32, U32) {}
inline void arrive_at_barrier(U32) {}
inline void wait_at_barrier(U32, U32) { synchronize_wave(); }
inline bool all_of_wave(bool own) {
  const auto* const all = exchange_all({own});
  for (unsigned i = 0; i < EMULATED_WAVE; ++i) {
    if (all[i][0] == 0) return false;
  }
  return true;
}
template <class T>
T shuffle(T value, unsigned lane) {
  static_assert(sizeof(T) == 4);
  U32 bits;
  std::memcpy(&bits, &value, 4);
  bits = exchange(bits, lane % EMULATED_WAVE);
  std::memcpy(&value, &bits, 4);
  return value;
}

// Of each of four blocks of 8 by 8 units of 16 bits that lanes say rows of, its transpose.
inline void load_transposed(U32& a, U32& b, U32& c, U32& d, U32 row) {
  const auto* const rows = exchange_all({row});
  U32* const results[] = {&a, &b, &c, &d};
  for (unsigned block = 0; block < 4; ++block) {
    U16 units[2];
    for (unsigned i = 0; i < 2; ++i) {
      const U32 from = rows[block * 8 + lane() % 4 * 2 + i][0];
      std::memcpy(&units[i], shared_place(from) + lane() / 4 * 2, 2);
    }
    *results[block] = units[0] | static_cast<U32>(units[1]) << 16;
  }
}

// c += a b, of 16 rows, 16 products and 8 columns.
template <class Pairs>
void multiply(float& c0, float& c1, float& c2, float& c3, U32 a0, U32 a1, U32 a2, U32 a3, U32 b0,
              U32 b1) {
  const auto* const all = exchange_all({a0, a1, a2, a3, b0, b1});
  float* const results[] = {&c0, &c1, &c2, &c3};
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = lane() / 4;
    const unsigned column = lane() % 4 * 2 + i % 2;
    for (unsigned k = 0; k < 16; ++k) {
      const unsigned t = k % 8 / 2;
      const float a = Pairs::of(all[row * 4 + t][i / 2 + k / 8 * 2], static_cast<int>(k % 2));
      const float b = Pairs::of(all[column * 4 + t][4 + k / 8], static_cast<int>(k % 2));
      *results[i] = std::fma(a, b, *results[i]);
    }
  }
}

inline bool any_is_false = false;
inline bool all_of_block(bool own) {
  wait_at(Barrier::block);
  any_is_false = false;
  wait_at(Barrier::block);
  any_is_false = any_is_false || !own;
  wait_at(Barrier::block);
  return !any_is_false;
}

inline unsigned permute_bytes(U32 a, U32 b, U32 selector) {
  const unsigned long long both = static_cast<unsigned long long>(b) << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    result |= static_cast<unsigned>(both >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  }
  return result;
}

inline unsigned shift_pair(U32 low, U32 high, U32 bits) {
  return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) >> bits % 32);
}

}  // namespace emulated

#define __funnelshift_r(low, high, bits) emulated::shift_pair(low, high, bits)
#define __syncwarp() emulated::synchronize_wave()
#define __syncthreads_and(own) emulated::all_of_block(own)
#define __all_sync(mask, own) emulated::all_of_wave(own)
#define __shfl_sync(mask, value, lane) emulated::shuffle(value, unsigned(lane))
#define __shfl_xor_sync(mask, value, lanes) \
  emulated::shuffle(value, emulated::lane() ^ unsigned(lanes))
#define __byte_perm(a, b, selector) emulated::permute_bytes(a, b, selector)
#define __cvta_generic_to_shared(place) emulated::shared_address(place)
unsigned atomicCAS(unsigned*, unsigned, unsigned);  // which no kernel calls that runs here
using std::isfinite;
using std::memcpy;
