// Attention: online softmax over keys, weighted sum of values, in one pass over both. A block takes
// a tile of keys at a time:
//   1. products: the threads of a row share a key's elements, each for all queries of the group;
//   2. scores and weights: each wave takes queries, each thread keys. What was summed below another
//      maximum is rescaled;
//   3. sums: the threads of a row share a value's elements; each row of threads takes some keys.
// In the end the sums of all rows of threads are added up, in one order. What products, scores and
// values are is in the kernel's text, as functions of a key and a query.
//
// The error of a sum over n keys in tiles of t, by r rows of threads, is at most
// (n / r + log2(r) + n / t + 1) u times the sum of the terms' sizes, u being half a unit in the
// last place of 1, and that of the weights.
#pragma once

#include "access_host.h"
#include "dependents.h"
#include "exp.h"
#include "host_rows.h"
#include "reduce.h"

#if KILN_HOST && defined(__clang__)
#define KILN_FOR_EACH_ELEMENT(element, count) \
  _Pragma("clang loop vectorize(assume_safety)") for (int element = 0; element < count; ++element)
#elif KILN_HOST
#define KILN_FOR_EACH_ELEMENT(element, count) \
  _Pragma("GCC ivdep") for (int element = 0; element < count; ++element)
#else
#define KILN_FOR_EACH_ELEMENT(element, count) \
  _Pragma("unroll") for (int element = 0; element < count; ++element)
#endif
#if KILN_HOST
#define KILN_FOR_EACH_QUERY(query, queries) for (int query = 0; query < queries; ++query)
#else
#define KILN_FOR_EACH_QUERY(query, queries) KILN_FOR_EACH_ELEMENT(query, queries)
#endif

namespace kiln {

// How threads share a row of `Extent` elements: vectors of `Width` in turn. A thread loads
// `Together` rows before it computes with them.
template <int Extent, int Width, int Vectors, int Threads, int Together>
struct RowLanes {
  enum : int {
    extent = Extent,
    width = Width,
    vectors = Vectors,
    threads = Threads,
    together = Together,
    lanes = Width * Vectors,
    ragged = Width * Vectors * Threads != Extent
  };
};

// A block of `Threads`, which takes `Tile` keys at a time for `Queries` queries. `Prefetch`: it
// loads the values of a tile before it knows their weights.
template <int Threads, int Tile, int Queries, bool Prefetch, class Keys, class Values>
struct AttentionForm {
  using KeyRow = Keys;
  using ValueRow = Values;
  enum : int { threads = Threads, tile = Tile, queries = Queries, prefetch = Prefetch };
};

KILN_FN f32 add_weighted(f32 sum, f32 weight, f32 value) {
#if KILN_HOST
  return host::madd(weight, value, sum);
#else
  return fma(weight, value, sum);
#endif
}

// What exponents are relative to: the largest score, unless every score is -inf.
KILN_FN f32 finite_shift(f32 largest) { return largest == lowest<f32>() ? 0.0f : largest; }

#if KILN_HOST

// ---- on the CPU: one thread ---------------------------------------------------------------------

template <class Form>
struct AttentionSlots {
  alignas(64) f32 score[Form::queries][Form::tile];
  alignas(64) f32 weight[Form::queries][Form::tile];
  f32 largest[Form::queries];
  f32 total[Form::queries];
};

template <class Lanes>
KILN_FN int place_of(int lane) {
  return lane;
}
template <class Lanes, int Align, class T>
KILN_FN Row<const T> load_row(const T* row) {
  return {row};
}
template <class Lanes, class T, class Stride>
KILN_FN StridedRow<const T, Stride> gather_row(const T* row, Stride stride) {
  return {row, stride};
}

// The sum of a(lane) * b(lane), in as many parts as keep the vector units busy.
template <class Lanes, class A, class B>
KILN_FN f32 dot(const A& a, const B& b) {
  constexpr int kParts = Lanes::lanes < 64 ? 16 : 32;
  constexpr int kWhole = Lanes::lanes / kParts * kParts;
  alignas(64) kiln::Lanes<f32, kParts> part = {};
  for (int first = 0; first < kWhole; first += kParts) {
    KILN_FOR_EACH_ELEMENT(i, kParts) {
      part.lane[i] = host::madd(a(first + i), b(first + i), part.lane[i]);
    }
  }
  for (int i = 0; i < Lanes::lanes - kWhole; ++i) {
    part.lane[i] = host::madd(a(kWhole + i), b(kWhole + i), part.lane[i]);
  }
  return fold<Sum, kParts>(part);
}

// The largest or the sum of a tile.
template <class Reduction, int Count>
KILN_FN f32 reduce_tile(const f32 (&value)[Count]) {
  constexpr int kParts = 16;
  auto part = start_accumulators<Reduction, f32, kParts>();
  for (int first = 0; first < Count; first += kParts) {
    KILN_FOR_EACH_ELEMENT(i, kParts) {
      part.lane[i] = Reduction::combine(part.lane[i], value[first + i]);
    }
  }
  return result_of<Reduction>(fold<Reduction, kParts>(part));
}

template <class Form, class Index, class Sums, class LoadKey, class Product, class Score,
          class LoadValue, class Weigh, class Exp>
KILN_FN void attend(AttentionSlots<Form>& slots, Index first, Index last, Sums& sum,
                    const LoadKey& load_key, const Product& product, const Score& score,
                    const LoadValue& load_value, const Weigh& weigh, const Exp& exponential) {
  constexpr int kQueries = Form::queries;
  constexpr int kTile = Form::tile;
  constexpr int kLanes = Form::ValueRow::lanes;
  for (int q = 0; q < kQueries; ++q) {
    slots.largest[q] = lowest<f32>();
    slots.total[q] = 0.0f;
    for (int lane = 0; lane < kLanes; ++lane) sum[q][lane] = 0.0f;
  }
  for (Index tile = first; tile < last; tile += kTile) {
    const int count = int(last - tile < Index(kTile) ? last - tile : Index(kTile));
    for (int i = 0; i < count; ++i) {
      f32 products[kQueries];
      product(tile + Index(i), load_key(tile + Index(i)), products);
      for (int q = 0; q < kQueries; ++q) slots.score[q][i] = products[q];
    }
    for (int q = 0; q < kQueries; ++q) {
      f32(&own)[kTile] = slots.score[q];
      KILN_FOR_EACH_ELEMENT(i, count) own[i] = score(q, tile + Index(i), own[i]);
      for (int i = count; i < kTile; ++i) own[i] = lowest<f32>();
      const f32 largest = Max::combine(slots.largest[q], reduce_tile<Max>(own));
      const f32 shift = finite_shift(largest);
      f32(&weight)[kTile] = slots.weight[q];
      KILN_FOR_EACH_ELEMENT(i, kTile) weight[i] = exponential(own[i] - shift);
      const f32 scale = exponential(slots.largest[q] - shift);
      slots.total[q] = slots.total[q] * scale + reduce_tile<Sum>(weight);
      slots.largest[q] = largest;
      if (scale != 1.0f) {
        KILN_FOR_EACH_ELEMENT(lane, kLanes) sum[q][lane] *= scale;
      }
    }
    for (int i = 0; i < count; ++i) {
      f32 weights[kQueries];
      for (int q = 0; q < kQueries; ++q) weights[q] = slots.weight[q][i];
      weigh(tile + Index(i), load_value(tile + Index(i)), weights, sum);
    }
  }
}

template <class Form, class Sums, class Store>
KILN_FN void finish_attention(AttentionSlots<Form>& slots, Sums& sum, const Store& store) {
  for (int q = 0; q < Form::queries; ++q) store(q, 0, sum[q], slots.largest[q], slots.total[q]);
}

#else

// ---- on GPUs: a block ---------------------------------------------------------------------------

template <class Form>
struct AttentionSlots {
  enum : int {
    waves = Form::threads / kWave,
    row_bytes = waves * Form::ValueRow::extent * 4,
    // Queries whose sums are added up at once: as many as fit 16 KiB.
    at_once = Form::queries * row_bytes <= 16384 ? int(Form::queries)
              : row_bytes > 8192 ? 1
                                 : 16384 / row_bytes
  };
  f32 score[Form::queries][Form::tile];
  alignas(16) f32 weight[Form::tile][Form::queries];
  f32 scale[Form::queries];
  // Compilers read pairs and quadruples of weights and scales past the last one (LLVM 17), whose
  // neighbour other waves may be writing.
  f32 beside[3];
  f32 largest[Form::queries];
  f32 total[Form::queries];
  f32 part[waves][at_once][Form::ValueRow::extent];
};

// Which element of the row a thread's lane is, and whether it is one.
template <class Lanes>
KILN_FN int place_of(int lane) {
  const int thread = int(threadIdx.x) % Lanes::threads;
  return (thread + Lanes::threads * (lane / Lanes::width)) * Lanes::width + lane % Lanes::width;
}
template <class Lanes>
KILN_FN bool is_in_row(int lane) {
  return !Lanes::ragged || place_of<Lanes>(lane) < Lanes::extent;
}

// The elements of a row that are this thread's; zero past its end.
template <class Lanes, int Align, class T>
KILN_FN Vec<T, Lanes::lanes> load_row(const T* row) {
  Vec<T, Lanes::lanes> result;
  _Pragma("unroll") for (int first = 0; first < Lanes::lanes; first += Lanes::width) {
    if (is_in_row<Lanes>(first)) {
      copy_bytes<Lanes::width* int(sizeof(T)), Align>(result.lane + first,
                                                      row + place_of<Lanes>(first));
    } else {
      _Pragma("unroll") for (int i = 0; i < Lanes::width; ++i) result.lane[first + i] = T{};
    }
  }
  return result;
}
template <class Lanes, class T, class Stride>
KILN_FN Vec<T, Lanes::lanes> gather_row(const T* row, Stride stride) {
  Vec<T, Lanes::lanes> result;
  _Pragma("unroll") for (int lane = 0; lane < Lanes::lanes; ++lane) {
    result.lane[lane] = is_in_row<Lanes>(lane) ? row[Stride(place_of<Lanes>(lane)) * stride] : T{};
  }
  return result;
}

// This thread's part of the sum of a(lane) * b(lane).
template <class Lanes, class A, class B>
KILN_FN f32 dot(const A& a, const B& b) {
  f32 sum = 0.0f;
  _Pragma("unroll") for (int lane = 0; lane < Lanes::lanes; ++lane) {
    const f32 next = fma(a(lane), b(lane), sum);
    sum = is_in_row<Lanes>(lane) ? next : sum;
  }
  return sum;
}

// The keys of a tile that this thread takes: of `Together` at a time, the first one, and their
// numbers. A key past the end is read as the last one.
template <class Form, class Lanes>
struct TileRows {
  enum : int {
    rows = Form::threads / Lanes::threads,
    batches = Form::tile / (rows * Lanes::together)
  };
  KILN_MEMBER static int row(int batch, int u) {
    return int(threadIdx.x) / Lanes::threads + rows * (batch * Lanes::together + u);
  }
  template <class Index>
  KILN_MEMBER static Index key(Index tile, Index last, int batch, int u) {
    return least(tile + Index(row(batch, u)), last - 1);
  }
};

// Products whose sums over the threads of a row are taken at once, each thread ending up with a few
// of them, or the same as others: those of some keys with all queries, and as many zeros as make it
// a power of two.
template <class Form>
struct ScoreProducts {
  using Lanes = typename Form::KeyRow;
  enum : int {
    queries = Form::queries <= 1 ? 1
              : Form::queries <= 2 ? 2
              : Form::queries <= 4 ? 4
                                   : 8,
    wanted = Lanes::threads / queries,
    keys = wanted < 1 ? 1
           : wanted < Lanes::together ? int(wanted)
                                      : int(Lanes::together),
    count = queries * keys,
    own = count < Lanes::threads ? 1 : count / Lanes::threads
  };
  static_assert(Form::queries <= 8 && Lanes::together % keys == 0, "ScoreProducts: whole turns");
};

template <class Form, class Index, class LoadKey, class Product>
KILN_FN void score_products(AttentionSlots<Form>& slots, Index tile, Index last, int batch,
                            const LoadKey (&loaded)[Form::KeyRow::together],
                            const Product& product) {
  using Lanes = typename Form::KeyRow;
  using Rows = TileRows<Form, Lanes>;
  using Products = ScoreProducts<Form>;
  _Pragma("unroll") for (int first = 0; first < Lanes::together; first += Products::keys) {
    kiln::Lanes<f32, Products::count> all = {};
    _Pragma("unroll") for (int u = 0; u < Products::keys; ++u) {
      f32 products[Form::queries];
      product(Rows::key(tile, last, batch, first + u), loaded[first + u], products);
      KILN_FOR_EACH_QUERY(q, Form::queries) all.lane[u * Products::queries + q] = products[q];
    }
    scatter_across<Sum, 1, Lanes::threads, Products::count>(all);
    const int thread = int(threadIdx.x) % Lanes::threads;
    _Pragma("unroll") for (int i = 0; i < Products::own; ++i) {
      const int at = thread * Products::count / Lanes::threads + i;
      const int q = at % Products::queries;
      if (q < Form::queries) {
        slots.score[q][Rows::row(batch, first + at / Products::queries)] = all.lane[i];
      }
    }
  }
}

template <class Form, class Index, class Loaded, class Sums, class Weigh>
KILN_FN void add_values(AttentionSlots<Form>& slots, Index tile, Index last, int batch,
                        const Loaded (&loaded)[Form::ValueRow::together], Sums& sum,
                        const Weigh& weigh) {
  using Lanes = typename Form::ValueRow;
  using Rows = TileRows<Form, Lanes>;
  _Pragma("unroll") for (int u = 0; u < Lanes::together; ++u) {
    const int row = Rows::row(batch, u);
    if (tile + Index(row) >= last) continue;
    f32 weights[Form::queries];
    KILN_FOR_EACH_QUERY(q, Form::queries) weights[q] = slots.weight[row][q];
    weigh(tile + Index(row), loaded[u], weights, sum);
  }
}

// Adds up what the rows of threads of a wave have.
template <int Mask>
KILN_FN f32 add_rows(f32 value) {
  if constexpr (Mask >= kWave) {
    return value;
  } else {
    return add_rows<Mask * 2>(value + exchange<Mask, false>(value));
  }
}

template <class Form, class Index, class Sums, class LoadKey, class Product, class Score,
          class LoadValue, class Weigh, class Exp>
KILN_FN void attend(AttentionSlots<Form>& slots, Index first, Index last, Sums& sum,
                    const LoadKey& load_key, const Product& product, const Score& score,
                    const LoadValue& load_value, const Weigh& weigh, const Exp& exponential) {
  using Keys = typename Form::KeyRow;
  using Values = typename Form::ValueRow;
  using KeyRows = TileRows<Form, Keys>;
  using ValueRows = TileRows<Form, Values>;
  constexpr int kQueries = Form::queries;
  constexpr int kWaves = Form::threads / kWave;
  constexpr int kOwn = (kQueries + kWaves - 1) / kWaves;
  constexpr int kEach = (Form::tile + kWave - 1) / kWave;
  const int wave = int(threadIdx.x) / kWave;
  const int thread = int(threadIdx.x) % kWave;
  f32 largest[kOwn];
  f32 total[kOwn];
  _Pragma("unroll") for (int i = 0; i < kOwn; ++i) {
    largest[i] = lowest<f32>();
    total[i] = 0.0f;
  }
  KILN_FOR_EACH_QUERY(q, kQueries) {
    _Pragma("unroll") for (int lane = 0; lane < Values::lanes; ++lane) sum[q][lane] = 0.0f;
  }
  if constexpr (sizeof(Index) == 8) KILN_SYNCHRONIZE();  // the work item before is done
  for (Index tile = first; tile < last; tile += Form::tile) {
    decltype(load_value(tile)) values[Values::together];
    _Pragma("unroll") for (int batch = 0; batch < KeyRows::batches; ++batch) {
      decltype(load_key(tile)) keys[Keys::together];
      _Pragma("unroll") for (int u = 0; u < Keys::together; ++u) {
        keys[u] = load_key(KeyRows::key(tile, last, batch, u));
      }
      if constexpr (Form::prefetch) {
        _Pragma("unroll") for (int u = 0; u < Values::together; ++u) {
          values[u] = load_value(ValueRows::key(tile, last, 0, u));
        }
      }
      score_products<Form>(slots, tile, last, batch, keys, product);
    }
    // Kernels that begin earlier load their weights before these keys.
    if (tile == first) let_dependents_launch();
    KILN_SYNCHRONIZE();
    _Pragma("unroll") for (int i = 0; i < kOwn; ++i) {
      const int q = wave + kWaves * i;
      if (kQueries % kWaves != 0 && q >= kQueries) break;
      f32 own[kEach];
      f32 now = largest[i];
      _Pragma("unroll") for (int k = 0; k < kEach; ++k) {
        const int row = thread + kWave * k;
        const bool there =
            (Form::tile % kWave == 0 || row < Form::tile) && tile + Index(row) < last;
        own[k] = there ? score(q, tile + Index(row), slots.score[q][row]) : lowest<f32>();
        now = Max::combine(now, own[k]);
      }
      now = reduce_wave<Max, kWave>(now);
      const f32 shift = finite_shift(now);
      f32 added = 0.0f;
      _Pragma("unroll") for (int k = 0; k < kEach; ++k) {
        const int row = thread + kWave * k;
        const f32 weight = exponential(own[k] - shift);
        if (Form::tile % kWave == 0 || row < Form::tile) slots.weight[row][q] = weight;
        added += weight;
      }
      const f32 scale = exponential(largest[i] - shift);
      total[i] = total[i] * scale + reduce_wave<Sum, kWave>(added);
      largest[i] = now;
      if (thread == 0) slots.scale[q] = scale;
    }
    KILN_SYNCHRONIZE();
    KILN_FOR_EACH_QUERY(q, kQueries) {
      const f32 scale = slots.scale[q];
      _Pragma("unroll") for (int lane = 0; lane < Values::lanes; ++lane) sum[q][lane] *= scale;
    }
    if constexpr (Form::prefetch) {
      add_values<Form>(slots, tile, last, 0, values, sum, weigh);
    } else {
      _Pragma("unroll") for (int batch = 0; batch < ValueRows::batches; ++batch) {
        _Pragma("unroll") for (int u = 0; u < Values::together; ++u) {
          values[u] = load_value(ValueRows::key(tile, last, batch, u));
        }
        add_values<Form>(slots, tile, last, batch, values, sum, weigh);
      }
    }
  }
  _Pragma("unroll") for (int i = 0; i < kOwn; ++i) {
    const int q = wave + kWaves * i;
    if (thread != 0 || q >= kQueries) continue;
    slots.largest[q] = largest[i];
    slots.total[q] = total[i];
  }
}

// Adds up the sums of all rows of threads, in the order of waves, and calls `store` for each query
// and vector of elements with them, the largest score and the weights' sum.
template <class Form, class Sums, class Store>
KILN_FN void finish_attention(AttentionSlots<Form>& slots, Sums& sum, const Store& store) {
  using Lanes = typename Form::ValueRow;
  using Slots = AttentionSlots<Form>;
  constexpr int kVectors = Lanes::extent / Lanes::width;
  const int wave = int(threadIdx.x) / kWave;
  const bool is_first = int(threadIdx.x) % kWave < Lanes::threads;
  KILN_FOR_EACH_QUERY(q, Form::queries) {
    _Pragma("unroll") for (int lane = 0; lane < Lanes::lanes; ++lane) {
      sum[q][lane] = add_rows<Lanes::threads>(sum[q][lane]);
    }
  }
  _Pragma("unroll") for (int from = 0; from < Form::queries; from += Slots::at_once) {
    if (from != 0) KILN_SYNCHRONIZE();
    if (is_first) {
      _Pragma("unroll") for (int i = 0; i < Slots::at_once; ++i) {
        if (from + i >= Form::queries) break;
        _Pragma("unroll") for (int lane = 0; lane < Lanes::lanes; ++lane) {
          if (is_in_row<Lanes>(lane))
            slots.part[wave][i][place_of<Lanes>(lane)] = sum[from + i][lane];
        }
      }
    }
    KILN_SYNCHRONIZE();
    for (int at = int(threadIdx.x); at < Slots::at_once * kVectors; at += Form::threads) {
      const int i = at / kVectors;
      const int q = from + i;
      if (q >= Form::queries) break;
      const int first = at % kVectors * Lanes::width;
      f32 all[Lanes::width];
      _Pragma("unroll") for (int lane = 0; lane < Lanes::width; ++lane) {
        all[lane] = slots.part[0][i][first + lane];
        _Pragma("unroll") for (int w = 1; w < Slots::waves; ++w) {
          all[lane] += slots.part[w][i][first + lane];
        }
      }
      store(q, first, all, slots.largest[q], slots.total[q]);
    }
  }
}

#endif

}  // namespace kiln
