// What the tool does with a cache, and bundles.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <limits>
#include <utility>

#include "base/subprocess.hpp"
#include "cache/bundle.hpp"
#include "fault_io.hpp"
#include "kiln/cache.hpp"
#include "sample.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/message.hpp"

namespace kiln::cache {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Manage : public ::testing::Test {
 protected:
  void SetUp() override {
    Config config = config_for(directory());
    config.io = io_;
    cache_ = Cache::open(config);
    for (std::uint64_t i = 0; i < 6; ++i) {
      Entry entry = sample_entry(i, 1000 * (i + 1));
      if (i % 2 == 1) entry.metadata.target = "sm_90";
      if (i == 5) entry.metadata.function = "rmsnorm";
      ASSERT_TRUE(cache_->publish(sample_key(i), entry));
      fs::last_write_time(path_of(directory(), sample_key(i)),
                          fs::file_time_type::clock::now() - std::chrono::hours(i));
    }
  }
  void damage(std::uint64_t number) {
    const std::string path = path_of(directory(), sample_key(number));
    std::string bytes = read_file(path);
    bytes[bytes.size() - 20] = static_cast<char>(bytes[bytes.size() - 20] ^ 1);
    write_text(path, bytes);
  }
  // Every call of that name fails from now on.
  void fail(const std::string& call, int error) {
    io_->first = 0;
    io_->count = std::numeric_limits<int>::max();
    io_->named = call;
    io_->error = error;
  }
  // Of the Error(io) that `command` throws.
  template <class Command>
  static std::string message_of(const Command& command) {
    try {
      command();
      return "done";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::io);
      return error.what();
    }
  }
  std::string directory() const { return temporary_.path("kiln"); }
  TemporaryDirectory temporary_;
  std::shared_ptr<FaultIo> io_ = std::make_shared<FaultIo>();
  std::shared_ptr<Cache> cache_;
  LogRecord log_;
};

TEST_F(Manage, ListsByKeyWithMetadata) {
  const std::vector<Listing> listings = list(*cache_);
  ASSERT_EQ(listings.size(), 6u);
  for (std::size_t i = 1; i < listings.size(); ++i) EXPECT_LT(listings[i - 1].key, listings[i].key);
  for (const Listing& listing : listings) {
    EXPECT_EQ(listing.problem, "");
    EXPECT_EQ(listing.file_bytes, fs::file_size(listing.path));
    EXPECT_EQ(listing.metadata.expression, "silu(gate) * up");
  }
}

TEST_F(Manage, AListReadsHeadsOfAnyLength) {
  Entry entry = sample_entry(9);
  entry.metadata.expression = noise(100'000, 9);
  ASSERT_TRUE(cache_->publish(sample_key(9), entry));
  const auto listings = list(*cache_, {"", "", {sample_key(9)}});
  ASSERT_EQ(listings.size(), 1u);
  EXPECT_EQ(listings[0].metadata, entry.metadata);
}

TEST_F(Manage, FiltersByTargetFunctionAndKey) {
  EXPECT_EQ(list(*cache_, {"sm_90", "", {}}).size(), 3u);
  EXPECT_EQ(list(*cache_, {"gfx90a", "", {}}).size(), 3u);
  EXPECT_EQ(list(*cache_, {"gfx90a:sramecc+:xnack-", "", {}}).size(), 3u);
  EXPECT_EQ(list(*cache_, {"gfx90", "", {}}).size(), 0u);
  EXPECT_EQ(list(*cache_, {"sm_90", "rmsnorm", {}}).size(), 1u);
  EXPECT_EQ(list(*cache_, {"", "", {sample_key(3)}}).size(), 1u);
}

TEST_F(Manage, ResolvesAKeyFromItsStart) {
  const std::string hex = sample_key(2).hex();
  EXPECT_EQ(resolve(*cache_, hex), sample_key(2));
  EXPECT_EQ(resolve(*cache_, hex.substr(0, 8)), sample_key(2));
  EXPECT_THROW(resolve(*cache_, "zz"), Error);
  EXPECT_THROW(resolve(*cache_, ""), Error);
  EXPECT_THROW(resolve(*cache_, "00000000000000000000000000000000"), Error);
}

TEST_F(Manage, VerifyFindsWhatIsBadAndRepairsIt) {
  damage(1);
  damage(4);
  write_text(fs::path(path_of(directory(), sample_key(0))).parent_path() / ".tmp-1-2-3", "torn");
  const Verification looked = verify(*cache_, false);
  EXPECT_EQ(looked.entries, 6u);
  ASSERT_EQ(looked.problems.size(), 2u) << "a young temporary is somebody's work";
  EXPECT_THAT(looked.problems[0].reason, HasSubstr("checksum"));
  EXPECT_FALSE(looked.problems[0].repaired);
  EXPECT_EQ(count_quarantined(directory()), 0u);

  io_->clock_offset = 3'600'000'000'000;
  const Verification repaired = verify(*cache_, true);
  EXPECT_EQ(repaired.problems.size(), 3u);
  for (const Problem& problem : repaired.problems) EXPECT_TRUE(problem.repaired) << problem.path;
  EXPECT_EQ(count_quarantined(directory()), 2u);
  EXPECT_EQ(count_files(directory(), ".tmp"), 0u);
  EXPECT_TRUE(verify(*cache_, false).problems.empty());
}

TEST_F(Manage, VerifySaysWhatItCouldNotRepair) {
  const std::string path = path_of(directory(), sample_key(1));
  fs::remove(path);
  fs::create_directory(path);
  write_text(path + "/something", "so that it cannot be deleted either");
  fail("rename", EACCES);
  const Verification repaired = verify(*cache_, true);
  ASSERT_EQ(repaired.problems.size(), 1u);
  EXPECT_EQ(repaired.problems[0].path, path);
  EXPECT_FALSE(repaired.problems[0].repaired);
  EXPECT_TRUE(fs::exists(path));
  io_->error = 0;
  EXPECT_TRUE(verify(*cache_, true).problems.at(0).repaired);
  EXPECT_FALSE(fs::exists(path));
}

// A command that cannot look somewhere does not answer as if there were nothing.
TEST_F(Manage, ASubDirectoryThatIsNotTrustedIsNamed) {
  const std::string shard = fs::path(path_of(directory(), sample_key(1))).parent_path();
  ASSERT_EQ(std::distance(fs::directory_iterator(shard), {}), 1);
  ASSERT_EQ(::chmod(shard.c_str(), 0770), 0);
  const auto names_it = [&](const std::vector<Problem>& problems) {
    return problems.size() == 1 && problems[0].path == shard && !problems[0].repaired &&
           problems[0].reason == "may be written by others (mode 0770)";
  };
  const auto says_where = AllOf(HasSubstr("1 directory cannot be used"), HasSubstr(shard),
                                HasSubstr("may be written by others (mode 0770)"));
  EXPECT_TRUE(names_it(verify(*cache_, true).problems));
  EXPECT_EQ(usage(*cache_).entries, 5u);
  EXPECT_TRUE(names_it(usage(*cache_).problems));
  EXPECT_TRUE(names_it(for_each(*cache_, {}, [](const Listing&) { return true; })));
  EXPECT_TRUE(names_it(export_bundle(*cache_, temporary_.path("bundle")).problems));
  EXPECT_THAT(message_of([&] { list(*cache_); }), says_where);
  EXPECT_THAT(message_of([&] { resolve(*cache_, sample_key(1).hex()); }), says_where);
  EXPECT_EQ(resolve(*cache_, sample_key(2).hex()), sample_key(2));
  // What cannot be in it is found all the same, and is not there for sure.
  const Filter other{"", "", {sample_key(2)}};
  EXPECT_TRUE(for_each(*cache_, other, [](const Listing&) { return true; }).empty());
  EXPECT_EQ(list(*cache_, other).size(), 1u);
  const Transfer alone = export_bundle(*cache_, temporary_.path("alone"), other);
  EXPECT_TRUE(alone.problems.empty());
  EXPECT_EQ(alone.entries, 1u);
  const std::string absent = sample_key(2).hex().substr(0, 2) + std::string(30, '0');
  EXPECT_EQ(kiln::testing::code_of([&] { resolve(*cache_, absent); }), Code::not_found);
  EXPECT_THAT(message_of([&] {
                trim(*cache_, {{}, std::chrono::hours(1000), {}, true});
              }),
              says_where);
  EXPECT_THAT(message_of([&] { clear(*cache_); }), says_where);
  EXPECT_EQ(usage(*cache_).entries, 0u) << "the others are removed";

  ASSERT_EQ(::chmod(shard.c_str(), 0700), 0);
  EXPECT_EQ(clear(*cache_).entries.size(), 1u);
  fs::remove(shard);
  EXPECT_TRUE(usage(*cache_).problems.empty()) << "one that is not there is fine";
}

TEST_F(Manage, ADirectoryThatCannotBeListedIsNamed) {
  fail("readdir", EIO);
  EXPECT_THAT(message_of([&] { clear(*cache_); }),
              AllOf(HasSubstr("cache clear: " + directory()), HasSubstr("Input/output error")));
  EXPECT_EQ(verify(*cache_).problems.at(0).path, directory());
  EXPECT_EQ(usage(*cache_).problems.at(0).path, directory());
  io_->error = 0;
  write_text(directory() + "/quarantine", "");
  EXPECT_THAT(message_of([&] { clear(*cache_); }), HasSubstr(directory() + "/quarantine ("));
}

TEST_F(Manage, TrimRemovesWhatWasNotUsedForLongest) {
  TrimPolicy policy;
  policy.max_size = usage(*cache_).bytes - 1;
  policy.dry_run = true;
  const Removed planned = trim(*cache_, policy);
  ASSERT_EQ(planned.entries.size(), 1u);
  EXPECT_EQ(planned.entries[0].key, sample_key(5));
  EXPECT_EQ(usage(*cache_).entries, 6u);
  policy.dry_run = false;
  EXPECT_EQ(trim(*cache_, policy).bytes, planned.bytes);
  EXPECT_EQ(usage(*cache_).entries, 5u);
  EXPECT_FALSE(cache_->find(sample_key(5)));
}

TEST_F(Manage, TrimByAgeAndTarget) {
  EXPECT_EQ(trim(*cache_, {{}, std::chrono::minutes(210), {}, false}).entries.size(), 2u);
  EXPECT_EQ(trim(*cache_, {{}, {}, {"sm_90", "", {}}, false}).entries.size(), 2u);
  EXPECT_EQ(usage(*cache_).entries, 2u);
}

TEST_F(Manage, ClearRemovesEverything) {
  cache_->reject(sample_key(0), "no");
  damage(1);
  EXPECT_EQ(clear(*cache_).entries.size(), 5u);
  const Usage left = usage(*cache_);
  EXPECT_EQ(left.entries + left.quarantined + left.temporaries, 0u);
  EXPECT_TRUE(cache_->publish(sample_key(), sample_entry()));
}

TEST_F(Manage, ExportAndImportMoveEntriesVerified) {
  const std::string bundle = temporary_.path("kernels.kilnpack");
  damage(2);
  const Transfer exported = export_bundle(*cache_, bundle);
  EXPECT_EQ(exported.entries, 5u);
  EXPECT_EQ(exported.problems.size(), 1u);

  const auto other = Cache::open(config_for(temporary_.path("other")));
  other->publish(sample_key(0), sample_entry(0));
  const Transfer imported = import_bundle(*other, bundle);
  EXPECT_EQ(imported.entries, 4u);
  EXPECT_EQ(imported.present, 1u);
  EXPECT_TRUE(imported.problems.empty());
  EXPECT_EQ(other->read(sample_key(3))->source, sample_entry(3).source);
  EXPECT_EQ(read_file(path_of(directory(), sample_key(3))),
            read_file(path_of(temporary_.path("other"), sample_key(3))));
}

TEST_F(Manage, TheSameEntriesGiveTheSameBundle) {
  const std::string a = temporary_.path("a"), b = temporary_.path("b");
  export_bundle(*cache_, a);
  const auto other = Cache::open(config_for(temporary_.path("other")));
  import_bundle(*other, a);
  export_bundle(*other, b);
  EXPECT_EQ(read_file(a), read_file(b));
  EXPECT_FALSE(read_file(a).empty());
}

TEST_F(Manage, NoDamagedBundleIsImported) {
  const std::string path = temporary_.path("bundle");
  export_bundle(*cache_, path, {"", "", {sample_key(0), sample_key(1)}});
  const std::string good = read_file(path);
  ASSERT_EQ(check_bundle(good, {}).reason, "");
  std::string bytes = good;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(bytes[i] ^ (1 << (i % 8)));
    ASSERT_NE(check_bundle(bytes, {}).reason, "") << i;
    bytes[i] = good[i];
    ASSERT_NE(check_bundle(std::string_view(good).substr(0, i), {}).reason, "") << i;
  }
  write_text(path, good.substr(0, good.size() - 1));
  const auto other = Cache::open(config_for(temporary_.path("other")));
  EXPECT_THROW(import_bundle(*other, path), Error);
  EXPECT_FALSE(fs::exists(temporary_.path("other")));
  EXPECT_THROW(import_bundle(*other, temporary_.path("missing")), Error);
  EXPECT_THROW(import_bundle(*other, temporary_.path()), Error);
}

TEST_F(Manage, AnExportThatFailsLeavesTheOldFile) {
  const std::string path = temporary_.path("bundle");
  write_text(path, "older");
  EXPECT_THROW(export_bundle(*cache_, path, {"gfx1100", "", {}}), Error);
  EXPECT_THROW(export_bundle(*cache_, temporary_.path("no/such/bundle")), Error);
  io_->first = io_->calls();
  io_->count = 1'000'000;
  io_->error = ENOSPC;
  EXPECT_THROW(export_bundle(*cache_, path), Error);
  EXPECT_EQ(read_file(path), "older");
}

TEST_F(Manage, AClearThatMayNotRemoveSaysWhereAndWhy) {
  fail("unlink", EROFS);
  EXPECT_THAT(message_of([&] { clear(*cache_); }),
              AllOf(HasSubstr("cache clear: " + directory() + ": 6 files cannot be removed"),
                    HasSubstr("Read-only file system")));
  EXPECT_THAT(message_of([&] {
                trim(*cache_, {{}, {}, {"sm_90", "", {}}, false});
              }),
              HasSubstr("cache trim: " + directory() + ": 3 files cannot be removed"));
  EXPECT_EQ(usage(*cache_).entries, 6u);
  io_->error = 0;
  EXPECT_EQ(clear(*cache_).entries.size(), 6u);
}

TEST_F(Manage, ClearAndTrimRemoveLocksThatNobodyHolds) {
  const std::string lock = path_of(directory(), sample_key(1));
  const std::string free = fs::path(lock).replace_extension(".lock");
  write_text(free, "");
  EXPECT_EQ(trim(*cache_, {{}, std::chrono::hours(1000), {}, false}).entries.size(), 0u);
  EXPECT_FALSE(fs::exists(free));
  write_text(free, "");
  const KeyLock held(*cache_->directory(), sample_key(2), std::chrono::steady_clock::now(),
                     [] { return false; });
  ASSERT_EQ(held.state(), KeyLock::State::owned);
  clear(*cache_);
  EXPECT_EQ(count_files(directory(), ".lock"), 1u) << "the one that is held";
  EXPECT_FALSE(fs::exists(free));
}

TEST_F(Manage, EntriesThatGoDuringAnExportAreLeftOutAndCounted) {
  const std::string gone = entry_name(sample_key(3));
  io_->on_open = [&](std::string_view name) {
    if (name == gone) fs::remove(path_of(directory(), sample_key(3)));
  };
  const Transfer transfer = export_bundle(*cache_, temporary_.path("bundle"));
  EXPECT_EQ(transfer.entries, 5u);
  EXPECT_EQ(transfer.vanished, 1u);
  EXPECT_TRUE(transfer.problems.empty());
  EXPECT_EQ(check_bundle(read_file(temporary_.path("bundle")), {}).items.size(), 5u);
}

TEST_F(Manage, TransfersHoldOneEntryAtATime) {
  constexpr std::size_t kCode = 300'000;
  constexpr std::size_t kPart = 1 << 20;
  for (std::uint64_t i = 10; i < 20; ++i) {
    ASSERT_TRUE(cache_->publish(sample_key(i), sample_entry(i, kCode)));
  }
  const std::string bundle = temporary_.path("bundle");
  io_->largest = 0;
  export_bundle(*cache_, bundle);
  EXPECT_LE(io_->largest, kPart);
  ASSERT_GT(fs::file_size(bundle), 2 * kPart);
  Config config = config_for(temporary_.path("other"));
  const auto io = std::make_shared<FaultIo>();
  config.io = io;
  EXPECT_EQ(import_bundle(*Cache::open(config), bundle).entries, 16u);
  EXPECT_LE(io->largest, kPart);
}

TEST_F(Manage, AnExportSaysHowFarItIs) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> seen;
  export_bundle(*cache_, temporary_.path("bundle"), {},
                [&](std::uint64_t done, std::uint64_t total) { seen.emplace_back(done, total); });
  ASSERT_EQ(seen.size(), 6u);
  for (std::uint64_t i = 0; i < 6; ++i) EXPECT_EQ(seen[i], std::pair(i + 1, std::uint64_t{6}));
}

TEST_F(Manage, AnExportThatIsKilledLeavesNothingBehind) {
  const fs::path beside = temporary_.path("beside");
  fs::create_directory(beside);
  const std::string path = beside / "bundle";
  const int begin = io_->calls();
  export_bundle(*cache_, path);
  const std::vector<std::string> calls(io_->history().begin() + begin, io_->history().end());
  if (std::find(calls.begin(), calls.end(), "link") == calls.end()) {
    GTEST_SKIP() << "the file system of " << beside << " has no files without a name";
  }
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (calls[i] == "rename") continue;  // between the link and this a name is there
    const pid_t child = kiln::testing::fork_child([&] {
      io_->first = io_->calls() + static_cast<int>(i);
      io_->kill = FaultIo::Kill::before;
      export_bundle(*cache_, path);
      return 0;  // not reached
    });
    ASSERT_TRUE(WIFSIGNALED(base::wait_for(child).value())) << i << " " << calls[i];
    EXPECT_EQ(std::distance(fs::directory_iterator(beside), {}), 1) << i << " " << calls[i];
  }
}

// Layers: a read-only directory or bundle is asked after the user's directory.
class Layers : public Manage, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    Manage::SetUp();
    layer_ = directory();
    if (GetParam()) {
      layer_ = temporary_.path("bundle");
      export_bundle(*cache_, layer_);
    }
    config_ = config_for(temporary_.path("user"));
    config_.readonly = {layer_};
  }
  std::string layer_;
  Config config_;
};

TEST_P(Layers, AHitInAReadOnlyLayerIsCopied) {
  const auto cache = Cache::open(config_);
  const Fetched fetched =
      fetch(*cache, sample_key(3), []() -> Entry { throw Error(Code::io, "no"); });
  EXPECT_EQ(fetched.from, From::disk);
  EXPECT_EQ(fetched.entry.code, sample_entry(3, 4000).code);
  EXPECT_EQ(read_file(path_of(config_.directory, sample_key(3))),
            read_file(path_of(directory(), sample_key(3))));
  EXPECT_EQ(cache->read(sample_key(4))->source, sample_entry(4).source);
}

TEST_P(Layers, WithoutAUserDirectoryTheLayerStillServes) {
  config_.directory.clear();
  config_.why_uncached = "KILN_CACHE=off";
  EXPECT_TRUE(Cache::open(config_)->find(sample_key(3)));
}

TEST_P(Layers, ARejectedEntryOfALayerIsNotAskedForAgain) {
  const auto cache = Cache::open(config_);
  int compiles = 0;
  const auto compile = [&] { return ++compiles, sample_entry(3); };
  EXPECT_TRUE(cache->find(sample_key(3)));
  cache->reject(sample_key(3), "no");
  EXPECT_EQ(fetch(*cache, sample_key(3), compile).from, From::compiled);
  EXPECT_EQ(fetch(*cache, sample_key(3), compile).entry.code, sample_entry(3).code);
  EXPECT_EQ(compiles, 1);
  EXPECT_EQ(count_quarantined(directory()), 0u);
}

TEST_P(Layers, ThatOthersMayWriteIsNotUsed) {
  ASSERT_EQ(::chmod(layer_.c_str(), 0777), 0);
  EXPECT_FALSE(Cache::open(config_)->find(sample_key(3)));
  EXPECT_THAT(log_.text(), HasSubstr(layer_));
}

TEST_P(Layers, WithADamagedEntryIsNotWrittenTo) {
  damage(3);
  if (GetParam()) {
    std::string bytes = read_file(layer_);
    const BundleIndex index = decode_bundle_index(bytes, bytes.size(), {});
    for (const BundleItem& item : index.items) {
      char& byte = bytes[item.offset + item.size - 20];
      if (item.key == sample_key(3)) byte = static_cast<char>(byte ^ 1);
    }
    write_text(layer_, bytes);
  }
  const auto cache = Cache::open(config_);
  EXPECT_FALSE(cache->find(sample_key(3)));
  EXPECT_TRUE(cache->find(sample_key(4)));
  EXPECT_EQ(count_quarantined(directory()), 0u);
  EXPECT_THAT(log_.text(), HasSubstr(sample_key(3).hex()));
}

INSTANTIATE_TEST_SUITE_P(Kinds, Layers, ::testing::Bool(), [](const auto& instance) {
  return instance.param ? "Bundle" : "Directory";
});

TEST(BadLayers, AreSaidOnceAndAreEmpty) {
  const TemporaryDirectory temporary;
  write_text(temporary.path("short"), "x");
  write_text(temporary.path("text"), std::string(1000, 'x'));
  Config config = config_for(temporary.path("user"));
  config.readonly = {temporary.path("short"), temporary.path("text"), temporary.path("missing")};
  LogRecord log;
  const auto cache = Cache::open(config);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(cache->find(sample_key()));
  const std::string text = log.text();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;
}

TEST(Explain, NamesWhatDiffersInWords) {
  Entry a = sample_entry(1), b = sample_entry(1);
  EXPECT_TRUE(explain(a, b).empty());
  b.metadata.ingredients[1].value = "-O2";
  b.metadata.ingredients[3].value = "gfx90a:sramecc+:xnack+";
  b.metadata.ingredients[4].value = "comgr:other";
  b.metadata.toolchain = "HIP 6.1";
  b.metadata.ingredients.push_back({"env.AMD_LOG_LEVEL", "4"});
  const std::vector<Difference> differences = explain(a, b);
  ASSERT_EQ(differences.size(), 4u);
  EXPECT_EQ(differences[0].words, "only A has option -O3; only B has option -O2");
  EXPECT_EQ(differences[1].words,
            "the target differs: A has gfx90a:sramecc+:xnack-, B has gfx90a:sramecc+:xnack+");
  EXPECT_THAT(differences[2].words, HasSubstr("A by HIP 5.2.21153 (comgr:1234abcd), B by HIP 6.1"));
  EXPECT_EQ(differences[3].words, "only B has env.AMD_LOG_LEVEL: 4");
}

TEST(Explain, NamesTheFirstLineOfTheSourceThatDiffers) {
  Entry a = sample_entry(1), b = sample_entry(2);
  a.source = "one\ntwo\nthree\n";
  b.source = "one\ntwo\n3\n";
  ASSERT_EQ(explain(a, b).size(), 1u);
  EXPECT_EQ(explain(a, b)[0].words, "the sources differ from line 3 on: A has 'three', B has '3'");
}

TEST(Explain, SaysWhenOnlyTheOrderOfOptionsDiffers) {
  Entry a = sample_entry(1), b = sample_entry(1);
  std::swap(b.metadata.ingredients[1], b.metadata.ingredients[2]);
  ASSERT_EQ(explain(a, b).size(), 1u);
  EXPECT_EQ(explain(a, b)[0].words, "the options are in another order");
}

// What another kiln counted counts on, whichever things it knows.
TEST(Stats, OfAnotherKilnAreReadAsFarAsTheyAreKnown) {
  const TemporaryDirectory temporary;
  const auto write = [&](std::string text) {
    text = "kiln-stats 1\n" + text;
    const unsigned long long sum = XXH3_64bits(text.data(), text.size());
    char last[64];
    std::snprintf(last, sizeof last, "%-16s%20llx\n", "checksum", sum);
    write_text(temporary.path("stats"), text + last);
    fs::permissions(temporary.path("stats"), fs::perms::owner_read | fs::perms::owner_write);
  };
  const auto line = [](const char* name, int value) {
    char text[64];
    std::snprintf(text, sizeof text, "%-16s%20d\n", name, value);
    return std::string(text);
  };
  const auto cache = Cache::open(config_for(temporary.path()));
  write(line("hits", 3) + line("misses", 4));
  EXPECT_EQ(stats(*cache)[Count::hits], 3u);
  EXPECT_EQ(stats(*cache)[Count::misses], 4u);
  write(line("of_tomorrow", 9) + line("misses", 5));
  EXPECT_EQ(stats(*cache)[Count::hits], 0u);
  EXPECT_EQ(stats(*cache)[Count::misses], 5u);
  write_text(temporary.path("stats"), "kiln-stats 1\n" + line("hits", 3) + line("checksum", 1));
  EXPECT_EQ(stats(*cache)[Count::hits], 0u);
}

}  // namespace
}  // namespace kiln::cache
