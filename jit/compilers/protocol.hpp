// The language between kiln and its compile workers: frames over a socket, each
//
//   frame   := magic "KLNW" | version u16 | type u16 | id u64 | length u64 | body[length]
//   body    := field*            in the order in which encode() below writes them
//   string  := length u64 | bytes
//   strings := count u64 | string*
//
// all little-endian. The first frame to a worker is `start`, its own first one is `hello`; it
// answers every request with `accepted` once it has read it and then with `done` or `failed`, each
// with the request's id. Nothing here starts a process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/error.hpp"

namespace kiln::jit {

inline constexpr std::uint16_t kProtocolVersion = 2;
inline constexpr int kWorkerSocket = 3;  ///< the worker's descriptor
inline constexpr std::uint64_t kMaxBody = std::uint64_t{1} << 30;

enum class MessageType : std::uint16_t {
  start,        ///< to the worker, id 0: WorkerStart
  hello,        ///< from the worker, id 0: its version of kiln
  compile,      ///< CompileTask
  disassemble,  ///< DisassembleTask
  targets,      ///< no body: which targets does the compiler say that it knows
  accepted,     ///< no body
  done,         ///< CompileOutput; disassembly and lists of targets are its `code`
  failed,       ///< Failure
};

struct Message {
  MessageType type = MessageType::hello;
  std::uint64_t id = 0;
  std::string body;
};

/// What the service has made for one worker, and what the worker may do away with when it ends.
struct WorkerStart {
  std::string directory;    ///< for temporary files, of nobody else
  std::uint64_t group = 0;  ///< the process group
};

struct CompileTask {
  std::string entry;
  std::string source;
  std::string target;
  std::vector<std::string> options;
};

struct DisassembleTask {
  std::string code;
  std::string target;
};

struct CompileOutput {
  std::string code;
  std::string log;
  double milliseconds = 0;
};

struct Failure {
  Code code = Code::compile_failed;
  std::string message;  ///< what failed, in one line
  std::string log;      ///< of the compiler
};

std::string encode(const WorkerStart& start);
std::string encode(const CompileTask& task);
std::string encode(const DisassembleTask& task);
std::string encode(const CompileOutput& output);
std::string encode(const Failure& failure);

/// Each throws Error(internal) when `body` is not exactly one of its kind.
WorkerStart decode_worker_start(std::string_view body);
CompileTask decode_compile_task(std::string_view body);
DisassembleTask decode_disassemble_task(std::string_view body);
CompileOutput decode_compile_output(std::string_view body);
Failure decode_failure(std::string_view body);

std::string encode_frame(const Message& message);

/// Takes bytes as they arrive and gives whole messages.
class FrameReader {
 public:
  void feed(std::string_view bytes) { buffer_ += bytes; }
  /// The next whole message, if there is one. Throws Error(internal) that says what is wrong with
  /// the bytes: a foreign magic, another version, an unknown type, an absurd length.
  std::optional<Message> next();

 private:
  std::string buffer_;
};

}  // namespace kiln::jit
