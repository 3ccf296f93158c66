// The remote tier on a real server: what one machine compiles others load, whatever the server, the
// network or somebody else who can write there does.
#include "cache/remote/remote.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "cache/remote/value.hpp"
#include "server_test.hpp"

namespace kiln::cache {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kSecret = "0123456789abcdef0123456789abcdef";
constexpr std::string_view kOther = "fedcba9876543210fedcba9876543210";

TEST(RemoteUrl, SaysWhereTheServerIsAndHowItIsUsed) {
  RemoteSettings settings = parse_remote_url("redis://cache.example");
  EXPECT_EQ(settings.host, "cache.example");
  EXPECT_EQ(settings.port, 6379);
  EXPECT_EQ(settings.display(), "redis://cache.example:6379/0");
  settings = parse_remote_url(
      "rediss://kiln:p%40ss%2Fw%25rd@[fd00::1]:7000/3?ttl=2h&prefix=team&wait=80ms&answer=2s&max=1M"
      "&ca=/etc/ca.pem");
  EXPECT_TRUE(settings.tls);
  EXPECT_EQ(settings.user, "kiln");
  EXPECT_EQ(settings.password, "p@ss/w%rd");
  EXPECT_EQ(settings.host, "fd00::1");
  EXPECT_EQ(settings.port, 7000);
  EXPECT_EQ(settings.database, 3);
  EXPECT_EQ(settings.ttl, std::chrono::hours(2));
  EXPECT_EQ(settings.prefix, "team");
  EXPECT_EQ(settings.wait, milliseconds(80));
  EXPECT_EQ(settings.answer, seconds(2));
  EXPECT_EQ(settings.max_value, 1u << 20);
  EXPECT_EQ(settings.ca, "/etc/ca.pem");
  EXPECT_EQ(settings.display(), "rediss://[fd00::1]:7000/3");
  settings = parse_remote_url("redis+unix://:word@/run/valkey.sock?db=2");
  EXPECT_EQ(settings.socket, "/run/valkey.sock");
  EXPECT_EQ(settings.password, "word");
  EXPECT_EQ(settings.display(), "redis+unix:///run/valkey.sock?db=2");
}

TEST(RemoteUrl, ThatIsNoneIsRefusedWithoutSayingAnyOfIt) {
  for (const std::string url : {"hunter2",
                                "http://hunter2",
                                "redis://",
                                "redis://user:hunter2@",
                                "redis://hunter2@host",
                                "redis://user:hunter2/x@host",
                                "redis://user:a@b/hunter2@host",
                                "redis://host:hunter2",
                                "redis://host:0",
                                "redis://host:65536",
                                "redis://host/hunter2",
                                "redis://[::1",
                                "redis://[::1]hunter2",
                                "redis://host?hunter2",
                                "redis://host?hunter2=1",
                                "redis://host?ttl=hunter2",
                                "redis://host?ttl=99999999999999999999d",
                                "redis://host?wait=0ms",
                                "redis://host?max=0",
                                "redis://host?max=hunter2",
                                "redis://a%zz",
                                "redis://a%0",
                                "redis://a%00",
                                "redis+unix://",
                                "redis+unix://hunter2/path",
                                "redis+unix:///?db=hunter2"}) {
    try {
      parse_remote_url(url);
      ADD_FAILURE() << url << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument);
      EXPECT_THAT(error.what(), Not(HasSubstr("hunter2"))) << url;
      EXPECT_THAT(error.what(), HasSubstr("expected redis://"));
    }
  }
}

TEST(RemoteSecret, IsNeededAndIsLongEnough) {
  const RemoteSettings settings = parse_remote_url("redis://host");
  EXPECT_THAT(remote_problem(settings, Secret()), HasSubstr("needs KILN_CACHE_SECRET"));
  EXPECT_THAT(remote_problem(settings, Secret("short")), HasSubstr("16 or more characters"));
  EXPECT_THAT(remote_problem(settings, Secret(std::string(kSecret) + ",short")),
              HasSubstr("16 or more characters"));
}

TEST(RemoteUrl, WithTlsIsRefusedWhereThereIsNone) {
  const std::string problem = remote_problem(parse_remote_url("rediss://host"), Secret(kSecret));
  if (problem.empty()) GTEST_SKIP() << "this kiln was built with TLS";
  EXPECT_THAT(problem, ::testing::AnyOf(HasSubstr("without TLS"), HasSubstr("without hiredis")));
}

TEST(RemoteValue, IsBoundToItsKeyAndContentAndToTheSecret) {
  const std::string file = encode(sample_key(1), sample_entry(1));
  const Secret secret(kSecret);
  const std::string value = encode_value(sample_key(1), file, secret);
  ASSERT_TRUE(decode_value(sample_key(1), value, secret).loaded);
  EXPECT_EQ(decode_value(sample_key(1), value, secret).loaded->bytes, file);
  EXPECT_FALSE(decode_value(sample_key(2), value, secret).loaded);
  EXPECT_FALSE(decode_value(sample_key(1), value, Secret(kOther)).loaded);
  for (std::size_t size = 0; size < value.size(); ++size) {
    ASSERT_FALSE(decode_value(sample_key(1), value.substr(0, size), secret).loaded) << size;
  }
  for (std::size_t i = 0; i < value.size(); ++i) {
    std::string changed = value;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    ASSERT_FALSE(decode_value(sample_key(1), changed, secret).loaded) << i;
  }
}

// The first signs and all are accepted: a fleet changes its secret machine by machine.
TEST(RemoteValue, IsAcceptedFromEachOfSeveralSecrets) {
  const std::string file = encode(sample_key(1), sample_entry(1));
  const std::string both = std::string(kOther) + "," + std::string(kSecret);
  const std::string old_value = encode_value(sample_key(1), file, Secret(kSecret));
  const std::string new_value = encode_value(sample_key(1), file, Secret(both));
  EXPECT_TRUE(decode_value(sample_key(1), old_value, Secret(both)).loaded);
  EXPECT_TRUE(decode_value(sample_key(1), new_value, Secret(kOther)).loaded);
  EXPECT_FALSE(decode_value(sample_key(1), new_value, Secret(kSecret)).loaded);
}

class RemoteServer : public ServerTest {
 protected:
  void TearDown() override {
    EXPECT_THAT(log_.text(), Not(HasSubstr(std::string(kSecret))));
    EXPECT_THAT(log_.text(), Not(HasSubstr("hunter2")));
  }

  RemoteSettings settings(const std::string& options = "wait=20s") const {
    return settings_at(server_->socket(), options);
  }
  std::shared_ptr<Cache> machine(const std::string& name, const RemoteSettings& settings,
                                 std::string_view secret = kSecret) {
    Config config = config_for(temporary_.path(name));
    config.secret = Secret(secret);
    config.remote = settings;
    return Cache::open(config);
  }
  std::shared_ptr<Cache> machine(const std::string& name) { return machine(name, settings()); }
  static std::optional<Entry> fetch_one(Cache& cache, const Key& key) {
    return std::move(cache.fetch({&key, 1}).front());
  }
  static std::string name_of(const Key& key) { return "kiln:1:entry:" + key.hex(); }
  void publish(std::uint64_t number) {
    const auto maker = machine("maker");
    ASSERT_TRUE(maker->publish(sample_key(number), sample_entry(number)));
    ASSERT_TRUE(flush(*maker));
  }

  LogRecord log_;
};

TEST_F(RemoteServer, GivesOneMachineWhatAnotherCompiled) {
  publish(1);
  const auto user = machine("user");
  EXPECT_FALSE(user->find(sample_key(1))) << "a local look-up does not ask the server";
  const auto fetched = fetch_one(*user, sample_key(1));
  ASSERT_TRUE(fetched);
  EXPECT_EQ(fetched->code, sample_entry(1).code);
  EXPECT_TRUE(user->find(sample_key(1))) << "it is in the user's directory now";
  EXPECT_EQ(user->read(sample_key(1))->source, sample_entry(1).source);
  EXPECT_FALSE(fetch_one(*user, sample_key(2)));
  const Stats stats = user->stats();
  EXPECT_EQ(stats[Count::remote_hits], 1u);
  EXPECT_EQ(stats[Count::remote_misses], 1u);
  EXPECT_EQ(stats[Count::remote_failures], 0u);
  EXPECT_EQ(log_.text(), "");
}

TEST_F(RemoteServer, GivesManyKeysInOneRoundTrip) {
  const auto maker = machine("maker");
  std::vector<Key> keys;
  for (std::uint64_t i = 0; i < 100; ++i) {
    keys.push_back(sample_key(i));
    if (i % 2 == 0) {
      ASSERT_TRUE(maker->publish(sample_key(i), sample_entry(i)));
    }
  }
  ASSERT_TRUE(flush(*maker));
  const auto user = machine("user");
  const auto fetched = user->fetch(keys);
  for (std::uint64_t i = 0; i < 100; ++i) {
    ASSERT_EQ(fetched[i].has_value(), i % 2 == 0) << i;
    if (fetched[i]) {
      ASSERT_EQ(fetched[i]->code, sample_entry(i).code);
    }
  }
}

TEST_F(RemoteServer, PrefetchesManyKeysInAFewRoundTrips) {
  const auto maker = machine("maker");
  std::vector<Key> keys;
  for (std::uint64_t i = 0; i < 300; ++i) {
    keys.push_back(sample_key(i));
    if (i % 2 == 0) {
      ASSERT_TRUE(maker->publish(sample_key(i), sample_entry(i)));
    }
  }
  ASSERT_TRUE(flush(*maker));
  testing::FaultProxy proxy(server_->socket());
  const auto user = machine("user", settings_at(proxy.socket(), "wait=20s"));
  user->prefetch(keys);
  EXPECT_LE(proxy.round_trips(), 4) << "a greeting and three times 128 keys at most";
  EXPECT_EQ(user->own_stats()[Count::remote_hits], 150u);
  for (std::uint64_t i = 0; i < 300; ++i) {
    ASSERT_EQ(user->find(keys[i]).has_value(), i % 2 == 0) << i;
    ASSERT_EQ(user->take_prefetched(keys[i]), i % 2 == 0) << i;
  }
  EXPECT_FALSE(user->take_prefetched(keys[0])) << "that it was prefetched is said once";
  const int before = proxy.round_trips();
  user->prefetch(std::vector<Key>{keys[0], keys[2]});
  EXPECT_EQ(proxy.round_trips(), before) << "what is on disk is not asked for";
  server_->stop();
  user->prefetch(keys);
  EXPECT_TRUE(user->find(keys[0])) << "nothing is lost with the server";
}

TEST_F(RemoteServer, IsNotAskedForWhatIsOnDisk) {
  testing::FaultProxy proxy(server_->socket());
  const auto user = machine("user", settings_at(proxy.socket(), "wait=20s"));
  EXPECT_FALSE(user->find(sample_key(1)));
  EXPECT_EQ(proxy.connections(), 0);
  ASSERT_TRUE(user->publish(sample_key(1), sample_entry(1)));
  ASSERT_TRUE(flush(*user));
  EXPECT_EQ(proxy.connections(), 1);
  const auto again = machine("user", settings_at(proxy.socket(), "wait=20s"));
  EXPECT_TRUE(again->find(sample_key(1)));
  EXPECT_EQ(proxy.connections(), 1);
}

TEST_F(RemoteServer, KeepsEntriesUnderAPrefixForATime) {
  const auto maker = machine("maker", settings("prefix=team&ttl=1h&wait=20s"));
  ASSERT_TRUE(maker->publish(sample_key(1), sample_entry(1)));
  ASSERT_TRUE(flush(*maker));
  const Reply left = ask({"TTL", "team:1:entry:" + sample_key(1).hex()});
  EXPECT_GT(left.integer, 3500);
  EXPECT_LE(left.integer, 3600);
  const auto forever = machine("forever", settings("ttl=0s&wait=20s"));
  ASSERT_TRUE(forever->publish(sample_key(1), sample_entry(1)));
  ASSERT_TRUE(flush(*forever));
  EXPECT_EQ(ask({"TTL", name_of(sample_key(1))}).integer, -1);
}

TEST_F(RemoteServer, ServesAMachineWithoutADirectory) {
  publish(1);
  Config config;
  config.why_uncached = "a test";
  config.secret = Secret(kSecret);
  config.remote = settings();
  Cache diskless(config);
  EXPECT_TRUE(fetch_one(diskless, sample_key(1)));
  EXPECT_FALSE(diskless.publish(sample_key(2), sample_entry(2)));
  ASSERT_TRUE(flush(diskless));
  EXPECT_TRUE(fetch_one(*machine("user"), sample_key(2)));
}

TEST_F(RemoteServer, WithAPasswordAndADatabaseIsUsedWithThem) {
  server_ =
      std::make_unique<testing::RedisServer>(std::vector<std::string>{"--requirepass", "hunter2"});
  const auto with = [&](const std::string& who, const std::string& name) {
    return machine(name,
                   parse_remote_url("redis+unix://" + who + server_->socket() + "?db=3&wait=20s"));
  };
  const auto maker = with(":hunter2@", "maker");
  ASSERT_TRUE(maker->publish(sample_key(1), sample_entry(1)));
  ASSERT_TRUE(flush(*maker));
  EXPECT_TRUE(fetch_one(*with("default:hunter2@", "user"), sample_key(1)));
  EXPECT_EQ(log_.text(), "");
  const auto without = with("", "without");
  EXPECT_FALSE(fetch_one(*without, sample_key(1)));
  EXPECT_THAT(log_.text(), HasSubstr("NOAUTH"));
  EXPECT_THAT(log_.text(), HasSubstr("check user and password"));
  EXPECT_FALSE(fetch_one(*with("default:hunter2wrong@", "wrong"), sample_key(1)));
}

// A server that does not know a command says it back, arguments and all.
TEST_F(RemoteServer, WithTlsHasToProveThatItIsTheOneNamed) {
  if (const std::string reason = remote_unsupported(parse_remote_url("rediss://127.0.0.1"));
      !reason.empty()) {
    GTEST_SKIP() << reason;
  }
  if (ask({"CONFIG", "GET", "tls-port"}).elements.empty()) {
    GTEST_SKIP() << "the server was built without TLS";
  }
  const std::string certificate = temporary_.path("certificate"), key = temporary_.path("key");
  const std::string make =
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
      "-subj /CN=kiln -addext subjectAltName=IP:127.0.0.1 -keyout " +
      key + " -out " + certificate + " 2>/dev/null";
  if (std::system(make.c_str()) != 0) GTEST_SKIP() << "openssl makes no certificate here";
  int port = 0;
  Reply listening;
  for (int turn = 0; turn < 20 && listening.text != "OK"; ++turn) {
    port = testing::unused_port();
    listening = ask({"CONFIG", "SET", "bind", "127.0.0.1 127.0.0.2", "tls-auth-clients", "no",
                     "tls-cert-file", certificate, "tls-key-file", key, "tls-ca-cert-file",
                     certificate, "tls-port", std::to_string(port)});
  }
  ASSERT_EQ(listening.text, "OK");
  const auto at = [&](const std::string& host, const std::string& authority) {
    return parse_remote_url(fmt::format("rediss://{}:{}?wait=20s{}", host, port, authority));
  };
  const std::string trusting = "&ca=" + certificate;
  {
    const auto maker = machine("maker", at("127.0.0.1", trusting));
    ASSERT_TRUE(maker->publish(sample_key(1), sample_entry(1, 1 << 20)));
    ASSERT_TRUE(flush(*maker)) << log_.text();
  }
  const auto user = machine("user", at("127.0.0.1", trusting));
  const auto fetched = fetch_one(*user, sample_key(1));
  ASSERT_TRUE(fetched);
  EXPECT_EQ(fetched->code, sample_entry(1, 1 << 20).code);
  EXPECT_EQ(log_.text(), "");
  const auto problem_at = [&](const RemoteSettings& settings) {
    const auto other = machine("other", settings);
    EXPECT_FALSE(fetch_one(*other, sample_key(1)));
    return other->remote()->health().problem;
  };
  EXPECT_THAT(problem_at(at("127.0.0.2", trusting)), HasSubstr("IP address mismatch"));
  EXPECT_THAT(problem_at(at("localhost", trusting)),
              ::testing::AnyOf(HasSubstr("hostname mismatch"), HasSubstr("has no address")));
  EXPECT_THAT(problem_at(at("127.0.0.1", "")), HasSubstr("has a certificate that is not accepted"));
  EXPECT_THAT(problem_at(at("127.0.0.1", "&ca=/nowhere")), HasSubstr("from /nowhere"));
  EXPECT_NE(problem_at(parse_remote_url(fmt::format("redis://127.0.0.1:{}?wait=20s", port))), "");
}

TEST_F(RemoteServer, ThatDoesNotKnowThePasswordsCommandIsNotQuoted) {
  server_ = std::make_unique<testing::RedisServer>(
      std::vector<std::string>{"--rename-command", "AUTH", ""});
  const auto user =
      machine("user", parse_remote_url("redis+unix://:hunter2@" + server_->socket() + "?wait=20s"));
  EXPECT_FALSE(fetch_one(*user, sample_key(1)));
  EXPECT_THAT(log_.text(), HasSubstr("answers ERR to the password"));
}

TEST_F(RemoteServer, ValueThatWasNotSignedIsRefusedCountedAndReplacedAloud) {
  publish(1);
  const std::string other = ask({"GET", name_of(sample_key(1))}).text;
  const std::string forged =
      encode_value(sample_key(2), encode(sample_key(2), sample_entry(7)), Secret(kOther));
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"another secret's", forged},
      {"another key's", other},
      {"a bare entry", encode(sample_key(2), sample_entry(2))},
      {"text", "hello"},
      {"too long", std::string(3 << 20, 'x')}};
  int number = 0;
  for (const auto& [what, value] : bad) {
    SCOPED_TRACE(what);
    ask({"SET", name_of(sample_key(2)), value});
    const auto user = machine("user" + std::to_string(number++), settings("wait=20s&max=2M"));
    EXPECT_FALSE(fetch_one(*user, sample_key(2)));
    EXPECT_EQ(user->stats()[Count::remote_refused], 1u);
    EXPECT_THAT(log_.text(), HasSubstr(sample_key(2).hex()));
    ASSERT_TRUE(user->publish(sample_key(2), sample_entry(2)));
    ASSERT_TRUE(flush(*user));
    EXPECT_TRUE(fetch_one(*machine("next" + std::to_string(number)), sample_key(2)));
  }
  ask({"DEL", name_of(sample_key(2))});
  ask({"LPUSH", name_of(sample_key(2)), "a list"});
  const auto user = machine("list");
  EXPECT_FALSE(fetch_one(*user, sample_key(2)));
  EXPECT_EQ(user->stats()[Count::remote_refused], 1u);
  EXPECT_TRUE(fetch_one(*user, sample_key(1))) << "the server is still asked for others";
}

TEST_F(RemoteServer, ValueThatIsThereIsNotReplacedByWhoCompiledToo) {
  publish(1);
  const std::string first = ask({"GET", name_of(sample_key(1))}).text;
  const auto second = machine("second");
  Entry entry = sample_entry(1);
  entry.metadata.created += 1;
  ASSERT_TRUE(second->publish(sample_key(1), entry));
  ASSERT_TRUE(flush(*second));
  EXPECT_EQ(ask({"GET", name_of(sample_key(1))}).text, first);
}

TEST_F(RemoteServer, CodeThatADriverRefusedIsNotFetchedAgain) {
  publish(1);
  const auto user = machine("user");
  ASSERT_TRUE(fetch_one(*user, sample_key(1)));
  user->reject(sample_key(1), "bad image");
  EXPECT_FALSE(fetch_one(*user, sample_key(1)));
  EXPECT_FALSE(user->find(sample_key(1)));
}

// A machine without a compiler has all of a key's ingredients but the toolchain.
TEST_F(RemoteServer, GivesAMachineWithoutACompilerWhatAnyCompilerMade) {
  const auto without_toolchain = [](std::uint64_t number) {
    auto ingredients = sample_ingredients(number);
    for (Ingredient& one : ingredients) {
      if (one.tag == "toolchain") one.value.clear();
    }
    return ingredients;
  };
  publish(1);
  publish(2);
  const auto user = machine("user");
  const auto found = user->fetch_any_toolchain(without_toolchain(1));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->key, sample_key(1));
  EXPECT_EQ(found->entry.code, sample_entry(1).code);
  EXPECT_TRUE(user->find(sample_key(1))) << "it is in the user's directory now";
  EXPECT_FALSE(user->fetch_any_toolchain(without_toolchain(3)));
  EXPECT_EQ(log_.text(), "");

  const auto names = [&] {
    std::vector<std::string> found;
    for (const Reply& name : ask({"KEYS", "kiln:1:source:*"}).elements) found.push_back(name.text);
    return found;
  }();
  ASSERT_EQ(names.size(), 2u);
  const std::string first = ask({"GET", names[0]}).text;
  const std::string second = ask({"GET", names[1]}).text;
  int refused = 0;
  for (const std::string& bad :
       {std::string("hello"), first.substr(1), first + "x", "KSOURCE1" + std::string(48, 'x')}) {
    for (const std::string& name : names) ask({"SET", name, bad});
    EXPECT_FALSE(
        machine("bad" + std::to_string(refused++))->fetch_any_toolchain(without_toolchain(1)));
  }
  ask({"SET", names[0], second});
  ask({"SET", names[1], first});
  const auto last = machine("last");
  EXPECT_FALSE(last->fetch_any_toolchain(without_toolchain(1))) << "it points to another source's";
  EXPECT_EQ(last->stats()[Count::remote_refused], 1u);
}

TEST_F(RemoteServer, TakesAndGivesWholeCaches) {
  {
    const auto offline = Cache::open(config_for(temporary_.path("maker")));
    for (std::uint64_t i = 0; i < 40; ++i) {
      Entry entry = sample_entry(i);
      if (i % 2 == 1) entry.metadata.target = "sm_90";
      ASSERT_TRUE(offline->publish(sample_key(i), entry));
    }
    try {
      push(*offline);
      ADD_FAILURE() << "pushed to nowhere";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::not_found);
      EXPECT_THAT(error.what(), HasSubstr("set KILN_REMOTE_CACHE"));
    }
  }
  const auto maker = machine("maker", settings("wait=20s&prefix=a*[b]?"));
  EXPECT_EQ(push(*maker, {.target = "gfx90a"}).entries, 20u);
  const Transfer all = push(*maker);
  EXPECT_EQ(all.entries, 20u);
  EXPECT_EQ(all.present, 20u);
  ask({"SET", "a*[b]?:1:entry:not a key", "x"});
  const auto user = machine("user", settings("wait=20s&prefix=a*[b]?"));
  EXPECT_EQ(pull(*user, {.target = "sm_90"}).entries, 20u);
  const Transfer rest = pull(*user);
  EXPECT_EQ(rest.entries, 20u);
  EXPECT_EQ(rest.present, 20u);
  EXPECT_TRUE(rest.problems.empty());
  EXPECT_EQ(read(*user, sample_key(7)).code, sample_entry(7).code);
  EXPECT_EQ(pull(*user, {.keys = {sample_key(3), sample_key(99)}}).problems.size(), 1u);
  EXPECT_EQ(log_.text(), "");
  server_->stop();
  for (const auto& call : {std::function<void()>([&] { push(*machine("maker")); }),
                           std::function<void()>([&] { pull(*machine("third")); })}) {
    try {
      call();
      ADD_FAILURE() << "there is no server";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::io);
      EXPECT_THAT(error.what(), HasSubstr("cannot be reached"));
    }
  }
}

TEST_F(RemoteServer, IsCheckedForPeople) {
  const auto user = machine("user", settings_at(server_->socket(), "wait=20s"));
  const auto check = [&] { return user->remote()->check(Clock::now() + seconds(20)); };
  const RemoteHealth health = check();
  EXPECT_TRUE(health.connected);
  EXPECT_EQ(health.problem, "");
  EXPECT_GT(health.latency.count(), 0);
  server_->stop();
  EXPECT_THAT(check().problem, HasSubstr("cannot be reached"));
}

TEST_F(RemoteServer, SaysWhatItHas) {
  publish(1);
  publish(2);
  const auto user = machine("user");
  const std::vector<Key> keys = {sample_key(3)};
  const std::vector<Cache::Claim> claims = user->claim(keys);
  ask({"CONFIG", "SET", "maxmemory", "100mb"});
  ask({"SET", "another's", "x"});
  const auto usage = user->remote()->usage(Clock::now() + seconds(20));
  ASSERT_TRUE(usage);
  EXPECT_EQ(usage->entries, 2u);
  EXPECT_EQ(usage->compiling, 1u);
  EXPECT_GT(usage->memory, 1u << 12);
  EXPECT_EQ(usage->max_memory, 100u << 20);
  EXPECT_EQ(usage->evicted, 0u);
  EXPECT_THAT(usage->version, ::testing::MatchesRegex("(Redis|Valkey) [0-9.]+.*"));
  server_->stop();
  EXPECT_FALSE(user->remote()->usage(Clock::now() + seconds(20)));
}

TEST_F(RemoteServer, EntryLongerThanTheBoundIsNotSent) {
  const auto maker = machine("maker", settings("wait=20s&max=1K"));
  EXPECT_TRUE(maker->publish(sample_key(1), sample_entry(1, 5000)));
  ASSERT_TRUE(flush(*maker));
  EXPECT_EQ(ask({"EXISTS", name_of(sample_key(1))}).integer, 0);
  EXPECT_THAT(log_.text(), HasSubstr("the bound is 1024"));
}

TEST_F(RemoteServer, IsUsedAgainAfterItWasRestartedAndFlushed) {
  publish(1);
  const auto user = machine("user");
  ASSERT_TRUE(fetch_one(*user, sample_key(1)));
  server_->stop();
  server_->start();
  EXPECT_FALSE(fetch_one(*user, sample_key(2)))
      << "the new server has nothing, which is no failure";
  EXPECT_EQ(user->stats()[Count::remote_failures], 0u);
  ASSERT_TRUE(user->publish(sample_key(2), sample_entry(2)));
  ASSERT_TRUE(flush(*user));
  ask({"FLUSHALL"});
  EXPECT_FALSE(fetch_one(*user, sample_key(2)));
  EXPECT_EQ(log_.text(), "");
}

TEST_F(RemoteServer, ThatIsAwayCostsOneFailureAndIsFoundAgain) {
  const auto user = machine("user");
  server_->stop();
  EXPECT_FALSE(fetch_one(*user, sample_key(1)));
  EXPECT_THAT(log_.text(), HasSubstr("cannot be reached"));
  const std::string once = log_.text();
  const auto before = Clock::now();
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(fetch_one(*user, sample_key(1)));
  EXPECT_LT(Clock::now() - before, seconds(10)) << "a thousand look-ups of 20 s each are skipped";
  ASSERT_TRUE(user->publish(sample_key(3), sample_entry(3)));
  EXPECT_EQ(log_.text(), once);
  server_->start();
  const auto limit = Clock::now() + seconds(60);
  while (ask({"EXISTS", name_of(sample_key(3))}).integer == 0) {
    ASSERT_LT(Clock::now(), limit) << "what was published meanwhile never arrived";
    std::this_thread::yield();
  }
  ASSERT_TRUE(flush(*user));
  EXPECT_EQ(user->remote()->health().problem, "");
  EXPECT_TRUE(fetch_one(*machine("other"), sample_key(3)));
}

TEST_F(RemoteServer, ThatDoesNotAnswerHoldsALookUpUpForItsTimeOnlyOnce) {
  testing::FaultProxy proxy(server_->socket());
  proxy.silent = true;
  const auto user = machine("user", settings_at(proxy.socket(), "wait=200ms&answer=60s"));
  auto before = Clock::now();
  EXPECT_FALSE(fetch_one(*user, sample_key(1)));
  EXPECT_GE(Clock::now() - before, milliseconds(200));
  EXPECT_LT(Clock::now() - before, seconds(20));
  before = Clock::now();
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(fetch_one(*user, sample_key(1)));
  EXPECT_LT(Clock::now() - before, seconds(10)) << "a hundred times 200 ms";
}

// What a compile took here bounds the look-up that may save one.
TEST_F(RemoteServer, IsNotWaitedForLongerThanACompileTookHere) {
  testing::FaultProxy proxy(server_->socket());
  proxy.silent = true;
  {
    const auto earlier = Cache::open(config_for(temporary_.path("user")));
    Entry entry = sample_entry(9);
    entry.metadata.compile_ms = 700;
    ASSERT_TRUE(earlier->publish(sample_key(9), entry));
  }
  const auto user = machine("user", settings_at(proxy.socket(), "answer=60s"));
  const auto before = Clock::now();
  EXPECT_FALSE(fetch_one(*user, sample_key(1)));
  EXPECT_GE(Clock::now() - before, milliseconds(700));
  EXPECT_LT(Clock::now() - before, seconds(20));
}

TEST_F(RemoteServer, IsUsedByAForkedChildToo) {
  publish(1);
  const auto user = machine("user");
  EXPECT_TRUE(fetch_one(*user, sample_key(1)));
  const pid_t child = testing::fork_child([&] {
    const bool published = user->publish(sample_key(2), sample_entry(2)) && flush(*user);
    return published && fetch_one(*user, sample_key(1)) ? 0 : 1;
  });
  EXPECT_EQ(base::wait_for(child), 0);
  EXPECT_TRUE(fetch_one(*user, sample_key(2)));
}

TEST_F(RemoteServer, IsAskedByManyThreadsAtOnce) {
  const auto maker = machine("maker");
  for (std::uint64_t i = 0; i < 16; ++i)
    ASSERT_TRUE(maker->publish(sample_key(i), sample_entry(i)));
  ASSERT_TRUE(flush(*maker));
  const auto user = machine("user");
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 16; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 16; ++i) {
        const auto entry = fetch_one(*user, sample_key((i + t) % 16));
        right += entry && entry->code == sample_entry((i + t) % 16).code;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 256);
}

// Through the proxy: what is fetched is right or nothing, in bounded time.
class RemoteFault : public RemoteServer {
 protected:
  void SetUp() override {
    RemoteServer::SetUp();
    if (IsSkipped()) return;
    publish(1);
    value_ = ask({"GET", name_of(sample_key(1))}).text;
    proxy_ = std::make_unique<testing::FaultProxy>(server_->socket());
  }
  /// One look-up by a process that has just started; whether it got the entry.
  bool look_up(const std::string& options = "wait=2s&answer=2s") {
    Counters counters;
    Remote remote(settings_at(proxy_->socket(), options), Secret(kSecret), counters);
    const auto before = Clock::now();
    const auto found = std::move(remote.fetch({&key_, 1}, before + remote.settings().wait).front());
    EXPECT_LT(Clock::now() - before, remote.settings().wait + seconds(20));
    if (found) {
      EXPECT_EQ(found->entry.code, sample_entry(1).code);
    }
    const Stats stats = counters.read();
    EXPECT_EQ(stats[Count::remote_hits], found ? 1u : 0u);
    refused_ += stats[Count::remote_refused];
    failures_ += stats[Count::remote_failures];
    return found.has_value();
  }
  /// The bytes of the replies to one look-up.
  long reply_bytes() const {
    return static_cast<long>(std::string("+PONG\r\n$").size() +
                             std::to_string(value_.size()).size() + 4 + value_.size());
  }

  const Key key_ = sample_key(1);
  std::string value_;
  std::uint64_t refused_ = 0;
  std::uint64_t failures_ = 0;
  std::unique_ptr<testing::FaultProxy> proxy_;
};

TEST_F(RemoteFault, ConnectionIsCutAtEveryByte) {
  EXPECT_TRUE(look_up());
  for (long i = 0; i < reply_bytes(); ++i) {
    proxy_->cut_after = i;
    ASSERT_FALSE(look_up()) << i;
  }
  EXPECT_EQ(failures_, static_cast<std::uint64_t>(reply_bytes()));
  proxy_->cut_after = -1;
  EXPECT_TRUE(look_up());
  std::printf("%ld cuts\n", reply_bytes());
}

TEST_F(RemoteFault, EveryByteIsChanged) {
  std::uint64_t right = 0;
  for (long i = 0; i < reply_bytes(); ++i) {
    proxy_->change_at = i;
    // A value that is not right is refused as soon as it is there; a wrong length is waited for.
    const bool is_value = i >= reply_bytes() - 2 - static_cast<long>(value_.size());
    right += look_up(is_value ? "wait=20s&answer=20s" : "wait=100ms&answer=100ms") ? 1u : 0u;
  }
  // Those of the greeting's text and the end of the line after a value say nothing.
  EXPECT_LE(right, std::string("PONG\r\n").size());
  EXPECT_GE(refused_, value_.size());
  std::printf("%ld changes: %lu refused, %lu not understood, %lu harmless\n", reply_bytes(),
              static_cast<unsigned long>(refused_), static_cast<unsigned long>(failures_),
              static_cast<unsigned long>(right));
}

TEST_F(RemoteFault, ServerSaysThatItCannot) {
  for (const std::string answer :
       {"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
        "-MOVED 3999 127.0.0.1:6381\r\n",
        "-READONLY You can't write against a read only replica.\r\n",
        "-LOADING Redis is loading the dataset in memory\r\n",
        "-NOAUTH Authentication required.\r\n",
        "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n", "-\r\n", ":1\r\n",
        "*0\r\n", "$-1\r\n", "*-1\r\n", "$0\r\n\r\n", "+\r\n"}) {
    proxy_->answer = answer;
    EXPECT_FALSE(look_up()) << answer;
  }
}

TEST_F(RemoteFault, ServerSendsWhatIsNoReply) {
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "*1\r\n";
  for (const std::string& answer :
       {std::string("HTTP/1.1 400 Bad Request\r\n\r\n"), std::string("$99999999999999999999\r\n"),
        std::string("$-2\r\n"), std::string("*2147483647\r\n"), std::string("*4294967297\r\n"),
        deep, std::string("$4\r\nabcdef\r\n"), std::string(300'000, '+'), std::string(1, '\0'),
        std::string("$2147483647\r\n") + std::string(60'000, 'x')}) {
    proxy_->answer = answer;
    EXPECT_FALSE(look_up("wait=200ms&answer=200ms&max=64K")) << answer.substr(0, 30);
  }
}

TEST_F(RemoteFault, AnotherKeysValueIsReplayed) {
  publish(2);
  const std::string other = ask({"GET", name_of(sample_key(2))}).text;
  proxy_->answer = "$" + std::to_string(other.size()) + "\r\n" + other + "\r\n";
  EXPECT_FALSE(look_up());
  EXPECT_EQ(refused_, 1u);
}

TEST_F(RemoteFault, RepliesAreDelayed) {
  proxy_->delay_ms = 50;
  EXPECT_TRUE(look_up("wait=20s"));
  proxy_->delay_ms = 2000;
  EXPECT_FALSE(look_up("wait=100ms"));
}

TEST_F(RemoteFault, RepliesComeAByteASecond) {
  proxy_->slow_after = 0;
  const auto before = Clock::now();
  EXPECT_FALSE(look_up("wait=300ms&answer=300ms"));
  EXPECT_LT(Clock::now() - before, seconds(20));
  EXPECT_EQ(failures_, 1u);
}

TEST_F(RemoteFault, ServerThatIsFullOrAReplicaStillServes) {
  ask({"CONFIG", "SET", "maxmemory", "1"});
  const auto user = machine("user");
  ASSERT_TRUE(user->publish(sample_key(2), sample_entry(2)));
  ASSERT_TRUE(flush(*user));
  EXPECT_THAT(log_.text(), HasSubstr("keeps nothing new: OOM"));
  EXPECT_TRUE(fetch_one(*user, sample_key(1)));
  EXPECT_EQ(user->stats()[Count::remote_failures], 1u);
}

}  // namespace
}  // namespace kiln::cache
