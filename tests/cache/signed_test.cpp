// The keyed code, and what it is for: with a secret, nothing that somebody else made or changed is
// taken from a bundle.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cache/bundle.hpp"
#include "cache/mac.hpp"
#include "kiln/cache.hpp"
#include "sample.hpp"
#include "tests/fuzz/seal.hpp"

namespace kiln::cache {
namespace {

using ::testing::HasSubstr;

std::string hex(const Mac& mac) {
  std::string text;
  for (const unsigned char byte : mac) text += fmt::format("{:02x}", byte);
  return text;
}

TEST(Secret, SignsTheSameInEveryProcessAndRelease) {
  // Python: hashlib.blake2b(len(purpose).to_bytes(8, "little") + purpose + bytes, digest_size=32,
  //                         key=hashlib.blake2b(secret, digest_size=32).digest())
  EXPECT_EQ(hex(Secret("correct horse").sign("entry", "battery")),
            "6e94c4a0a428f67702f53b03ccab67fba273a0c22e1761f1d46dcf95f1e9dfd5");
}

TEST(Secret, EverythingCounts) {
  const Secret secret("one");
  const Mac mac = secret.sign("entry", "bytes");
  EXPECT_TRUE(secret.accepts(mac, "entry", "bytes"));
  EXPECT_TRUE(Secret("one").accepts(mac, "entry", "bytes"));
  EXPECT_FALSE(Secret("two").accepts(mac, "entry", "bytes"));
  EXPECT_FALSE(secret.accepts(mac, "bundle", "bytes"));
  EXPECT_FALSE(secret.accepts(mac, "entryb", "ytes"));
  EXPECT_FALSE(secret.accepts(mac, "entry", "bytez"));
  for (std::size_t i = 0; i < mac.size(); ++i) {
    Mac other = mac;
    other[i] ^= 1;
    EXPECT_FALSE(secret.accepts(other, "entry", "bytes")) << i;
  }
  const Mac entry = secret.sign_entry(sample_key(1), "file");
  EXPECT_TRUE(secret.accepts_entry(entry, sample_key(1), "file"));
  EXPECT_FALSE(secret.accepts_entry(entry, sample_key(2), "file"));
  EXPECT_FALSE(secret.accepts_entry(entry, sample_key(1), "fil"));
}

TEST(Secret, TheEmptyOneIsNoneAndAcceptsNothing) {
  EXPECT_FALSE(Secret());
  EXPECT_FALSE(Secret(""));
  EXPECT_TRUE(Secret("x"));
  EXPECT_FALSE(Secret().accepts(Mac{}, "entry", ""));
  EXPECT_FALSE(Secret().accepts_entry(Mac{}, Key{}, ""));
  EXPECT_THROW(Secret().sign("entry", ""), Error);
}

class SignedBundle : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto cache = open("maker", "the secret");
    for (std::uint64_t i = 0; i < 3; ++i) {
      ASSERT_TRUE(cache->publish(sample_key(i), sample_entry(i)));
    }
    EXPECT_EQ(export_bundle(*cache, path()).signature, Signature::good);
    unsigned_ = temporary_.path("unsigned");
    EXPECT_EQ(export_bundle(*open("maker", ""), unsigned_).signature, Signature::none);
  }
  std::shared_ptr<Cache> open(const std::string& name, std::string_view secret,
                              const std::string& layer = {}) {
    Config config = config_for(temporary_.path(name));
    config.secret = Secret(secret);
    if (!layer.empty()) config.readonly = {layer};
    return Cache::open(config);
  }
  std::string path() const { return temporary_.path("bundle"); }
  std::string import_error(Cache& cache, const std::string& file) {
    try {
      import_bundle(cache, file);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument);
      return error.what();
    }
    return "was imported";
  }
  TemporaryDirectory temporary_;
  std::string unsigned_;
  LogRecord log_;
};

TEST_F(SignedBundle, IsImportedByWhoHasTheSecret) {
  const auto other = open("user", "the secret");
  const Transfer transfer = import_bundle(*other, path());
  EXPECT_EQ(transfer.signature, Signature::good);
  EXPECT_EQ(transfer.entries, 3u);
  EXPECT_EQ(read(*other, sample_key(1)), sample_entry(1));
}

TEST_F(SignedBundle, OfAnotherSecretOrUnsignedIsRefusedAndItIsSaid) {
  const auto other = open("user", "another secret");
  EXPECT_THAT(import_error(*other, path()), HasSubstr("not signed with this KILN_CACHE_SECRET"));
  EXPECT_THAT(import_error(*other, unsigned_),
              HasSubstr("is not signed, and KILN_CACHE_SECRET is set"));
  EXPECT_EQ(usage(*other).entries, 0u);
}

TEST_F(SignedBundle, WithoutASecretIsImportedAndItIsSaidThatNobodyChecked) {
  EXPECT_EQ(import_bundle(*open("user", ""), path()).signature, Signature::unchecked);
  EXPECT_EQ(import_bundle(*open("third", ""), unsigned_).signature, Signature::none);
}

TEST_F(SignedBundle, HasTheSameBytesForTheSameEntriesAndSecret) {
  const auto other = open("user", "the secret");
  import_bundle(*other, path());
  export_bundle(*other, temporary_.path("again"));
  EXPECT_EQ(read_file(temporary_.path("again")), read_file(path()));
  EXPECT_NE(read_file(unsigned_), read_file(path()));
}

// Whoever changes a bundle on purpose makes its digest and checksum right again.
TEST_F(SignedBundle, NoByteOfItCanBeChanged) {
  const std::string good = read_file(path());
  const Secret secret("the secret");
  const std::uint64_t head = bundle_index_size(good);
  int cases = 0;
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit, ++cases) {
      std::string bytes = good;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
      seal(bytes, head);
      if (bytes == good) continue;  // a bit of the digest or of the checksum
      const BundleIndex index = check_bundle(bytes, secret);
      std::size_t intact = 0;
      for (const BundleItem& item : index.items) {
        const auto file = std::string_view(bytes).substr(item.offset, item.size);
        intact += decode_bundle_entry(item, file, Parts::all, secret).entry.has_value();
      }
      ASSERT_LE(intact, i < head ? 0u : 2u) << "byte " << i << " bit " << bit;
      if (i >= head) {
        ASSERT_EQ(index.reason, "") << "the damage is in one entry";
      }
    }
  }
  std::printf("%d cases\n", cases);
}

TEST_F(SignedBundle, AnEntryCannotBeExchangedForAnotherGoodOne) {
  // Two files of one size: each good, with the other's place.
  const auto cache = open("maker", "the secret");
  const std::string a = encode(sample_key(1), sample_entry(1));
  const std::string b = encode(sample_key(1), [] {
    Entry entry = sample_entry(1);
    entry.code.back() = static_cast<char>(entry.code.back() ^ 1);
    return entry;
  }());
  ASSERT_EQ(a.size(), b.size());
  const Secret secret("the secret");
  std::string bytes = encode_bundle({{sample_key(1), a}}, secret);
  bytes.replace(bundle_index_size(bytes), b.size(), b);
  seal(bytes, bundle_index_size(bytes));
  const BundleIndex index = check_bundle(bytes, secret);
  ASSERT_EQ(index.items.size(), 1u);
  EXPECT_TRUE(decode(sample_key(1), b, Parts::all).entry);
  EXPECT_THAT(decode_bundle_entry(index.items[0], b, Parts::all, secret).reason,
              HasSubstr("changed after the bundle was signed"));
  EXPECT_TRUE(decode_bundle_entry(index.items[0], a, Parts::all, secret).entry);
}

TEST_F(SignedBundle, AsALayerIsCheckedWithoutUnpacking) {
  EXPECT_TRUE(open("user", "the secret", path())->find(sample_key(1)));
  EXPECT_TRUE(open("user2", "", path())->find(sample_key(1)));
  EXPECT_EQ(log_.text(), "");
  EXPECT_FALSE(open("user3", "another", path())->find(sample_key(1)));
  EXPECT_THAT(log_.text(), HasSubstr("not signed with this KILN_CACHE_SECRET; not used"));
  EXPECT_FALSE(open("user4", "another", unsigned_)->find(sample_key(1)));
  EXPECT_THAT(log_.text(), HasSubstr("is not signed, and KILN_CACHE_SECRET is set"));
}

TEST_F(SignedBundle, AsALayerGivesNoEntryThatWasChanged) {
  std::string bytes = read_file(path());
  const Secret secret("the secret");
  const BundleIndex index = check_bundle(bytes, secret);
  ASSERT_EQ(index.items.size(), 3u);
  const BundleItem& item = index.items[1];
  // A whole good entry under that key, but from somebody without the secret.
  const auto number = [&]() -> std::uint64_t {
    for (std::uint64_t i = 0; i < 3; ++i) {
      if (sample_key(i) == item.key) return i;
    }
    return 3;
  }();
  Entry forged = sample_entry(number);
  forged.code.back() = static_cast<char>(forged.code.back() ^ 1);
  const std::string file = encode(item.key, forged);
  ASSERT_EQ(file.size(), item.size);
  bytes.replace(item.offset, item.size, file);
  seal(bytes, bundle_index_size(bytes));
  write_text(path(), bytes);
  const auto cache = open("user", "the secret", path());
  EXPECT_FALSE(cache->find(item.key));
  EXPECT_TRUE(cache->find(index.items[0].key));
  EXPECT_THAT(log_.text(), HasSubstr(item.key.hex()));
}

}  // namespace
}  // namespace kiln::cache
