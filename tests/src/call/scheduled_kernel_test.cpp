// What kernels by class are found by: two schedules that one table shall hold differ in their hash.
#include "call/scheduled_kernel.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <vector>

#include "fusion/schedule/scan/scan_layout.hpp"

namespace kiln {
namespace {

using fusion::Schedule;

// Of a kernel of every form at once, so that every field counts.
Schedule schedule_of_everything() {
  Schedule schedule;
  schedule.reduction.axes = 1;
  schedule.products.rows = 1;
  schedule.attention.threads = 32;
  schedule.operands.resize(1);
  schedule.bounds.resize(1);
  return schedule;
}

TEST(ScheduleHash, TellsSchedulesOfOneKernelApart) {
  using Change = std::function<void(Schedule&)>;
  const std::vector<Change> changes = {
      [](Schedule& s) { s.rank += 1; },
      [](Schedule& s) { s.width += 1; },
      [](Schedule& s) { s.vectors += 1; },
      [](Schedule& s) { s.threads += 1; },
      [](Schedule& s) { s.wide_index = true; },
      [](Schedule& s) { s.flat = true; },
      [](Schedule& s) { s.tile += 1; },
      [](Schedule& s) { s.tile_rows += 1; },
      [](Schedule& s) { s.tile_axis += 1; },
      [](Schedule& s) { s.min_blocks += 1; },
      [](Schedule& s) { s.streamed = true; },
      [](Schedule& s) { s.table = true; },
      [](Schedule& s) { s.scan = fusion::ScanSchedule::along; },
      [](Schedule& s) { s.bounds[0] += 1; },
      [](Schedule& s) { s.reduction.axes += 1; },
      [](Schedule& s) { s.reduction.threads += 1; },
      [](Schedule& s) { s.reduction.cluster_blocks += 1; },
      [](Schedule& s) { s.reduction.vectors += 1; },
      [](Schedule& s) { s.reduction.batch += 1; },
      [](Schedule& s) { s.reduction.full_vectors += 1; },
      [](Schedule& s) { s.reduction.in_smem += 1; },
      [](Schedule& s) { s.reduction.sets += 1; },
      [](Schedule& s) { s.reduction.rows += 1; },
      [](Schedule& s) { s.reduction.columns += 1; },
      [](Schedule& s) { s.reduction.joined += 1; },
      [](Schedule& s) { s.reduction.groups += 1; },
      [](Schedule& s) { s.reduction.min_blocks += 1; },
      [](Schedule& s) { s.reduction.ragged = true; },
      [](Schedule& s) { s.reduction.split = true; },
      [](Schedule& s) { s.reduction.chunks = fusion::ColumnChunks::many; },
      [](Schedule& s) { s.reduction.phase += 1; },
      [](Schedule& s) { s.reduction.row_step += 1; },
      [](Schedule& s) { s.reduction.buffered += 1; },
      [](Schedule& s) { s.products.rows += 1; },
      [](Schedule& s) { s.products.columns += 1; },
      [](Schedule& s) { s.products.lanes += 1; },
      [](Schedule& s) { s.products.turns += 1; },
      [](Schedule& s) { s.products.tree = true; },
      [](Schedule& s) { s.products.in_flight += 1; },
      [](Schedule& s) { s.products.beside += 1; },
      [](Schedule& s) { s.products.across = true; },
      [](Schedule& s) { s.products.tiles.steps_per_group += 1; },
      [](Schedule& s) { s.products.tiles.steps += 1; },
      [](Schedule& s) { s.products.tiles.sets += 1; },
      [](Schedule& s) { s.products.tiles.run += 1; },
      [](Schedule& s) { s.products.tiles.sums += 1; },
      [](Schedule& s) { s.products.tiles.whole = true; },
      [](Schedule& s) { s.products.tiles.prefetch = true; },
      [](Schedule& s) { s.products.tiles.x_in_smem = true; },
      [](Schedule& s) { s.products.tiles.x_in_registers = true; },
      [](Schedule& s) { s.products.tiles.weights_before_pdl_wait = true; },
      [](Schedule& s) { s.products.tiles.split_k = true; },
      [](Schedule& s) { s.products.tiles.single_tile = true; },
      [](Schedule& s) { s.products.tiles.staged = true; },
      [](Schedule& s) { s.products.tiles.beside += 1; },
      [](Schedule& s) { s.products.tiles.min_blocks += 1; },
      [](Schedule& s) { s.attention.threads += 1; },
      [](Schedule& s) { s.attention.tile += 1; },
      [](Schedule& s) { s.attention.group_axes += 1; },
      [](Schedule& s) { s.attention.group[0] += 1; },
      [](Schedule& s) { s.attention.group[1] += 1; },
      [](Schedule& s) { s.attention.keys.vectors += 1; },
      [](Schedule& s) { s.attention.values.vectors += 1; },
      [](Schedule& s) { s.attention.prefetch = true; },
      [](Schedule& s) { s.row_axes += 1; },
      [](Schedule& s) { s.rows_ahead += 1; },
      [](Schedule& s) { s.attention.split = true; },
      [](Schedule& s) { s.operands[0].access = fusion::Access::strided; },
      [](Schedule& s) { s.operands[0].alignment += 1; },
      [](Schedule& s) { s.operands[0].outer_axes = std::uint64_t{1} << 40; },
      [](Schedule& s) { s.operands[0].start = true; },
      [](Schedule& s) { s.operands[0].in_registers = true; },
      [](Schedule& s) { s.operands[0].unaligned = true; },
      [](Schedule& s) { s.operands[0].whole_runs = true; },
      [](Schedule& s) { s.operands[0].prefetched = true; },
      [](Schedule& s) { s.operands[0].addressed = true; },
      [](Schedule& s) { s.operands[0].preloaded = true; },
      [](Schedule& s) { s.operands[0].before_pdl_wait = true; },
      [](Schedule& s) { s.operands[0].ways += 1; },
      [](Schedule& s) { s.operands[0].way += 1; },
      [](Schedule& s) { s.operands[0].first_way += 1; },
      [](Schedule& s) { s.operands[0].along += 1; },
      [](Schedule& s) { s.operands[0].indexing = fusion::Indexing::lane; },
  };
  const Schedule plain = schedule_of_everything();
  std::set<std::uint64_t> hashes = {hash_of(1, plain)};
  for (const Change& change : changes) {
    Schedule other = plain;
    change(other);
    ASSERT_NE(other, plain);
    EXPECT_TRUE(hashes.insert(hash_of(1, other)).second) << "change " << &change - changes.data();
  }
}

// A scan has no reduced axes, but threads that share a row.
TEST(ScheduleHash, TellsScansOfRowsOfManyLengthsApart) {
  std::set<std::uint64_t> hashes;
  std::vector<Schedule> schedules;
  for (std::int64_t length = 4; length <= 4096; length += 4) {
    fusion::Operand in;
    in.strides = {length, 1};
    fusion::Operand out = in;
    out.output = true;
    const std::vector<fusion::Operand> operands = {in, out};
    Schedule schedule =
        fusion::plan_scan({2, length}, 1, operands, fusion::Backend::nvidia).schedule;
    hashes.insert(hash_of(1, schedule));
    if (std::ranges::find(schedules, schedule) == schedules.end()) {
      schedules.push_back(std::move(schedule));
    }
  }
  EXPECT_GT(schedules.size(), 3u);
  EXPECT_EQ(hashes.size(), schedules.size());
}

}  // namespace
}  // namespace kiln
