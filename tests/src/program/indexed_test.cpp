// take and put on devices against the reference interpreter: places at and beyond the ends, every
// dtype, fused with what comes before and after, in functions, programs and recorded graphs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/src/program/indexed_run.hpp"
#include "tests/support/message.hpp"

namespace kiln {
namespace {

using testing::HostArray;
using testing::integers;
using testing::random_array;

class Indexed : public testing::IndexedOps {};

INSTANTIATE_TEST_SUITE_P(Devices, Indexed,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

constexpr DType kDTypes[] = {
    DType::boolean, DType::u8,  DType::u16,    DType::u32,    DType::u64,        DType::i8,
    DType::i16,     DType::i32, DType::i64,    DType::f16,    DType::bf16,       DType::f32,
    DType::f64,     DType::c64, DType::f8e4m3, DType::f8e5m2, DType::f8e4m3fnuz, DType::f8e5m2fnuz,
    DType::u4,      DType::i4,  DType::f4e2m1};
constexpr DType kPlaces[] = {DType::i64, DType::i32, DType::u8, DType::i8, DType::u32, DType::i16};

// In and out of 7 places.
const std::vector<std::int64_t> kSomePlaces = {3, 0, 6, -1, 7, 2, 100};

TEST_P(Indexed, TakesAndPutsRowsOfEveryDType) {
  testing::Share share(GetParam(), 4);
  std::size_t n = 0;
  for (const DType dtype : kDTypes) {
    const DType places = kPlaces[n++ % std::size(kPlaces)];
    if (!share.next()) continue;
    SCOPED_TRACE(name(dtype));
    const HostArray x = random_array(dtype, {7, 24}, 1);
    const HostArray i = integers(places, {7}, kSomePlaces);
    const HostArray y = random_array(dtype, {7, 24}, 2);
    check("take(x, i)", {x, i});
    check("put(x, i, y)", {x, i, y});
  }
}

TEST_P(Indexed, TakesAlongEveryAxis) {
  const HostArray x = random_array(DType::f32, {5, 7, 12}, 3);
  for (const Dims& shape : {Dims{}, Dims{4}, Dims{2, 3}}) {
    const HostArray i = integers(DType::i32, shape, kSomePlaces);
    for (const char* text : {"take(x, i, 0)", "take(x, i, 1) * 2", "take(x, i, -1)"}) {
      check(text, {x, i});
    }
  }
}

TEST_P(Indexed, PutsAlongEveryAxis) {
  const HostArray x = random_array(DType::f32, {8, 7, 12}, 4);
  const HostArray i = integers(DType::i32, {4}, {5, -1, 0, 12});
  check("put(x, i, y, 0)", {x, i, random_array(DType::f32, {4, 7, 12}, 5)});
  check("put(x, i, y + 1, 1)", {x, i, random_array(DType::f32, {8, 4, 12}, 5)}, 1e-6);
  check("put(x, i, y, 2)", {x, i, random_array(DType::f32, {8, 7, 4}, 5)});
  check("put(x, i, y, 1)", {x, i, random_array(DType::f32, {12}, 5)});
}

TEST_P(Indexed, FusesWithWhatIsComputed) {
  const HostArray x = random_array(DType::bf16, {7, 96}, 6);
  const HostArray i = integers(DType::i32, {5}, {6, 2, -3, 0, 7});
  const HostArray y = random_array(DType::bf16, {5, 96}, 7);
  const HostArray w = random_array(DType::bf16, {96}, 8);
  check("take(x, clip(i, 0, 6)) * 2 + y", {x, i, y}, 1e-6);
  check("rms_norm(take(x, i), w, 1e-5)", {x, i, w}, 1e-5);
  check("softmax(take(x, i) + y, -1)", {x, i, y}, 1e-5);
  check("sum(f32(take(x, i)), 0)", {x, i}, 1e-5, How::program);
  check("take(x, take(j, i))", {x, integers(DType::i64, {7}, {3, 1, 9, 0, 6, 2, 5}), i}, 0,
        How::program);
  check("put(x, i, rms_norm(y, w, 1e-5))", {x, i, y, w}, 1e-5);
  check("put(c, i, f8e4m3(y * 2)), y + 1", {random_array(DType::f8e4m3, {9, 96}, 9), i, y}, 1e-6);
}

TEST_P(Indexed, QuantisesRowsIntoACache) {
  const HostArray q = random_array(DType::i8, {9, 64}, 10);
  const HostArray scales = random_array(DType::f32, {9, 1}, 11);
  const HostArray i = integers(DType::u16, {4}, {8, 3, 9, 1});
  const HostArray y = random_array(DType::f32, {4, 64}, 12);
  check("s = max(abs(y), -1) / 127; put(q, i, i8(round(y / s))), put(c, i, s)", {y, q, i, scales},
        1e-6, How::program);
}

TEST_P(Indexed, OfOddAndUnalignedRows) {
  for (const DType dtype : {DType::f16, DType::f32}) {
    const HostArray x = random_array(dtype, {7, 77}, 13);
    const HostArray i = integers(DType::i32, {6}, {1, 5, -1, 6, 4, 7});
    const HostArray y = random_array(dtype, {6, 77}, 14);
    check("take(x, i) * 0.5", {x, i}, 1e-6);
    check("layer_norm(take(x, i), 1e-5)", {x, i}, 2e-5);
    check("put(x, i, softmax(y, -1))", {x, i, y}, 1e-5);
  }
}

TEST_P(Indexed, OfPackedRowsBesideReductions) {
  const HostArray x = random_array(DType::u4, {7, 64}, 15);
  const HostArray i = integers(DType::i32, {3}, {6, -1, 2});
  check("sum(i32(take(x, i)), -1)", {x, i}, 0, How::program);
}

TEST_P(Indexed, OfViewsAndComputedArrays) {
  const HostArray x = random_array(DType::f32, {6, 7, 8}, 16);
  const HostArray i = integers(DType::i32, {2, 2}, {1, 5, -1, 4});
  for (const How how : {How::program, How::recorded}) {
    check("take(transpose(x), i[0], 2) + 1", {x, i}, 1e-6, how);
    check("take(x[1:, ::2], i[:, 1], 0)", {x, i}, 0, how);
    check("take(x * 2, i, 1)", {x, i}, 1e-6, how);
    check("mean(take(x, i, 1), -1), x[0]", {x, i}, 1e-5, how);
    check("take(x, argmax(x[0, 0], -1), 0)", {x}, 0, how);
  }
}

// The result of put is read by kernels after that which stores it.
TEST_P(Indexed, ReadsWhatHasBeenPut) {
  const HostArray cache = random_array(DType::bf16, {7, 64}, 17);
  const HostArray i = integers(DType::i32, {2}, {5, 7});
  const HostArray y = random_array(DType::f32, {2, 64}, 18);
  for (const How how : {How::program, How::recorded}) {
    check("c = put(k, i, bf16(y)); c, sum(f32(c), -1)", {cache, i, y}, 1e-5, how);
    check("c = put(k, i, bf16(y)); c, take(c, i) * 2", {cache, i, y}, 1e-2, how);
    // What y is computed from may be what is updated: that is read before.
    check("put(k, i, take(k, j) * 2)", {cache, i, integers(DType::i32, {2}, {5, 0})}, 1e-2, how);
  }
}

// One place for each row of weights, for all rows of a head, and for those of each sequence.
TEST_P(Indexed, StoresWhatProductsGive) {
  const HostArray w = random_array(DType::f16, {6, 8, 64}, 21);
  const HostArray x = random_array(DType::f32, {64}, 22);
  const HostArray heads = integers(DType::i32, {6}, {3, -1, 8, 0, 9, 5});
  const HostArray cache = random_array(DType::f16, {9, 8, 1}, 23);
  std::vector<std::int64_t> shuffled;  // some before the first place and after the last
  for (std::int64_t k = 0; k < 48; ++k) shuffled.push_back(k * 7 % 48 - 4);
  const HostArray rows = integers(DType::i64, {6, 8}, shuffled);
  const HostArray flat = random_array(DType::f32, {40, 1}, 24);
  check("put(c, i, f16(sum(w * x, -1)))", {cache, heads, w, x}, 1e-5);
  check("s = sum(w * x, -1); put(c, i, s), s * 2", {w, x, flat, rows}, 1e-5);
  const HostArray xs = random_array(DType::f32, {3, 1, 1, 64}, 25);
  const HostArray places =
      integers(DType::i32, {3, 6}, {3, 8, -1, 0, 5, 9, 1, 2, 4, 7, -7, 6, -1, 100, 9, -3, 11, -1});
  check("put(c, i, f16(sum(w * x, -1)))", {cache, places, w, xs}, 1e-5);
}

// As keys and values are: pairs of rows are turned, and stored beside each other in the cache and
// in an array that others read.
// Rows of tables are taken by the kernel of the product that they are for, which has them once for
// each row: those of another place for each vector, and what is computed of them.
TEST_P(Indexed, StoresWhatProductsMakeOfTakenRows) {
  for (const std::int64_t vectors : {1, 3, 4, 16}) {
    SCOPED_TRACE(vectors);
    const HostArray w = random_array(DType::bf16, {48, 128}, 40, 0.25);
    const HostArray x = random_array(DType::bf16, {vectors, 128}, 41, 0.25);
    const HostArray i = integers(DType::i32, {vectors}, {3, -1, 6, 7, 0});
    const HostArray t = random_array(DType::f32, {7, 6}, 42);
    const std::string halves = "a = y[..., :6]; b = y[..., 6:]; ";
    const std::string product = "y = reshape(sum(w * x[:, None], -1), -1, 4, 12); " + halves;
    const std::string text = product + "a * take(t, i)[:, None] - b";
    EXPECT_EQ(testing::plan_of(text, {w, x, t, i}).info.kernels.size(), 1U);
    check(text, {w, x, t, i}, 1e-4, How::program);
    check(product + "f16(a + cos(take(t, clip(i, 0, 6)))[:, None]) * b", {w, x, t, i}, 4e-3,
          How::program);
    check("y = reshape(sum((q - 8) * f * reshape(x, -1, 1, 4, 32), -1, -2), -1, 4, 12); " + halves +
              "a * take(t, i)[:, None] - b",
          {random_array(DType::u4, {48, 4, 32}, 45), random_array(DType::f16, {48, 4, 1}, 46), x, t,
           i},
          2e-2, How::program);
  }
}

TEST_P(Indexed, StoresEachPartOfWhatIsConcatenated) {
  const HostArray places =
      integers(DType::i32, {3, 6}, {-1, -1, 3, 8, -1, 9, 5, -1, 4, 7, 1, 2, -1, 0, 6, 9, -2, -1});
  const HostArray cache = random_array(DType::f16, {9, 32}, 26);
  const HostArray x = random_array(DType::bf16, {3, 128}, 27);
  const HostArray w = random_array(DType::u4, {192, 2, 64}, 28);
  const HostArray scale = random_array(DType::f16, {192, 2, 1}, 29);
  const HostArray turn = random_array(DType::f32, {3, 6, 16, 2}, 30);
  const std::string text =
      "p = reshape(sum(w * s * reshape(x, -1, 1, 2, 64), -1, -2), 3, 6, 16, 2); "
      "a = p[..., 0]; b = p[..., 1]; c = t[..., 0]; d = t[..., 1]; "
      "y = reshape(stack(-1, a * c - b * d, a * d + b * c), 3, 6, 32); "
      "k = put(cache, i, y); ";
  const std::vector<HostArray> inputs{w, scale, x, turn, cache, places};
  for (const How how : {How::program, How::recorded}) {
    check(text + "k, sum(y[:, :2], -1)", inputs, 1e-3, how);
    check(text + "k", inputs, 1e-3, how);
  }
  const HostArray u = random_array(DType::f32, {2, 5}, 31);
  const HostArray v = random_array(DType::f32, {2, 3}, 32);
  const HostArray rows = integers(DType::u8, {2}, {6, 1});
  const HostArray r = random_array(DType::f32, {7, 8}, 33);
  check("put(r, i, concat(1, exp(u), v * 2))", {r, rows, u, v}, 1e-5, How::program);
  check("c = concat(1, exp(reshape(sum(u, -1), 2, 1)), v[:, :2]); put(r, i, c), c * 2",
        {u, v, random_array(DType::f32, {7, 3}, 35), rows}, 1e-5, How::program);
  check("put(r, i, concat(1, u, v))", {r, rows, u, v}, 0, How::program);
  check("put(r, i, concat(1, softmax(u, -1), v + 1) * 2)", {r, rows, u, v}, 1e-5, How::program);
  const HostArray two = integers(DType::i32, {4}, {6, -1, 0, 3});
  const HostArray wide = random_array(DType::f32, {2, 8}, 34);
  // Parts along the axis of the places have places of their own.
  check("put(r, i, concat(0, exp(u), u + 1))", {r, two, wide}, 1e-5, How::program);
}

// Slices of what one kernel computes, at places that differ along the axis that is sliced: as rows
// of heads are, which data says or which are computed of it.
TEST_P(Indexed, StoresSlicesAtPlacesOfTheirOwn) {
  for (const std::int64_t vectors : {1, 3}) {
    SCOPED_TRACE(vectors);
    const HostArray w = random_array(DType::bf16, {6, 8, 128}, 50, 0.25);
    const HostArray x = random_array(DType::bf16, {vectors, 128}, 51, 0.25);
    const HostArray c = random_array(DType::f16, {40, 8}, 52);
    const HostArray d = random_array(DType::f16, {40, 8}, 53);
    const HostArray t = random_array(DType::f32, {vectors, 1, 4}, 54);
    const HostArray p = integers(DType::i32, {vectors}, {2, 9, 0});
    std::vector<std::int64_t> shuffled;  // some before the first place and after the last
    for (std::int64_t k = 0; k < 3 * vectors; ++k) shuffled.push_back((k * 7 + 1) % 48 - 4);
    const std::string heads = "y = squeeze(sum(w * x[:, None, None], -1), -1); ";
    const std::string turned =
        heads + "a = y[..., :4]; b = y[..., 4:]; r = concat(-1, a * t - b, b * t + a); ";
    for (const DType dtype : {DType::i8, DType::i64}) {
      const HostArray i = integers(dtype, {vectors, 3}, shuffled);
      const HostArray h = integers(dtype, {3}, {2, 0, 1});
      const std::string texts[] = {
          heads + "put(c, i, y[:, 2:5]), y",
          turned + "put(c, i, r[:, 2:5]), put(d, i, r[:, 3:]), r",
      };
      for (const std::string& text : texts) {
        std::vector<HostArray> inputs{w, x, c, i};
        if (text.starts_with(turned)) inputs = {w, x, t, c, i, d};
        EXPECT_EQ(testing::plan_of(text, inputs).info.kernels.size(), 1U) << text;
        check(text, inputs, 4e-3, How::program);
      }
      const std::string computed =
          turned + "j = (iota(0) * 12 + p)[:, None] * 3 + h; put(c, j, r[:, 2:5]), r";
      EXPECT_EQ(testing::plan_of(computed, {w, x, t, p, h, c}).info.kernels.size(), 1U);
      check(computed, {w, x, t, p, h, c}, 4e-3, How::program);
      check("h = rms_norm(reshape(x, -1, 16, 8), 1e-6); put(c, i, h[:, 9:12]), h", {x, c, i}, 4e-3,
            How::program);
    }
    const HostArray flat = random_array(DType::f32, {40}, 55);
    check("y = reshape(sum(w * x[0], -1), -1); put(f, i, y[20:23]), y",
          {w, x, flat, integers(DType::i32, {3}, {39, 3, 40})}, 1e-4, How::program);
    check("y = reshape(x, -1)[:9] * 2; put(f, i, y[1:4]), y",
          {x, flat, integers(DType::i32, {3}, {0, 5, -1})}, 1e-4, How::program);
  }
}

TEST_P(Indexed, StoresInMemoryThatGraphsMove) {
  jit::Backend& backend = jit::backend(device());
  const Stream stream{device(), nullptr};
  const HostArray cache = random_array(DType::f32, {8, 16}, 19);
  const HostArray place = integers(DType::i64, {1}, {2});
  const HostArray row = random_array(DType::f32, {1, 16}, 20);
  const testing::DeviceBuffer first(backend, cache.bytes);
  const testing::DeviceBuffer second(backend, cache.bytes);
  const testing::DeviceBuffer places(backend, place.bytes);
  const testing::DeviceBuffer rows(backend, row.bytes);
  const testing::DeviceBuffer sums(backend, std::vector<std::byte>(8 * 4));
  const View k(first.data(), DType::f32, {8, 16}, device());
  const View i(places.data(), DType::i64, {1}, device());
  const View y(rows.data(), DType::f32, {1, 16}, device());
  const View s(sums.data(), DType::f32, {8, 1}, device());
  const Function store = parse("store", "put(k, i, y)");
  const Function add = parse("add", "sum(k, -1)");
  Graph graph = kiln::record(device(), [&](Recorder& recorder) {
    recorder.call(store, {k, i, y}, {k});
    recorder.call(add, {k}, {s});
  });
  std::vector<HostArray> inputs{cache, place, row};
  for (const std::int64_t at : {2, 0, 7, 8}) {
    inputs[1] = integers(DType::i64, {1}, {at});
    backend.copy_in(places.data(), inputs[1].bytes.data(), 8, stream);
    graph.launch(stream);
    backend.synchronize(stream);
    inputs[0].bytes = first.read();
    HostArray got = HostArray::contiguous(DType::f32, {8, 1});
    got.bytes = sums.read();
    testing::expect_close(got, testing::reference_of("sum(k, -1)", {inputs[0]}).front(), 1e-5, 1e-5,
                          "the sums of what is there");
  }
  HostArray want = HostArray::contiguous(DType::f32, {8, 16});
  want.bytes = first.read();
  for (const std::int64_t at : {0, 2, 7}) {
    for (std::int64_t d = 0; d < 16; ++d) {
      EXPECT_EQ(testing::get_bits(want, at * 16 + d), testing::get_bits(row, d));
    }
  }
  for (const std::int64_t at : {1, 3, 4, 5, 6}) {
    for (std::int64_t d = 0; d < 16; ++d) {
      EXPECT_EQ(testing::get_bits(want, at * 16 + d), testing::get_bits(cache, at * 16 + d));
    }
  }
  EXPECT_EQ(second.read(), cache.bytes);
  graph.rebind(first.data(), second.data());
  backend.copy_in(places.data(), place.bytes.data(), 8, stream);
  graph.launch(stream);
  backend.synchronize(stream);
  HostArray moved = HostArray::contiguous(DType::f32, {8, 16});
  moved.bytes = second.read();
  for (std::int64_t n = 0; n < 8 * 16; ++n) {
    EXPECT_EQ(testing::get_bits(moved, n),
              n / 16 == 2 ? testing::get_bits(row, n % 16) : testing::get_bits(cache, n));
  }
}

TEST(IndexedErrors, NameWhatDoesNotFit) {
  const Stream stream{{DeviceType::cpu, 0}, nullptr};
  std::vector<float> memory(64);
  std::vector<std::int32_t> places(4);
  const View x(memory.data(), DType::f32, {4, 4}, stream.device);
  const View other(memory.data() + 16, DType::f32, {4, 4}, stream.device);
  const View y(memory.data() + 32, DType::f32, {2, 4}, stream.device);
  const View i(places.data(), DType::i32, {2}, stream.device);
  const auto message = [&](const char* text, std::vector<Argument> inputs, const View& output,
                           Code code = Code::invalid_argument) {
    return testing::message_of([&] { parse("f", text).call(stream, inputs, {&output, 1}); }, code);
  };
  EXPECT_THAT(message("put(x, i, y)", {x, i, y}, other),
              ::testing::HasSubstr("output 0: expected exactly the view of input 0 'x'"));
  EXPECT_THAT(message("put(x, i, take(x, i))", {x, i}, x, Code::unsupported),
              ::testing::HasSubstr("use a kiln::Program"));
  EXPECT_THAT(message("put(x, i, y)", {x, i, other}, x),
              ::testing::HasSubstr("expected a value that broadcasts to [2,4]"));
  EXPECT_THAT(message("take(x, i, 2)", {x, i}, y), ::testing::HasSubstr("axis: expected one of"));
  EXPECT_THAT(message("take(x, y)", {x, y}, other),
              ::testing::HasSubstr("expected places of an integer dtype, got f32"));
  EXPECT_THAT(message("put(x, i, y) + 1", {x, i, y}, x, Code::unsupported),
              ::testing::HasSubstr("is no output"));
  EXPECT_THAT(testing::message_of([] { parse("f", "put(x * 2, i, y)"); }),
              ::testing::HasSubstr("expected an argument, which is updated in place"));
}

}  // namespace
}  // namespace kiln
