#include "fusion/emit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>

#include "fusion/count.hpp"
#include "fusion/device_text.hpp"
#include "fusion/kernel_writer.hpp"
#include "fusion/node_text.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

// ---- The kernel --------------------------------------------------------------------------------

struct OperandText {
  std::string name;          ///< of the value, and the stem of its pointer's and strides' names
  std::size_t argument = 0;  ///< for inputs: its position among the arguments
  DType dtype = DType::f32;
  bool output = false;
  bool count = false;     ///< no array
  std::int64_t axis = 0;  ///< of a count, as in its node
};

class Emitter {
 public:
  Emitter(const TypedGraph& graph, const Variant& variant, Accuracy accuracy)
      : graph_(graph),
        variant_(variant),
        accuracy_(accuracy),
        node_text_(graph, accuracy),
        index_(variant.wide_index ? "u64" : "u32"),
        signed_index_(variant.wide_index ? "i64" : "i32"),
        values_(graph.nodes.size()),
        stored_(graph.nodes.size()) {}

  KernelDescription run(std::string_view function, std::string_view expression) {
    name_operands();
    collect_parameters();
    emit_comment(function, expression);
    line(0, "namespace kiln {{");
    line(0, "");
    writer_.signature(block());
    if (tiled()) {
      emit_tiles();
    } else {
      line(1, "KILN_FOR_EACH_WORK_ITEM({}, {}, item, work_items) {{", index_, block());
      emit_coordinates();
      emit_broadcast_loads(2);
      line(2, "for_each_vector<{}>(start, size, [&](auto width, {} first, int lanes) {{",
           variant_.width, index_);
    }
    emit_vector_loads();
    emit_lanes();
    emit_stores();
    line(2, "}});");
    line(1, "}}");
    line(0, "}}");
    line(0, "");
    line(0, "}}  // namespace kiln");
    writer_.host_entry(variant_.streamed ? "finish_streams();" : "");
    return writer_.finish(static_cast<std::uint32_t>(block()));
  }

 private:
  template <class... Args>
  void line(int depth, fmt::format_string<Args...> format, Args&&... args) {
    writer_.line(depth, format, std::forward<Args>(args)...);
  }

  // -- Operands and parameters

  void name_operands() {
    argument_names_.resize(graph_.arguments.size());
    for (std::size_t i = 0; i < graph_.arguments.size(); ++i) {
      argument_names_[i] = identifier(graph_.argument_names[i], fmt::format("in{}", i), taken_);
      if (!graph_.arguments[i].scalar) {
        operands_.push_back({argument_names_[i], i, graph_.arguments[i].dtype, false});
      }
    }
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      const std::string& wanted = graph_.output_names[i];
      const std::string fallback = graph_.outputs.size() == 1 ? "out" : fmt::format("out{}", i);
      operands_.push_back({identifier(wanted.empty() ? fallback : wanted, fallback, taken_), 0,
                           graph_.nodes[graph_.outputs[i]].dtype, true});
    }
    for (const std::int64_t axis : counted_axes(graph_)) {
      operands_.push_back(
          {identifier(count_name(axis), "index", taken_), 0, DType::i64, false, true, axis});
    }
    if (operands_.size() != variant_.operands.size()) {
      throw Error(Code::internal,
                  "emit: the variant has another number of operands than the graph");
    }
  }

  void collect_parameters() {
    using P = Parameter::Kind;
    const std::uint32_t index_bytes = variant_.wide_index ? 8 : 4;
    const std::uint32_t divisor_bytes = variant_.wide_index ? 8 : 12;
    const std::string_view divisor = variant_.wide_index ? "Divisor64" : "Divisor32";
    for (std::uint32_t i = 0; i < operands_.size(); ++i) {
      const OperandText& operand = operands_[i];
      if (operand.count) continue;
      writer_.add_parameter({P::pointer, i, 0, operand.dtype, 8},
                            fmt::format("{}{}* {}_data", operand.output ? "" : "const ",
                                        storage_type(operand.dtype), operand.name));
    }
    for (std::uint32_t i = 0; i < graph_.arguments.size(); ++i) {
      if (!graph_.arguments[i].scalar) continue;
      const DType dtype = compute_dtype(node_text_.scalar_dtype(i));
      writer_.add_parameter({P::scalar, i, 0, dtype, static_cast<std::uint32_t>(bits(dtype) / 8)},
                            fmt::format("{} {}", storage_type(dtype), scalar_parameter(i)));
    }
    writer_.add_parameter({P::size, 0, 0, DType::f32, index_bytes}, fmt::format("{} size", index_));
    if (variant_.rank > 1) {
      writer_.add_parameter({P::columns, 0, 0, DType::f32, divisor_bytes},
                            fmt::format("{} columns", divisor));
    }
    const std::vector<std::uint32_t> outer = outer_axes();
    if (tiled()) {
      writer_.add_parameter({P::rows, 0, 0, DType::f32, index_bytes},
                            fmt::format("{} rows", index_));
      if (!outer.empty()) {
        writer_.add_parameter({P::strips, 0, 0, DType::f32, divisor_bytes},
                              fmt::format("{} strips", divisor));
      }
    }
    for (std::size_t n = 1; n < outer.size(); ++n) {
      writer_.add_parameter({P::extent, 0, outer[n], DType::f32, divisor_bytes},
                            fmt::format("{} extent_{}", divisor, outer[n]));
    }
    writer_.add_parameter({P::work_items, 0, 0, DType::f32, index_bytes},
                          fmt::format("{} work_items", index_));
    for (std::uint32_t i = 0; i < operands_.size(); ++i) {
      if (variant_.operands[i].start) {
        writer_.add_parameter({P::start, i, 0, DType::f32, index_bytes},
                              fmt::format("{} {}_start", signed_index_, operands_[i].name));
      }
      for (std::uint32_t k = 0; k < rank(); ++k) {
        if (!has_stride(i, k)) continue;
        writer_.add_parameter({P::stride, i, k, DType::f32, index_bytes},
                              fmt::format("{} {}", signed_index_, stride_name(i, k)));
      }
    }
  }

  std::uint32_t rank() const { return static_cast<std::uint32_t>(variant_.rank); }
  bool tiled() const { return variant_.tile != 0; }
  int block() const {
    const Policy& rule = policy(variant_.family);
    return tiled() ? rule.tile_block : rule.block;
  }

  // The axes that a work item's number is taken apart into, the fastest last.
  std::vector<std::uint32_t> outer_axes() const {
    std::vector<std::uint32_t> axes;
    for (std::uint32_t k = 0; k + 1 < rank(); ++k) {
      if (!tiled() || k != static_cast<std::uint32_t>(variant_.tile_axis)) axes.push_back(k);
    }
    return axes;
  }

  bool has_stride(std::size_t operand, std::uint32_t axis) const {
    const OperandVariant& variant = variant_.operands[operand];
    const bool transposed = variant.access == Access::transposed;
    if (axis + 1 == rank()) return transposed || variant.access == Access::strided;
    if (transposed && axis == static_cast<std::uint32_t>(variant_.tile_axis)) return false;
    return (variant.outer_axes >> axis & 1) != 0;
  }

  std::string stride_name(std::size_t operand, std::uint32_t axis) const {
    return fmt::format("{}_stride_{}", operands_[operand].name, axis);
  }

  std::string scalar_parameter(std::size_t argument) const {
    return argument_names_[argument] + "_value";
  }

  // -- Text, in the order in which the kernel reads

  void emit_comment(std::string_view function, std::string_view expression) {
    std::vector<CommentedOperand> operands;
    for (const OperandText& operand : operands_) {
      operands.push_back({operand.name, operand.dtype, operand.output, !operand.count});
    }
    writer_.comment(function, expression, operands, variant_, graph_.rounding, accuracy_);
  }

  void emit_coordinates() {
    const int width = variant_.width;
    if (rank() == 1) {
      line(2, "const {} start = {};", index_,
           width == 1 ? "item" : fmt::format("item * {}", width));
      return;
    }
    line(2, "const {} row = divide(item, columns);", index_);
    line(2, "const {} start = (item - row * columns.divisor){};", index_,
         width == 1 ? std::string() : fmt::format(" * {}", width));
    emit_outer_coordinates();
  }

  // The row's number is taken apart from the innermost of the outer axes to the outermost.
  void emit_outer_coordinates() {
    const std::vector<std::uint32_t> outer = outer_axes();
    std::string rest = "row";
    for (std::size_t n = outer.size() - 1; n > 0; --n) {
      const std::uint32_t k = outer[n];
      const std::string next = fmt::format("row_{}", k);
      line(2, "const {} {} = divide({}, extent_{});", index_, next, rest, k);
      line(2, "const {} at_{} = {} - {} * extent_{}.divisor;", index_, k, rest, next, k);
      rest = next;
    }
    line(2, "const {} at_{} = {};", index_, outer[0], rest);
  }

  // A block fills one tile per transposed operand, then computes the same tile of the outputs.
  void emit_tiles() {
    const int edge = variant_.tile;
    const int threads = block();
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!through_tile(i)) continue;
      line(1, "KILN_SHARED Tile<{}, {}> {}_tile;", storage_type(operands_[i].dtype), edge,
           operands_[i].name);
    }
    line(1, "KILN_FOR_EACH_BLOCK({}, item, work_items) {{", index_);
    line(2, "const {} strip = divide(item, columns);", index_);
    line(2, "const {} left = (item - strip * columns.divisor) * {};", index_, edge);
    if (outer_axes().empty()) {
      line(2, "const {} top = strip * {};", index_, edge);
    } else {
      line(2, "const {} row = divide(strip, strips);", index_);
      line(2, "const {} top = (strip - row * strips.divisor) * {};", index_, edge);
      emit_outer_coordinates();
    }
    if (variant_.wide_index) line(2, "KILN_SYNCHRONIZE();");
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!is_held(i)) continue;
      line(2, "const auto {0}_held = hold<{1}, {2}, {3}, {4}>({5}, top, left, rows, size, {6});",
           operands_[i].name, threads, edge, variant_.width, variant_.operands[i].alignment,
           row_pointer(i, variant_.tile_axis), stride_along(i, tile_axis()));
    }
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!through_tile(i)) continue;
      line(2, "fill<{}, {}, {}>({}_tile, {}, top, left, rows, size, {});", threads,
           tile_vector(operands_[i].dtype), variant_.operands[i].alignment, operands_[i].name,
           row_pointer(i), inner_stride(i));
    }
    line(2, "KILN_SYNCHRONIZE();");
    line(2,
         "for_each_tile_vector<{}, {}, {}>(top, left, rows, size, "
         "[&](auto width, {} at_{}, {} first, int lanes, int turn) {{",
         threads, edge, variant_.width, index_, variant_.tile_axis, index_);
    emit_broadcast_loads(3);
  }

  bool through_tile(std::size_t i) const {
    return variant_.operands[i].access == Access::transposed && is_read(operands_[i]);
  }

  // Without what the axis `but` adds.
  std::string row_pointer(std::size_t i, int but = -1) const {
    std::string pointer = operands_[i].name + "_data";
    if (is_packed(operands_[i].dtype)) {
      const std::string place = row_place(i);
      return fmt::format("packed({}, {})", pointer,
                         place.empty() ? fmt::format("{}(0)", signed_index_) : place);
    }
    for (std::uint32_t k = 0; k + 1 < rank(); ++k) {
      if (has_stride(i, k) && static_cast<int>(k) != but)
        pointer += fmt::format(" + {}(at_{}) * {}", signed_index_, k, stride_name(i, k));
    }
    return pointer;
  }

  std::string inner_stride(std::size_t i) const { return stride_along(i, rank() - 1); }
  std::string stride_along(std::size_t i, std::uint32_t axis) const {
    return has_stride(i, axis) ? stride_name(i, axis) : fmt::format("{}(0)", signed_index_);
  }

  static bool per_lane(const OperandVariant& variant) {
    return variant.access != Access::broadcast && variant.access != Access::scalar;
  }

  // One element for the whole row: the same for every lane.
  void emit_broadcast_loads(int depth) {
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const OperandText& operand = operands_[i];
      if (!is_read(operand) || per_lane(variant_.operands[i])) continue;
      const std::string pointer = row_pointer(i);
      const bool plain = pointer.find(' ') == std::string::npos;
      define_input(depth, operand,
                   is_packed(operand.dtype) ? fmt::format("element({})", pointer)
                   : plain                  ? "*" + pointer
                                            : "*(" + pointer + ")");
    }
  }

  // An element that was loaded: the number that is computed with, and where that is wanted the
  // element as it lies in memory.
  void define_input(int depth, const OperandText& operand, std::string element) {
    const auto node = std::ranges::find_if(graph_.nodes, [&](const TypedNode& n) {
      return n.op == Op::input && n.payload == operand.argument;
    });
    const auto id = static_cast<NodeId>(node - graph_.nodes.begin());
    if (node_text_.needs_stored(id)) {
      stored_[id] = operand.name + "_bits";
      line(depth, "const {} {} = {};", storage_type(operand.dtype), stored_[id], element);
      element = stored_[id];
    }
    if (!node_text_.needs_value(id)) return;
    line(depth, "const {} {} = to<{}>({});", compute_type(operand.dtype), operand.name,
         compute_type(operand.dtype), element);
  }

  void emit_vector_loads() {
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const OperandText& operand = operands_[i];
      const OperandVariant& variant = variant_.operands[i];
      const std::string_view lanes = is_packed(operand.dtype) ? ", lanes" : "";
      if (!is_read(operand)) continue;
      if (asks_ahead(i)) {
        line(3, "ask_for_row<{}>({}, {}, at_{}, top, first);", variant_.tile,
             row_pointer(i, variant_.tile_axis), stride_name(i, tile_axis()), variant_.tile_axis);
      }
      if (variant.access == Access::contiguous) {
        if (is_held(i)) {
          line(3, "const auto {0}_lanes = from_held<{1}>(width, {0}_held, turn, {2}, first);",
               operand.name, variant.alignment, row_pointer(i));
        } else {
          line(3, "const auto {}_lanes = load<width.size, {}>({}, first{});", operand.name,
               variant.alignment, row_pointer(i), lanes);
        }
      } else if (variant.access == Access::strided) {
        line(3, "const auto {}_lanes = gather<width.size>({}, first, {}{});", operand.name,
             row_pointer(i), stride_name(i, rank() - 1), lanes);
      } else if (variant.access == Access::transposed) {
        line(3, "const auto {}_lanes = from_tile<width.size>({}_tile, at_{} - top, first - left);",
             operand.name, operand.name, variant_.tile_axis);
      }
    }
  }

  // What lies beside a tile on a GPU: a thread reads its share while the tile is being filled, as
  // long as that fits its registers. Packed elements have bytes of their own to begin with.
  bool is_held(std::size_t i) const {
    constexpr int kMostHeld = 128;  // bytes per thread
    if (!tiled() || variant_.family == Family::host) return false;
    int bytes = 0;
    for (std::size_t k = 0; k <= i; ++k) {
      if (!lies_beside_tile(k)) continue;
      bytes += variant_.tile * variant_.tile / block() * bits(operands_[k].dtype) / 8;
    }
    return lies_beside_tile(i) && bytes <= kMostHeld;
  }
  bool lies_beside_tile(std::size_t i) const {
    return is_read(operands_[i]) && !is_packed(operands_[i].dtype) &&
           variant_.operands[i].access == Access::contiguous;
  }

  // Rows of a tile that lie far apart.
  bool asks_ahead(std::size_t i) const {
    return tiled() && variant_.family == Family::host && !is_packed(operands_[i].dtype) &&
           variant_.operands[i].access == Access::contiguous && has_stride(i, tile_axis());
  }

  std::uint32_t tile_axis() const { return static_cast<std::uint32_t>(variant_.tile_axis); }

  // An array that is loaded.
  bool is_read(const OperandText& operand) const {
    return !operand.output && !operand.count &&
           std::ranges::any_of(graph_.nodes, [&](const TypedNode& node) {
             return node.op == Op::input && node.payload == operand.argument;
           });
  }

  // Where a row begins among elements, or what a count is there; empty for 0.
  std::string row_place(std::size_t i) const {
    std::string row = variant_.operands[i].start ? operands_[i].name + "_start" : "";
    for (std::uint32_t k = 0; k + 1 < rank(); ++k) {
      if (!has_stride(i, k)) continue;
      row += fmt::format("{}{}(at_{}) * {}", row.empty() ? "" : " + ", signed_index_, k,
                         stride_name(i, k));
    }
    return row;
  }

  void emit_counts() {
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const std::string row = operands_[i].count ? row_place(i) : "";
      if (!row.empty()) line(3, "const {} {}_row = {};", signed_index_, operands_[i].name, row);
    }
  }

  void emit_lanes() {
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!operands_[i].output) continue;
      const bool contiguous = variant_.operands[i].access == Access::contiguous;
      if (variant_.streamed) {
        line(3, "auto {}_lanes = collect<width.size>({}_data);", operands_[i].name,
             operands_[i].name);
        continue;
      }
      line(3, "auto {}_lanes = results<width.size>({}, first{});", operands_[i].name,
           row_pointer(i), contiguous ? std::string() : ", " + inner_stride(i));
    }
    emit_counts();
    line(3, "KILN_FOR_EACH_LANE(lane, width, lanes) {{");
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) emit_node(id);
    std::size_t output = 0;
    for (const OperandText& operand : operands_) {
      if (!operand.output) continue;
      line(4, "{}_lanes[lane] = {};", operand.name,
           node_text_.store(graph_.outputs[output++], values_, stored_));
    }
    line(3, "}}");
  }

  void emit_stores() {
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const OperandText& operand = operands_[i];
      if (!operand.output) continue;
      const std::string_view lanes = is_packed(operand.dtype) ? ", lanes" : "";
      if (variant_.streamed) {
        line(3, "stream({}, first, lanes, {}_lanes);", row_pointer(i), operand.name);
      } else if (variant_.operands[i].access == Access::contiguous) {
        line(3, "store<width.size, {}>({}, first, {}_lanes{});", variant_.operands[i].alignment,
             row_pointer(i), operand.name, lanes);
      } else {
        line(3, "scatter<width.size>({}, first, {}, {}_lanes{});", row_pointer(i), inner_stride(i),
             operand.name, lanes);
      }
    }
  }

  // -- Values

  void emit_node(std::size_t id) {
    const TypedNode& node = graph_.nodes[id];
    switch (node.op) {
      case Op::input: return emit_input(id, node);
      case Op::scalar: return define(id, node_text_.scalar(node, scalar_parameter(node.payload)));
      case Op::iota: return define(id, node_text_.rounded(node, count_text(node)));
      default: break;
    }
    if (node_text_.needs_stored(static_cast<NodeId>(id)))
      stored_[id] = node_text_.bits(node, values_, stored_);
    if (node_text_.rounds(node) && std::ranges::count(graph_.outputs, static_cast<NodeId>(id))) {
      stored_[id] = node_text_.narrowed(node, values_);
      if (!is_operand(static_cast<NodeId>(id))) return;
    }
    if (!node_text_.needs_value(static_cast<NodeId>(id))) return;
    const NodeText::Expression expression =
        node_text_.of(static_cast<NodeId>(id), values_, stored_);
    if (!expression.same) return define(id, expression.text);
    values_[id] = expression.text;
  }

  bool is_operand(NodeId id) const {
    return std::ranges::any_of(graph_.nodes, [&](const TypedNode& node) {
      return std::ranges::count(node.inputs(), id) != 0;
    });
  }

  void define(std::size_t id, const std::string& expression) {
    const std::string value = identifier(fmt::format("v{}", id), "v", taken_);
    line(4, "const {} {} = {};", compute_type(graph_.nodes[id].dtype), value, expression);
    values_[id] = value;
  }

  void emit_input(std::size_t id, const TypedNode& node) {
    const auto operand = std::ranges::find_if(
        operands_, [&](const OperandText& o) { return !o.output && o.argument == node.payload; });
    values_[id] = operand->name;
    if (!per_lane(variant_.operands[static_cast<std::size_t>(operand - operands_.begin())])) return;
    define_input(4, *operand, operand->name + "_lanes[lane]");
  }

  std::string count_text(const TypedNode& node) const {
    const auto operand = std::ranges::find_if(operands_, [&](const OperandText& o) {
      return o.count && o.axis == static_cast<std::int64_t>(node.payload);
    });
    const auto i = static_cast<std::size_t>(operand - operands_.begin());
    std::string value = row_place(i).empty() ? "" : operand->name + "_row";
    if (per_lane(variant_.operands[i])) {
      const bool steps = variant_.operands[i].access == Access::strided;
      if (!value.empty()) value += " + ";
      value += fmt::format("{}(first + lane)", signed_index_);
      if (steps) value += " * " + inner_stride(i);
    }
    if (value.empty()) value = fmt::format("{}(0)", signed_index_);
    return fmt::format("to<{}>({})", compute_type(node.dtype), value);
  }

  const TypedGraph& graph_;
  const Variant& variant_;
  Accuracy accuracy_;
  NodeText node_text_;
  std::string_view index_;
  std::string_view signed_index_;
  std::set<std::string> taken_;
  std::vector<std::string> argument_names_;
  std::vector<OperandText> operands_;
  std::vector<std::string> values_;
  std::vector<std::string> stored_;  ///< of narrow numbers, as they lie in memory
  KernelWriter writer_;
};

}  // namespace

KernelDescription emit(const TypedGraph& graph, const Variant& variant, Accuracy accuracy,
                       std::string_view function, std::string_view expression) {
  return Emitter(graph, variant, accuracy).run(function, expression);
}

std::string with_entry(std::string_view source, std::string_view entry) {
  std::string result;
  result.reserve(source.size() + 4 * entry.size());
  std::size_t from = 0;
  for (std::size_t at = source.find(kEntryMarker); at != std::string_view::npos;
       at = source.find(kEntryMarker, from)) {
    result.append(source, from, at - from).append(entry);
    from = at + kEntryMarker.size();
  }
  return result.append(source, from, std::string_view::npos);
}

}  // namespace kiln::fusion
