// See protocol.hpp for the grammar.
#include "jit/compilers/protocol.hpp"

#include <fmt/format.h>

#include <bit>

#include "base/bytes.hpp"

namespace kiln::jit {
namespace {

constexpr std::string_view kProtocolMagic = "KLNW";

constexpr std::size_t kHeaderBytes = 24;

class Writer {
 public:
  void number(std::uint64_t value) { out_.u64(value); }
  void number32(std::uint32_t value) { out_.u32(value); }
  void string(std::string_view text) { out_.text(text); }
  void strings(const std::vector<std::string>& list) {
    number(list.size());
    for (const std::string& text : list) string(text);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
  base::ByteWriter out_{bytes_};
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : size_(bytes.size()), in_(bytes) {}
  std::uint64_t number() { return in_.u64(); }
  std::uint32_t number32() { return in_.u32(); }
  std::string string() { return std::string(in_.text()); }
  std::vector<std::string> strings() {
    std::vector<std::string> list;
    for (std::uint64_t count = number(); in_.ok() && count > 0; --count) list.push_back(string());
    return list;
  }
  /// Throws Error(internal) if there was less to read than was asked for, or more.
  void finish() const {
    if (in_.ok() && in_.at_end()) return;
    throw Error(Code::internal,
                fmt::format("compile protocol: a body of {} bytes {}", size_,
                            in_.ok() ? "is longer than its fields" : "is shorter than its fields"));
  }

 private:
  std::size_t size_;
  base::ByteReader in_;
};

}  // namespace

std::string encode(const WorkerStart& start) {
  Writer writer;
  writer.string(start.directory);
  writer.number(start.group);
  return writer.take();
}

std::string encode(const CompileTask& task) {
  Writer writer;
  writer.string(task.entry);
  writer.string(task.source);
  writer.string(task.target);
  writer.strings(task.options);
  return writer.take();
}

std::string encode(const DisassembleTask& task) {
  Writer writer;
  writer.string(task.code);
  writer.string(task.target);
  return writer.take();
}

std::string encode(const CompileOutput& output) {
  Writer writer;
  writer.string(output.code);
  writer.string(output.log);
  writer.number(std::bit_cast<std::uint64_t>(output.milliseconds));
  return writer.take();
}

std::string encode(const Failure& failure) {
  Writer writer;
  writer.number32(static_cast<std::uint32_t>(failure.code));
  writer.string(failure.message);
  writer.string(failure.log);
  return writer.take();
}

// Braces evaluate their initialisers from left to right, so the fields are read in order.
WorkerStart decode_worker_start(std::string_view body) {
  Reader reader(body);
  WorkerStart start{reader.string(), reader.number()};
  reader.finish();
  return start;
}

CompileTask decode_compile_task(std::string_view body) {
  Reader reader(body);
  CompileTask task{reader.string(), reader.string(), reader.string(), reader.strings()};
  reader.finish();
  return task;
}

DisassembleTask decode_disassemble_task(std::string_view body) {
  Reader reader(body);
  DisassembleTask task{reader.string(), reader.string()};
  reader.finish();
  return task;
}

CompileOutput decode_compile_output(std::string_view body) {
  Reader reader(body);
  CompileOutput output{reader.string(), reader.string(), std::bit_cast<double>(reader.number())};
  reader.finish();
  return output;
}

Failure decode_failure(std::string_view body) {
  Reader reader(body);
  const std::uint32_t code = reader.number32();
  Failure failure{static_cast<Code>(code), reader.string(), reader.string()};
  reader.finish();
  if (code > static_cast<std::uint32_t>(Code::internal)) {
    throw Error(Code::internal, fmt::format("compile protocol: unknown error code {}", code));
  }
  return failure;
}

std::string encode_frame(const Message& message) {
  std::string bytes;
  base::ByteWriter writer(bytes);
  writer.raw(kProtocolMagic);
  writer.u16(kProtocolVersion);
  writer.u16(static_cast<std::uint16_t>(message.type));
  writer.u64(message.id);
  writer.text(message.body);
  return bytes;
}

std::optional<Message> FrameReader::next() {
  if (buffer_.size() < kHeaderBytes) return std::nullopt;
  base::ByteReader reader(buffer_);
  if (reader.raw(kProtocolMagic.size()) != kProtocolMagic) {
    throw Error(Code::internal, "compile protocol: bytes that are not a frame");
  }
  if (const std::uint16_t version = reader.u16(); version != kProtocolVersion) {
    throw Error(Code::internal, fmt::format("compile protocol: version {}, expected {}", version,
                                            kProtocolVersion));
  }
  const std::uint16_t type = reader.u16();
  const std::uint64_t id = reader.u64();
  const std::uint64_t length = reader.u64();
  if (type > static_cast<std::uint16_t>(MessageType::failed) || length > kMaxBody) {
    throw Error(Code::internal,
                fmt::format("compile protocol: a message of type {} and {} bytes", type, length));
  }
  if (reader.left() < length) return std::nullopt;
  Message message{static_cast<MessageType>(type), id, std::string(reader.raw(length))};
  buffer_.erase(0, kHeaderBytes + length);
  return message;
}

}  // namespace kiln::jit
