// Programs that only move elements move their bits: every infinity and NaN with its payload, of
// every dtype, whatever kernel moves it and whatever that computes beside.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "kiln/program.hpp"
#include "tests/src/program/run_program.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using testing::HostArray;

constexpr DType kDTypes[] = {
    DType::boolean, DType::u8,  DType::u16,    DType::u32,    DType::u64,        DType::i8,
    DType::i16,     DType::i32, DType::i64,    DType::f16,    DType::bf16,       DType::f32,
    DType::f64,     DType::c64, DType::f8e4m3, DType::f8e5m2, DType::f8e4m3fnuz, DType::f8e5m2fnuz,
    DType::u4,      DType::i4,  DType::f4e2m1};

// The dtype of whole numbers whose elements have as many bits, and of which none changes.
DType bits_dtype(DType dtype) {
  if (dtype == DType::boolean) return dtype;
  switch (bits(dtype)) {
    case 4: return DType::u4;
    case 8: return DType::u8;
    case 16: return DType::u16;
    case 32: return DType::u32;
    default: return DType::u64;
  }
}

// All patterns of up to 16 bits, `first` first; of more, all kinds of NaN and random ones.
HostArray patterns(DType dtype, const Dims& shape, std::uint64_t first) {
  HostArray array = HostArray::contiguous(dtype, shape);
  std::mt19937_64 random(first);
  for (std::int64_t i = 0; i < array.size(); ++i) {
    auto pattern = static_cast<std::uint64_t>(i) + first;
    if (dtype == DType::boolean) pattern &= 1;
    if (bits(dtype) > 16) {
      pattern = random();
      // f32, the parts of c64, and f64: signalling and quiet, of either sign.
      if (i % 4 == 1) pattern |= 0x7f8000007f800000;
      if (i % 4 == 2) pattern = (pattern | 0x7f8000007f800000) & 0xffbfffffffbfffff;
      if (i % 4 == 3) pattern = (pattern | 0x7ff0000000000000) & 0xfff7ffffffffffff;
    }
    testing::set_bits(array, i, pattern);
  }
  return array;
}

Dims shape_of(DType dtype) { return bits(dtype) == 16 ? Dims{256, 256} : Dims{16, 16}; }

class Movement : public testing::ProgramsOnDevices {
 protected:
  // The outputs of `text` that hold what was moved, and the others in their own dtypes.
  void check_moves(const std::string& text, DType dtype, std::size_t moved, Rounding rounding) {
    std::vector<HostArray> inputs;
    for (std::size_t i = 0; i < fusion::parse(text).arguments().size(); ++i) {
      inputs.push_back(patterns(dtype, shape_of(dtype), 7 * i));
    }
    std::vector<HostArray> as_bits = inputs;
    for (HostArray& input : as_bits) input.dtype = bits_dtype(dtype);
    std::vector<DType> stored = testing::natural_dtypes(text, as_bits);
    std::fill_n(stored.begin(), moved, bits_dtype(dtype));
    const std::vector<HostArray> want =
        testing::reference_of(text, as_bits, Rounding::once, stored);
    const std::vector<DType> natural = testing::natural_dtypes(text, inputs);
    std::vector<HostArray> outputs;
    for (std::size_t i = 0; i < want.size(); ++i) {
      outputs.push_back(HostArray::contiguous(i < moved ? dtype : natural[i], want[i].shape));
    }
    Options options;
    options.rounding = rounding;
    // Recorded: its kernels are compiled side by side.
    const std::vector<HostArray> got =
        run(parse_program("moves", text, options), inputs, outputs, true);
    for (std::size_t i = 0; i < moved; ++i) {
      for (std::int64_t n = 0; n < want[i].size(); ++n) {
        ASSERT_EQ(testing::get_bits(got[i], n), testing::get_bits(want[i], n))
            << text << " of " << name(dtype) << ", output " << i << ", element " << n;
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, Movement,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

TEST_P(Movement, KeepsEveryBitOfEveryDType) {
  testing::Share share(GetParam(), 5);
  for (const DType dtype : kDTypes) {
    if (!share.next()) continue;
    check_moves("x, x[::-1, 1::3], concat(0, x, y), reshape(transpose(y), -1)", dtype, 4,
                dtype == DType::bf16 ? Rounding::each : Rounding::once);
  }
}

TEST_P(Movement, KeepsEveryBitBesideWhatIsComputed) {
  testing::Share share(GetParam(), 5);
  for (const DType dtype : {DType::f16, DType::bf16, DType::f8e5m2, DType::f8e4m3fnuz}) {
    for (const auto& [text, moved] : {std::pair{"x, x[::-1], x + y", 2},
                                      {"x, sum(f32(x), -1)", 1},
                                      {"x[:, ::-1], mean(f32(x), 0)", 1},
                                      {"transpose(x), cummax(f32(x), 0)", 1}}) {
      if (share.next()) check_moves(text, dtype, static_cast<std::size_t>(moved), Rounding::each);
    }
  }
}

}  // namespace
}  // namespace kiln
