// See protocol.hpp for the grammar.
#include "jit/compilers/protocol.hpp"

#include <fmt/format.h>

#include <bit>
#include <cstring>

namespace kiln::jit {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the frames are written as they lie in memory");

constexpr std::string_view kMagic = "KLNW";

struct FrameHeader {
  char magic[4];
  std::uint16_t version;
  std::uint16_t type;
  std::uint64_t id;
  std::uint64_t length;
};
static_assert(sizeof(FrameHeader) == 24);

class Writer {
 public:
  template <class T>
  void number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void string(std::string_view text) {
    number<std::uint64_t>(text.size());
    bytes_ += text;
  }
  void strings(const std::vector<std::string>& list) {
    number<std::uint64_t>(list.size());
    for (const std::string& text : list) string(text);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string string() { return std::string(take(number<std::uint64_t>())); }
  std::vector<std::string> strings() {
    std::vector<std::string> list;
    for (auto count = number<std::uint64_t>(); count > 0; --count) list.push_back(string());
    return list;
  }
  void finish() const {
    if (!bytes_.empty()) {
      throw Error(Code::internal,
                  fmt::format("compile protocol: {} bytes after a body", bytes_.size()));
    }
  }

 private:
  std::string_view take(std::uint64_t size) {
    if (size > bytes_.size()) {
      throw Error(Code::internal,
                  fmt::format("compile protocol: a field of {} bytes in {}", size, bytes_.size()));
    }
    const std::string_view part = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return part;
  }

  std::string_view bytes_;
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
  writer.number(output.milliseconds);
  return writer.take();
}

std::string encode(const Failure& failure) {
  Writer writer;
  writer.number(static_cast<std::uint32_t>(failure.code));
  writer.string(failure.message);
  writer.string(failure.log);
  return writer.take();
}

// Braces evaluate their initialisers from left to right, so the fields are read in order.
WorkerStart decode_worker_start(std::string_view body) {
  Reader reader(body);
  WorkerStart start{reader.string(), reader.number<std::uint64_t>()};
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
  CompileOutput output{reader.string(), reader.string(), reader.number<double>()};
  reader.finish();
  return output;
}

Failure decode_failure(std::string_view body) {
  Reader reader(body);
  const auto code = reader.number<std::uint32_t>();
  Failure failure{static_cast<Code>(code), reader.string(), reader.string()};
  reader.finish();
  if (code > static_cast<std::uint32_t>(Code::internal)) {
    throw Error(Code::internal, fmt::format("compile protocol: unknown error code {}", code));
  }
  return failure;
}

std::string encode_frame(const Message& message) {
  FrameHeader header{{},
                     kProtocolVersion,
                     static_cast<std::uint16_t>(message.type),
                     message.id,
                     message.body.size()};
  std::memcpy(header.magic, kMagic.data(), kMagic.size());
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  return bytes += message.body;
}

std::optional<Message> FrameReader::next() {
  if (buffer_.size() < sizeof(FrameHeader)) return std::nullopt;
  FrameHeader header;
  std::memcpy(&header, buffer_.data(), sizeof(header));
  if (std::string_view(header.magic, kMagic.size()) != kMagic) {
    throw Error(Code::internal, "compile protocol: bytes that are not a frame");
  }
  if (header.version != kProtocolVersion) {
    throw Error(Code::internal, fmt::format("compile protocol: version {}, expected {}",
                                            header.version, kProtocolVersion));
  }
  if (header.type > static_cast<std::uint16_t>(MessageType::failed) || header.length > kMaxBody) {
    throw Error(Code::internal, fmt::format("compile protocol: a message of type {} and {} bytes",
                                            header.type, header.length));
  }
  if (buffer_.size() - sizeof(header) < header.length) return std::nullopt;
  Message message{static_cast<MessageType>(header.type), header.id,
                  buffer_.substr(sizeof(header), header.length)};
  buffer_.erase(0, sizeof(header) + header.length);
  return message;
}

}  // namespace kiln::jit
