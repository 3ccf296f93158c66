// What compile servers and the machines that ask them tell each other over the server of the remote
// tier, as pure functions on bytes. The format:
//
//   message := magic mac body
//   magic   := "KREQUES2" | "KFAILUR1" | "KSERVER1"
//   mac     := byte{32}        Secret::sign for that magic of the source's key and the body
//   body    := field*          in the order in which message.cpp writes them
//
// The source's key is key_without_toolchain() of the kernel, 0 for what is about none: a message
// about another kernel, or one that was cut, is none.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/mac.hpp"

namespace kiln::cache {

/// A kernel that somebody wants compiled. Of what its key is made of, only the compiler and the
/// device code that every kernel starts with are not here.
struct RemoteRequest {
  std::string text;  ///< of the kernel, with a marker for the entry's name
  std::string target;
  std::vector<std::string> options;  ///< of the compiler
  bool alone = false;                ///< shares no translation unit
  std::string function;
  std::string expression;
  std::string signature;
  std::string form;  ///< which the kernel's name begins with; empty: the function's name
  std::vector<std::string> arguments;
  std::vector<std::string> outputs;
  std::uint16_t rounding = 0;  ///< kiln::Rounding
  std::uint16_t accuracy = 0;  ///< kiln::Accuracy
};

/// Why a compile server could not compile one.
struct RemoteFailure {
  std::uint32_t code = 0;   ///< kiln::Code
  bool is_verdict = false;  ///< the compiler's, which it would give again
  std::string host;         ///< of the compile server
  std::string message;
};

/// What a compile server counts: what became of the requests that it took, and how many of these it
/// took over from another one that was gone.
enum class Served : std::uint8_t { compiled, found, failed, refused, expired, taken_over };
inline constexpr std::size_t kServed = 6;
std::string_view name(Served count);
using ServedCounts = std::array<std::uint64_t, kServed>;

/// A compile server, as it describes itself while it lives.
struct RemoteServer {
  std::string id;
  std::string host;
  std::uint64_t pid = 0;
  std::string version;        ///< of kiln
  std::uint64_t started = 0;  ///< seconds since 1970
  std::uint64_t jobs = 0;
  std::uint64_t running = 0;       ///< requests that it has taken and not answered
  std::vector<std::string> kinds;  ///< of kernels that it compiles (queue.hpp)
  ServedCounts served{};
};

inline constexpr std::uint64_t kMaxMessageBytes = 2 << 20;
inline constexpr std::size_t kMaxFailureText = 64 << 10;

/// Empty if the request is too long for any message.
std::string encode_request(const Key& source, const RemoteRequest& request, const Secret& secret);
std::string encode_failure(const Key& source, const RemoteFailure& failure, const Secret& secret);
std::string encode_server(const RemoteServer& server, const Secret& secret);

/// What a message holds, or why it is none.
template <class Body>
struct DecodedMessage {
  std::optional<Body> body;
  std::string reason;  ///< for people; empty if there is a body
};
// Each checks the code before anything else looks at the bytes, and never throws for what they are.
DecodedMessage<RemoteRequest> decode_request(const Key& source, std::string_view bytes,
                                             const Secret& secret);
DecodedMessage<RemoteFailure> decode_failure(const Key& source, std::string_view bytes,
                                             const Secret& secret);
DecodedMessage<RemoteServer> decode_server(std::string_view bytes, const Secret& secret);

}  // namespace kiln::cache
