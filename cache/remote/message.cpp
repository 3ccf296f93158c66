#include "cache/remote/message.hpp"

#include <algorithm>

#include "base/bytes.hpp"

namespace kiln::cache {
namespace {

constexpr std::string_view kRequestMagic = "KREQUES2";
constexpr std::string_view kFailureMagic = "KFAILUR1";
constexpr std::string_view kServerMagic = "KSERVER1";
constexpr std::size_t kMessageHead = 8 + kMacBytes;
constexpr std::uint64_t kMaxTexts = 1024;  // in a list

std::string signed_part(const Key& source, std::string_view body) {
  std::string bytes;
  base::ByteWriter writer(bytes);
  writer.u64(source.high);
  writer.u64(source.low);
  writer.raw(body);
  return bytes;
}

std::string seal(std::string_view magic, const Key& source, std::string_view body,
                 const Secret& secret) {
  const Mac mac = secret.sign(magic, signed_part(source, body));
  std::string message(magic);
  message.append(reinterpret_cast<const char*>(mac.data()), mac.size());
  return message += body;
}

/// Why these bytes are no message; empty: `body` is its body.
std::string open_message(std::string_view magic, const Key& source, std::string_view bytes,
                         const Secret& secret, std::string_view& body) {
  if (bytes.size() > kMaxMessageBytes) return "is too long";
  if (bytes.size() < kMessageHead || !bytes.starts_with(magic)) return "is not a message of kiln's";
  Mac mac{};
  std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(magic.size()), mac.size(), mac.begin());
  body = bytes.substr(kMessageHead);
  if (secret.accepts(mac, magic, signed_part(source, body))) return {};
  return "was not signed with this KILN_CACHE_SECRET, or for another kernel";
}

void write_texts(base::ByteWriter& writer, const std::vector<std::string>& texts) {
  writer.u64(texts.size());
  for (const std::string& text : texts) writer.text(text);
}

bool read_texts(base::ByteReader& reader, std::vector<std::string>& texts) {
  const std::uint64_t count = reader.u64();
  if (count > kMaxTexts) return false;
  for (std::uint64_t i = 0; i < count; ++i) texts.emplace_back(reader.text());
  return reader.ok();
}

template <class Body>
DecodedMessage<Body> decoded(const base::ByteReader& reader, bool ok, Body body) {
  if (!ok || !reader.ok() || !reader.at_end()) return {std::nullopt, "has a body that is none"};
  return {std::move(body), {}};
}

}  // namespace

std::string_view name(Served count) {
  static constexpr std::array<std::string_view, kServed> names = {
      "compiled", "found", "failed", "refused", "expired", "taken_over"};
  return names[static_cast<std::size_t>(count)];
}

std::string encode_request(const Key& source, const RemoteRequest& request, const Secret& secret) {
  std::string body;
  base::ByteWriter writer(body);
  writer.text(request.text);
  writer.text(request.target);
  write_texts(writer, request.options);
  writer.u16(request.alone ? 1 : 0);
  writer.text(request.function);
  writer.text(request.expression);
  writer.text(request.signature);
  writer.text(request.form);
  write_texts(writer, request.arguments);
  write_texts(writer, request.outputs);
  writer.u16(request.rounding);
  writer.u16(request.accuracy);
  if (kMessageHead + body.size() > kMaxMessageBytes) return {};
  return seal(kRequestMagic, source, body, secret);
}

DecodedMessage<RemoteRequest> decode_request(const Key& source, std::string_view bytes,
                                             const Secret& secret) {
  std::string_view body;
  std::string reason = open_message(kRequestMagic, source, bytes, secret, body);
  if (!reason.empty()) return {std::nullopt, std::move(reason)};
  base::ByteReader reader(body);
  RemoteRequest request;
  request.text = reader.text();
  request.target = reader.text();
  bool ok = read_texts(reader, request.options);
  request.alone = reader.u16() != 0;
  request.function = reader.text();
  request.expression = reader.text();
  request.signature = reader.text();
  request.form = reader.text();
  ok = read_texts(reader, request.arguments) && read_texts(reader, request.outputs) && ok;
  request.rounding = reader.u16();
  request.accuracy = reader.u16();
  return decoded(reader, ok, std::move(request));
}

std::string encode_failure(const Key& source, const RemoteFailure& failure, const Secret& secret) {
  std::string body;
  base::ByteWriter writer(body);
  writer.u32(failure.code);
  writer.u16(failure.is_verdict ? 1 : 0);
  writer.text(failure.host);
  writer.text(std::string_view(failure.message).substr(0, kMaxFailureText));
  return seal(kFailureMagic, source, body, secret);
}

DecodedMessage<RemoteFailure> decode_failure(const Key& source, std::string_view bytes,
                                             const Secret& secret) {
  std::string_view body;
  std::string reason = open_message(kFailureMagic, source, bytes, secret, body);
  if (!reason.empty()) return {std::nullopt, std::move(reason)};
  base::ByteReader reader(body);
  RemoteFailure failure;
  failure.code = reader.u32();
  failure.is_verdict = reader.u16() != 0;
  failure.host = reader.text();
  failure.message = reader.text();
  return decoded(reader, true, std::move(failure));
}

std::string encode_server(const RemoteServer& server, const Secret& secret) {
  std::string body;
  base::ByteWriter writer(body);
  writer.text(server.id);
  writer.text(server.host);
  writer.text(server.version);
  for (const std::uint64_t number : {server.pid, server.started, server.jobs, server.running}) {
    writer.u64(number);
  }
  write_texts(writer, server.kinds);
  for (const std::uint64_t count : server.served) writer.u64(count);
  return seal(kServerMagic, Key{}, body, secret);
}

DecodedMessage<RemoteServer> decode_server(std::string_view bytes, const Secret& secret) {
  std::string_view body;
  std::string reason = open_message(kServerMagic, Key{}, bytes, secret, body);
  if (!reason.empty()) return {std::nullopt, std::move(reason)};
  base::ByteReader reader(body);
  RemoteServer server;
  server.id = reader.text();
  server.host = reader.text();
  server.version = reader.text();
  for (std::uint64_t* number : {&server.pid, &server.started, &server.jobs, &server.running}) {
    *number = reader.u64();
  }
  const bool ok = read_texts(reader, server.kinds);
  for (std::uint64_t& count : server.served) count = reader.u64();
  return decoded(reader, ok, std::move(server));
}

}  // namespace kiln::cache
