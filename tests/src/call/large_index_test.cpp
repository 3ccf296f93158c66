// Operands that reach beyond 2^31 and 2^32 elements, for real: memory of several gigabytes on a
// GPU, and on the CPU address space of which only the touched pages exist.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

#include "call/function_impl.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/private_cache.hpp"

namespace kiln {
namespace {

constexpr std::int64_t k31 = std::int64_t{1} << 31;
constexpr std::int64_t k32 = std::int64_t{1} << 32;

// Bytes that repeat after a prime: an index that wraps at 2^31 or 2^32 meets another one.
constexpr std::int64_t kPeriod = 251;
std::uint8_t byte_at(std::int64_t index) { return static_cast<std::uint8_t>(index % kPeriod); }

class LargeIndex : public ::testing::TestWithParam<DeviceType> {
 protected:
  static constexpr std::int64_t kChunk = std::int64_t{64} << 20;

  void SetUp() override {
    if (!testing::has_device(GetParam())) GTEST_SKIP() << jit::why_absent(GetParam());
    device = {GetParam(), 0};
    backend = &jit::backend(device);
    stream = {device, nullptr};
  }
  void TearDown() override {
    if (backend == nullptr) return;
    backend->synchronize(stream);
    for (const Block& block : blocks) {
      if (device.type == DeviceType::cpu) {
        ::munmap(block.data, static_cast<std::size_t>(block.bytes));
      } else {
        backend->free(block.data);
      }
    }
  }

  /// Memory, or null and why the device has none.
  std::uint8_t* allocate(std::int64_t bytes, std::string& reason) {
    void* data = nullptr;
    if (device.type == DeviceType::cpu) {
      data = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (data == MAP_FAILED) {
        reason = fmt::format("no {} bytes of address space", bytes);
        return nullptr;
      }
    } else {
      try {
        data = backend->allocate(static_cast<std::size_t>(bytes));
      } catch (const Error& error) {
        reason = fmt::format("the device has no {} bytes to spare: {}", bytes, error.what());
        return nullptr;
      }
    }
    blocks.push_back({data, bytes});
    return static_cast<std::uint8_t*>(data);
  }

  void put(std::uint8_t* to, const std::vector<std::uint8_t>& bytes) {
    backend->copy_in(to, bytes.data(), bytes.size(), stream);
    backend->synchronize(stream);
  }
  std::vector<std::uint8_t> get(const std::uint8_t* from, std::int64_t count) {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
    backend->synchronize(stream);
    backend->copy_out(bytes.data(), from, bytes.size(), stream);
    backend->synchronize(stream);
    return bytes;
  }

  /// One chunk of bytes that repeat `pattern`, from index `start` on.
  static std::vector<std::uint8_t> repeat(const std::vector<std::uint8_t>& pattern,
                                          std::int64_t start, std::int64_t count) {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
    const auto period = static_cast<std::int64_t>(pattern.size());
    for (std::int64_t at = 0; at < count;) {
      const std::int64_t from = (start + at) % period;
      const std::int64_t length = std::min(count - at, period - from);
      std::memcpy(bytes.data() + at, pattern.data() + from, static_cast<std::size_t>(length));
      at += length;
    }
    return bytes;
  }
  void put_pattern(std::uint8_t* to, const std::vector<std::uint8_t>& pattern, std::int64_t count) {
    for (std::int64_t at = 0; at < count; at += kChunk) {
      put(to + at, repeat(pattern, at, std::min(kChunk, count - at)));
    }
  }
  void expect_pattern(const std::uint8_t* from, const std::vector<std::uint8_t>& pattern,
                      std::int64_t count) {
    for (std::int64_t at = 0; at < count; at += kChunk) {
      const std::int64_t length = std::min(kChunk, count - at);
      ASSERT_TRUE(get(from + at, length) == repeat(pattern, at, length)) << "from byte " << at;
    }
  }

  struct Block {
    void* data;
    std::int64_t bytes;
  };
  Device device;
  jit::Backend* backend = nullptr;
  Stream stream;
  std::vector<Block> blocks;
};

std::vector<std::uint8_t> counting_bytes() {
  std::vector<std::uint8_t> pattern(kPeriod * 4096);
  for (std::size_t i = 0; i < pattern.size(); ++i)
    pattern[i] = byte_at(static_cast<std::int64_t>(i));
  return pattern;
}

// ---- Few elements, far apart: on every device --------------------------------------------------

struct FarRows {
  static constexpr std::int64_t kRows = 5;
  static constexpr std::int64_t kColumns = 1000;
  static constexpr std::int64_t kStride = (k32 >> 2) + 24;
  static constexpr std::int64_t kSpan = (kRows - 1) * kStride + kColumns;
  static_assert(kSpan > k32);
};

TEST_P(LargeIndex, RowsThatLieFarApartForwardsAndBackwards) {
  using F = FarRows;
  std::string reason;
  std::uint8_t* const x = allocate(F::kSpan, reason);
  std::uint8_t* const out = allocate(2 * F::kRows * F::kColumns, reason);
  if (x == nullptr || out == nullptr) GTEST_SKIP() << reason;
  for (std::int64_t row = 0; row < F::kRows; ++row) {
    put(x + row * F::kStride, repeat(counting_bytes(), row * F::kColumns, F::kColumns));
  }
  const Function f = parse("far", "u16(a) * 256 + b");
  const View forwards(x, DType::u8, {F::kRows, F::kColumns}, {F::kStride, 1}, device);
  const View backwards(x + (F::kRows - 1) * F::kStride, DType::u8, {F::kRows, F::kColumns},
                       {-F::kStride, 1}, device);
  const View result(out, DType::u16, {F::kRows, F::kColumns}, device);
  const std::array<Argument, 2> inputs = {forwards, backwards};
  f.call(stream, inputs, std::span(&result, 1));
  EXPECT_NE(f.prepare(stream, inputs, std::span(&result, 1)).variant.find("64-bit"),
            std::string::npos);
  const std::vector<std::uint8_t> bytes = get(out, 2 * F::kRows * F::kColumns);
  for (std::int64_t row = 0; row < F::kRows; ++row) {
    for (std::int64_t column = 0; column < F::kColumns; ++column) {
      const auto at = static_cast<std::size_t>(2 * (row * F::kColumns + column));
      ASSERT_EQ(bytes[at], byte_at((F::kRows - 1 - row) * F::kColumns + column));
      ASSERT_EQ(bytes[at + 1], byte_at(row * F::kColumns + column));
    }
  }
}

// What a device does that has fewer threads than there are work items.
TEST_P(LargeIndex, ASmallGridStridesOverAllWork) {
  using F = FarRows;
  std::string reason;
  std::uint8_t* const x = allocate(F::kSpan, reason);
  std::uint8_t* const out = allocate(F::kRows * F::kColumns, reason);
  if (x == nullptr || out == nullptr) GTEST_SKIP() << reason;
  for (std::int64_t row = 0; row < F::kRows; ++row) {
    put(x + row * F::kStride, repeat(counting_bytes(), row * F::kColumns, F::kColumns));
  }
  backend->fill(out, 0xee, F::kRows * F::kColumns, stream);
  const Function f = parse("strided_grid", "a + 1");
  // Every second element, so that there is a work item for each.
  const View from(x, DType::u8, {F::kRows, F::kColumns / 2}, {F::kStride, 2}, device);
  const View to(out, DType::u8, {F::kRows, F::kColumns / 2}, {F::kColumns, 2}, device);
  const std::array<Argument, 1> inputs = {from};
  const Call call{stream, inputs, std::span(&to, 1)};
  const std::shared_ptr<const Plan> held = f.shared_impl()->plan_for(call);
  const Plan& plan = *held;
  ASSERT_EQ(plan.kernels.size(), 1u);
  const PlannedKernel& kernel = plan.kernels[0];
  std::vector<std::uint64_t> block((kernel.parameters.bytes.size() + 7) / 8);
  auto* const bytes = reinterpret_cast<std::byte*>(block.data());
  fill_parameters(plan, kernel, call, bytes);
  std::vector<void*> arguments;
  for (const std::uint32_t offset : kernel.parameters.offsets) arguments.push_back(bytes + offset);
  jit::LaunchShape shape = kernel.shape;
  shape.max_blocks = 2;
  backend->launch(*kernel.kernel, shape, arguments.data(), stream);
  const std::vector<std::uint8_t> got = get(out, F::kRows * F::kColumns);
  for (std::int64_t i = 0; i < F::kRows * F::kColumns; ++i) {
    const int expected = i % 2 == 0 ? byte_at(i) + 1 : 0xee;
    ASSERT_EQ(got[static_cast<std::size_t>(i)], expected) << i;
  }
}

// ---- Many elements: on GPUs --------------------------------------------------------------------

class ManyElements : public LargeIndex {};

/// Some two hundred rows, the last one among them.
std::vector<std::int64_t> some_of(std::int64_t rows) {
  std::vector<std::int64_t> some;
  for (std::int64_t i = rows - 1; i >= 0; i -= rows / 200) some.push_back(i);
  return some;
}

TEST_P(ManyElements, BytesBeyondThirtyTwoBits) {
  constexpr std::int64_t kCount = k32 + 1021;
  std::string reason;
  std::uint8_t* const x = allocate(kCount, reason);
  std::uint8_t* const out = allocate(kCount, reason);
  if (x == nullptr || out == nullptr) GTEST_SKIP() << reason;
  std::vector<std::uint8_t> pattern = counting_bytes();
  put_pattern(x, pattern, kCount);
  backend->fill(out, 0xee, static_cast<std::size_t>(kCount), stream);
  const Function f = parse("many", "a + 3");
  f(stream, {View(x, DType::u8, {kCount}, device)}, {View(out, DType::u8, {kCount}, device)});
  for (std::uint8_t& byte : pattern) byte = static_cast<std::uint8_t>(byte + 3);
  expect_pattern(out, pattern, kCount);
}

TEST_P(ManyElements, HalvesBeyondThirtyOneBitsInPlace) {
  constexpr std::int64_t kCount = k31 + 77;
  std::string reason;
  std::uint8_t* const x = allocate(2 * kCount, reason);
  if (x == nullptr) GTEST_SKIP() << reason;
  // Normal numbers whose exponent and mantissa repeat after 251 elements; doubling adds 1 to the
  // exponent.
  std::vector<std::uint8_t> pattern(2 * kPeriod * 2048);
  for (std::size_t i = 0; i < pattern.size() / 2; ++i) {
    const auto n = static_cast<std::uint16_t>(0x2000 + byte_at(static_cast<std::int64_t>(i)) * 16);
    std::memcpy(pattern.data() + 2 * i, &n, 2);
  }
  put_pattern(x, pattern, 2 * kCount);
  const Function f = parse("twice", "a * 2");
  const View view(x, DType::f16, {kCount}, device);
  f(stream, {view}, {view});
  for (std::size_t i = 1; i < pattern.size(); i += 2) {
    pattern[i] = static_cast<std::uint8_t>(pattern[i] + 4);
  }
  expect_pattern(x, pattern, 2 * kCount);
}

TEST_P(ManyElements, AnOutputOfMoreThanThirtyTwoBitsFromARowAndAColumn) {
  constexpr std::int64_t kRows = 65'537;
  constexpr std::int64_t kColumns = 65'539;
  static_assert(kRows * kColumns > k32);
  std::string reason;
  std::uint8_t* const row = allocate(kColumns, reason);
  std::uint8_t* const column = allocate(kRows, reason);
  std::uint8_t* const out = allocate(kRows * kColumns, reason);
  if (row == nullptr || column == nullptr || out == nullptr) GTEST_SKIP() << reason;
  put_pattern(row, counting_bytes(), kColumns);
  put_pattern(column, counting_bytes(), kRows);
  backend->fill(out, 0xee, static_cast<std::size_t>(kRows * kColumns), stream);
  const Function f = parse("outer", "row ^ column");
  f(stream, {View(row, DType::u8, {kColumns}, device), View(column, DType::u8, {kRows, 1}, device)},
    {View(out, DType::u8, {kRows, kColumns}, device)});
  for (const std::int64_t i : some_of(kRows)) {
    std::vector<std::uint8_t> expected = repeat(counting_bytes(), 0, kColumns);
    for (std::uint8_t& byte : expected) byte ^= byte_at(i);
    ASSERT_TRUE(get(out + i * kColumns, kColumns) == expected) << "row " << i;
  }
}

TEST_P(ManyElements, ATransposedOperandOfMoreThanThirtyOneBits) {
  constexpr std::int64_t kRows = 46'347;
  constexpr std::int64_t kColumns = 46'352;
  static_assert(kRows * kColumns > k31);
  std::string reason;
  std::uint8_t* const x = allocate(kRows * kColumns, reason);
  std::uint8_t* const out = allocate(kRows * kColumns, reason);
  if (x == nullptr || out == nullptr) GTEST_SKIP() << reason;
  put_pattern(x, counting_bytes(), kRows * kColumns);
  backend->fill(out, 0xee, static_cast<std::size_t>(kRows * kColumns), stream);
  const Function f = parse("turned", "a + 3");
  f(stream, {View(x, DType::u8, {kRows, kColumns}, {1, kRows}, device)},
    {View(out, DType::u8, {kRows, kColumns}, device)});
  for (const std::int64_t i : some_of(kRows)) {
    std::vector<std::uint8_t> expected(kColumns);
    for (std::int64_t j = 0; j < kColumns; ++j) {
      expected[static_cast<std::size_t>(j)] = static_cast<std::uint8_t>(byte_at(j * kRows + i) + 3);
    }
    ASSERT_TRUE(get(out + i * kColumns, kColumns) == expected) << "row " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, LargeIndex, ::testing::Values(DeviceType::cpu),
                         testing::device_type_name);
INSTANTIATE_TEST_SUITE_P(Gpu, LargeIndex, ::testing::Values(DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);
INSTANTIATE_TEST_SUITE_P(Gpu, ManyElements, ::testing::Values(DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

}  // namespace
}  // namespace kiln
