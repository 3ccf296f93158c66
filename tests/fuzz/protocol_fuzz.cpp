// Any bytes as what a compile worker or its parent sends, and as the body of each message: refused
// with an Error, or what is written for it is the same bytes.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "jit/compilers/protocol.hpp"

using namespace kiln;
using namespace kiln::jit;

namespace {

template <class Decode>
void check(std::string_view body, const Decode& decode) {
  try {
    if (encode(decode(body)) != body) std::abort();
  } catch (const Error&) {
  }
}

void check_body(std::string_view body) {
  check(body, decode_compile_task);
  check(body, decode_disassemble_task);
  check(body, decode_compile_output);
  check(body, decode_failure);
}

// The frames that arrive when `bytes` come in parts of that size, until one is refused.
std::string frames(std::string_view bytes, std::size_t part) {
  FrameReader reader;
  std::string read;
  try {
    for (std::size_t at = 0; at < bytes.size(); at += part) {
      reader.feed(bytes.substr(at, part));
      while (const auto message = reader.next()) {
        check_body(message->body);
        read += encode_frame(*message);
      }
    }
  } catch (const Error&) {
  }
  return read;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check_body(bytes);
  const std::string whole = frames(bytes, std::max<std::size_t>(size, 1));
  if (!bytes.starts_with(whole) || frames(bytes, 7) != whole) std::abort();
  return 0;
}
