// Rows that are no whole number of vectors: every length about those that vectors have, every float
// dtype, and what is around the rows. Elements between rows are NaN where they are read, which any
// use of one would show, and are looked at again where they could be written; the arrays begin and
// end at memory that cannot be touched.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "kiln/reduction.hpp"
#include "tests/support/arrays.hpp"
#include "tests/support/guarded_memory.hpp"
#include "tests/support/private_cache.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using testing::GuardedMemory;
using testing::HostArray;

constexpr std::int64_t kLengths[] = {1,  2,  3,  5,  7,  8,  9,   15,  16,  17,  23,  31,  33,
                                     40, 47, 63, 65, 77, 97, 100, 127, 129, 161, 255, 257, 1001};
constexpr std::int64_t kRows = 11;  // more than the host takes at a time
constexpr std::byte kUnread{0xff};  // of floats, NaN

/// Where rows lie: `gap` elements apart, at the start or at the end of the memory.
struct RowPlace {
  std::int64_t gap = 0;
  bool at_end = false;
};

// Two arrays of one shape and dtype, whose elements lie elsewhere in memory.
void copy_elements(const HostArray& from, HostArray& to) {
  const std::size_t width = static_cast<std::size_t>(bits(from.dtype)) / 8;
  for (std::int64_t row = 0; row < from.shape[0]; ++row) {
    for (std::int64_t k = 0; k < from.shape[1]; ++k) {
      const auto place = [&](const HostArray& array) {
        return static_cast<std::size_t>(row * array.strides[0] + k * array.strides[1]) * width;
      };
      std::memcpy(to.bytes.data() + place(to), from.bytes.data() + place(from), width);
    }
  }
}
HostArray spread(const HostArray& array, const Dims& strides, std::byte between) {
  HostArray result = HostArray::strided(array.dtype, array.shape, strides);
  std::ranges::fill(result.bytes, between);
  copy_elements(array, result);
  return result;
}
HostArray gathered(const HostArray& array) {
  HostArray result = HostArray::contiguous(array.dtype, array.shape);
  copy_elements(array, result);
  return result;
}

class RaggedRows : public testing::OnDevice {
 protected:
  static HostArray placed(const HostArray& array, std::int64_t gap, std::byte between) {
    if (array.shape.size() < 2) return array;
    return spread(array, {array.shape[1] + gap, 1}, between);
  }

  // Bytes of an array between its rows.
  static bool is_untouched(const HostArray& array) {
    const std::size_t width = static_cast<std::size_t>(bits(array.dtype)) / 8;
    const auto row = static_cast<std::size_t>(array.shape[1]) * width;
    const auto step = static_cast<std::size_t>(array.strides[0]) * width;
    for (std::size_t at = row; at + (step - row) < array.bytes.size(); at += step) {
      for (std::size_t i = 0; i < step - row; ++i) {
        if (array.bytes[at + i] != GuardedMemory::kCanary) return false;
      }
    }
    return true;
  }

  /// The results of `text`, each in memory of its own; with `in_place`, the first in that of the
  /// first argument.
  std::vector<HostArray> run(const std::string& text, const std::vector<HostArray>& inputs,
                             const std::vector<HostArray>& wanted, const std::vector<DType>& dtypes,
                             RowPlace place, bool in_place) const {
    jit::Backend& backend = jit::backend(device());
    const Stream stream{device(), nullptr};
    std::vector<HostArray> arrays;
    for (const HostArray& input : inputs) {
      arrays.push_back(placed(input, place.gap, in_place ? GuardedMemory::kCanary : kUnread));
    }
    std::vector<std::size_t> of_output;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      of_output.push_back(in_place && i == 0 ? 0 : arrays.size());
      if (of_output[i] == 0) continue;
      HostArray array = HostArray::contiguous(dtypes[i], wanted[i].shape);
      std::ranges::fill(array.bytes, GuardedMemory::kCanary);
      arrays.push_back(placed(array, array.shape[1] == 1 ? 0 : place.gap, GuardedMemory::kCanary));
    }
    std::vector<std::unique_ptr<GuardedMemory>> memory;
    std::vector<char*> starts;
    std::vector<View> views;
    for (const HostArray& array : arrays) {
      memory.push_back(std::make_unique<GuardedMemory>(backend, array.bytes.size()));
      starts.push_back(memory.back()->place(array.bytes.size(), place.at_end, 0));
      memory.back()->write(starts.back(), array.bytes);
      views.emplace_back(starts.back(), array.dtype, array.shape, array.strides, device());
    }
    const std::vector<Argument> arguments(
        views.begin(), views.begin() + static_cast<std::ptrdiff_t>(inputs.size()));
    std::vector<View> outputs;
    for (const std::size_t k : of_output) outputs.push_back(views[k]);
    parse("rows", text).call(stream, arguments, outputs);
    std::vector<HostArray> results;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const std::size_t k = of_output[i];
      bool intact = true;
      HostArray result = arrays[k];
      result.bytes = memory[k]->read(starts[k], result.bytes.size(), intact);
      EXPECT_TRUE(intact) << text << ": memory around output " << i;
      EXPECT_TRUE(is_untouched(result)) << text << ": memory between rows of output " << i;
      results.push_back(std::move(result));
    }
    return results;
  }

  void check(const std::string& text, DType dtype, std::int64_t length, bool in_place) const {
    const auto seed = static_cast<std::uint64_t>(length);
    std::vector<HostArray> inputs = {testing::random_array(dtype, {kRows, length}, seed)};
    if (text.find('w') != std::string::npos) {
      inputs.push_back(testing::random_array(dtype, {length}, seed + 1));
      inputs.push_back(testing::random_array(dtype, {length}, seed + 2));
    }
    const std::vector<HostArray> want = testing::reference_of(text, inputs);
    const std::vector<DType> dtypes = testing::natural_dtypes(text, inputs);
    for (const RowPlace place : {RowPlace{0, true}, RowPlace{3, false}}) {
      const auto got = run(text, inputs, want, dtypes, place, in_place);
      for (std::size_t i = 0; i < want.size(); ++i) {
        const double unit = dtypes[i] == DType::f64 ? std::ldexp(1.0, -53) : std::ldexp(1.0, -24);
        const double error = testing::rounding_of(dtypes[i]) * 1.01 + 64 * unit;
        testing::expect_close(gathered(got[i]), want[i], error, 1024 * unit,
                              fmt::format("{} of {}[{}], output {}", text, name(dtype), length, i));
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, RaggedRows,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

constexpr const char* kAll =
    "softmax(x, -1), log_softmax(x, -1), layer_norm(x, w, b, 1e-5), rms_norm(x, w, 1e-5), "
    "logsumexp(x, -1), argmax(x, -1), sum(x, -1), min(x, -1)";

TEST_P(RaggedRows, OfEveryLength) {
  testing::Share share(GetParam(), 9);
  for (const std::int64_t length : kLengths) {
    if (share.next()) check(kAll, DType::f32, length, false);
  }
}

TEST_P(RaggedRows, OfEveryDtype) {
  testing::Share share(GetParam(), 9);
  for (const DType dtype : {DType::f16, DType::bf16, DType::f64}) {
    for (const std::int64_t length : {5, 13, 63, 1001}) {
      if (share.next()) check(kAll, dtype, length, false);
    }
  }
}

// The last pass reads a row again, of which part has been replaced by then.
TEST_P(RaggedRows, InPlace) {
  testing::Share share(GetParam(), 9);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const std::int64_t length : {7, 15, 21, 63, 77, 161, 1001}) {
      if (share.next()) check("x - mean(x, -1)", dtype, length, true);
    }
  }
  check("layer_norm(x, w, b, 1e-5)", DType::f32, 63, true);
}

// Neighbours far apart, and one element for many.
TEST_P(RaggedRows, OfStridedOperands) {
  for (const std::int64_t length : {6, 27, 63, 300}) {
    const HostArray numbers = testing::random_array(DType::f32, {kRows, length}, 5);
    const HostArray x = spread(numbers, {3 * length, 3}, kUnread);
    const std::string text = "softmax(x, -1), argmin(x, -1), x - mean(x, -1)";
    const std::vector<HostArray> want = testing::reference_of(text, {numbers});
    const std::vector<DType> dtypes = testing::natural_dtypes(text, {x});
    std::vector<HostArray> got;
    for (std::size_t i = 0; i < want.size(); ++i) {
      const Dims& shape = want[i].shape;
      got.push_back(HostArray::strided(dtypes[i], shape, {2 * shape[1], 2}));
    }
    testing::run_on(device(), parse("strided", text), {x}, got);
    for (std::size_t i = 0; i < want.size(); ++i) {
      testing::expect_close(gathered(got[i]), want[i], 1e-5, 1e-5,
                            fmt::format("{}, output {}", length, i));
    }
  }
}

// Results that go past the caches: rows of whole lines that are no whole vectors.
TEST_P(RaggedRows, PastTheCaches) {
  for (const std::int64_t length : {48, 1008}) {
    const std::int64_t rows = (9 << 20) / (4 * length);
    const HostArray few = testing::random_array(DType::f32, {4, length}, 7);
    HostArray x = HostArray::contiguous(DType::f32, {rows, length});
    for (std::size_t at = 0; at < x.bytes.size(); at += few.bytes.size()) {
      std::memcpy(x.bytes.data() + at, few.bytes.data(),
                  std::min(few.bytes.size(), x.bytes.size() - at));
    }
    const std::vector<HostArray> want = testing::reference_of("softmax(x, -1)", {few});
    std::vector<HostArray> got = {HostArray::contiguous(DType::f32, {rows, length})};
    testing::run_on(device(), parse("streamed", "softmax(x, -1)"), {x}, got);
    for (const std::int64_t row : {std::int64_t{0}, rows / 8 * 4}) {
      HostArray part = HostArray::contiguous(DType::f32, {4, length});
      std::memcpy(part.bytes.data(),
                  got[0].bytes.data() + static_cast<std::size_t>(row * length) * 4,
                  part.bytes.size());
      testing::expect_close(part, want[0], 1e-5, 0, fmt::format("row {} of {}", row, length));
    }
  }
}

}  // namespace
}  // namespace kiln
