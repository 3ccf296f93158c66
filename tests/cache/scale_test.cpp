// 100,000 entries: a look-up and a publish cost what they cost with ten, and a list reads each
// once.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fault_io.hpp"
#include "kiln/cache.hpp"
#include "sample.hpp"

namespace kiln::cache {
namespace {

constexpr std::uint64_t kEntries = 100'000;

TEST(Scale, AHundredThousandEntriesAreFoundListedAndTrimmed) {
  const TemporaryDirectory temporary(fast_directory(std::uintmax_t{1} << 30));
  Config config = config_for(temporary.path("kiln"));
  const auto io = std::make_shared<FaultIo>();
  config.io = io;
  const auto cache = Cache::open(config);
  // Written directly: this is about what is there, not about how it came there.
  ASSERT_TRUE(cache->publish(sample_key(0), sample_entry(0)));
  for (unsigned shard = 0; shard < kShards; ++shard) {
    const std::string path = fmt::format("{}/{:02x}", config.directory, shard);
    fs::create_directory(path);
    fs::permissions(path, fs::perms::owner_all);
  }
  for (std::uint64_t i = 1; i < kEntries; ++i) {
    const std::string path = path_of(config.directory, sample_key(i));
    write_text(path, encode(sample_key(i), sample_entry(i)));
    ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  }
  EXPECT_EQ(usage(*cache).entries, kEntries);

  int before = io->calls();
  ASSERT_TRUE(cache->find(sample_key(77'777)));
  EXPECT_LE(io->calls() - before, 8) << "system calls of one look-up";
  before = io->calls();
  ASSERT_TRUE(cache->publish(sample_key(kEntries), sample_entry(kEntries)));
  // It looks at the 1/256 that this entry is in.
  EXPECT_LE(io->calls() - before, static_cast<int>(kEntries / kShards * 2));

  for (std::uint64_t i = 0; i < kEntries; i += 997) {
    const auto entry = cache->find(sample_key(i));
    ASSERT_TRUE(entry) << i;
    ASSERT_EQ(entry->code, sample_entry(i).code);
  }
  std::uint64_t listed = 0;
  for_each(*cache, {}, [&](const Listing& listing) {
    listed += listing.problem.empty();
    return true;
  });
  EXPECT_EQ(listed, kEntries + 1);

  TrimPolicy policy;
  policy.max_size = usage(*cache).bytes / 2;
  const Removed removed = trim(*cache, policy);
  EXPECT_NEAR(static_cast<double>(removed.entries.size()), kEntries / 2.0, kEntries / 100.0);
  EXPECT_LE(usage(*cache).bytes, *policy.max_size);
}

}  // namespace
}  // namespace kiln::cache
