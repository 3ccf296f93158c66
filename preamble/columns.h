// Reductions of columns, on GPUs.
#pragma once

#include "beside.h"
#include "tree.h"

#if !KILN_HOST
namespace kiln {

// ---- the residues of a thread -------------------------------------------------------------------

// Of a chunk of `count` elements a thread adds up the residues that are `own` modulo `sharing`, up
// to `Batch` of them side by side: visit(element, apart, beside) is for `beside` elements, `apart`
// from each other, of which those from `count` on do not exist. After each group of residues comes
// end(turn), groups being in bit-reversed order. Threads beyond the last residue visit nothing.
// `Joined` columns are one row, whose elements take turns.
template <int Batch, class Index, class Visit, class End>
KILN_FN void walk_column_residues(Index count, u32 residues, u32 own, u32 sharing,
                                  const Visit& visit, const End& end) {
  const u32 mine = residues > sharing ? residues / sharing : 1;
  const u32 beside = least(mine, u32(Batch));
  const u32 groups = mine / beside;
  const Index last = own < residues ? count : 0;
  u32 group = 0;
  for (u32 turn = 0; turn < groups; ++turn) {
    for (Index i = own + group * sharing; i < last; i += residues) {
      visit(i, Index(residues / beside), int(beside));
    }
    end(turn);
    group = next_residue(group, groups);
  }
}
template <int Batch, int Joined, class Index, class Visit, class End>
KILN_FN void walk_column(Index count, u32 own, u32 sharing, const Visit& visit, const End& end) {
  const u32 all = visited_residues(Index(count * Joined));
  walk_column_residues<Batch>(count, all > u32(Joined) ? all / Joined : 1, own, sharing, visit,
                              end);
}

// What the elements of a few vectors come to where a row is counted along another axis first than
// the one that vectors lie along: `Steps` vectors have the next numbers of a lane before its
// neighbour has any. They are all of the terms of `Residues` residues, which are combined in order,
// and then in pairs. Each lane gets the result.
template <class Reduction, int Steps, int Residues, class T, int Width, int Vectors>
KILN_FN Lanes<T, Width> fold_vectors(const Lanes<T, Width> (&terms)[Vectors]) {
  T sums[Residues];
  KILN_UNROLL for (int i = 0; i < Residues; ++i) sums[i] = Reduction::template identity<T>();
  KILN_UNROLL for (int i = 0; i < Vectors * Width; ++i) {
    const int place = i / Steps;
    const T term = terms[place / Width * Steps + i % Steps].lane[place % Width];
    sums[i % Residues] = Reduction::combine(sums[i % Residues], term);
  }
  KILN_UNROLL for (int apart = Residues / 2; apart != 0; apart /= 2) {
    KILN_UNROLL for (int i = 0; i < apart; ++i) {
      sums[i] = Reduction::combine(sums[i], sums[i + apart]);
    }
  }
  Lanes<T, Width> result;
  KILN_UNROLL for (int i = 0; i < Width; ++i) result.lane[i] = sums[0];
  return result;
}

// The slot of a thread's vectors that is visited in a turn: `Residues` of them one after the other,
// in bit-reversed order.
template <int Residues, int Slots>
KILN_FN int slot_in_tree(int turn) {
  constexpr int kTerms = Slots / Residues;
  int residue = 0;
  KILN_UNROLL for (int bit = 1; bit < Residues; bit *= 2) {
    if (turn / kTerms & bit) residue += Residues / 2 / bit;
  }
  return residue + turn % kTerms * Residues;
}

// What sums of a thread begin with: nothing is added to the first term then. Only where all terms
// are -0 the sum is another than that from +0 on, which finish_sums() makes of it.
template <class Reduction, class T>
KILN_FN T first_of_sums() {
  if constexpr (is_same<Reduction, Sum>() && is_real<T>()) return -T(0);
  return Reduction::template identity<T>();
}
template <class Reduction, class T, int Width>
KILN_FN Lanes<T, Width> finish_sums(Lanes<T, Width> lanes) {
  if constexpr (is_same<Reduction, Sum>() && is_real<T>()) {
    KILN_UNROLL for (int i = 0; i < Width; ++i) lanes.lane[i] = add(lanes.lane[i], T(0));
  }
  return lanes;
}

// The sums or products of a thread's columns: of `Beside` residues that are added up side by side,
// and of groups of residues, 2^i of them on level i. finish_sums() gives the result.
template <class Reduction, class T, int Width, int Beside, int Levels>
struct ColumnTree {
  Lanes<T, Width> sums[Beside];
  Lanes<T, Width> level[Levels == 0 ? 1 : Levels];
  KILN_MEMBER ColumnTree() { start(); }

  KILN_MEMBER Lanes<T, Width>& residue(int i) { return sums[i]; }
  // The result of the groups that are complete by now, after the last turn that of all.
  KILN_MEMBER Lanes<T, Width> end(u32 turn) {
    join<Beside>();
    Lanes<T, Width> result = sums[0];
    start();
    put<0>(result, turn);
    return result;
  }

 private:
  KILN_MEMBER void start() {
    KILN_UNROLL for (int i = 0; i < Beside * Width; ++i) {
      sums[i / Width].lane[i % Width] = first_of_sums<Reduction, T>();
    }
  }
  KILN_MEMBER static void join_lanes(Lanes<T, Width>& to, const Lanes<T, Width>& from) {
    KILN_UNROLL for (int i = 0; i < Width; ++i) {
      to.lane[i] = Reduction::combine(to.lane[i], from.lane[i]);
    }
  }
  template <int Count>
  KILN_MEMBER void join() {
    if constexpr (Count > 1) {
      KILN_UNROLL for (int i = 0; i < Count / 2; ++i) join_lanes(sums[i], sums[i + Count / 2]);
      join<Count / 2>();
    }
  }
  template <int Level>
  KILN_MEMBER void put(Lanes<T, Width>& result, u32 turn) {
    if constexpr (Level < Levels) {
      if (turn >> Level & 1) {
        Lanes<T, Width> both = level[Level];
        join_lanes(both, result);
        result = both;
        put<Level + 1>(result, turn);
      } else {
        level[Level] = result;
      }
    }
  }
};

// Makes the compiler take vectors in registers for others than before, of which nothing is known.
template <class T, int Width, int Count>
KILN_FN void forget_converted(Vec<T, Width> (&vectors)[Count]) {
#if KILN_NVIDIA
  KILN_UNROLL for (int i = 0; i < Count; ++i) {
    if constexpr (sizeof(T) * Width == 2) {
      asm("" : "+h"(reinterpret_cast<Chunk<2>*>(&vectors[i])->half));
    } else {
      auto* const words = reinterpret_cast<Chunk<4>*>(&vectors[i]);
      KILN_UNROLL for (int k = 0; k < int(sizeof(T)) * Width / 4; ++k) {
        asm("" : "+r"(words[k].word));
      }
    }
  }
#endif
}

// ---- the threads of a column --------------------------------------------------------------------

// Threads of a column are `Columns` threads from each other. Shared memory has one slot for each
// lane of each group of these. The number of this thread among those of its column is that of its
// residue.
template <int Columns, int Threads>
KILN_FN u32 column_thread() {
  return ThreadsBeside<Columns, Threads>::thread_number(thread_of<Columns, Threads>());
}
// Where threads of several waves have a column: what each wave has of all columns of a block, and
// what these come to.
template <int Bytes, int Columns, int Threads, int Rows, int Width>
struct ColumnSlots {
  enum : int {
    kGroups = ThreadsBeside<Columns, Threads>::kGroups,
    kBytes = kGroups == 1 ? 16 : Columns * Rows * Width * Bytes,
  };
  alignas(16) u8 wave[kGroups == 1 ? 16 : kGroups * kBytes];
  alignas(16) u8 all[kBytes];
};

// Lanes in shared memory, which take few accesses.
template <class T, int Width>
struct alignas(sizeof(T) * Width % 16 == 0 ? 16 : alignof(T)) SharedLanes {
  T lane[Width];
};

template <class Reduction, int Stride, int Count, class T>
KILN_FN T combine_slots(const T* slots) {
  if constexpr (Count == 1) {
    return *slots;
  } else {
    return Reduction::combine(combine_slots<Reduction, 2 * Stride, Count / 2>(slots),
                              combine_slots<Reduction, 2 * Stride, Count / 2>(slots + Stride));
  }
}

// Leaves what this wave has of its columns in the slots of waves: of a block with several rows in
// those of its row.
template <class Reduction, int Columns, int Threads, class T, int Width, class Slots>
KILN_FN void leave_in_waves(Lanes<T, Width>& lanes, Slots& slots) {
  constexpr int kTogether = ThreadsBeside<Columns, Threads>::kTogether;
  constexpr int kWaves = ThreadsBeside<Columns, Threads>::kGroups;
  constexpr int kAll = Columns * Width;
  constexpr int kOwn = Width / kTogether == 0 ? 1 : Width / kTogether;
  const int row = int(threadIdx.x) / (Columns * Threads);
  const int column = int(threadIdx.x) % Columns;
  const int thread = int(thread_of<Columns, Threads>());
  scatter_across<Reduction, Columns, Columns * kTogether, Width>(lanes);
  // Where there are more threads than lanes, some have the same.
  const int lane = thread % kTogether * Width / kTogether;
  SharedLanes<T, kOwn> own;
  KILN_UNROLL for (int i = 0; i < kOwn; ++i) own.lane[i] = lanes.lane[i];
  T* const slot = reinterpret_cast<T*>(slots.wave) + (row * kWaves + thread / kTogether) * kAll;
  *reinterpret_cast<SharedLanes<T, kOwn>*>(slot + column * Width + lane) = own;
}
// After a barrier one thread combines each lane of a column: put(place, value).
template <class Reduction, int Columns, int Threads, class T, int Width, class Slots, class Put>
KILN_FN void combine_wave_slots(Slots& slots, const Put& put) {
  constexpr int kWaves = ThreadsBeside<Columns, Threads>::kGroups;
  constexpr int kAll = Columns * Width;
  const int row = int(threadIdx.x) / (Columns * Threads);
  const int number = int(threadIdx.x) % (Columns * Threads);
  const T* const waves = reinterpret_cast<const T*>(slots.wave) + row * kWaves * kAll;
  KILN_UNROLL for (int i = 0; i < kAll; i += Columns * Threads) {
    const int place = i + number;
    if (place < kAll) put(place, combine_slots<Reduction, kAll, kWaves>(waves + place));
  }
}
template <int Columns, int Threads, class T, int Width>
KILN_FN void read_columns(Lanes<T, Width>& lanes, const T* all) {
  const int column = int(threadIdx.x) % Columns;
  const auto& own = *reinterpret_cast<const SharedLanes<T, Width>*>(all + column * Width);
  KILN_UNROLL for (int i = 0; i < Width; ++i) lanes.lane[i] = own.lane[i];
}

struct Unchanged {
  template <class T>
  KILN_MEMBER T operator()(T value) const {
    return value;
  }
};

// Every thread of a column gets its result, of which finish() makes what it is to be. What waves
// have is combined by one thread for each lane of a column: if every thread did that for its own,
// shared memory would take longer than the loads of 512 rows.
template <class Reduction, int Columns, int Threads, class T, int Width, class Slots,
          class Finish = Unchanged>
KILN_FN void reduce_columns(Lanes<T, Width>& lanes, Slots& slots, const Finish& finish = {}) {
  using Exchange = ThreadsBeside<Columns, Threads>;
  if constexpr (Exchange::kGroups == 1) {
    KILN_UNROLL for (int i = 0; i < Width; ++i) {
      lanes.lane[i] =
          finish(reduce_across<Reduction, Columns, Columns * Exchange::kTogether>(lanes.lane[i]));
    }
  } else {
    T* const all = reinterpret_cast<T*>(slots.all) +
                   int(threadIdx.x) / (Columns * Threads) * (Columns * Width);
    leave_in_waves<Reduction, Columns, Threads>(lanes, slots);
    KILN_SYNCHRONIZE();
    combine_wave_slots<Reduction, Columns, Threads, T, Width>(
        slots, [&](int place, T value) { all[place] = finish(value); });
    KILN_SYNCHRONIZE();
    read_columns<Columns, Threads>(lanes, all);
  }
}

// ---- the blocks of a column ---------------------------------------------------------------------

// Where the blocks of a cluster share columns, neighbouring elements are those of neighbouring
// blocks. Beside the slots of a block there is what each block has of all columns.
template <int Bytes, int Columns, int Threads, int Width, int Blocks>
struct ClusterColumnSlots : ColumnSlots<Bytes, Columns, Threads, 1, Width> {
  alignas(16) u8 block[Blocks * Columns * Width * Bytes];
};

// The number of this thread among the `Threads` of each block.
template <int Columns, int Threads, int Blocks>
KILN_FN u32 column_thread_in_cluster() {
  return column_thread<Columns, Threads>() * Blocks + block_of_cluster();
}

// Like reduce_columns() of a block, whose threads' residues differ in the highest bits. As a row
// begins, and after they have read the slots of blocks, threads arrive at a barrier of the cluster
// that they await before they write there, or in the end.
template <class Reduction, int Columns, int Threads, int Blocks, class T, int Width, class Slots,
          class Finish = Unchanged>
KILN_FN void reduce_columns_in_cluster(Lanes<T, Width>& lanes, Slots& slots,
                                       const Finish& finish = {}) {
  constexpr int kAll = Columns * Width;
  T* const blocks = reinterpret_cast<T*>(slots.block);
  T* const all = reinterpret_cast<T*>(slots.all);
  leave_in_waves<Reduction, Columns, Threads>(lanes, slots);
  KILN_SYNCHRONIZE();
  await_cluster();
  combine_wave_slots<Reduction, Columns, Threads, T, Width>(slots, [&](int place, T value) {
    T* const own = blocks + int(block_of_cluster()) * kAll + place;
    KILN_UNROLL for (int block = 0; block < Blocks; ++block) * in_block(own, u32(block)) = value;
  });
  arrive_in_cluster();
  await_cluster();
  KILN_UNROLL for (int i = 0; i < kAll; i += Columns * Threads) {
    const int place = i + int(threadIdx.x);
    if (place < kAll) all[place] = finish(combine_slots<Reduction, kAll, Blocks>(blocks + place));
  }
  arrive_in_cluster();
  KILN_SYNCHRONIZE();
  read_columns<Columns, Threads>(lanes, all);
}

// Joins the results of `Joined` neighbouring columns that are one row: each of them gets the row's.
// Threads that are side by side have neighbouring vectors.
template <class Reduction, int Joined, class T, int Width>
KILN_FN void join_columns(Lanes<T, Width>& lanes) {
  if constexpr (Joined > Width) {
    KILN_UNROLL for (int i = 0; i < Width; ++i) {
      lanes.lane[i] = reduce_across<Reduction, 1, Joined / Width>(lanes.lane[i]);
    }
  }
  constexpr int kWithin = Joined < Width ? Joined : Width;
  KILN_UNROLL for (int apart = kWithin / 2; apart != 0; apart /= 2) {
    const Lanes<T, Width> own = lanes;
    KILN_UNROLL for (int i = 0; i < Width; ++i) {
      lanes.lane[i] = Reduction::combine(own.lane[i], own.lane[i ^ apart]);
    }
  }
}

}  // namespace kiln
#endif
