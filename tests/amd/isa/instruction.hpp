// One instruction as the disassembler prints it, taken apart: mnemonic, operands, modifiers. What
// it does is not known here.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::amd {

enum class OperandKind : std::uint8_t {
  vector,   ///< VGPRs (or AccVGPRs, renumbered)
  scalar,   ///< SGPRs, VCC, EXEC, M0, TTMPs by the numbers below
  integer,  ///< an inline integer
  literal,  ///< 32 bits after the instruction, printed in hexadecimal
  real,     ///< an inline floating-point number
  scc,
  null,  ///< nothing: reads 0, writes nowhere; "off" too
};

// The scalar registers by number, whatever the encoding of a target says.
inline constexpr std::uint16_t kVcc = 106;
inline constexpr std::uint16_t kTtmp = 108;
/// Where flat instructions find LDS and scratch memory; hardware gives the upper 16 bits.
inline constexpr std::uint64_t kSharedAperture = std::uint64_t{1} << 48;
inline constexpr std::uint64_t kPrivateAperture = std::uint64_t{2} << 48;
inline constexpr std::uint16_t kFlatScratch = 122;  ///< where gfx9 has no TTMP that kernels use
inline constexpr std::uint16_t kM0 = 124;
inline constexpr std::uint16_t kExec = 126;
inline constexpr std::uint16_t kPrivateBase = 128;  ///< kPrivateAperture; no kernel writes it
inline constexpr std::uint16_t kSharedBase = 130;   ///< kSharedAperture, likewise
inline constexpr std::uint16_t kScalars = 132;

struct Operand {
  OperandKind kind = OperandKind::null;
  std::uint16_t index = 0;  ///< the first register
  std::uint8_t count = 0;   ///< registers
  bool negate = false;
  bool absolute = false;
  bool sign_extend = false;
  std::int8_t half = -1;  ///< 0 for v1.l, 1 for v1.h
  std::uint32_t bits = 0;
  double real = 0;

  bool is_vector() const { return kind == OperandKind::vector; }
  bool is_scalar() const { return kind == OperandKind::scalar; }
  bool is_constant() const {
    return kind == OperandKind::integer || kind == OperandKind::literal ||
           kind == OperandKind::real;
  }
};

struct Instruction {
  std::uint64_t address = 0;
  std::string text;      ///< as printed
  std::string mnemonic;  ///< without the encoding (_e32, _e64, _dpp, _sdwa)
  std::string encoding;  ///< "dpp", "sdwa" or nothing
  std::vector<Operand> operands;
  std::map<std::string, std::string, std::less<>> modifiers;  ///< "offset" to "16", "glc" to ""

  std::vector<Instruction> paired;  ///< the second of "v_dual_...  :: v_dual_..."

  bool has(std::string_view modifier) const { return modifiers.find(modifier) != modifiers.end(); }
  /// The number of a modifier, or `otherwise`.
  std::int64_t number(std::string_view modifier, std::int64_t otherwise = 0) const;
  /// "[1,0,1]" of a modifier, or nothing.
  std::optional<std::vector<int>> list(std::string_view modifier) const;
};

/// The instructions of a listing: a line each, "ADDRESS: MNEMONIC OPERANDS  // comment", and lines
/// without instructions. `accumulators` is the vector register that is a0. An instruction with an
/// operand that is not known has no mnemonic.
std::vector<Instruction> parse_listing(std::string_view listing, std::uint32_t accumulators);

}  // namespace kiln::amd
