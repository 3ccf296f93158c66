#include "cache/entry.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <xxhash.h>

#include <cstdlib>
#include <memory>
#include <new>

#include "base/bytes.hpp"
#include "base/subprocess.hpp"
#include "sample.hpp"
#include "tests/support/child_process.hpp"

namespace kiln::cache {
namespace {

// Writes digest and checksum anew, as somebody would who changes an entry on purpose.
std::string sealed(std::string bytes, std::size_t metadata_size) {
  const auto put = [&](std::size_t at, auto write) {
    std::string number;
    base::ByteWriter writer(number);
    write(writer);
    bytes.replace(at, number.size(), number);
  };
  const std::size_t digest_at = kEntryFixedHead + metadata_size;
  put(digest_at, [&](base::ByteWriter& out) { out.u64(XXH3_64bits(bytes.data(), digest_at)); });
  const std::size_t body = bytes.size() - 16;
  const XXH128_hash_t checksum = XXH3_128bits(bytes.data(), body);
  put(body, [&](base::ByteWriter& out) { out.u64(checksum.high64), out.u64(checksum.low64); });
  return bytes;
}

std::size_t metadata_size(std::string_view bytes) { return head_size(bytes) - kEntryFixedHead - 8; }

TEST(Entry, IsReadBackWhole) {
  const Entry entry = sample_entry();
  const std::string bytes = encode(sample_key(), entry);
  const Decoded decoded = decode(sample_key(), bytes, Parts::all);
  ASSERT_TRUE(decoded.entry) << decoded.reason;
  EXPECT_EQ(*decoded.entry, entry);
}

TEST(Entry, KeepsWhatOperandsAreCalled) {
  Entry entry = sample_entry();
  entry.metadata.arguments = {"gate", "", "up\n"};
  entry.metadata.outputs = {""};
  const Decoded decoded = decode(sample_key(), encode(sample_key(), entry), Parts::all);
  ASSERT_TRUE(decoded.entry) << decoded.reason;
  EXPECT_EQ(*decoded.entry, entry);
}

// Or a command would move entries to quarantine that nothing is wrong with.
TEST(Entry, ThatCannotBeUnpackedForWantOfMemoryIsNotBroken) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs address space of its own";
#endif
  const std::string bytes = encode(sample_key(), sample_entry());
  const pid_t child = kiln::testing::fork_child([&] {
    // Nothing is left but blocks that are too small for what unpacking needs.
    auto small = std::make_unique<char[]>(32 << 10);
    const rlimit limit{1, 1};
    if (::setrlimit(RLIMIT_AS, &limit) != 0) return 10;
    while (std::malloc(64 << 10) != nullptr) continue;
    small.reset();
    try {
      return decode(sample_key(), bytes, Parts::all).entry ? 11 : 12;
    } catch (const std::bad_alloc&) {
      return 0;
    }
  });
  const int status = base::wait_for(child).value();
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "11: unpacked, 12: called broken";
}

TEST(Entry, WithEverythingEmptyIsReadBackToo) {
  Entry entry;
  entry.code = elf(0);
  const Decoded decoded = decode(Key{}, encode(Key{}, entry), Parts::all);
  ASSERT_TRUE(decoded.entry) << decoded.reason;
  EXPECT_EQ(*decoded.entry, entry);
}

TEST(Entry, CodeAloneLeavesTheSourceAndTheIngredientsOut) {
  const Entry entry = sample_entry();
  const Decoded decoded = decode(sample_key(), encode(sample_key(), entry), Parts::code);
  ASSERT_TRUE(decoded.entry);
  EXPECT_EQ(decoded.entry->code, entry.code);
  Metadata metadata = entry.metadata;
  metadata.ingredients.clear();
  EXPECT_EQ(decoded.entry->metadata, metadata);
  EXPECT_TRUE(decoded.entry->source.empty());
}

TEST(Entry, HeadIsEnoughForAList) {
  const Entry entry = sample_entry();
  const std::string bytes = encode(sample_key(), entry);
  const Head head = decode_head(std::string_view(bytes).substr(0, head_size(bytes)));
  EXPECT_EQ(head.reason, "");
  EXPECT_EQ(head.key, sample_key());
  EXPECT_EQ(head.metadata, entry.metadata);
  EXPECT_EQ(head.source_bytes, entry.source.size());
  EXPECT_EQ(head.code_bytes, entry.code.size());
  EXPECT_EQ(head.file_bytes, bytes.size());
}

TEST(Entry, NoFlippedBitIsAccepted) {
  const std::string good = encode(sample_key(), sample_entry());
  std::string bytes = good;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
      ASSERT_FALSE(decode(sample_key(), bytes, Parts::code).entry)
          << "byte " << i << " bit " << bit;
      if (i < head_size(good)) {
        ASSERT_NE(decode_head(bytes).reason, "") << "byte " << i;
      }
      bytes[i] = good[i];
    }
  }
  EXPECT_TRUE(decode(sample_key(), bytes, Parts::code).entry);
  std::printf("%zu cases\n", bytes.size() * 8);
}

TEST(Entry, NoTruncationOrExtensionIsAccepted) {
  const std::string bytes = encode(sample_key(), sample_entry());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const std::string_view cut = std::string_view(bytes).substr(0, size);
    ASSERT_FALSE(decode(sample_key(), cut, Parts::all).entry) << size;
  }
  EXPECT_FALSE(decode(sample_key(), bytes + '\0', Parts::all).entry);
  std::printf("%zu cases\n", bytes.size() + 1);
}

TEST(Entry, UnderAnotherKeyIsRefused) {
  const std::string bytes = encode(sample_key(1), sample_entry(1));
  const Decoded decoded = decode(sample_key(2), bytes, Parts::code);
  EXPECT_FALSE(decoded.entry);
  EXPECT_NE(decoded.reason.find("holds key " + sample_key(1).hex()), std::string::npos);
}

TEST(Entry, OfAnotherVersionIsNotCalledBroken) {
  std::string bytes = encode(sample_key(), sample_entry());
  bytes[8] = 2;
  const Decoded decoded = decode(sample_key(), bytes, Parts::code);
  EXPECT_FALSE(decoded.entry);
  EXPECT_TRUE(decoded.other_version);
  EXPECT_TRUE(decode_head(bytes).other_version);
}

TEST(Entry, LyingLengthsWithValidChecksumsAreRefused) {
  const std::string good = encode(sample_key(), sample_entry());
  const std::size_t metadata = metadata_size(good);
  for (std::size_t field = 32; field < 64; field += 8) {
    for (const std::uint64_t lie :
         {~0ULL, 1ULL << 63, 1ULL << 40, (1ULL << 26) + 1, 1ULL << 20, 1ULL, 0ULL}) {
      std::string bytes = good;
      std::string number;
      base::ByteWriter(number).u64(lie);
      bytes.replace(field, 8, number);
      const bool source = field == 48;
      EXPECT_FALSE(decode(sample_key(), sealed(bytes, metadata), Parts::all).entry)
          << "field at " << field << " says " << lie;
      // A lie about the unpacked source is no harm as long as nobody unpacks it.
      if (!source) {
        EXPECT_FALSE(decode(sample_key(), sealed(bytes, metadata), Parts::code).entry);
      }
    }
  }
}

TEST(Entry, CodeThatIsNotElfIsRefused) {
  Entry entry = sample_entry();
  for (std::string code : {std::string(),
                           std::string("\x7f"
                                       "ELF"),
                           std::string(200, 'x')}) {
    entry.code = code;
    EXPECT_FALSE(decode(sample_key(), encode(sample_key(), entry), Parts::code).entry);
  }
  entry.code = elf(100);
  entry.code[40] = 1;    // the section table starts at 1 ...
  entry.code[58] = 64;   // ... with 64 bytes each ...
  entry.code[60] = 100;  // ... times 100
  EXPECT_NE(check_elf(entry.code), "");
  entry.code[60] = 2;
  EXPECT_EQ(check_elf(entry.code), "");
  entry.code[58] = 0;  // ... or all in the same place
  EXPECT_EQ(check_elf(entry.code),
            "holds a code object that has tables with entries of a wrong size");
}

TEST(Entry, UnknownMetadataFieldsAreSkipped) {
  const std::string good = encode(sample_key(), sample_entry());
  const std::size_t metadata = metadata_size(good);
  std::string field;
  base::ByteWriter writer(field);
  writer.u16(999);
  writer.u32(3);
  writer.raw("new");
  std::string bytes = good;
  bytes.insert(kEntryFixedHead, field);
  std::string size;
  base::ByteWriter(size).u64(metadata + field.size());
  bytes.replace(32, 8, size);
  const Decoded decoded = decode(sample_key(), sealed(bytes, metadata + field.size()), Parts::all);
  ASSERT_TRUE(decoded.entry) << decoded.reason;
  EXPECT_EQ(*decoded.entry, sample_entry());
}

TEST(Entry, AboveTheLimitsIsRefusedWhenItIsMade) {
  Entry entry = sample_entry();
  entry.source.assign(kMaxSourceBytes + 1, ' ');
  EXPECT_THROW(encode(sample_key(), entry), Error);
}

}  // namespace
}  // namespace kiln::cache
