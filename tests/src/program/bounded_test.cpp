// Run-time extents on devices against the reference interpreter: every length, of one number, one
// array and one for each sequence, on axes that are reduced, stored and mapped; beyond the ends lie
// pages that cannot be touched, or NaN.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/src/program/indexed_run.hpp"
#include "tests/support/message.hpp"

namespace kiln {
namespace {

using testing::HostArray;
using testing::integers;
using testing::random_array;

class Bounded : public testing::IndexedOps {
 protected:
  /// For each number of elements: 0, 1, all and some.
  void check_lengths(const std::string& text, std::vector<HostArray> inputs, std::size_t length,
                     std::int64_t extent, double slack, How how = How::function) {
    for (const std::int64_t n :
         {std::int64_t{0}, std::int64_t{1}, extent / 2 + 1, extent, extent + 3, std::int64_t{-2}}) {
      SCOPED_TRACE(n);
      inputs[length] = integers(DType::i32, inputs[length].shape, {n});
      check_stored(text, inputs, slack, how);
    }
  }

  /// What is not stored keeps the bytes that were there, which the reference leaves 0.
  void check_stored(const std::string& text, const std::vector<HostArray>& inputs, double slack,
                    How how) {
    SCOPED_TRACE(text);
    std::vector<HostArray> got = outputs_of(text, inputs, how);
    const std::vector<HostArray> want = testing::reference_of(text, inputs);
    for (std::size_t i = 0; i < want.size(); ++i) {
      const std::uint64_t poison = 0xeeeeeeeeeeeeeeee;
      for (std::int64_t k = 0; k < got[i].size(); ++k) {
        const std::uint64_t mask = bits(got[i].dtype) == 64
                                       ? ~std::uint64_t{0}
                                       : (std::uint64_t{1} << bits(got[i].dtype)) - 1;
        const bool kept = testing::get_bits(got[i], k) == (poison & mask);
        if (kept && testing::get_bits(want[i], k) == 0) testing::set_bits(got[i], k, 0);
      }
      const double rounding = slack == 0 ? 0 : testing::rounding_of(got[i].dtype) * 1.01;
      testing::expect_close(got[i], want[i], slack + rounding, slack * 4,
                            fmt::format("output {}", i));
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, Bounded,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

const HostArray kOne = HostArray::contiguous(DType::i32, {});

TEST_P(Bounded, ReducesWhatIsBeforeTheEnd) {
  const HostArray x = random_array(DType::f32, {3, 37}, 1);
  check_lengths("sum(x[:, :n], -1), max(x[:, :n], -1)", {x, kOne}, 1, 37, 1e-5);
  check_lengths("mean(x[:, :n] * 2, -1)", {x, kOne}, 1, 37, 1e-5);
  check_lengths("sum(x[:n], 0)", {x, kOne}, 1, 3, 1e-5);
  check_lengths("sum(i64(x[:, :n] * 8), -1)", {x, kOne}, 1, 37, 0);
}

// An axis that ends where data says is reduced by itself; sums of its groups are added up after.
TEST_P(Bounded, AddsUpSumsOfGroups) {
  const HostArray x = random_array(DType::f32, {3, 5, 12}, 7);
  check_lengths("sum(sum(x[:, :, :n], -1) * 2, -2)", {x, kOne}, 1, 12, 1e-5, How::program);
  check_lengths("sum(sum(x[:, :n], -1) * 2, -2)", {x, kOne}, 1, 5, 1e-5, How::program);
}

// Along rows, of which a block of threads has one or several, and along columns; the axis along
// which they run ends, or another one, or where a number for each row or column says.
TEST_P(Bounded, RunsUpToTheEnd) {
  const HostArray x = random_array(DType::f32, {3, 700}, 11, 0.25);
  check_lengths("cumsum(x[:, :n], -1)", {x, kOne}, 1, 700, 1e-5);
  check_lengths("cumsum(x[:n], -1)", {x, kOne}, 1, 3, 1e-5);
  check_lengths("cummax(exp(x)[:, :n], -1) * 2", {x, kOne}, 1, 700, 1e-5);
  check_lengths("cumsum(x, -1)[:, :n] * 2", {x, kOne}, 1, 700, 1e-5, How::program);
  const HostArray y = random_array(DType::bf16, {37, 24}, 12, 0.25);
  check_lengths("cumsum(f32(y[:, :n]), -1)", {y, kOne}, 1, 24, 1e-5);
  check_lengths("cumsum(f32(y[:n]), 0)", {y, kOne}, 1, 37, 1e-5);
  check_lengths("cumsum(f32(y[:n]), -1)", {y, kOne}, 1, 37, 1e-5);
  check_lengths("cumsum(i32(y[:, :n] * 40), 0), y[:, :n] + 1", {y, kOne}, 1, 24, 1e-2);
  check_lengths("cumsum(softmax(f32(y[:, :n]), -1), -1)", {y, kOne}, 1, 24, 1e-4, How::program);
  check_lengths("cumsum(softmax(f32(y[:, :n]), -1), -1)", {y, kOne}, 1, 24, 1e-4, How::recorded);
  const HostArray z = random_array(DType::f32, {5, 9, 16}, 13, 0.25);
  const HostArray n = integers(DType::i64, {5, 1, 1}, {3, 0, 9, 20, 1});
  const HostArray m = integers(DType::i32, {16}, {9, 0, 5, 7, 1, 2, 3, 4, 99, -1});
  check_stored("cumsum(z[:, :n], 1)", {z, n}, 1e-5, How::function);
  check_stored("cumsum(z[:, :, :n], -1)", {z, n}, 1e-5, How::function);
  check_stored("cumsum(z[:, :, :n], 1)", {z, n}, 1e-5, How::function);
  check_stored("cumsum(z[:, :n], 1)", {z, m}, 1e-5, How::function);
  check_stored("cumsum(z[:, :n], 0)", {z, m}, 1e-5, How::function);
}

// What is before an end has the bits that it has where nothing ends.
TEST_P(Bounded, RunsWithTheBitsOfAllElements) {
  for (const Dims& shape : {Dims{3, 1500}, Dims{70, 40}}) {
    const HostArray x = random_array(DType::f32, shape, 14);
    for (const std::size_t axis : {0, 1}) {
      const std::string whole = fmt::format("cumsum(x, {})", axis);
      const std::string ended = fmt::format("cumsum(x[{}:n], {})", axis == 0 ? "" : ":, ", axis);
      const std::int64_t n = shape[axis] * 2 / 3;
      const HostArray want = outputs_of(whole, {x}, How::function).front();
      const HostArray got =
          outputs_of(ended, {x, integers(DType::i32, {}, {n})}, How::function).front();
      for (std::int64_t i = 0; i < x.size(); ++i) {
        const std::int64_t at = axis == 0 ? i / shape[1] : i % shape[1];
        if (at >= n) continue;
        ASSERT_EQ(testing::get_bits(got, i), testing::get_bits(want, i)) << ended << ", " << i;
      }
    }
  }
}

TEST_P(Bounded, StoresWhatIsBeforeTheEnd) {
  const HostArray x = random_array(DType::f16, {5, 6, 24}, 2);
  check_lengths("x[:n] * 2 + 1", {x, kOne}, 1, 5, 1e-3);
  check_lengths("x[:, :n] * 2 + 1", {x, kOne}, 1, 6, 1e-3);
  check_lengths("x[:, :, :n] * 2 + 1", {x, kOne}, 1, 24, 1e-3);
  check_lengths("(x * 2)[:, :n]", {x, kOne}, 1, 6, 1e-3, How::program);
  check_lengths("x[:n]", {x, kOne}, 1, 5, 0, How::program);
  check_lengths("y = (x * 2)[:, :n]; y[:, :, ::2] + y[:, :, 1::2]", {x, kOne}, 1, 6, 1e-3,
                How::program);
}

TEST_P(Bounded, ConcatenatesWhatEndsAlike) {
  const HostArray x = random_array(DType::f16, {5, 6, 24}, 2);
  check_lengths("concat(-1, x[:n] * 2, exp(x[:n]))", {x, kOne}, 1, 5, 1e-3, How::program);
  check_lengths("y = x[:, :n] * 2; concat(0, y + 1, y)", {x, kOne}, 1, 6, 1e-3, How::program);
  check_lengths("concat(1, x[:, :, :n], x[:, :, :n] * 2)", {x, kOne}, 1, 24, 1e-3, How::program);
  check_lengths("sum(concat(-1, x[:n] * 2, x[:n]), -1)", {x, kOne}, 1, 5, 2e-3, How::program);
  check_lengths("c = concat(1, x[:, :, :n] * 2, x[:, :, :n]); softmax(f32(c), -1)", {x, kOne}, 1,
                24, 1e-4, How::program);
}

TEST_P(Bounded, NormalisesRows) {
  const HostArray x = random_array(DType::bf16, {4, 3, 65}, 3);
  check_lengths("softmax(x[:, :, :n], -1)", {x, kOne}, 1, 65, 1e-2);
  check_lengths("softmax(f32(x)[:, :n], 1)", {x, kOne}, 1, 3, 1e-4);
  check_lengths("rms_norm(x[:n], 1e-5)", {x, kOne}, 1, 4, 1e-2);
}

TEST_P(Bounded, EndsElsewhereInEverySequence) {
  const HostArray x = random_array(DType::f32, {5, 9, 16}, 4);
  const HostArray n = integers(DType::i64, {5, 1, 1}, {3, 0, 9, 20, 1});
  check_stored("sum(x[:, :n], 1)", {x, n}, 1e-5, How::function);
  check_stored("x[:, :n] + 1", {x, n}, 1e-6, How::function);
  check_stored("softmax(x[:, :, :n], -1)", {x, n}, 1e-4, How::function);
  check_stored("max(x[:, :n], -1)", {x, n}, 0, How::function);
  check_stored("sum(transpose(x[:, :n], 1, 0, 2), 0)", {x, n}, 1e-5, How::program);
  check_stored("x[:, :, :n] * 2", {x, integers(DType::u8, {9, 1}, {16, 0, 5, 7, 1, 2, 3, 4, 99})},
               1e-6, How::function);
  // Along the axis in which elements are neighbours.
  check_stored("x[:, :n] * 2 + 1",
               {x, integers(DType::i32, {16}, {9, 0, 5, 7, 1, 2, 3, 4, 99, -1})}, 1e-6,
               How::function);
  check_stored("sum(x[:, :n], 1)",
               {x, integers(DType::i32, {16}, {9, 0, 5, 7, 1, 2, 3, 4, 99, -1})}, 1e-5,
               How::function);
}

// What takes several kernels is computed up to the end in each of them.
TEST_P(Bounded, AttendsToTheFirstKeys) {
  const HostArray q = random_array(DType::f32, {2, 1, 16}, 5);
  const HostArray k = random_array(DType::f32, {2, 33, 16}, 6);
  const HostArray v = random_array(DType::f32, {2, 33, 16}, 7);
  const std::string text = "p = softmax(sum(q * k[:, :n], -1) * 0.25, 1); sum(p * v[:, :n], 1)";
  check_lengths(text, {q, k, kOne, v}, 2, 33, 1e-4, How::program);
  check_lengths(text, {q, k, kOne, v}, 2, 33, 1e-4, How::recorded);
}

TEST_P(Bounded, EndsAtComputedPlaces) {
  const HostArray x = random_array(DType::f32, {4, 12}, 8);
  const HostArray at = integers(DType::i32, {1}, {6});
  check_stored("n = at + 1; sum(x[:, :n], -1)", {at, x}, 1e-5, How::program);
  check_stored("y = x[:3]; sum(y[:, :a] + y[:, :b], -1)",
               {x, integers(DType::i32, {1}, {5}), integers(DType::i32, {1}, {9})}, 1e-5,
               How::program);
}

// One recorded graph serves every length, which is read on the device.
TEST_P(Bounded, IsRecordedOnceForEveryLength) {
  jit::Backend& backend = jit::backend(device());
  const Stream stream{device(), nullptr};
  const HostArray x = random_array(DType::f32, {4, 32}, 9);
  const testing::DeviceBuffer data(backend, x.bytes);
  const testing::DeviceBuffer length(backend, std::vector<std::byte>(4));
  const testing::DeviceBuffer sums(backend, std::vector<std::byte>(16));
  const View whole(data.data(), DType::f32, {4, 32}, device());
  const View n(length.data(), DType::i32, {1}, device());
  const View s(sums.data(), DType::f32, {4, 1}, device());
  Graph graph = kiln::record(device(), [&](Recorder& recorder) {
    recorder.call(parse("sum", "sum(x[:, :n], -1)"), {whole, n}, {s});
  });
  for (std::int32_t count = 0; count <= 33; count += 3) {
    backend.copy_in(length.data(), &count, sizeof count, stream);
    graph.launch(stream);
    HostArray got = HostArray::contiguous(DType::f32, {4, 1});
    got.bytes = sums.read();
    testing::expect_close(
        got,
        testing::reference_of("sum(x[:, :n], -1)", {x, integers(DType::i32, {1}, {count})}).front(),
        1e-5, 1e-5, fmt::format("{} elements", count));
  }
}

// On the CPU what lies beyond is on pages that cannot be touched.
TEST(BoundedMemory, IsNotTouchedBeyondTheEnd) {
  const Device cpu{DeviceType::cpu, 0};
  const Stream stream{cpu, nullptr};
  jit::Backend& backend = jit::backend(cpu);
  for (const std::int64_t count : {0, 1, 7, 16}) {
    const testing::GuardedMemory input(backend, 64);
    const testing::GuardedMemory output(backend, 64);
    const auto bytes = static_cast<std::size_t>(count) * 64 * 4;
    char* const from = input.place(bytes, true, 0);
    char* const to = output.place(bytes, true, 0);
    input.write(from, std::vector<std::byte>(bytes));
    output.write(to, std::vector<std::byte>(bytes, std::byte{0xee}));
    // Of sixteen rows only the first ones are there.
    const View x(from, DType::f32, {16, 64}, cpu);
    const View y(to, DType::f32, {16, 64}, cpu);
    parse("map", "x[:n] + 1").call(stream, {{x, Argument(count)}}, {{y}});
    parse("scan", "cumsum(x[:n], 1)").call(stream, {{x, Argument(count)}}, {{y}});
    parse("scan", "cumsum(x[:n], 0)").call(stream, {{x, Argument(count)}}, {{y}});
    const View row(from, DType::f32, {1, 1024}, cpu);
    const View sums(to, DType::f32, {1, 1024}, cpu);
    parse("scan", "cumsum(x[:, :n], 1)").call(stream, {{row, Argument(64 * count)}}, {{sums}});
    const View s(to, DType::f32, {16, 1}, cpu);
    parse("rows", "sum(x[:n], -1)").call(stream, {{x, Argument(count)}}, {{s}});
    std::vector<float> sum(64);
    const View columns(sum.data(), DType::f32, {1, 64}, cpu);
    parse("columns", "sum(x[:n], 0)").call(stream, {{x, Argument(count)}}, {{columns}});
    backend.synchronize(stream);
    EXPECT_EQ(sum[5], 0);
  }
}

TEST(BoundedErrors, NameWhatDoesNotFit) {
  const Stream stream{{DeviceType::cpu, 0}, nullptr};
  std::vector<float> memory(64);
  std::vector<std::int32_t> ends(4);
  const View x(memory.data(), DType::f32, {4, 4}, stream.device);
  const View y(memory.data() + 32, DType::f32, {4, 4}, stream.device);
  const View n(ends.data(), DType::i32, {4}, stream.device);
  const auto message = [&](const char* text, Code code) {
    return testing::message_of([&] { parse("f", text).call(stream, {{x, n}}, {{y}}); }, code);
  };
  EXPECT_THAT(message("x[:, :n] + 1", Code::invalid_argument),
              ::testing::HasSubstr("expected an end that broadcasts to [4,1]"));
  EXPECT_THAT(message("cumsum(x[:n], 1)", Code::unsupported),
              ::testing::HasSubstr("cumsum: runs along an axis along which the end of another"));
}

}  // namespace
}  // namespace kiln
