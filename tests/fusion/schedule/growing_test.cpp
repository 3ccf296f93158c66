// Lengths that grow, as those of sequences do: how many schedules, and so kernels, they take. A
// schedule looks at ranges of lengths and at powers of two that divide them (fusion/README.md), so
// that a service has its kernels long before it has seen every length.
#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "fusion/schedule/layout.hpp"
#include "fusion/schedule/rows/row_layout.hpp"
#include "fusion/schedule/scan/scan_layout.hpp"
#include "kiln/view.hpp"

namespace kiln::fusion {
namespace {

constexpr std::int64_t kLongest = 16384;
constexpr std::int64_t kOthers = 24;

Operand dense(DType dtype, const Dims& shape, const Dims& repeats, std::size_t number) {
  Operand operand;
  operand.dtype = dtype;
  operand.strides = contiguous_strides(shape);
  for (std::size_t k = 0; k < shape.size(); ++k) {
    if (repeats[k] != 0) operand.strides[k] = 0;
  }
  operand.address = (number + 1) << 40;
  return operand;
}

std::vector<Operand> operands_of(DType dtype, const Dims& shape, bool reduces, std::size_t axis) {
  const Dims none(shape.size(), 0);
  Dims along = none;
  along[axis] = 1;
  std::vector<Operand> operands{dense(dtype, shape, none, 0), dense(dtype, shape, none, 1)};
  operands.push_back(dense(dtype, shape, reduces ? along : none, 2));
  operands.back().output = true;
  return operands;
}

/// What grows, and how many schedules that takes at most, up to kLongest.
struct Growing {
  std::string_view name;
  Layout (*plan)(std::int64_t length, DType dtype, Backend backend);
  std::size_t gpu;
  std::size_t host;
};

Layout plan_of_rows(const Dims& shape, std::size_t axis, bool reduces, DType dtype,
                    Backend backend) {
  ReduceSpace space;
  space.shape = shape;
  space.reduced.assign(shape.size(), false);
  space.reduced[axis] = true;
  space.reductions = reduces ? 1 : 2;
  const RowFeatures features{backend == Backend::nvidia, backend == Backend::nvidia};
  return plan_rows(space, space.shape, operands_of(dtype, shape, reduces, axis),
                   {false, false, reduces}, false, backend, features);
}

const Growing kGrowing[] = {
    {"elements",
     [](std::int64_t n, DType dtype, Backend backend) {
       return plan_layout({n}, operands_of(dtype, {n}, false, 0), backend);
     },
     3, 1},
    {"elements, more rows",
     [](std::int64_t n, DType dtype, Backend backend) {
       return plan_layout({n, 4096}, operands_of(dtype, {n, 4096}, false, 0), backend);
     },
     1, 2},
    {"softmax of longer rows",
     [](std::int64_t n, DType dtype, Backend backend) {
       return plan_of_rows({kOthers, n}, 1, false, dtype, backend);
     },
     115, 14},
    {"sums of longer rows",
     [](std::int64_t n, DType dtype, Backend backend) {
       return plan_of_rows({kOthers, n}, 1, true, dtype, backend);
     },
     133, 14},
    {"softmax of more rows",
     [](std::int64_t n, DType dtype, Backend backend) {
       return plan_of_rows({n, 4096}, 1, false, dtype, backend);
     },
     1, 2},
    {"sums of longer columns",
     [](std::int64_t n, DType dtype, Backend backend) {
       return plan_of_rows({n, 4096}, 0, true, dtype, backend);
     },
     50, 1},
    {"sums of more columns",
     [](std::int64_t n, DType dtype, Backend backend) {
       return plan_of_rows({kOthers, n}, 0, true, dtype, backend);
     },
     21, 8},
    {"running sums of longer rows",
     [](std::int64_t n, DType dtype, Backend backend) {
       return plan_scan({kOthers, n}, 1, operands_of(dtype, {kOthers, n}, false, 1), backend);
     },
     20, 9},
};

TEST(GrowingLengths, TakeFewSchedules) {
  for (const Growing& growing : kGrowing) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const Backend backend : {Backend::nvidia, Backend::amd, Backend::host}) {
        std::vector<Schedule> known;
        for (std::int64_t length = 2; length <= kLongest; ++length) {
          Schedule schedule = growing.plan(length, dtype, backend).schedule;
          if (std::ranges::find(known, schedule) != known.end()) continue;
          known.push_back(std::move(schedule));
        }
        EXPECT_LE(known.size(), backend == Backend::host ? growing.host : growing.gpu)
            << growing.name << " of " << name(dtype);
      }
    }
  }
}

}  // namespace
}  // namespace kiln::fusion
