// The general kernels: a few precompiled ones that together do every operation of every kernel, one
// operation at a time (unfused.hpp). They are ordinary kernels under ordinary keys; a base pack is
// a bundle of all of them for a target (`kiln compile --base-pack`). Here are their texts.
//
// Operations that are cheap share one kernel for each dtype that they compute in, which is told by
// a number which one it is to do; a costly function has a kernel of its own, so that loading one
// does not load the code of all. All run over values in C order without gaps but for `move`, which
// reads and writes arrays with any strides.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fusion/graph/op.hpp"
#include "kernel/kernel_request.hpp"
#include "kiln/dtype.hpp"

namespace kiln {

struct GeneralKernel {
  enum class Kind : std::uint8_t {
    move,     ///< between arrays and values, iotas, and values of one number
    convert,  ///< between dtypes; `dtype` is what is read
    map,      ///< ops that compute in `dtype`
    along,    ///< reductions and running results of `dtype`
  };
  Kind kind = Kind::move;
  DType dtype = DType::u8;
  fusion::Op own = fusion::Op::input;  ///< the function that it is for; `input`: all cheap ones
  bool strict = false;                 ///< with the functions of Accuracy::strict
  friend auto operator<=>(const GeneralKernel&, const GeneralKernel&) = default;
};

/// The kernel that does an op which computes in that dtype. Nothing if there is none.
std::optional<GeneralKernel> general_map(fusion::Op op, DType dtype, Accuracy accuracy);

/// The dtype of the result of an op that computes in `dtype`, and of its operand `i`.
DType map_result(fusion::Op op, DType dtype);
DType map_operand(fusion::Op op, DType dtype, std::size_t i);

/// What `move` does; the number is its parameter.
enum class GeneralMove : std::uint8_t {
  load,
  store,
  index,
  fill,
  load_at,   ///< of elements at places along one more axis (host_operations.hpp, Places)
  store_at,  ///< to such places
};
std::uint32_t move_code(GeneralMove what, DType dtype);
/// The axes that an array may have for it, neighbours that are one axis counted once.
inline constexpr std::size_t kMostMovedAxes = 8;

/// What `along` does: a reduction or a running result of parts of rows, or else what follows the
/// orders of numerics.md (`in_order`): a stage of the tree of sums and products, or running results
/// of blocks of rows (host_operations.hpp).
std::uint32_t along_code(fusion::Op op, bool in_order = false);

/// The kernel's text for a target. It is looked for and not compiled (OnMiss::fail), and taken from
/// any compiler.
KernelRequest general_request(const GeneralKernel& kernel, std::string_view target);

/// All of them.
std::vector<GeneralKernel> all_general_kernels();

}  // namespace kiln
