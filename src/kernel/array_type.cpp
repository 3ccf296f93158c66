#include "kernel/array_type.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "fusion/graph/broadcast.hpp"
#include "fusion/schedule/overlap.hpp"
#include "kiln/error.hpp"

namespace kiln {

using fusion::to_string;

std::string output_label(std::span<const std::string> names, std::size_t index) {
  const std::string& name = names[index];
  return name.empty() ? fmt::format("output {}", index)
                      : fmt::format("output {} '{}'", index, name);
}

void check_output(std::string_view function, const std::string& label, const ArrayType& output,
                  const Dims& natural) {
  const std::optional<Dims> wider = fusion::broadcast(natural, output.shape);
  if (!wider || *wider != output.shape) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: {}: expected shape {}, or one that it broadcasts to, got {}",
                            function, label, to_string(natural), to_string(output.shape)));
  }
  if (std::ranges::find(output.shape, 0) != output.shape.end()) return;  // there are no elements
  fusion::ByteView view{0, std::max(1, bits(output.dtype) / 8), output.shape, output.strides};
  for (std::size_t k = 0; k < output.shape.size(); ++k) {
    if (output.shape[k] > 1 && output.strides[k] == 0) {
      throw Error(Code::invalid_argument,
                  fmt::format("{}: {}: stride 0 along axis {} of shape {}: many elements "
                              "would be written to one place",
                              function, label, k, to_string(output.shape)));
    }
    view.strides[k] *= view.element_bytes;
  }
  if (fusion::overlaps_itself(view)) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: {}: strides {} of shape {} put two elements into one place",
                            function, label, to_string(output.strides), to_string(output.shape)));
  }
}

ArrayType with_kept_axes(std::string_view function, const std::string& label,
                         const ArrayType& output, const Dims& kept) {
  if (output.shape == kept) return output;
  ArrayType whole = output;
  whole.shape = kept;
  whole.strides = Dims(kept.size(), 0);
  std::size_t next = 0;
  for (std::size_t k = 0; k < kept.size(); ++k) {
    const bool here = next < output.shape.size() && output.shape[next] == kept[k];
    if (here) whole.strides[k] = output.strides[next++];
    if (!here && kept[k] != 1) next = output.shape.size() + 1;
  }
  if (next == output.shape.size()) return whole;
  throw Error(Code::invalid_argument,
              fmt::format("{}: {}: expected shape {}, of which axes of size one may be left out, "
                          "got {}",
                          function, label, to_string(kept), to_string(output.shape)));
}

fusion::Operand operand_of(const ArrayType& array, const Dims& shape, bool output) {
  fusion::Operand operand;
  operand.dtype = array.dtype;
  operand.output = output;
  operand.strides = fusion::broadcast_strides(array.shape, array.strides, shape);
  operand.address = array.address;
  operand.offset = array.offset;
  operand.place = array.place;
  operand.indexed = array.indexed;
  return operand;
}

}  // namespace kiln
