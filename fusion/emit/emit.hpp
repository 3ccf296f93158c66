// Emission: from a typed graph and a schedule to the text of a kernel and the list of its
// parameters. The text is for people to read, and the same for every compiler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fusion/graph/typed_graph.hpp"
#include "fusion/schedule/element_moves.hpp"
#include "fusion/schedule/layout.hpp"
#include "kiln/options.hpp"

namespace kiln::fusion {

/// One kernel parameter: what it holds, and its size in bytes (which is its alignment, except for a
/// 12-byte divisor, aligned to 4).
struct Parameter {
  enum class Kind : std::uint8_t {
    pointer,      ///< to the first element of operand `index`
    scalar,       ///< run-time scalar: argument `index`, in `dtype`
    size,         ///< the elements of a row: of the innermost axis, or of several
    row_part,     ///< Layout::row_part
    work_items,   ///< how many there are
    columns,      ///< work items per row, or tiles, as a divisor
    rows,         ///< the extent of the tile axis
    strips,       ///< tiles along the tile axis, as a divisor
    extent,       ///< of collapsed axis `axis`, as a divisor
    start,        ///< of operand `index`: an iota's value at the first element, or the half byte at
                  ///< which packed elements begin
    stride,       ///< of operand `index` along collapsed axis `axis`, in elements
    row_count,    ///< reductions: Layout::units
    row_blocks,   ///< products: blocks of rows, as a divisor
    row_repeats,  ///< products: rows for which an operand has one element, as a divisor
    vectors,      ///< reductions: in each row
    length,       ///< reductions: elements in each row
    column_strips,   ///< reductions: along the innermost axis, as a divisor
    splits,          ///< split reductions: parts of each row, as a divisor
    split_vectors,   ///< split reductions: vectors in each part but the last
    split_stride,    ///< split reductions: of operand `index`, from one part to the next
    run,             ///< of operand `index`: elements of a run (Layout::runs), as a divisor
    run_stride,      ///< of operand `index`, from the element of one run to that of the next
    place_stride,    ///< of operand `index` along its indexed axis
    place_count,     ///< places along that axis
    launched_early,  ///< 1 if this launch may begin before the kernels that it depends on have
                     ///< ended (programmatic dependent launch), else 0
  };
  Kind kind = Kind::pointer;
  std::uint32_t index = 0;
  std::uint32_t axis = 0;
  DType dtype = DType::f32;
  std::uint32_t bytes = 8;
};

/// What fusion ends in.
struct KernelDescription {
  std::string source;  ///< without the preamble; the entry is called kEntryMarker
  std::vector<Parameter> parameters;
  std::uint32_t block = 256;       ///< threads per block
  std::uint32_t shared_bytes = 0;  ///< jit::LaunchShape::shared_bytes
};

/// Stands for the entry's name until the key, which covers the text, is known.
inline constexpr std::string_view kEntryMarker = "kiln_kernel_entry";

/// The text with the entry's name in it.
std::string with_entry(std::string_view source, std::string_view entry);

/// `operands` of the schedule are the array arguments in the graph's order, then the outputs, then
/// the iotas (schedule/iota_operands.hpp); `moves` are of both.
KernelDescription emit(const TypedGraph& graph, const Schedule& schedule,
                       std::span<const ElementMove> moves, Accuracy accuracy);

/// The parameters' values for one layout, one after the other, each at an offset that is a multiple
/// of its alignment. Pointers and scalars are left zero: they are filled in for each call.
struct ParameterBlock {
  std::vector<std::byte> bytes;
  std::vector<std::uint32_t> offsets;  ///< of each parameter
  std::vector<std::uint32_t> sizes;    ///< of each parameter, in bytes
};
ParameterBlock pack_parameters(const KernelDescription& kernel, const Layout& layout);

}  // namespace kiln::fusion
