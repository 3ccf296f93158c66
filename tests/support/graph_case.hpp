// Random graphs for the property test of graphs: what is drawn, and how a graph that fails is made
// smaller. Nothing is run or judged here. Everything about a draw follows from one generator.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "fusion/graph/composition.hpp"
#include "fusion/graph/typed_graph.hpp"
#include "fusion/infer/infer.hpp"
#include "kiln/error.hpp"
#include "tests/support/numbers.hpp"

namespace kiln::testing {

/// Arguments by their names in graphs, and the shape that all arrays broadcast to.
struct ArgumentPool {
  Dims shape;
  bool complex = false;  ///< there may be c64
  std::map<std::string, TestInput> arguments;

  fusion::ArgumentType type(const std::string& name) const {
    const TestInput& input = arguments.at(name);
    if (const auto* scalar = std::get_if<Scalar>(&input))
      return {scalar->dtype(), true, scalar->weak()};
    return {std::get<HostArray>(input).dtype, false, false};
  }
  std::vector<fusion::ArgumentType> types(const fusion::Graph& graph) const {
    std::vector<fusion::ArgumentType> types;
    for (const std::string& name : graph.arguments()) types.push_back(type(name));
    return types;
  }
  /// Only the places [begin, begin + size) along an axis.
  void keep(std::size_t axis, std::int64_t begin, std::int64_t size) {
    for (auto& [name, input] : arguments) {
      auto* const array = std::get_if<HostArray>(&input);
      const std::size_t missing = array == nullptr ? 0 : shape.size() - array->shape.size();
      if (array == nullptr || axis < missing || array->shape[axis - missing] == 1) continue;
      const std::int64_t moved = array->offset + begin * array->strides[axis - missing];
      const std::int64_t bytes =
          is_packed(array->dtype) ? moved >> 1 : moved * bits(array->dtype) / 8;
      array->offset = is_packed(array->dtype) ? moved & 1 : 0;
      array->first = static_cast<std::size_t>(static_cast<std::int64_t>(array->first) + bytes);
      array->shape[axis - missing] = size;
    }
    shape[axis] = size;
  }
};

struct GraphCase {
  fusion::Graph graph;
  ArgumentPool pool;
};

// ---- Taking graphs apart -----------------------------------------------------------------------

/// Adds `id` of `from` and what it depends on to `to`. Where `replace` names a node, its second
/// stands in its place. `made` remembers what was added.
inline fusion::NodeId copy_node(
    const fusion::Graph& from, fusion::NodeId id, fusion::Graph& to,
    std::map<fusion::NodeId, fusion::NodeId>& made,
    std::optional<std::pair<fusion::NodeId, fusion::NodeId>> replace = {}) {
  if (replace && replace->first == id) id = replace->second;
  if (const auto found = made.find(id); found != made.end()) return found->second;
  fusion::Node node = from[id];
  if (node.op == fusion::Op::input) return made[id] = to.argument(from.arguments()[node.payload]);
  for (std::size_t i = 0; i < node.arity; ++i)
    node.operands[i] = copy_node(from, node.operands[i], to, made, replace);
  return made[id] = to.add(node);
}

/// The graph of `outputs` alone; those that a replacement made leaves are left out.
inline fusion::Graph rebuild(
    const fusion::Graph& graph, const std::vector<fusion::NodeId>& outputs,
    std::optional<std::pair<fusion::NodeId, fusion::NodeId>> replace = {}) {
  fusion::Graph result;
  std::map<fusion::NodeId, fusion::NodeId> made;
  for (const fusion::NodeId output : outputs) {
    const fusion::NodeId id = copy_node(graph, output, result, made, replace);
    const bool twice = std::ranges::find(result.outputs(), id) != result.outputs().end();
    if (result[id].arity > 0 && !twice) result.add_output(id);
  }
  return result;
}

/// A case for which `fails` still holds and no single step makes smaller: an output alone or left
/// out, a node replaced by one of its operands, half of an axis.
inline GraphCase shrink(GraphCase item, const std::function<bool(const GraphCase&)>& fails) {
  const auto take = [&](fusion::Graph graph) {
    if (graph.outputs().empty()) return false;
    GraphCase candidate{std::move(graph), item.pool};
    if (!fails(candidate)) return false;
    item = std::move(candidate);
    return true;
  };
  const auto without_outputs = [&] {
    const std::vector<fusion::NodeId> all = item.graph.outputs();
    if (all.size() < 2) return false;
    for (const fusion::NodeId output : all)
      if (take(rebuild(item.graph, {output}))) return true;
    for (std::size_t parts = 2; parts <= all.size(); parts *= 2) {
      for (std::size_t part = 0; part < parts; ++part) {
        std::vector<fusion::NodeId> kept;
        for (std::size_t i = 0; i < all.size(); ++i)
          if (i * parts / all.size() != part) kept.push_back(all[i]);
        if (kept.size() < all.size() && take(rebuild(item.graph, kept))) return true;
      }
    }
    return false;
  };
  const auto without_node = [&] {
    for (fusion::NodeId id = static_cast<fusion::NodeId>(item.graph.nodes().size()); id-- > 0;) {
      for (const fusion::NodeId operand : item.graph[id].inputs())
        if (take(rebuild(item.graph, item.graph.outputs(), {{id, operand}}))) return true;
    }
    return false;
  };
  const auto smaller_shape = [&] {
    for (std::size_t axis = 0; axis < item.pool.shape.size(); ++axis) {
      const std::int64_t size = item.pool.shape[axis];
      if (size < 2) continue;
      const std::int64_t half = size / 2;
      for (const auto& [begin, count] : {std::pair{std::int64_t{0}, half}, {half, size - half}}) {
        GraphCase candidate = item;
        candidate.pool.keep(axis, begin, count);
        if (!fails(candidate)) continue;
        item = std::move(candidate);
        return true;
      }
    }
    return false;
  };
  while (without_outputs() || without_node() || smaller_shape()) continue;
  return item;
}

// ---- Drawing -----------------------------------------------------------------------------------

class GraphDraw {
 public:
  explicit GraphDraw(std::uint64_t seed) : random_(seed) {}

  ArgumentPool pool() {
    ArgumentPool pool;
    complex_ = pool.complex = below(6) == 0;
    const DType favourite = any_dtype();  // so that chains of one dtype are not rare
    pool.shape = Dims(1 + below(3));
    std::int64_t room = 1 + static_cast<std::int64_t>(below(200));
    for (std::int64_t& extent : pool.shape) {
      extent = 1 + static_cast<std::int64_t>(below(static_cast<std::size_t>(
                       std::min<std::int64_t>(pool.shape.size() == 1 ? 200 : 17, room))));
      room /= extent;
    }
    for (std::size_t i = 0; i < 8; ++i)
      pool.arguments.emplace("a" + std::to_string(i),
                             array(pool.shape, below(2) == 0 ? favourite : any_dtype()));
    for (std::size_t i = 0; i < 4; ++i) pool.arguments.emplace("s" + std::to_string(i), scalar());
    return pool;
  }

  /// Up to twelve ops on some arguments of the pool that inference takes. Every value is an output
  /// that `shown` wants, half of the others, and the last.
  fusion::Graph graph(const ArgumentPool& pool, Rounding rounding,
                      const std::function<bool(const fusion::Node&)>& shown) {
    fusion::Graph graph;
    std::vector<fusion::NodeId> values;
    for (std::size_t i = 1 + below(3); i-- > 0;)
      values.push_back(graph.argument("a" + std::to_string(below(8))));
    for (std::size_t i = below(3); i-- > 0;)
      values.push_back(graph.argument("s" + std::to_string(below(4))));
    const std::size_t wanted = 1 + std::min(below(12), below(12));
    for (std::size_t ops = 0, tries = 0; ops < wanted && tries < 200; ++tries) {
      fusion::Graph longer = graph;
      try {
        const fusion::NodeId id = op(longer, values);
        longer.add_output(id);
        fusion::infer(longer, pool.types(longer), {}, rounding, "draw");
        fusion::Graph next;  // the same without the output
        std::map<fusion::NodeId, fusion::NodeId> made;
        for (fusion::NodeId& value : values) value = copy_node(longer, value, next, made);
        values.push_back(copy_node(longer, id, next, made));
        graph = std::move(next);
        ++ops;
      } catch (const Error& error) {
        if (error.code() != Code::invalid_argument) throw;
      }
    }
    std::vector<fusion::NodeId> outputs;
    for (fusion::NodeId id = 0; id < graph.nodes().size(); ++id) {
      const fusion::Node& node = graph[id];
      if (node.arity > 0 && (shown(node) || below(2) == 0 || id == values.back()))
        outputs.push_back(id);
    }
    return rebuild(graph, outputs);
  }

  /// An array of the shape, or of one that broadcasts to it, with any strides and values.
  HostArray array(const Dims& full, DType dtype) {
    Dims shape = full;
    for (std::int64_t& extent : shape)
      if (below(5) == 0) extent = 1;
    HostArray array = layout(dtype, std::move(shape));
    std::vector<std::uint64_t> values =
        sample(dtype, static_cast<std::size_t>(array.size()) + 256, random_());
    std::shuffle(values.begin(), values.end(), random_);
    for (std::int64_t n = 0; n < array.size(); ++n)
      set_bits(array, place_of(array, n), values[static_cast<std::size_t>(n)]);
    return array;
  }

  /// Axes in any order, forwards or backwards, with or without gaps.
  HostArray layout(DType dtype, Dims shape) {
    std::vector<std::size_t> order(shape.size());
    std::iota(order.rbegin(), order.rend(), std::size_t{0});
    const bool plain = below(2) == 0;
    if (!plain) std::shuffle(order.begin(), order.end(), random_);
    Dims strides(shape.size());
    std::int64_t step = plain || below(2) == 0 ? 1 : 2;
    for (const std::size_t axis : order) {
      strides[axis] = plain || below(3) != 0 ? step : -step;
      step *= shape[axis] + static_cast<std::int64_t>(plain ? 0 : below(3) / 2);
    }
    const std::int64_t lead = is_packed(dtype) ? static_cast<std::int64_t>(below(3)) : 0;
    return HostArray::strided(dtype, std::move(shape), std::move(strides), lead);
  }

  std::size_t below(std::size_t end) { return random_() % end; }

 private:
  DType any_dtype() {
    using enum DType;
    static constexpr DType kStored[] = {f8e4m3, f8e5m2, f8e4m3fnuz, f8e5m2fnuz, f4e2m1, u4, i4};
    if (complex_ && below(3) == 0) return c64;
    return below(7) == 0 ? kStored[below(std::size(kStored))] : computed_dtype();
  }

  DType computed_dtype() {
    using enum DType;
    static constexpr DType kAll[] = {boolean, u8,  u16, u32,  u64,  i8,  i16, i32,
                                     i64,     f16, f16, bf16, bf16, f32, f32, f64};
    return kAll[below(std::size(kAll))];
  }

  Scalar scalar() {
    const DType dtype = computed_dtype();
    const std::uint64_t pattern = sample(dtype, 64, random_())[below(64)];
    const double value = fusion::decode(pattern, dtype);
    const auto whole = static_cast<std::int64_t>(pattern << (64 - bits(dtype))) >>
                       (kind(dtype) == Kind::signed_integer ? 64 - bits(dtype) : 0);
    const std::int64_t integer =
        kind(dtype) == Kind::signed_integer ? whole : static_cast<std::int64_t>(pattern);
    if (below(2) == 0) {
      return is_floating(dtype) ? Scalar::typed(value, dtype) : Scalar::typed(integer, dtype);
    }
    if (is_floating(dtype)) return {value};
    if (dtype == DType::boolean) return {pattern != 0};
    return {static_cast<std::int64_t>(pattern % 100)};  // fits the dtype of every partner
  }

  fusion::NodeId literal(fusion::Graph& graph) {
    const std::uint64_t any = random_();
    switch (below(6)) {
      case 0: return graph.constant(fusion::Literal::boolean(any % 2 != 0));
      case 1:
      case 2:
        return graph.constant(fusion::Literal::integer(static_cast<std::int64_t>(any % 9) - 3));
      case 3: return graph.constant(fusion::Literal::integer(static_cast<std::int64_t>(any)));
      default: {
        const std::uint64_t pattern = sample(DType::f64, 64, any)[below(64)];
        return graph.constant(fusion::Literal::floating(fusion::decode(pattern, DType::f64)));
      }
    }
  }

  fusion::NodeId operand(fusion::Graph& graph, const std::vector<fusion::NodeId>& values) {
    if (below(7) == 0) return literal(graph);
    if (below(40) == 0) return graph.iota(fusion::kAllAxes, DType::i32);
    // The newest ones more often, so that chains are long.
    return values[values.size() - 1 - std::min(below(values.size()), below(values.size()))];
  }

  fusion::NodeId op(fusion::Graph& graph, const std::vector<fusion::NodeId>& values) {
    const std::size_t choice = below(24);
    if (choice < 3) return graph.cast(operand(graph, values), any_dtype());
    if (choice == 3) return graph.bitcast(operand(graph, values), any_dtype());
    std::vector<fusion::NodeId> operands;
    const auto draw = [&](int count) {
      while (static_cast<int>(operands.size()) < count) operands.push_back(operand(graph, values));
    };
    if (choice == 4 && below(2) == 0) {
      const std::span all = fusion::all_compositions();
      const fusion::Composition& composition = all[below(all.size())];
      draw(composition.min_arity);
      return composition.build(graph, operands);
    }
    if (choice < 12) {
      static constexpr fusion::Op kArithmetic[] = {fusion::Op::add, fusion::Op::sub,
                                                   fusion::Op::mul, fusion::Op::div};
      draw(2);
      return graph.apply(kArithmetic[choice % 4], operands);
    }
    const std::span all = fusion::all_ops();
    const fusion::OpInfo* chosen = nullptr;
    do {
      chosen = &all[below(all.size())];
      // Functions take long to compile, and other tests try each of them on far more values.
    } while (chosen->arity == 0 || chosen->rule == fusion::Rule::convert ||
             (chosen->f32.libm > 0.5 && below(4) != 0));
    draw(chosen->arity);
    return graph.apply(chosen->op, operands);
  }

  std::mt19937_64 random_;
  bool complex_ = false;
};

}  // namespace kiln::testing
