// What a byte string says, and that a reader never reads past its end.
#include "base/bytes.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace kiln::base {
namespace {

std::string sample_bytes() {
  std::string bytes;
  ByteWriter writer(bytes);
  writer.u16(0x0201);
  writer.u32(0x06050403);
  writer.u64(0xfffefdfcfbfaf9f8);
  writer.text("text");
  writer.raw("rest");
  return bytes;
}

TEST(Bytes, AreReadAsTheyWereWritten) {
  const std::string bytes = sample_bytes();
  EXPECT_EQ(bytes.substr(0, 6), "\1\2\3\4\5\6") << "little-endian";
  ByteReader reader(bytes);
  EXPECT_EQ(reader.u16(), 0x0201);
  EXPECT_EQ(reader.u32(), 0x06050403U);
  EXPECT_EQ(reader.u64(), 0xfffefdfcfbfaf9f8);
  EXPECT_EQ(reader.text(), "text");
  EXPECT_EQ(reader.left(), 4U);
  EXPECT_EQ(reader.raw(4), "rest");
  EXPECT_TRUE(reader.at_end());
  EXPECT_TRUE(reader.ok());
}

TEST(Bytes, ThatAreMissingAreRememberedWhereverTheyEnd) {
  const std::string bytes = sample_bytes();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    ByteReader reader(std::string_view(bytes).substr(0, size));
    reader.u16();
    reader.u32();
    reader.u64();
    reader.text();
    reader.raw(4);
    EXPECT_FALSE(reader.ok()) << size;
    EXPECT_EQ(reader.u64(), 0U) << size;
    EXPECT_EQ(reader.text(), "") << size;
  }
}

TEST(Bytes, AreNotReadOnceSomeWereMissing) {
  ByteReader reader("ab");
  EXPECT_EQ(reader.u32(), 0U);
  EXPECT_EQ(reader.raw(1), "") << "what is there now is not what was written there";
  EXPECT_FALSE(reader.ok());
}

TEST(Bytes, OfALengthBeyondTheirEndAreNone) {
  std::string bytes;
  ByteWriter writer(bytes);
  writer.u64(UINT64_MAX);
  writer.raw("text");
  ByteReader reader(bytes);
  EXPECT_EQ(reader.text(), "");
  EXPECT_FALSE(reader.ok());
}

}  // namespace
}  // namespace kiln::base
