// Any bytes as what the server of the remote tier sends, and as its URL. The first byte says which:
// a value, which is also tried with a code that is right, because no mutation gets that by itself;
// a source's pointer, likewise; a URL; the replies to as many commands; or what compile servers and
// their clients tell each other, likewise.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/io.hpp"
#include "base/temporary.hpp"
#include "cache/remote/connection.hpp"
#include "cache/remote/message.hpp"
#include "cache/remote/value.hpp"
#include "kiln/error.hpp"
#include "seal.hpp"

using namespace kiln::cache;

namespace {

const Secret kSecret("0123456789abcdef of the fuzzer");

void expect(bool promise) {
  if (!promise) std::abort();
}

void check_file(std::string file) {
  kiln::base::ByteReader reader(std::string_view(file).substr(0, 32));
  reader.raw(16);
  Key key;
  key.high = reader.u64();
  key.low = reader.u64();
  expect(!decode_value(key, file, kSecret).loaded);
  seal(file, head_size(file));
  const DecodedValue decoded = decode_value(key, encode_value(key, file, kSecret), kSecret);
  expect(decoded.loaded.has_value() == decoded.reason.empty());
  if (decoded.loaded) expect(decoded.loaded->bytes == file);
}

void check_pointer(std::string_view bytes) {
  kiln::base::ByteReader reader(bytes);
  const std::uint64_t high = reader.u64();
  const Key source{high, reader.u64()};
  expect(!decode_pointer(source, bytes, kSecret).entry);
  const Key entry{source.low, source.high};
  const DecodedPointer decoded =
      decode_pointer(source, encode_pointer(source, entry, kSecret), kSecret);
  expect(decoded.entry && *decoded.entry == entry);
}

void check_url(std::string_view url) {
  try {
    const RemoteSettings settings = parse_remote_url(url);
    expect(settings.socket.empty() != settings.host.empty());
    expect(settings.port > 0 && settings.port < 65536);
    expect(settings.answer.count() > 0 && settings.lease.count() > 0 && settings.max_value > 0);
    // What messages show is a URL of the same server, if its name is one that hosts have.
    const bool is_plain = settings.host.find_first_not_of("abcxyz019.-:") == std::string::npos;
    if (settings.socket.empty() && is_plain) {
      expect(parse_remote_url(settings.display()).host == settings.host);
    }
  } catch (const kiln::Error& error) {
    expect(error.code() == kiln::Code::invalid_argument);
  }
}

/// A message for which the code is not right, and one with these bytes for which it is.
template <class Decode>
void check_message(std::string_view magic, std::string_view body, Decode decode) {
  expect(!decode(body).body);
  const std::string covered = std::string(16, '\0') + std::string(body);  // of the key 0
  const Mac mac = kSecret.sign(magic, covered);
  std::string message(magic);
  message.append(reinterpret_cast<const char*>(mac.data()), mac.size());
  message += body;
  const auto decoded = decode(message);
  expect(decoded.body.has_value() == decoded.reason.empty());
  message.back() = static_cast<char>(message.back() ^ 1);
  expect(!decode(message).body);
}

void check_messages(unsigned kind, std::string_view body) {
  switch (kind % 3) {
    case 0:
      return check_message("KREQUES2", body, [](std::string_view bytes) {
        auto decoded = decode_request(Key{}, bytes, kSecret);
        if (decoded.body) expect(!encode_request(Key{}, *decoded.body, kSecret).empty());
        return decoded;
      });
    case 1:
      return check_message("KFAILUR1", body, [](std::string_view bytes) {
        return decode_failure(Key{}, bytes, kSecret);
      });
    default:
      return check_message("KSERVER1", body, [](std::string_view bytes) {
        auto decoded = decode_server(bytes, kSecret);
        if (decoded.body) expect(encode_server(*decoded.body, kSecret) == bytes);
        return decoded;
      });
  }
}

/// A server that sends whatever it is given.
class Sender {
 public:
  Sender() {
    settings_.socket = directory_.path() + "/socket";
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    settings_.socket.copy(address.sun_path, sizeof address.sun_path - 1);
    expect(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) ==
           0);
    expect(::listen(listener_.get(), 1) == 0);
  }

  /// The bytes are there before anything is asked, so that an input always takes one way.
  void exchange(std::string_view bytes, std::size_t commands) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    Connection connection(settings_, -1);
    if (!connection.open(deadline).empty()) return;  // this kiln has no hiredis
    const kiln::base::UniqueFd peer(::accept(listener_.get(), nullptr, nullptr));
    bytes = bytes.substr(0, 64 << 10);  // what a socket takes without a reader
    expect(::send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size()));
    ::shutdown(peer.get(), SHUT_WR);
    const std::vector<Command> asked(commands, Command{"PING"});
    std::vector<Reply> replies;
    const auto failure = connection.exchange(asked, 4 << 10, deadline, replies);
    expect(replies.size() <= commands);
    if (!failure) expect(replies.size() == commands);
    expect(failure != Connection::Failure::timed_out);
  }

 private:
  const kiln::base::TemporaryDirectory directory_{"remote-fuzz"};
  const kiln::base::UniqueFd listener_{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  RemoteSettings settings_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  static Sender sender;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] >= 0xf0) {
    check_messages(data[0], bytes);
    return 0;
  }
  switch (data[0] % 4) {
    case 0: check_file(std::string(bytes)); break;
    case 1: check_pointer(bytes); break;
    case 2: check_url(bytes); break;
    default: sender.exchange(bytes, 1 + data[0] / 64U); break;
  }
  return 0;
}
