// One file per format version, written once and never again: what a kiln of that version left on
// users' disks must stay readable, or be recognised as another version, for ever.
#include <gtest/gtest.h>

#include "cache/bundle.hpp"
#include "cache/entry.hpp"
#include "sample.hpp"

namespace kiln::cache {
namespace {

std::string golden(const std::string& name) { return read_file(KILN_TEST_GOLDEN "/" + name); }

TEST(Golden, EntryOfVersion1IsReadAsItWasWritten) {
  const Decoded decoded = decode(sample_key(), golden("entry-v1.kiln"), Parts::all);
  ASSERT_TRUE(decoded.entry) << decoded.reason;
  EXPECT_EQ(*decoded.entry, sample_entry());
}

TEST(Golden, MetadataOfVersion1IsWrittenAsItWas) {
  // What has come since is after it. The packed source may differ between releases of zstd, so the
  // comparison ends before it.
  const std::string old = golden("entry-v1.kiln");
  const std::string now = encode(sample_key(), sample_entry());
  ASSERT_GT(head_size(old), kEntryFixedHead);
  const std::size_t metadata = head_size(old) - kEntryFixedHead - 8;
  EXPECT_EQ(now.substr(kEntryFixedHead, metadata), old.substr(kEntryFixedHead, metadata));
  EXPECT_EQ(now.substr(0, 32), old.substr(0, 32));
}

TEST(Golden, OnlyANewerEntrySaysWhatItsCodeMustBe) {
  const Head old = decode_head(golden("entry-v1.kiln"));
  EXPECT_EQ(old.code_digest, "");
  EXPECT_FALSE(is_code_of(old, sample_entry().code));
  const std::string newer = golden("entry-v1-digest.kiln");
  EXPECT_TRUE(is_code_of(decode_head(newer), sample_entry().code));
  const Decoded decoded = decode(sample_key(), newer, Parts::all);
  ASSERT_TRUE(decoded.entry) << decoded.reason;
  EXPECT_EQ(*decoded.entry, sample_entry());
  const std::string now = encode(sample_key(), sample_entry());
  const auto metadata = [](const std::string& bytes) {
    return bytes.substr(kEntryFixedHead, head_size(bytes) - kEntryFixedHead - 8);
  };
  EXPECT_EQ(metadata(now), metadata(newer));
}

// The samples 1 and 2.
void expect_samples(const std::string& name, const Secret& secret) {
  const std::string bytes = golden(name);
  const BundleIndex index = check_bundle(bytes, secret);
  ASSERT_EQ(index.reason, "");
  ASSERT_EQ(index.items.size(), 2u);
  for (const std::uint64_t number : {1, 2}) {
    const auto item = std::find_if(index.items.begin(), index.items.end(),
                                   [&](const auto& one) { return one.key == sample_key(number); });
    ASSERT_NE(item, index.items.end());
    const Decoded decoded = decode_bundle_entry(
        *item, std::string_view(bytes).substr(item->offset, item->size), Parts::all, secret);
    ASSERT_TRUE(decoded.entry) << decoded.reason;
    EXPECT_EQ(*decoded.entry, sample_entry(number));
  }
}

TEST(Golden, BundleOfVersion1IsReadAsItWasWritten) { expect_samples("bundle-v1.kilnpack", {}); }

TEST(Golden, SignedBundleOfVersion1IsReadAsItWasWritten) {
  expect_samples("bundle-v1-signed.kilnpack", Secret("golden"));
  expect_samples("bundle-v1-signed.kilnpack", {});
}

}  // namespace
}  // namespace kiln::cache
