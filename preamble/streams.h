// Large outputs on the CPU, stored past the caches.
#pragma once

#include "access_host.h"

#if KILN_HOST
namespace kiln {

// Large outputs bypass the caches, which would fetch every line before it is overwritten: they are
// collected here and stored in whole vectors.
template <class T, int Lanes>
struct Collected {
  alignas(64) T lane[Lanes];
  inline __attribute__((always_inline)) T& operator[](int i) { return lane[i]; }
  inline __attribute__((always_inline)) const T& operator[](int i) const { return lane[i]; }
};
template <int Lanes, class T>
KILN_FN Collected<T, Lanes> collect(const T*) {
  Collected<T, Lanes> lanes;
  return lanes;
}

#ifdef __AVX512F__
typedef long long StreamVector __attribute__((vector_size(64)));
#elif defined(__AVX__)
typedef long long StreamVector __attribute__((vector_size(32)));
#else
typedef long long StreamVector __attribute__((vector_size(16)));
#endif
KILN_FN void stream_vector(StreamVector* to, StreamVector value) {
#if defined(__clang__)
  __builtin_nontemporal_store(value, to);
#elif defined(__AVX512F__)
  __builtin_ia32_movntdq512(to, value);
#elif defined(__AVX__)
  __builtin_ia32_movntdq256(to, value);
#elif defined(__SSE2__)
  __builtin_ia32_movntdq(to, value);
#else
  *to = value;
#endif
}

template <class T>
KILN_FN void stream_bytes(T* row, const T* values, u64 bytes) {
  constexpr u64 kBytes = sizeof(StreamVector);
  u8* to = reinterpret_cast<u8*>(row);
  const u8* from = reinterpret_cast<const u8*>(values);
  const u64 past = reinterpret_cast<u64>(to) % kBytes;
  const u64 head = past == 0 ? 0 : kBytes - past < bytes ? kBytes - past : bytes;
  if (head != 0) __builtin_memcpy(to, from, head);
  for (to += head, from += head, bytes -= head; bytes >= kBytes;
       to += kBytes, from += kBytes, bytes -= kBytes) {
    StreamVector value;
    __builtin_memcpy(&value, from, kBytes);
    stream_vector(reinterpret_cast<StreamVector*>(to), value);
  }
  if (bytes != 0) __builtin_memcpy(to, from, bytes);
}
template <class T, int Lanes, class Index>
KILN_FN void stream(T* row, Index first, int lanes, const Collected<T, Lanes>& values) {
  constexpr u64 kBytes = sizeof(StreamVector);
  T* const to = row + first;
  if (reinterpret_cast<u64>(to) % kBytes != 0 || lanes != Lanes) {
    return stream_bytes(to, values.lane, u64(lanes) * sizeof(T));
  }
  for (u64 at = 0; at < sizeof(T) * Lanes; at += kBytes) {  // the usual case, of known length
    StreamVector value;
    __builtin_memcpy(&value, reinterpret_cast<const u8*>(values.lane) + at, kBytes);
    stream_vector(reinterpret_cast<StreamVector*>(reinterpret_cast<u8*>(to) + at), value);
  }
}

// Non-temporal stores are not ordered with others: this makes them visible before the kernel
// returns.
KILN_FN void finish_streams() {
#ifdef __SSE2__
  __builtin_ia32_sfence();
#else
  __atomic_thread_fence(__ATOMIC_RELEASE);
#endif
}

template <class T, int Lanes, class Index>
KILN_FN void put(T* row, Index first, int lanes, const Collected<T, Lanes>& values) {
  __builtin_memcpy(row + first, values.lane, u64(lanes) * sizeof(T));
}

}  // namespace kiln
#endif
