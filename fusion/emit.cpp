#include "fusion/emit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>

#include "fusion/count.hpp"
#include "fusion/device_text.hpp"
#include "fusion/dtype_lattice.hpp"
#include "fusion/element_operands.hpp"
#include "fusion/kernel_writer.hpp"
#include "fusion/node_text.hpp"
#include "kiln/error.hpp"

namespace kiln::fusion {
namespace {

class Emitter {
 public:
  Emitter(const TypedGraph& graph, const Variant& variant, Accuracy accuracy)
      : graph_(graph),
        variant_(variant),
        accuracy_(accuracy),
        node_text_(graph, accuracy),
        identifiers_(graph),
        operands_(graph, variant, identifiers_),
        index_(operands_.index()),
        signed_index_(operands_.signed_index()),
        values_(graph.nodes.size()),
        stored_(graph.nodes.size()),
        words_(graph.nodes.size()) {}

  KernelDescription run(std::string_view function, std::string_view expression) {
    operands_.add_parameters(writer_, node_text_);
    emit_comment(function, expression);
    line(0, "namespace kiln {{");
    line(0, "");
    writer_.signature(block());
    writer_.await_prerequisites(1);
    if (operands_.tiled()) {
      emit_tiles();
    } else {
      line(1, "KILN_FOR_EACH_WORK_ITEM({}, {}, item, work_items) {{", index_, block());
      emit_coordinates();
      emit_broadcast_loads(2);
      if (variant_.table) emit_table();
      const bool host = variant_.family == Family::host;
      line(2, "{}(start, size, [&](auto width, {} first, {} lanes) {}{{",
           apart() ? fmt::format("for_each_vector_apart<{}, {}, {}>", variant_.width,
                                 variant_.vectors, variant_.width * variant_.threads)
                   : fmt::format("for_each_vector<{}>", variant_.width),
           index_, host ? "auto" : "int", host ? "KILN_INLINED " : "");
    }
    if (!variant_.table) {
      emit_vector_loads();
      emit_results();
      emit_counts();
      emit_random_words();
      line(3, "KILN_FOR_EACH_LANE(lane, width, lanes) {{");
      emit_lane(4);
      line(3, "}}");
    }
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

  int block() const {
    const Policy& rule = policy(variant_.family);
    return operands_.tiled() ? rule.tile_block : rule.block;
  }

  // -- Text, in the order in which the kernel reads

  void emit_comment(std::string_view function, std::string_view expression) {
    std::vector<CommentedOperand> operands;
    for (const ElementOperand& operand : operands_) {
      operands.push_back({operand.name, operand.dtype, operand.output, !operand.count});
    }
    writer_.comment(function, expression, operands, variant_, graph_.rounding, accuracy_);
  }

  void emit_coordinates() {
    const bool rows = operands_.rank() > 1;
    if (rows) line(2, "const {} row = divide(item, columns);", index_);
    const std::string_view in_row = rows ? "item - row * columns.divisor" : "item";
    if (apart()) {
      line(2, "const {} start = first_of<{}, {}, {}>({});", index_, variant_.threads,
           variant_.vectors, variant_.width, in_row);
    } else if (variant_.width == 1) {
      line(2, "const {} start = {};", index_, in_row);
    } else {
      line(2, "const {} start = {} * {};", index_, rows ? fmt::format("({})", in_row) : in_row,
           variant_.width);
    }
    if (rows) emit_outer_coordinates();
  }

  // Several vectors for each work item.
  bool apart() const { return variant_.vectors > 1; }

  // The row's number is taken apart from the innermost of the outer axes to the outermost.
  void emit_outer_coordinates() {
    const std::vector<std::uint32_t> outer = operands_.outer_axes();
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
    if (operands_.outer_axes().empty()) {
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
           operands_.row_pointer(i, variant_.tile_axis), operands_.stride_along(i, tile_axis()));
    }
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!through_tile(i)) continue;
      line(2, "fill<{}, {}, {}>({}_tile, {}, top, left, rows, size, {});", threads,
           tile_vector(operands_[i].dtype), variant_.operands[i].alignment, operands_[i].name,
           operands_.row_pointer(i), operands_.inner_stride(i));
    }
    line(2, "KILN_SYNCHRONIZE();");
    line(2,
         "for_each_tile_vector<{}, {}, {}>(top, left, rows, size, "
         "[&](auto width, {} at_{}, {} first, int lanes, int turn) {{",
         threads, edge, variant_.width, index_, variant_.tile_axis, index_);
    emit_broadcast_loads(3);
  }

  bool through_tile(std::size_t i) const {
    return variant_.operands[i].access == Access::transposed && operands_.is_read(i);
  }

  // One element for the whole row: the same for every lane.
  void emit_broadcast_loads(int depth) {
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const ElementOperand& operand = operands_[i];
      if (!operands_.is_read(i) || operands_.per_lane(i)) continue;
      const std::string pointer = operands_.row_pointer(i);
      const bool plain = pointer.find(' ') == std::string::npos;
      define_input(depth, operand,
                   is_packed(operand.dtype) ? fmt::format("element({})", pointer)
                   : plain                  ? "*" + pointer
                                            : "*(" + pointer + ")");
    }
  }

  // An element that was loaded: the number that is computed with, and where that is wanted the
  // element as it lies in memory.
  void define_input(int depth, const ElementOperand& operand, std::string element) {
    const auto id = input_of(static_cast<std::size_t>(&operand - &operands_[0]));
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
      const ElementOperand& operand = operands_[i];
      const OperandVariant& variant = variant_.operands[i];
      const std::string_view lanes = is_packed(operand.dtype) ? ", lanes" : "";
      if (!operands_.is_read(i) || operands_.is_within(i)) continue;
      if (asks_ahead(i)) {
        line(3, "ask_for_row<{}>({}, {}, at_{}, top, first);", variant_.tile,
             operands_.row_pointer(i, variant_.tile_axis), operands_.stride_name(i, tile_axis()),
             variant_.tile_axis);
      }
      if (variant.gaps) {
        constexpr int kAheadBits = 2048 * 8;
        line(3, "ask_for<1>({}, i64(first) + {});", operands_.row_pointer(i),
             kAheadBits / bits(operand.dtype));
      }
      if (is_held(i)) {
        line(3, "const auto {0}_lanes = from_held<{1}>(width, {0}_held, turn, {2}, first);",
             operand.name, variant.alignment, operands_.row_pointer(i));
      } else if (is_staged(i)) {
        line(3, "const auto {}_lanes = load_halves<width.size>({}, first, lanes);", operand.name,
             operands_.row_pointer(i));
      } else if (operands_.lies_in_rows(i) && apart()) {
        line(3, "const auto {}_lanes = load_apart<{}, {}>(width, {}, first);", operand.name,
             variant.ways, variant.alignment, operands_.row_pointer(i));
      } else if (variant.access == Access::strided && apart()) {
        line(3, "const auto {}_lanes = gather_apart(width, {}, first, {});", operand.name,
             operands_.row_pointer(i), operands_.stride_name(i, operands_.rank() - 1));
      } else if (operands_.lies_in_rows(i)) {
        line(3, "const auto {}_lanes = load<{}, {}>({}, {}{});", operand.name,
             operands_.vector_size(i), variant.alignment, operands_.row_pointer(i),
             operands_.vector_start(i), lanes);
      } else if (variant.access == Access::strided) {
        line(3, "const auto {}_lanes = gather<width.size>({}, first, {}{});", operand.name,
             operands_.row_pointer(i), operands_.stride_name(i, operands_.rank() - 1), lanes);
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
    if (!operands_.tiled() || variant_.family == Family::host) return false;
    int bytes = 0;
    for (std::size_t k = 0; k <= i; ++k) {
      if (!lies_beside_tile(k)) continue;
      bytes += variant_.tile * variant_.tile / block() * bits(operands_[k].dtype) / 8;
    }
    return lies_beside_tile(i) && bytes <= kMostHeld;
  }
  bool lies_beside_tile(std::size_t i) const {
    return operands_.is_read(i) && !is_packed(operands_[i].dtype) &&
           variant_.operands[i].access == Access::contiguous;
  }

  // Rows of a tile that lie far apart.
  bool asks_ahead(std::size_t i) const {
    return operands_.tiled() && variant_.family == Family::host && !is_packed(operands_[i].dtype) &&
           variant_.operands[i].access == Access::contiguous &&
           operands_.has_stride(i, tile_axis());
  }

  std::uint32_t tile_axis() const { return static_cast<std::uint32_t>(variant_.tile_axis); }

  void emit_counts() {
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const std::string row = operands_[i].count ? operands_.row_place(i) : "";
      if (!row.empty()) line(3, "const {} {}_row = {};", signed_index_, operands_[i].name, row);
    }
  }

  void emit_results() {
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const std::string& name = operands_[i].name;
      if (!operands_[i].output || operands_.is_within(i)) continue;
      const bool in_rows = operands_.lies_in_rows(i);
      if (is_staged(i) && variant_.streamed) {
        line(3, "Collected<f16_lane, width.size> {}_lanes;", name);
      } else if (is_staged(i)) {
        line(3, "auto {}_lanes = half_results<width.size>({}, first);", name,
             operands_.row_pointer(i));
      } else if (variant_.streamed) {
        line(3, "auto {}_lanes = collect<width.size>({}_data);", name, name);
      } else if (is_unrounded(i)) {
        line(3, "auto {}_lanes = unrounded_results<{}>({}, first);", name, operands_.vector_size(i),
             operands_.row_pointer(i));
      } else {
        line(3, "auto {}_lanes = results<{}>({}, {}{});", name, operands_.vector_size(i),
             operands_.row_pointer(i), operands_.vector_start(i),
             in_rows ? std::string() : ", " + operands_.inner_stride(i));
      }
    }
  }

  // What is computed for each lane, or each code of a table.
  void emit_lane(int depth) {
    depth_ = depth;
    const std::vector<bool> needed = find_needed();
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      if (needed[id]) emit_node(id);
    }
    std::size_t output = 0;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!operands_[i].output) continue;
      const NodeId id = graph_.outputs[output++];
      line(depth, "{} = {};", operands_.lane_of(i), element_text(i, id));
    }
  }

  std::string element_text(std::size_t i, NodeId id) const {
    if (is_staged(i)) return fmt::format("to<f16_lane>({})", values_[unrounded(id)]);
    if (is_unrounded(i)) return values_[unrounded(id)];
    if (variant_.family == Family::host) return node_text_.store_on_host(id, values_, stored_);
    return node_text_.store(id, values_, stored_);
  }

  // The results of all values of the one operand that differs between the lanes of a row.
  void emit_table() {
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const ElementOperand& operand = operands_[i];
      if (operand.output) {
        line(2, "{} {}_lanes[kCodes];", storage_type(operand.dtype), operand.name);
      } else if (operands_.per_lane(i)) {
        line(2, "const Codes<{}> {}_lanes;", storage_type(operand.dtype), operand.name);
      }
    }
    line(2, "KILN_FOR_EACH_CODE(lane) {{");
    emit_lane(3);
    line(2, "}}");
  }

  // What a store takes of the table.
  std::string looked_up(std::size_t i) const {
    std::size_t code = 0;
    while (operands_[code].output || !operands_.per_lane(code)) ++code;
    return fmt::format("look_up<width.size>({}_lanes, {}, first, lanes)", operands_[i].name,
                       operands_.row_pointer(code));
  }

  // f16 whose conversion is left to its block (preamble/halves.h): not where the bits in memory are
  // wanted, nor where they come from anything but an f32.
  bool is_staged(std::size_t i) const {
    const OperandVariant& variant = variant_.operands[i];
    if (variant_.family != Family::host || operands_[i].dtype != DType::f16 || variant_.table ||
        operands_.tiled() || variant.access != Access::contiguous)
      return false;
    if (!operands_[i].output) return !node_text_.needs_stored(input_of(i));
    const NodeId id = output_node(i);
    return !node_text_.needs_stored(id) &&
           compute_dtype(graph_.nodes[unrounded(id)].dtype) == DType::f32;
  }
  // 8-bit floats that NVIDIA's GPUs convert vector by vector (preamble/small_floats.h).
  bool is_unrounded(std::size_t i) const {
    if (variant_.family != Family::nvidia || operands_[i].dtype != DType::f8e4m3 ||
        !operands_[i].output || !operands_.lies_in_rows(i) || apart() || operands_.tiled() ||
        variant_.table || variant_.operands[i].ways != 1)
      return false;
    const NodeId id = output_node(i);
    return !node_text_.needs_stored(id) &&
           compute_dtype(graph_.nodes[unrounded(id)].dtype) == DType::f32;
  }
  NodeId output_node(std::size_t i) const {
    const auto first = std::ranges::find_if(operands_, &ElementOperand::output);
    return graph_.outputs[i - static_cast<std::size_t>(first - operands_.begin())];
  }
  NodeId input_of(std::size_t i) const {
    const auto node = std::ranges::find_if(graph_.nodes, [&](const TypedNode& n) {
      return n.op == Op::input && n.payload == operands_[i].argument;
    });
    return static_cast<NodeId>(node - graph_.nodes.begin());
  }
  // What a cast rounds, which storing it does as well.
  NodeId unrounded(NodeId id) const {
    const TypedNode& node = graph_.nodes[id];
    return node_text_.rounds(node) ? node.operands[0] : id;
  }

  void emit_stores() {
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const ElementOperand& operand = operands_[i];
      if (!operand.output || operands_.is_within(i)) continue;
      const std::string_view lanes = is_packed(operand.dtype) ? ", lanes" : "";
      if (variant_.table) {
        line(3, "{}({}, first, lanes, {});", variant_.streamed ? "stream" : "put",
             operands_.row_pointer(i), looked_up(i));
      } else if (variant_.streamed) {
        line(3, "stream({}, first, lanes, {}_lanes);", operands_.row_pointer(i), operand.name);
      } else if (is_staged(i)) {
        line(3, "put({}, first, lanes, {}_lanes);", operands_.row_pointer(i), operand.name);
      } else if (operands_.lies_in_rows(i) && apart()) {
        line(3, "store_apart<{}, {}>(width, {}, first, {}_lanes);", variant_.operands[i].ways,
             variant_.operands[i].alignment, operands_.row_pointer(i), operand.name);
      } else if (apart()) {
        line(3, "scatter_apart(width, {}, first, {}, {}_lanes);", operands_.row_pointer(i),
             operands_.inner_stride(i), operand.name);
      } else if (operands_.lies_in_rows(i)) {
        line(3, "store<{}, {}>({}, {}, {}_lanes{});", operands_.vector_size(i),
             variant_.operands[i].alignment, operands_.row_pointer(i), operands_.vector_start(i),
             operand.name, lanes);
      } else {
        line(3, "scatter<width.size>({}, first, {}, {}_lanes{});", operands_.row_pointer(i),
             operands_.inner_stride(i), operand.name, lanes);
      }
    }
  }

  // -- Random numbers

  // On GPUs, the words of a whole vector at once where those of four neighbours are one
  // computation.
  void emit_random_words() {
    if (variant_.family == Family::host) return;
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      const TypedNode& node = graph_.nodes[id];
      if (info(node.op).rule != Rule::random) continue;
      const std::optional<std::size_t> count = count_behind(node.operands[2]);
      const std::string seed = invariant_text(node.operands[0]);
      const std::string offset = invariant_text(node.operands[1]);
      if (!count || variant_.operands[*count].alignment == 0 || seed.empty() || offset.empty())
        continue;
      const std::string row =
          operands_.row_place(*count).empty() ? "" : operands_[*count].name + "_row + ";
      words_[id] = identifiers_.give(fmt::format("v{}_words", id), "words");
      line(3, "const auto {} = random_words<width.size>({}, {}, to<u64>({}{}(first)));", words_[id],
           seed, offset, row, signed_index_);
    }
  }

  // The count that a node is, by way of conversions that keep it.
  std::optional<std::size_t> count_behind(NodeId id) const {
    const TypedNode* node = &graph_.nodes[id];
    while ((node->op == Op::promote || node->op == Op::cast) &&
           (node->dtype == DType::u64 || node->dtype == DType::i64)) {
      node = &graph_.nodes[node->operands[0]];
    }
    if (node->op != Op::iota || bits(node->dtype) < 64) return std::nullopt;
    const auto operand = std::ranges::find_if(operands_, [&](const ElementOperand& o) {
      return o.count && o.axis == static_cast<std::int64_t>(node->payload);
    });
    return static_cast<std::size_t>(operand - operands_.begin());
  }

  // What is the same for all lanes, as an expression before their loop; empty if it is not known
  // to be.
  std::string invariant_text(NodeId id) const {
    const TypedNode& node = graph_.nodes[id];
    if (node.op == Op::scalar)
      return node_text_.scalar(node, identifiers_.scalar_parameter(node.payload));
    std::vector<std::string> values(id + 1);
    if (node.op == Op::promote || node.op == Op::cast) {
      values[node.operands[0]] = invariant_text(node.operands[0]);
      if (values[node.operands[0]].empty()) return {};
    } else if (node.op != Op::constant) {
      return {};
    }
    return node_text_.of(id, values).text;
  }

  // What the outputs depend on, but for the places of random numbers whose words are there.
  std::vector<bool> find_needed() const {
    std::vector<bool> needed(graph_.nodes.size(), false);
    for (const NodeId output : graph_.outputs) needed[output] = true;
    for (std::size_t id = graph_.nodes.size(); id-- > 0;) {
      if (!needed[id] || !words_[id].empty()) continue;
      for (const NodeId operand : graph_.nodes[id].inputs()) needed[operand] = true;
    }
    return needed;
  }

  // -- Values

  void emit_node(std::size_t id) {
    const TypedNode& node = graph_.nodes[id];
    if (!words_[id].empty()) {
      const std::string text = fmt::format("{}({}.word[lane])", info(node.op).name, words_[id]);
      return define(id, node_text_.rounded(node, text));
    }
    switch (node.op) {
      case Op::input: return emit_input(id, node);
      case Op::scalar:
        return define(id, node_text_.scalar(node, identifiers_.scalar_parameter(node.payload)));
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
    const std::string value = identifiers_.give(fmt::format("v{}", id), "v");
    line(depth_, "const {} {} = {};", compute_type(graph_.nodes[id].dtype), value, expression);
    values_[id] = value;
  }

  void emit_input(std::size_t id, const TypedNode& node) {
    const auto operand = std::ranges::find_if(operands_, [&](const ElementOperand& o) {
      return !o.output && o.argument == node.payload;
    });
    values_[id] = operand->name;
    const auto i = static_cast<std::size_t>(operand - operands_.begin());
    if (!operands_.per_lane(i)) return;
    define_input(depth_, *operand, operands_.lane_of(i));
  }

  std::string count_text(const TypedNode& node) const {
    const auto operand = std::ranges::find_if(operands_, [&](const ElementOperand& o) {
      return o.count && o.axis == static_cast<std::int64_t>(node.payload);
    });
    const auto i = static_cast<std::size_t>(operand - operands_.begin());
    std::string value = operands_.row_place(i).empty() ? "" : operand->name + "_row";
    if (operands_.per_lane(i)) {
      const bool steps = variant_.operands[i].access == Access::strided;
      if (!value.empty()) value += " + ";
      value += fmt::format("{}(first + lane)", signed_index_);
      if (steps) value += " * " + operands_.inner_stride(i);
    }
    if (value.empty()) value = fmt::format("{}(0)", signed_index_);
    return fmt::format("to<{}>({})", compute_type(node.dtype), value);
  }

  const TypedGraph& graph_;
  const Variant& variant_;
  Accuracy accuracy_;
  NodeText node_text_;
  KernelNames identifiers_;
  ElementOperands operands_;
  std::string_view index_;
  std::string_view signed_index_;
  std::vector<std::string> values_;
  std::vector<std::string> stored_;  ///< of narrow numbers, as they lie in memory
  std::vector<std::string> words_;   ///< of random numbers, those of a whole vector
  int depth_ = 4;                    ///< of the statements for each lane
  KernelWriter writer_{variant_};
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
