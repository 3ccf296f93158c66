#include "fallback/general_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "fallback/general_text.hpp"
#include "fallback/host_operations.hpp"
#include "fusion/emit/device_text.hpp"
#include "fusion/emit/node_text.hpp"
#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/graph/op.hpp"
#include "fusion/infer/sum_tree.hpp"

namespace kiln {
namespace {

using fusion::compute_type;
using fusion::Op;
using fusion::Rule;
using fusion::storage_type;

// What values are computed in.
constexpr std::array kComputed = {DType::boolean, DType::u8,  DType::u16, DType::u32,
                                  DType::u64,     DType::i8,  DType::i16, DType::i32,
                                  DType::i64,     DType::f32, DType::f64, DType::c64};

// ---- Conversions -------------------------------------------------------------------------------

std::string convert_text(DType from) {
  std::vector<KernelCase> cases;
  const bool computed = fusion::compute_dtype(from) == from;
  for (const DTypeInfo& to : kDTypes) {
    const bool wanted = computed ? to.dtype != from : to.dtype == fusion::compute_dtype(from);
    if (!wanted) continue;
    const bool narrow = fusion::compute_dtype(to.dtype) != to.dtype;
    const std::string value = fmt::format("to<{}>({})", compute_type(from), loaded(from, "from"));
    const std::string result =
        narrow ? value : fmt::format("to<{}>({})", compute_type(to.dtype), value);
    cases.push_back({static_cast<std::uint32_t>(to.dtype), std::string(to.name),
                     "        " + stored(to.dtype, "result", result) + "\n"});
  }
  return kernel_text(fmt::format("{} to other dtypes", name(from)), GeneralKernel::Kind::convert,
                     cases);
}

// ---- Element by element ------------------------------------------------------------------------

bool is_costly(Op op) { return fusion::info(op).cost > fusion::kMostCheap; }

bool is_mapped(const fusion::OpInfo& op, DType dtype) {
  const bool integers = is_integer(dtype);
  const bool narrow = fusion::compute_dtype(dtype) != dtype;
  if (narrow) return op.op == Op::nextafter && (dtype == DType::f16 || dtype == DType::bf16);
  switch (op.rule) {
    case Rule::leaf:
    case Rule::index:
    case Rule::convert: return false;
    case Rule::logical: return dtype == DType::boolean;
    case Rule::floating: return !integers && dtype != DType::boolean && accepts(op, dtype);
    case Rule::random: return dtype == DType::u64;
    case Rule::same:
      // Bools have other ops in place of arithmetic.
      if (dtype == DType::boolean && op.on_bools != op.op) return false;
      break;
    default: break;
  }
  return accepts(op, dtype);
}

std::string expression(const fusion::OpInfo& op, DType dtype, Accuracy accuracy) {
  fusion::TypedGraph graph;
  fusion::TypedNode node{
      op.op, map_result(op.op, dtype), static_cast<std::uint8_t>(op.arity), {}, 0};
  std::vector<std::string> values;
  for (std::size_t i = 0; i < node.arity; ++i) {
    const DType operand = map_operand(op.op, dtype, i);
    graph.nodes.push_back({Op::input, operand, 0, {}, i});
    graph.arguments.push_back({operand, false, false});
    node.operands[i] = static_cast<fusion::NodeId>(i);
    values.push_back(std::string(1, static_cast<char>('x' + i)));
  }
  graph.nodes.push_back(node);
  graph.outputs = {static_cast<fusion::NodeId>(op.arity)};
  values.emplace_back();
  return fusion::NodeText(graph, accuracy, fusion::Backend::host).of(graph.outputs[0], values).text;
}

KernelCase map_case(const fusion::OpInfo& op, DType dtype, Accuracy accuracy) {
  constexpr std::array<std::string_view, 3> kPointers = {"a", "b", "c"};
  std::string body;
  for (std::size_t i = 0; i < static_cast<std::size_t>(op.arity); ++i) {
    const DType operand = fusion::compute_dtype(map_operand(op.op, dtype, i));
    body += fmt::format("        const {} {} = to<{}>({});\n", compute_type(operand),
                        static_cast<char>('x' + i), compute_type(operand),
                        loaded(operand, kPointers[i]));
  }
  const DType result = fusion::compute_dtype(map_result(op.op, dtype));
  body += "        " +
          stored(result, "result",
                 fmt::format("{}({})", compute_type(result), expression(op, dtype, accuracy))) +
          "\n";
  return {static_cast<std::uint32_t>(op.op), std::string(op.name), std::move(body)};
}

std::string map_text(const GeneralKernel& kernel) {
  std::vector<KernelCase> cases;
  for (const fusion::OpInfo& op : fusion::all_ops()) {
    const bool here = kernel.own == Op::input ? !is_costly(op.op) : op.op == kernel.own;
    if (!here || !is_mapped(op, kernel.dtype)) continue;
    cases.push_back(
        map_case(op, kernel.dtype, kernel.strict ? Accuracy::strict : Accuracy::storage));
  }
  return kernel_text(fmt::format("Operations on {}", name(kernel.dtype)), GeneralKernel::Kind::map,
                     cases);
}

// ---- Along axes --------------------------------------------------------------------------------

bool is_along(const fusion::OpInfo& op, DType dtype) {
  if (op.op == Op::mean) return false;  // a sum and a quotient
  if (dtype == DType::boolean && op.on_bools && op.on_bools != op.op) return false;
  switch (op.rule) {
    case Rule::logical: return dtype == DType::boolean;
    // Computed in the dtype of the result.
    case Rule::accumulate:
      return dtype == DType::i64 || dtype == DType::u64 || dtype == DType::f32 ||
             dtype == DType::f64 || dtype == DType::c64;
    default: return accepts(op, dtype);
  }
}

// An item is a part of a row.
constexpr std::string_view kPartOfRow =
    "        const u64 row = item / parts;\n"
    "        u64 at = item % parts * part;\n"
    "        const u64 end = at + part < length ? at + part : length;\n";

std::string element(DType dtype) {
  return fmt::format("to<{}>(((const {}*)from)[row * length + at])", compute_type(dtype),
                     storage_type(dtype));
}

KernelCase place_case(const fusion::OpInfo& op, DType dtype) {
  const std::string found = fmt::format("Found<{}, i64>", compute_type(dtype));
  return {
      along_code(op.op), std::string(op.name),
      fmt::format("{0}        {1} all = {2}::identity<{1}>();\n"
                  "        KILN_ROLLED for (; at < end; ++at) {{\n"
                  "          const i64 place = places ? ((const i64*)places)[row * length + at] : "
                  "i64(at);\n"
                  "          all = {2}::combine(all, {1}{{{3}, place}});\n        }}\n"
                  "        ((i64*)result_places)[item] = all.index;\n"
                  "        if (result) (({4}*)result)[item] = to<{4}>(all.value);\n",
                  kPartOfRow, found, op.combiner, element(dtype), storage_type(dtype))};
}

// Bits of bools are combined as integers.
KernelCase reduce_case(const fusion::OpInfo& op, DType dtype, bool running) {
  const std::string_view type = compute_type(dtype);
  std::string text =
      fmt::format("{0}        {1} all = {2}::identity<{1}>();\n", kPartOfRow, type, op.combiner);
  if (running) {
    text += fmt::format(
        "        if (before && item % parts != 0) all = to<{}>(((const {}*)before)[item - 1]);\n",
        type, storage_type(dtype));
  }
  text += fmt::format(
      "        KILN_ROLLED for (; at < end; ++at) {{\n          all = {1}({2}::combine(all, "
      "{0}));\n",
      element(dtype), type, op.combiner);
  const std::string store =
      fmt::format("(({0}*)result)[{{}}] = to<{0}>(all);\n", storage_type(dtype));
  if (running) text += "          " + fmt::format(fmt::runtime(store), "row * length + at");
  text += "        }\n";
  if (!running) text += "        " + fmt::format(fmt::runtime(store), "item");
  return {along_code(op.op), std::string(op.name), std::move(text)};
}

// Running sums and products in the order of numerics.md: an item is a block of a row, which begins
// with what the blocks before came to. Where that is not known yet, 0 or 1, what the block comes to
// is the result.
KernelCase blocks_case(const fusion::OpInfo& op, DType dtype) {
  return {along_code(op.op, true), fmt::format("blocks of {}", op.name),
          fmt::format(
              "{0}        auto columns = start_columns<{1}, {2}, 1>();\n"
              "        if (before && item % parts != 0) {{\n"
              "          const {2} all = to<{2}>(((const {3}*)before)[item - 1]);\n"
              "          columns.blocks[0] = columns.before[0] = all;\n        }}\n"
              "        KILN_ROLLED for (; at < end; ++at) {{\n"
              "          {2} lane[1] = {{{4}}};\n"
              "          scan_row<{1}>(lane, columns, at);\n"
              "          if (result) (({3}*)result)[row * length + at] = to<{3}>(lane[0]);\n"
              "        }}\n"
              "        if (result_places) {{\n"
              "          (({3}*)result_places)[item] = to<{3}>(columns.before[0]);\n"
              "        }}\n",
              kPartOfRow, op.combiner, compute_type(dtype), storage_type(dtype), element(dtype))};
}

// A stage of the tree of sums and products (host_operations.hpp, TreeStage). Pairs are combined in
// loops: an array of partial results would lie in memory on GPUs.
static_assert(host::kTreeFold == 16);
KernelCase tree_case(const fusion::OpInfo& op, DType dtype) {
  const std::string_view type = compute_type(dtype);
  const std::string element =
      fmt::format("to<{}>(((const {}*)from)[first + at * apart])", type, storage_type(dtype));
  return {along_code(op.op, true), fmt::format("a stage of {}", op.name),
          fmt::format(
              "        const u64 slot = item % parts;\n"
              "        const u64 chunk = item / parts % chunks;\n"
              "        const u64 row = item / parts / chunks;\n"
              "        u64 first = row * length * chunks + chunk;\n"
              "        u64 own = length;\n"
              "        u64 residues = part;\n"
              "        if (apart == 1) {{\n"
              "          const u64 before = chunk * {4};\n"
              "          u64 count = length;\n"
              "          if (places) {{\n"
              "            const u64 elements = u64(((const i64*)places)[row]);\n"
              "            count = (elements + (u64(1) << element_log2) - 1) >> element_log2;\n"
              "          }}\n"
              "          first = row * length + before;\n"
              "          own = count > before ? count - before : 0;\n"
              "          own = own < {4} ? own : {4};\n"
              "          if (chunks > 1 || places) {{\n"
              "            while (residues > {5} && own <= 2 * residues) residues /= 2;\n"
              "          }}\n"
              "        }}\n"
              "        {0} all{{}};\n"
              "        KILN_ROLLED for (u64 a = 0; a < 2; a += 1) {{\n"
              "          {0} halves{{}};\n"
              "          KILN_ROLLED for (u64 b = 0; b < 4; b += 2) {{\n"
              "            {0} quarters{{}};\n"
              "            KILN_ROLLED for (u64 c = 0; c < 8; c += 4) {{\n"
              "              {0} eighths{{}};\n"
              "              KILN_ROLLED for (u64 d = 0; d < 16; d += 8) {{\n"
              "                const u64 residue = slot + (a + b + c + d) * parts;\n"
              "                const u64 end = residue < residues ? own : 0;\n"
              "                {0} one = {1}::identity<{0}>();\n"
              "                KILN_ROLLED for (u64 at = residue; at < end; at += residues) {{\n"
              "                  one = {1}::combine(one, {2});\n"
              "                }}\n"
              "                eighths = d == 0 ? one : {1}::combine(eighths, one);\n"
              "              }}\n"
              "              quarters = c == 0 ? eighths : {1}::combine(quarters, eighths);\n"
              "            }}\n"
              "            halves = b == 0 ? quarters : {1}::combine(halves, quarters);\n"
              "          }}\n"
              "          all = a == 0 ? halves : {1}::combine(all, halves);\n"
              "        }}\n"
              "        (({3}*)result)[(row * parts + slot) * chunks + chunk] = to<{3}>(all);\n",
              type, op.combiner, element, storage_type(dtype), fusion::kTreeChunk,
              fusion::kLeastResidues)};
}

std::string along_text(DType dtype) {
  std::vector<KernelCase> cases;
  for (const fusion::OpInfo& op : fusion::all_reductions()) {
    if (!is_along(op, dtype)) continue;
    cases.push_back(fusion::is_arg_reduction(op.op)
                        ? place_case(op, dtype)
                        : reduce_case(op, dtype, fusion::is_scan(op.op)));
    if (host::follows_tree(op.op, dtype)) cases.push_back(tree_case(op, dtype));
    if (host::runs_in_blocks(op.op, dtype)) cases.push_back(blocks_case(op, dtype));
  }
  // Unrolled, loops are most of the code; what these kernels cost is that they are loaded.
  constexpr std::string_view kRolled =
      "#if KILN_HOST\n#define KILN_ROLLED\n#else\n"
      "#define KILN_ROLLED _Pragma(\"unroll 1\")\n#endif\n\n";
  return kernel_text(fmt::format("Reductions and running results of {}", name(dtype)),
                     GeneralKernel::Kind::along, cases, kRolled);
}

std::string text_of(const GeneralKernel& kernel) {
  switch (kernel.kind) {
    case GeneralKernel::Kind::move: return move_text();
    case GeneralKernel::Kind::convert: return convert_text(kernel.dtype);
    case GeneralKernel::Kind::map: return map_text(kernel);
    case GeneralKernel::Kind::along: break;
  }
  return along_text(kernel.dtype);
}

std::string name_of(const GeneralKernel& kernel) {
  const std::string of(name(kernel.dtype));
  switch (kernel.kind) {
    case GeneralKernel::Kind::move: return "move";
    case GeneralKernel::Kind::convert: return "convert " + of;
    case GeneralKernel::Kind::map:
      return fmt::format("{} {}{}", kernel.own == Op::input ? "map" : fusion::info(kernel.own).name,
                         of, kernel.strict ? " strict" : "");
    case GeneralKernel::Kind::along: break;
  }
  return "along " + of;
}

// Whether Accuracy::strict has another function.
bool differs_if_strict(const GeneralKernel& kernel) {
  return kernel.kind == GeneralKernel::Kind::map && kernel.own != Op::input &&
         is_floating(kernel.dtype) && !fusion::info(kernel.own).ieee;
}

}  // namespace

DType map_result(Op op, DType dtype) {
  switch (fusion::info(op).rule) {
    case Rule::compare:
    case Rule::predicate:
    case Rule::logical: return DType::boolean;
    case Rule::random: return DType::f32;
    case Rule::component: return dtype == DType::c64 ? DType::f32 : dtype;
    default: return op == Op::abs && dtype == DType::c64 ? DType::f32 : dtype;
  }
}

DType map_operand(Op op, DType dtype, std::size_t i) {
  const Rule rule = fusion::info(op).rule;
  if (rule == Rule::select && i == 0) return DType::boolean;
  if (rule == Rule::shift && i == 1) return DType::u64;
  return dtype;
}

std::optional<GeneralKernel> general_map(Op op, DType dtype, Accuracy accuracy) {
  if (!is_mapped(fusion::info(op), dtype)) return std::nullopt;
  GeneralKernel kernel{GeneralKernel::Kind::map, dtype, is_costly(op) ? op : Op::input, false};
  kernel.strict = accuracy == Accuracy::strict && differs_if_strict(kernel);
  return kernel;
}

std::uint32_t along_code(Op op, bool in_order) {
  return 2 * static_cast<std::uint32_t>(op) + (in_order ? 1 : 0);
}

KernelRequest general_request(const GeneralKernel& kernel, std::string_view target) {
  KernelRequest request;
  request.function = name_of(kernel);
  request.signature = "general";
  request.text = text_of(kernel);
  request.target = target;
  request.options.accuracy = kernel.strict ? Accuracy::strict : Accuracy::storage;
  request.options.on_miss = OnMiss::fail;
  request.alone = true;  // an entry has the code of its whole translation unit
  request.any_toolchain = true;
  request.form = "general";
  return request;
}

std::vector<GeneralKernel> all_general_kernels() {
  using Kind = GeneralKernel::Kind;
  std::vector<GeneralKernel> all = {{Kind::move, DType::u8, Op::input, false}};
  for (const DTypeInfo& from : kDTypes)
    all.push_back({Kind::convert, from.dtype, Op::input, false});
  for (const DType dtype : kComputed) all.push_back({Kind::along, dtype, Op::input, false});
  for (const DTypeInfo& dtype : kDTypes) {
    for (const fusion::OpInfo& op : fusion::all_ops()) {
      for (const Accuracy accuracy : {Accuracy::storage, Accuracy::strict}) {
        const auto kernel = general_map(op.op, dtype.dtype, accuracy);
        if (kernel && std::ranges::find(all, *kernel) == all.end()) all.push_back(*kernel);
      }
    }
  }
  return all;
}

}  // namespace kiln
