// kiln::copy: any two layouts and dtypes, on every device, alone and recorded.
#include "kiln/copy.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "fusion/graph/number.hpp"
#include "kiln/graph.hpp"
#include "tests/support/device_test.hpp"
#include "tests/support/message.hpp"
#include "tests/support/numbers.hpp"
#include "tests/support/private_cache.hpp"
#include "tests/support/reference.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using testing::message_of;

class Copy : public testing::DeviceTest {
 protected:
  View view(void* data, DType dtype, Dims shape, Dims strides) const {
    return {data, dtype, std::move(shape), std::move(strides), device};
  }
  View view(void* data, DType dtype, Dims shape) const {
    return {data, dtype, std::move(shape), device};
  }
};

std::vector<std::uint32_t> patterns(std::size_t count) {
  std::vector<std::uint32_t> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<std::uint32_t>(i * 2654435761u);
  values[0] = 0x7f800001;  // a signalling NaN
  values[1] = 0xffc12345;  // a quiet one with a payload
  values[2] = 0x80000000;  // -0
  return values;
}

TEST_P(Copy, KeepsTheBitsOfAnyLayout) {
  std::uint32_t* const from = allocate(patterns(6 * 35));
  std::uint32_t* const to = allocate(std::vector<std::uint32_t>(400, 0xdeadbeef));
  const std::vector<std::uint32_t> bits = patterns(6 * 35);
  copy(stream, {.from = view(from, DType::f32, {6, 5, 7}),
                .to = view(to + 390, DType::f32, {6, 5, 7}, {-1, -70, -9})});
  std::vector<std::uint32_t> expected(400, 0xdeadbeef);
  for (std::size_t i = 0; i < 6; ++i) {
    for (std::size_t j = 0; j < 5; ++j) {
      for (std::size_t k = 0; k < 7; ++k)
        expected[390 - i - 70 * j - 9 * k] = bits[(i * 5 + j) * 7 + k];
    }
  }
  EXPECT_EQ(read(to, 400), expected);
}

TEST_P(Copy, OfABlockNeedsNoKernel) {
  std::uint32_t* const from = allocate(patterns(64));
  std::uint32_t* const to = allocate(std::vector<std::uint32_t>(64, 0));
  // Both permuted alike, which is the same block of bytes.
  const Dims permuted = {1, 16, 4};
  copy(stream, {.from = view(from, DType::f32, {4, 4, 4}, permuted),
                .to = view(to, DType::f32, {4, 4, 4}, permuted)});
  EXPECT_EQ(read(to, 64), patterns(64));
}

TEST_P(Copy, CopiesManyMegabytes) {
  constexpr std::size_t kCount = (24u << 20) / 4 + 3;
  std::uint32_t* const from = allocate(patterns(kCount));
  std::uint32_t* const to = allocate(std::vector<std::uint32_t>(kCount + 1, 7));
  copy(stream, {.from = view(from, DType::u32, {kCount}), .to = view(to, DType::u32, {kCount})});
  std::vector<std::uint32_t> expected = patterns(kCount);
  expected.push_back(7);
  EXPECT_TRUE(read(to, kCount + 1) == expected);
}

TEST_P(Copy, CastsAsAWrittenCastDoes) {
  const std::vector<float> values = {1.5f, -2.75f, 300.0f, -1.0f, NAN, 0.0f, 65519.0f, 1e10f};
  float* const from = allocate(values);
  std::uint8_t* const bytes = allocate(std::vector<std::uint8_t>(8, 9));
  std::uint16_t* const halves = allocate(std::vector<std::uint16_t>(8, 9));
  std::uint8_t* const flags = allocate(std::vector<std::uint8_t>(8, 9));
  copy(stream, {.from = view(from, DType::f32, {8}), .to = view(bytes, DType::u8, {8})});
  copy(stream, {.from = view(from, DType::f32, {8}), .to = view(halves, DType::f16, {8})});
  copy(stream, {.from = view(from, DType::f32, {8}), .to = view(flags, DType::boolean, {8})});
  EXPECT_EQ(read(bytes, 8), (std::vector<std::uint8_t>{1, 0, 255, 0, 0, 0, 255, 255}));
  const std::vector<std::uint16_t> rounded = read(halves, 8);
  for (std::size_t i = 0; i < 8; ++i) {
    if (std::isnan(values[i])) continue;
    EXPECT_EQ(rounded[i], fusion::encode(values[i], DType::f16)) << values[i];
  }
  EXPECT_EQ(read(flags, 8), (std::vector<std::uint8_t>{1, 1, 1, 1, 1, 0, 1, 1}));
}

TEST_P(Copy, BroadcastsToTheDestination) {
  float* const from = allocate(std::vector<float>{1, 2, 3});
  double* const to = allocate(std::vector<double>(12, -1));
  copy(stream, {.from = view(from, DType::f32, {3, 1}), .to = view(to, DType::f64, {2, 3, 2})});
  EXPECT_EQ(read(to, 12), (std::vector<double>{1, 1, 2, 2, 3, 3, 1, 1, 2, 2, 3, 3}));
}

TEST_P(Copy, OntoItselfIsNothingToDo) {
  float* const data = allocate(std::vector<float>{1, 2, 3, 4});
  copy(stream, {.from = view(data, DType::f32, {4}), .to = view(data, DType::f32, {4})});
  copy(stream, {.from = view(data, DType::f32, {2}, {2}), .to = view(data, DType::f32, {2}, {2})});
  copy(stream, {.from = view(nullptr, DType::f32, {0}), .to = view(nullptr, DType::f16, {0})});
  copy(stream, {.from = view(nullptr, DType::f32, {0}), .to = view(nullptr, DType::f32, {0})});
  EXPECT_EQ(read(data, 4), (std::vector<float>{1, 2, 3, 4}));
}

TEST_P(Copy, InPlaceMayChangeTheDtype) {
  float* const data = allocate(std::vector<float>{1, -2, 3.5, 4});
  copy(stream, {.from = view(data, DType::f32, {4}), .to = view(data, DType::i32, {4})});
  EXPECT_EQ(read(reinterpret_cast<std::int32_t*>(data), 4),
            (std::vector<std::int32_t>{1, -2, 3, 4}));
}

TEST_P(Copy, SaysWhatCannotBe) {
  float* const data = allocate(std::vector<float>(32, 1));
  const auto message = [&](const View& src, const View& dst) {
    return message_of([&] { copy(stream, {.from = src, .to = dst}); });
  };
  EXPECT_EQ(message(view(data, DType::f32, {8}), view(data + 4, DType::f32, {8})),
            "copy: the two views overlap: `to` must be exactly `from`, or lie apart from it");
  EXPECT_NE(message(view(data, DType::f32, {8}), view(data + 4, DType::i32, {8}))
                .find("copy: output 0 'to' overlaps input 0 'from'"),
            std::string::npos);
  EXPECT_NE(message(view(data, DType::f32, {8}), view(data + 16, DType::f32, {4}))
                .find("copy: output 0 'to': expected shape [8]"),
            std::string::npos);
  EXPECT_NE(message(view(nullptr, DType::f32, {8}), view(data, DType::f32, {8})).find("null"),
            std::string::npos);
  const Device elsewhere = {DeviceType::cuda, 7};
  EXPECT_NE(message(View(data, DType::f32, {8}, elsewhere), view(data, DType::f32, {8}))
                .find("is on cuda:7, but the stream is on"),
            std::string::npos);
}

TEST_P(Copy, IsRecordedWhateverItTakes) {
  float* const from = allocate(std::vector<float>{1, 2, 3, 4, 5, 6});
  float* const block = allocate(std::vector<float>(6, 0));
  float* const turned = allocate(std::vector<float>(6, 0));
  double* const wide = allocate(std::vector<double>(6, 0));
  Graph graph = record(device, [&](Recorder& r) {
    r.copy({.from = view(from, DType::f32, {6}), .to = view(block, DType::f32, {6})});
    r.copy(
        {.from = view(block, DType::f32, {3, 2}, {1, 3}), .to = view(turned, DType::f32, {3, 2})});
    r.copy({.from = view(turned, DType::f32, {6}), .to = view(wide, DType::f64, {6})});
  });
  graph.launch(stream);
  EXPECT_EQ(read(block, 6), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(read(wide, 6), (std::vector<double>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(graph.edges().size(), 2u);
}

// An array of that shape in a layout by chance, with room around what it reaches.
testing::HostArray array_by_chance(DType dtype, const Dims& shape, std::mt19937_64& random) {
  Dims strides(shape.size(), 0);
  std::vector<std::size_t> axes(shape.size());
  std::iota(axes.begin(), axes.end(), std::size_t{0});
  std::shuffle(axes.begin(), axes.end(), random);
  std::int64_t stride = 1;
  for (const std::size_t axis : axes) {
    strides[axis] = random() % 3 == 0 ? -stride : stride;
    stride *= shape[axis] + static_cast<std::int64_t>(random() % 3);
  }
  const auto lead = static_cast<std::int64_t>(random() % 5);
  testing::HostArray array = testing::HostArray::strided(dtype, shape, strides, lead);
  for (std::byte& byte : array.bytes) byte = static_cast<std::byte>(random());
  if (dtype == DType::boolean)
    for (std::byte& byte : array.bytes) byte &= std::byte{1};
  return array;
}

// Which NaN a cast gives is nobody's promise.
bool is_same_number(std::uint64_t a, std::uint64_t b, DType dtype) {
  if (dtype == DType::c64) {
    return is_same_number(a & 0xffffffff, b & 0xffffffff, DType::f32) &&
           is_same_number(a >> 32, b >> 32, DType::f32);
  }
  return a == b || (is_floating(dtype) && std::isnan(fusion::decode(a, dtype)) &&
                    std::isnan(fusion::decode(b, dtype)));
}

// One launch for any two layouts and dtypes; what lies between the elements stays.
TEST_P(Copy, OfAnyTwoIsOneOperation) {
  const std::uint64_t draws =
      testing::setting("KILN_TEST_DRAWS", GetParam() == DeviceType::cpu ? 40 : 400);
  testing::Share share(GetParam(), 2);
  for (std::uint64_t draw = 0; draw < draws; ++draw) {
    if (!share.next()) continue;
    std::mt19937_64 random(draw);
    Dims shape(random() % 5, 1);
    for (std::int64_t& size : shape) size = 1 + static_cast<std::int64_t>(random() % 6);
    const DType from = static_cast<DType>(random() % kDTypes.size());
    const DType to = static_cast<DType>(random() % kDTypes.size());
    const testing::HostArray src = array_by_chance(from, shape, random);
    testing::HostArray dst = array_by_chance(to, shape, random);
    SCOPED_TRACE(
        fmt::format("draw {}: {} to {} of {} axes", draw, name(from), name(to), shape.size()));
    const testing::DeviceBuffer source(*backend, src.bytes);
    const testing::DeviceBuffer destination(*backend, dst.bytes);
    const auto view_of = [&](const testing::HostArray& array, const testing::DeviceBuffer& buffer) {
      return View(static_cast<std::byte*>(buffer.data()) + array.first, array.dtype, array.shape,
                  array.strides, device)
          .from(array.offset);
    };
    Graph graph = record(device, [&](Recorder& r) {
      r.copy({.from = view_of(src, source), .to = view_of(dst, destination)});
    });
    EXPECT_EQ(graph.operations().size(), 1u);
    copy(stream, {.from = view_of(src, source), .to = view_of(dst, destination)});
    backend->synchronize(stream);
    const std::vector<std::byte> got = destination.read();
    std::vector<testing::HostArray> expected = {dst};
    testing::run_on_reference(parse("copy", fmt::format("{}(x)", name(to))), {src}, expected);
    dst.bytes = got;
    for (std::int64_t i = 0; i < src.size(); ++i) {
      const std::int64_t place = testing::place_of(dst, i);
      const std::uint64_t result = testing::get_bits(dst, place);
      // A cast may give another NaN; what is of one dtype keeps its bits.
      const std::uint64_t right = from == to ? testing::get_bits(src, testing::place_of(src, i))
                                             : testing::get_bits(expected[0], place);
      testing::set_bits(expected[0], place, right);
      ASSERT_TRUE(result == right || (from != to && is_same_number(result, right, to)))
          << "element " << i;
      testing::set_bits(dst, place, right);
    }
    EXPECT_EQ(dst.bytes, expected[0].bytes) << "bytes between the elements";
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, Copy, ::testing::Values(DeviceType::cpu), testing::device_type_name);
INSTANTIATE_TEST_SUITE_P(Gpu, Copy, ::testing::Values(DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

}  // namespace
}  // namespace kiln
