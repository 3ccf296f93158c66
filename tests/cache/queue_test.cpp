// Requests for compiles on a real server: each is answered once and lost by nobody's end, and
// nothing is believed that was not signed.
#include "cache/remote/queue.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cache/remote/value.hpp"
#include "server_test.hpp"

namespace kiln::cache {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kQueueSecret = "0123456789abcdef0123456789abcdef";
constexpr std::string_view kForeign = "fedcba9876543210fedcba9876543210";
constexpr auto kForeground = RequestPriority::foreground;
constexpr auto kBackground = RequestPriority::background;

RemoteRequest sample_request(std::uint64_t number) {
  RemoteRequest request;
  request.text = "kernel " + std::to_string(number);
  request.target = "gfx90a:xnack-";
  request.options = {"-O3", "--offload-arch=gfx90a:xnack-"};
  request.function = "function";
  return request;
}

TEST(RemoteMessage, IsBoundToItsSourceAndKindAndToTheSecret) {
  const Key source = sample_key(1);
  const Secret secret(kQueueSecret);
  const std::string request = encode_request(source, sample_request(1), secret);
  const auto decoded = decode_request(source, request, secret);
  ASSERT_TRUE(decoded.body) << decoded.reason;
  EXPECT_EQ(decoded.body->text, "kernel 1");
  EXPECT_EQ(decoded.body->options, sample_request(1).options);
  EXPECT_FALSE(decode_request(sample_key(2), request, secret).body);
  EXPECT_FALSE(decode_request(source, request, Secret(kForeign)).body);
  const std::string failure = encode_failure(source, {3, true, "host", "no"}, secret);
  ASSERT_TRUE(decode_failure(source, failure, secret).body);
  EXPECT_EQ(decode_failure(source, failure, secret).body->message, "no");
  EXPECT_FALSE(decode_failure(sample_key(2), failure, secret).body);
  EXPECT_FALSE(decode_request(source, failure, secret).body);
  RemoteServer server;
  server.id = "a";
  server.kinds = {"gfx90a@0"};
  const std::string about = encode_server(server, secret);
  ASSERT_TRUE(decode_server(about, secret).body);
  EXPECT_FALSE(decode_server(about, Secret(kForeign)).body);
  for (const std::string& message : {request, failure, about}) {
    for (std::size_t i = 0; i < message.size(); ++i) {
      std::string changed = message;
      changed[i] = static_cast<char>(changed[i] ^ 1);
      for (const std::string& bytes : {changed, message.substr(0, i)}) {
        EXPECT_FALSE(decode_request(source, bytes, secret).body);
        EXPECT_FALSE(decode_failure(source, bytes, secret).body);
        EXPECT_FALSE(decode_server(bytes, secret).body);
      }
    }
  }
}

TEST(RemoteMessage, OfARequestThatIsTooLongIsNone) {
  RemoteRequest request = sample_request(1);
  request.text.assign(kMaxMessageBytes, 'x');
  EXPECT_EQ(encode_request(sample_key(1), request, Secret(kQueueSecret)), "");
  const std::string long_text(kMaxFailureText + 1, 'x');
  const auto failure =
      decode_failure(Key{}, encode_failure(Key{}, {0, false, "", long_text}, Secret(kQueueSecret)),
                     Secret(kQueueSecret));
  EXPECT_EQ(failure.body->message.size(), kMaxFailureText);
}

class QueueTest : public ServerTest {
 protected:
  static constexpr const char* kKind = "gfx90a@0";
  static constexpr const char* kOptions = "answer=20s&lease=60s";

  std::unique_ptr<RequestQueue> client(const char* options = kOptions,
                                       std::string_view secret = kQueueSecret) {
    return std::make_unique<RequestQueue>(settings_at(server_->socket(), options), Secret(secret),
                                          counters_);
  }
  std::unique_ptr<ServedQueue> compile_server(const std::string& id,
                                              const char* options = kOptions) {
    return std::make_unique<ServedQueue>(settings_at(server_->socket(), options),
                                         Secret(kQueueSecret), id, std::vector<std::string>{kKind});
  }
  static RequestQueue::Posted post(RequestQueue& queue, std::uint64_t number,
                                   RequestPriority priority = kForeground) {
    const Key source = sample_key(number);
    return queue.post({&source, 1}, kKind, priority,
                      [&](std::size_t) { return queue.sign(source, sample_request(number)); });
  }
  static std::vector<ServedQueue::Taken> take(ServedQueue& server, std::size_t count = 8) {
    return server.take(count, count).value();
  }
  static RequestQueue::Answers look(RequestQueue& queue, std::uint64_t number) {
    const Key source = sample_key(number);
    return queue.look({&source, 1}, kKind).value();
  }
  std::int64_t length(const std::string& priority = "foreground") {
    return ask({"XLEN", "kiln:1:queue:" + priority + ":" + kKind}).integer;
  }
  static std::string request_name(std::uint64_t number) {
    return "kiln:1:request:foreground:" + sample_key(number).hex();
  }

  Counters counters_;
};

TEST_F(QueueTest, WhatManyWantIsOneRequest) {
  const auto one = client(), two = client();
  const auto server = compile_server("a");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(post(*one, 1), RequestQueue::Posted::waiting);
    EXPECT_EQ(post(*two, 1), RequestQueue::Posted::waiting);
  }
  EXPECT_EQ(length(), 1);
  const auto taken = take(*server);
  ASSERT_EQ(taken.size(), 1u);
  ASSERT_TRUE(taken[0].request) << taken[0].problem;
  EXPECT_EQ(taken[0].request->text, "kernel 1");
  EXPECT_EQ(taken[0].source(), sample_key(1));
  post(*two, 1);
  EXPECT_EQ(length(), 1) << "it is in the queue until it is answered";
  EXPECT_THAT(take(*compile_server("b")), ::testing::IsEmpty());
  EXPECT_TRUE(server->finish(taken[0], Served::compiled, std::nullopt));
  EXPECT_EQ(length(), 0);
  EXPECT_EQ(ask({"EXISTS", request_name(1)}).integer, 0);
}

TEST_F(QueueTest, WhatSomebodyWaitsForComesFirst) {
  const auto queue = client();
  const auto server = compile_server("a");
  post(*queue, 1, kBackground);
  post(*queue, 2, kBackground);
  post(*queue, 3, kForeground);
  const auto first = server->take(2, 1).value();
  ASSERT_EQ(first.size(), 1u) << "no more than one if any is of the background";
  EXPECT_EQ(first[0].source(), sample_key(3));
  EXPECT_EQ(take(*server).size(), 2u);
}

TEST_F(QueueTest, ARequestOfAServerThatIsGoneIsTakenOver) {
  const auto queue = client();
  post(*queue, 1);
  const auto dead = compile_server("dead", "answer=20s&lease=50ms");
  const auto other = compile_server("other", "answer=20s&lease=50ms");
  ASSERT_EQ(take(*dead).size(), 1u);
  const auto limit = Clock::now() + seconds(20);
  std::vector<ServedQueue::Taken> taken;
  while ((taken = take(*other)).empty()) ASSERT_LT(Clock::now(), limit);
  EXPECT_TRUE(taken[0].taken_over);
  ASSERT_TRUE(taken[0].request) << taken[0].problem;
  EXPECT_TRUE(other->finish(taken[0], Served::found, std::nullopt));
  EXPECT_EQ(length(), 0);
}

TEST_F(QueueTest, ARequestThatIsRenewedStaysWhereItIs) {
  const auto queue = client();
  post(*queue, 1);
  const auto alive = compile_server("alive", "answer=20s&lease=400ms");
  const auto other = compile_server("other", "answer=20s&lease=400ms");
  const auto taken = take(*alive);
  ASSERT_EQ(taken.size(), 1u);
  const ServedQueue::Taken* const held = &taken[0];
  const auto limit = Clock::now() + milliseconds(900);
  while (Clock::now() < limit) {
    const auto before = Clock::now();
    alive->renew({&held, 1}, RemoteServer{});
    const auto others = take(*other);
    if (Clock::now() - before > milliseconds(300)) GTEST_SKIP() << "the machine is too busy";
    EXPECT_THAT(others, ::testing::IsEmpty());
  }
}

TEST_F(QueueTest, WhatCannotBeCompiledIsAnsweredForAWhile) {
  const auto queue = client();
  const auto server = compile_server("a");
  EXPECT_FALSE(look(*queue, 1).has_server);
  server->renew({}, RemoteServer{});
  EXPECT_TRUE(look(*queue, 1).has_server);
  EXPECT_FALSE(look(*queue, 1).answers[0].failure);
  post(*queue, 1);
  const auto taken = take(*server);
  ASSERT_EQ(taken.size(), 1u);
  server->finish(taken[0], Served::failed, RemoteFailure{3, true, "host", "line 7: error"});
  const auto answer = look(*queue, 1).answers[0];
  ASSERT_TRUE(answer.failure);
  EXPECT_EQ(answer.failure->message, "line 7: error");
  EXPECT_TRUE(answer.failure->is_verdict);
  const std::string name = "kiln:1:failure:" + sample_key(1).hex();
  EXPECT_GT(ask({"PTTL", name}).integer, 0);
  EXPECT_LE(ask({"PTTL", name}).integer, 60'000);
  // Another kernel's is none of this one's.
  ask({"COPY", name, "kiln:1:failure:" + sample_key(2).hex()});
  EXPECT_FALSE(look(*queue, 2).answers[0].failure);
  EXPECT_EQ(counters_.read()[Count::remote_refused], 1u);
  // It expires, and once it is compiled it is gone at once.
  ask({"PEXPIRE", name, "1"});
  const auto limit = Clock::now() + seconds(20);
  while (look(*queue, 1).answers[0].failure) ASSERT_LT(Clock::now(), limit);
  server->finish(taken[0], Served::failed, RemoteFailure{3, false, "host", "no memory"});
  server->finish(taken[0], Served::compiled, std::nullopt);
  EXPECT_FALSE(look(*queue, 1).answers[0].failure);
}

TEST_F(QueueTest, NothingIsTakenThatWasNotSigned) {
  const auto queue = client();
  const auto server = compile_server("a");
  const auto check = [&](const std::string& value, std::string_view problem) {
    post(*queue, 1);
    const std::string good = ask({"GET", request_name(1)}).text;
    const std::string number = good.substr(0, good.find(' ') + 1);
    ask({"SET", request_name(1), value.starts_with('!') ? value.substr(1) : number + value});
    const auto taken = take(*server);
    ASSERT_EQ(taken.size(), 1u);
    EXPECT_FALSE(taken[0].request);
    EXPECT_THAT(taken[0].problem, HasSubstr(std::string(problem)));
    EXPECT_TRUE(server->finish(taken[0], Served::refused, std::nullopt));
    EXPECT_EQ(length(), 0);
    // Who wants it asks again, and gets it.
    post(*queue, 1);
    const auto again = take(*server);
    ASSERT_EQ(again.size(), 1u);
    EXPECT_TRUE(again[0].request) << again[0].problem;
    server->finish(again[0], Served::compiled, std::nullopt);
  };
  const Key source = sample_key(1);
  check("", "not a message");
  check("nonsense", "not a message");
  check("!nonsense without a number", "not a request");
  check(std::string(kMaxMessageBytes + 100, 'x'), "too long");
  check(encode_request(source, sample_request(1), Secret(kForeign)), "not signed");
  check(encode_request(sample_key(2), sample_request(2), Secret(kQueueSecret)), "not signed");
  std::string damaged = encode_request(source, sample_request(1), Secret(kQueueSecret));
  damaged.back() ^= 1;
  check(damaged, "not signed");
}

TEST_F(QueueTest, WhatIsNotAStreamsIsSurvived) {
  const auto queue = client();
  const auto server = compile_server("a");
  const std::string stream = std::string("kiln:1:queue:foreground:") + kKind;
  ask({"XADD", stream, "*", "source", "no key"});
  ask({"XADD", stream, "*", "source", std::string(10 << 20, 'x')});
  ask({"XADD", stream, "*", "a", "b", "c", "d"});
  for (const auto& taken : take(*server)) {
    EXPECT_FALSE(taken.request);
    EXPECT_LE(taken.wanted.size(), 64u);
    EXPECT_TRUE(server->finish(taken, Served::refused, std::nullopt));
  }
  EXPECT_EQ(length(), 0);
  ask({"RPUSH", request_name(1), "a list"});
  post(*queue, 1);
  const auto taken = take(*server);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_TRUE(taken[0].request) << taken[0].problem;
  server->finish(taken[0], Served::compiled, std::nullopt);
  ask({"DEL", stream});
  ask({"SET", stream, "a text"});
  EXPECT_NE(post(*queue, 1), RequestQueue::Posted::waiting);
  post(*queue, 2, kBackground);
  EXPECT_EQ(take(*server).size(), 1u) << "the other queue is still served";
}

TEST_F(QueueTest, ARequestThatNobodyWantsAnyMoreExpires) {
  const auto queue = client("answer=20s&lease=10ms");
  post(*queue, 1);
  const auto limit = Clock::now() + seconds(20);
  while (ask({"EXISTS", request_name(1)}).integer != 0) ASSERT_LT(Clock::now(), limit);
  const auto server = compile_server("a");
  const auto taken = take(*server);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_TRUE(taken[0].expired);
  EXPECT_TRUE(server->finish(taken[0], Served::expired, std::nullopt));
  EXPECT_EQ(length(), 0);
}

// Other versions of kiln and kinds that nobody serves leave nothing for ever.
TEST_F(QueueTest, IsForgottenWhenNobodyUsesIt) {
  const std::string start = "kiln:1:queue:";
  take(*compile_server("a"));
  EXPECT_GT(ask({"PTTL", start + "background:" + kKind}).integer, 0);
  const auto queue = client();
  for (int i = 0; i < 2; ++i) {
    post(*queue, 1);
    EXPECT_GT(ask({"PTTL", start + "foreground:" + kKind}).integer, 3'500'000);
    ask({"PEXPIRE", start + "foreground:" + kKind, "60000"});
  }
}

TEST_F(QueueTest, WhatTheServerLostIsPutBack) {
  const auto queue = client();
  const auto server = compile_server("a");
  post(*queue, 1);
  ask({"FLUSHALL"});
  EXPECT_THAT(take(*server), ::testing::IsEmpty());
  post(*queue, 1);
  ASSERT_EQ(take(*server).size(), 1u);
  ask({"DEL", std::string("kiln:1:queue:foreground:") + kKind});
  post(*queue, 1);
  EXPECT_EQ(take(*server).size(), 1u);
}

TEST_F(QueueTest, HasABound) {
  const auto queue = client();
  ask({"EVAL", "for i = 1, 10000 do redis.call('xadd', KEYS[1], '*', 'source', 'x') end", "1",
       std::string("kiln:1:queue:foreground:") + kKind});
  EXPECT_EQ(post(*queue, 1), RequestQueue::Posted::full);
  EXPECT_EQ(length(), 10'000);
  EXPECT_EQ(ask({"EXISTS", request_name(1)}).integer, 0);
}

TEST_F(QueueTest, SaysWhatItsServersDo) {
  const auto queue = client();
  const auto server = compile_server("a");
  post(*queue, 1);
  post(*queue, 2);
  post(*queue, 3, kBackground);
  const auto taken = take(*server, 1);
  ASSERT_EQ(taken.size(), 1u);
  RemoteServer about;
  about.id = "a";
  about.jobs = 4;
  about.kinds = {kKind};
  const ServedQueue::Taken* const held = &taken[0];
  const auto lengths = server->renew({&held, 1}, about);
  ASSERT_EQ(lengths.size(), 2u);
  EXPECT_EQ(lengths[0].waiting, 1u);
  EXPECT_EQ(lengths[0].running, 1u);
  ask({"SET", "kiln:1:server:forged", "KSERVER1 nonsense"});
  const auto status = [&] {
    return queue_status(queue->settings(), Secret(kQueueSecret), Clock::now() + seconds(20))
        .value();
  };
  const QueueStatus before = status();
  ASSERT_EQ(before.servers.size(), 1u);
  EXPECT_EQ(before.servers[0].jobs, 4u);
  EXPECT_THAT(before.servers[0].kinds, ElementsAre(kKind));
  EXPECT_EQ(before.refused_servers, 1u);
  ASSERT_EQ(before.queues.size(), 2u);
  EXPECT_EQ(before.queues[0].priority, "foreground");
  EXPECT_EQ(before.queues[0].waiting, 1u);
  EXPECT_EQ(before.queues[0].running, 1u);
  EXPECT_EQ(before.queues[1].waiting, 1u);
  server->finish(taken[0], Served::compiled, std::nullopt);
  server->withdraw();
  const QueueStatus after = status();
  EXPECT_EQ(after.served[static_cast<std::size_t>(Served::compiled)], 1u);
  EXPECT_EQ(after.servers.size(), 0u);
  EXPECT_EQ(after.queues[0].running, 0u);
}

TEST_F(QueueTest, IsOfNoUseWithoutAServer) {
  server_->stop();
  const auto queue = client("answer=200ms&lease=1s");
  const Key source = sample_key(1);
  EXPECT_EQ(post(*queue, 1), RequestQueue::Posted::failed);
  EXPECT_FALSE(queue->look({&source, 1}, kKind));
  EXPECT_NE(queue->health().problem, "");
  EXPECT_FALSE(compile_server("a", "answer=200ms&lease=1s")->take(1, 1));
}

}  // namespace
}  // namespace kiln::cache
