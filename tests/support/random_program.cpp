#include "tests/support/random_program.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/composition.hpp"
#include "fusion/graph/dtype_lattice.hpp"
#include "fusion/graph/shape_ops.hpp"

namespace kiln::testing {
namespace {

using fusion::Literal;
using fusion::NodeId;
using fusion::Op;

// A value with what later operations must know of it.
struct Drawn {
  NodeId id = 0;
  DType dtype = DType::f32;
  Dims shape;
  double most = 0;  ///< no element is larger
};

std::size_t size_of(const Dims& shape) {
  std::size_t size = 1;
  for (const std::int64_t extent : shape) size *= static_cast<std::size_t>(extent);
  return size;
}

double largest_of(DType dtype) { return std::ldexp(1.0, bits(dtype)); }

class Draw {
 public:
  Draw(std::uint64_t seed, const ProgramKind& kind) : kind_(kind), random_(seed) {}

  RandomProgram run() {
    draw_base();
    const std::size_t arguments = 2 + below(4);
    for (std::size_t i = 0; i < arguments; ++i) argument(i);
    while (values_.size() < kind_.nodes + arguments) operation();
    add_outputs();
    return {std::move(graph_), std::move(dtypes_), std::move(shapes_)};
  }

 private:
  std::size_t below(std::size_t end) { return static_cast<std::size_t>(random_() % end); }

  template <class T>
  T one_of(std::initializer_list<T> choices) {
    return choices.begin()[below(choices.size())];
  }

  // -- Arguments

  void draw_base() {
    const std::size_t rank = 1 + below(3);
    std::size_t room = kind_.elements;
    std::vector<std::int64_t> base;
    for (std::size_t k = 0; k < rank; ++k) {
      const std::int64_t wanted = one_of<std::int64_t>({2, 3, 5, 6, 7, 8, 10, 16, 17, 31, 64, 1});
      const std::int64_t rest = k + 1 == rank && below(4) == 0 ? 1 << 20 : wanted;
      base.push_back(std::max<std::int64_t>(1, std::min(rest, static_cast<std::int64_t>(room))));
      room /= static_cast<std::size_t>(base.back());
    }
    if (kind_.empty && below(25) == 0) base[below(rank)] = 0;
    base_ = Dims(std::span<const std::int64_t>(base));
  }

  void argument(std::size_t i) {
    Dims shape = base_;
    const std::size_t choice = i == 0 ? 0 : below(8);
    if (choice >= 4 && choice < 6) shape[below(shape.size())] = 1;
    if (choice == 6 && shape.size() > 1) {
      shape = Dims(std::span<const std::int64_t>(base_.data() + 1, base_.size() - 1));
    }
    if (choice == 7) {
      Dims longer(shape.size() + 1, 1);
      std::ranges::copy(shape, longer.begin() + 1);
      shape = longer;
    }
    using enum DType;
    DType dtype = one_of({i32, i8, u8, i64, boolean, i16, u16, u32, u64, u4, i4});
    if (kind_.floats && below(4) != 0) {
      dtype = one_of({f32, f32, f32, f16, bf16, bf16, f64, f8e4m3, f8e5m2, f4e2m1});
    }
    if (kind_.packed && below(3) != 0)
      dtype = kind_.floats ? one_of({u4, i4, f4e2m1}) : one_of({u4, i4});
    dtypes_.push_back(dtype);
    shapes_.push_back(shape);
    const NodeId id = graph_.argument("a" + std::to_string(i));
    // Of a dtype that only stores, what is computed with is known by another name.
    const DType known = info(dtype).storage_only ? fusion::compute_dtype(dtype) : dtype;
    values_.push_back({id, known, shape, is_floating(dtype) ? 4.0 : 9.0});
  }

  // -- Choosing values

  // Recent values more often, so that graphs are deep as well as wide.
  const Drawn& pick() {
    const std::size_t window =
        std::min<std::size_t>(values_.size(), below(4) == 0 ? values_.size() : 8);
    return values_[values_.size() - 1 - below(window)];
  }

  // Another value that broadcasts with this one; itself if none was found.
  Drawn partner(const Drawn& value) {
    for (int tries = 0; tries < 6; ++tries) {
      const Drawn& other = pick();
      const auto shape = fusion::broadcast(value.shape, other.shape);
      if (shape && size_of(*shape) <= 2 * kind_.elements) return other;
    }
    return value;
  }

  // -- Building

  Drawn apply(Op op, std::initializer_list<Drawn> operands, DType dtype, double most) {
    std::vector<NodeId> ids;
    Dims shape = operands.begin()->shape;
    for (const Drawn& operand : operands) {
      ids.push_back(operand.id);
      shape = *fusion::broadcast(shape, operand.shape);
    }
    if (is_integer(dtype)) most = std::min(most, largest_of(dtype));
    return {graph_.apply(op, ids), dtype, shape, most};
  }

  Drawn same(Op op, const Drawn& x, double most) { return apply(op, {x}, x.dtype, most); }

  Drawn number(double value, DType beside) {
    const Literal literal = is_floating(beside)
                                ? Literal::floating(value)
                                : Literal::integer(static_cast<std::int64_t>(value));
    return {graph_.constant(literal), beside, {}, std::fabs(value)};
  }

  Drawn cast(const Drawn& x, DType dtype) {
    const double most = is_integer(dtype) ? std::min(x.most, largest_of(dtype)) : x.most;
    const bool wraps = x.most > largest_of(dtype) / 2 || kind(dtype) == Kind::unsigned_integer;
    Drawn result{graph_.cast(x.id, dtype), dtype, x.shape, most};
    if (is_integer(dtype) && wraps) result.most = largest_of(dtype);
    if (info(dtype).storage_only) result.dtype = fusion::compute_dtype(dtype);
    return result;
  }

  // No larger than `limit`.
  Drawn bounded(const Drawn& x, double limit) {
    if (x.most <= limit) return x;
    const bool is_unsigned = kind(x.dtype) == Kind::unsigned_integer;
    if (!is_floating(x.dtype)) limit = std::floor(limit);
    return apply(Op::clip, {x, number(is_unsigned ? 0 : -limit, x.dtype), number(limit, x.dtype)},
                 x.dtype, limit);
  }

  // Not a bool.
  Drawn numeric(const Drawn& x) {
    using enum DType;
    if (x.dtype != boolean) return x;
    return cast(x, kind_.floats ? one_of({i32, f32, bf16, u8, i64}) : one_of({i32, u8, i64, i16}));
  }

  Drawn real(const Drawn& given, double limit) {
    using enum DType;
    const Drawn x = bounded(numeric(given), std::min(limit, 100.0));
    if (is_floating(x.dtype)) return x;
    if (below(2) == 0) return cast(x, one_of({f32, f32, f16, bf16, f64}));
    return apply(Op::mul, {x, number(0.5, f32)}, f32, x.most);
  }

  // A float of moderate size goes on; a larger one is squashed.
  void keep(const Drawn& x) {
    if (!is_floating(x.dtype) || x.most <= 64 || (below(4) == 0 && x.most < 1000)) {
      values_.push_back(x);
      return;
    }
    values_.push_back(below(3) == 0 ? apply(Op::tanh, {x}, x.dtype, 1) : bounded(x, 16));
  }

  DType common(const Drawn& a, const Drawn& b) { return fusion::promote(a.dtype, b.dtype); }

  // -- Operations

  void operation() {
    const Drawn x = pick();
    if (kind_.packed && below(4) == 0) return run_along(x);
    if (kind_.views && below(5) == 0) return view(x);
    switch (below(16)) {
      case 0:
      case 1:
      case 2:
      case 3: return arithmetic(x);
      case 4:
      case 5: return function(x);
      case 6: return compare(x);
      case 7: return choose(x);
      case 8: return convert(x);
      case 9:
      case 10:
      case 11: return reduce(x);
      case 12: return kind_.floats ? normalise(x) : reduce(x);
      case 13: return run_along(x);
      case 14: return count(x);
      default: return kind_.floats ? function(x) : arithmetic(x);
    }
  }

  void boolean_arithmetic(const Drawn& a) {
    Drawn b = partner(a);
    if (b.dtype != DType::boolean) b = cast(b, DType::boolean);
    keep(apply(one_of({Op::add, Op::mul, Op::maximum, Op::minimum, Op::fmax, Op::fmin}), {a, b},
               DType::boolean, 1));
  }

  void arithmetic(const Drawn& first) {
    if (first.dtype == DType::boolean && below(2) == 0) return boolean_arithmetic(first);
    Drawn a = numeric(first);
    Drawn b = numeric(partner(first));
    if (below(8) == 0) b = number(one_of({1.0, 2.0, 3.0, 0.0}), a.dtype);
    const DType dtype = b.shape.empty() ? a.dtype : common(a, b);
    if (is_floating(dtype)) return real_arithmetic(bounded(a, 50), bounded(b, 50), dtype);
    switch (below(9)) {
      case 0: return keep(apply(Op::add, {a, b}, dtype, a.most + b.most));
      case 1: return keep(apply(Op::sub, {a, b}, dtype, largest_of(dtype)));
      case 2: return keep(apply(Op::mul, {a, b}, dtype, a.most * b.most));
      case 3: return keep(apply(Op::maximum, {a, b}, dtype, std::max(a.most, b.most)));
      case 4: return keep(apply(Op::minimum, {a, b}, dtype, largest_of(dtype)));
      case 5:
        return keep(apply(one_of({Op::bitwise_and, Op::bitwise_or, Op::bitwise_xor}), {a, b}, dtype,
                          largest_of(dtype)));
      case 6: {
        const Drawn divisor = apply(Op::maximum, {b, number(1, b.dtype)}, b.dtype, b.most);
        return keep(apply(one_of({Op::remainder, Op::floor_divide, Op::fmod}), {a, divisor}, dtype,
                          largest_of(dtype)));
      }
      case 7:
        return keep(apply(one_of({Op::left_shift, Op::right_shift}),
                          {a, number(static_cast<double>(below(4)), a.dtype)}, a.dtype,
                          largest_of(a.dtype)));
      default:
        return keep(
            same(one_of({Op::neg, Op::abs, Op::square, Op::sign, Op::popcount, Op::bitwise_not}), a,
                 largest_of(a.dtype)));
    }
  }

  void real_arithmetic(const Drawn& a, const Drawn& b, DType dtype) {
    switch (below(10)) {
      case 0:
      case 1: return keep(apply(Op::add, {a, b}, dtype, a.most + b.most));
      case 2:
      case 3: return keep(apply(Op::sub, {a, b}, dtype, a.most + b.most));
      case 4:
      case 5: return keep(apply(Op::mul, {a, b}, dtype, a.most * b.most));
      case 6:
        return keep(
            apply(one_of({Op::maximum, Op::minimum}), {a, b}, dtype, std::max(a.most, b.most)));
      case 7: {
        const Drawn divisor = away_from_zero(real(b, 50));
        return keep(
            apply(Op::div, {a, divisor}, fusion::promote(a.dtype, divisor.dtype), 2 * a.most));
      }
      case 8: {
        const Drawn x = real(a, 8);
        const Drawn y = real(b, 3);
        return keep(apply(Op::power, {away_from_zero(x), y}, fusion::promote(x.dtype, y.dtype),
                          std::pow(8.5, 3.0)));
      }
      default: {
        const Drawn c = bounded(numeric(partner(a)), 50);
        const auto shape = fusion::broadcast(*fusion::broadcast(a.shape, b.shape), c.shape);
        if (!shape || size_of(*shape) > 2 * kind_.elements) return;
        return keep(
            apply(Op::fma, {a, b, c}, fusion::promote(dtype, c.dtype), a.most * b.most + c.most));
      }
    }
  }

  // At least one half.
  Drawn away_from_zero(const Drawn& x) {
    return apply(Op::add, {same(Op::abs, x, x.most), number(0.5, x.dtype)}, x.dtype, x.most + 0.5);
  }

  void function(const Drawn& given) {
    if (!kind_.floats) return arithmetic(given);
    const Drawn x = real(given, 50);
    const auto called = [&](std::string_view name, double most) {
      const NodeId id = fusion::call(graph_, name, std::span(&x.id, 1));
      keep({id, x.dtype, x.shape, most});
    };
    switch (below(14)) {
      case 0: {
        const Drawn small = bounded(x, 4);
        return keep(same(one_of({Op::exp, Op::exp2, Op::expm1}), small, 55));
      }
      case 1: return keep(same(one_of({Op::tanh, Op::erf, Op::sigmoid}), x, 1));
      case 2: return keep(same(one_of({Op::sin, Op::cos}), x, 1));
      case 3: return keep(same(one_of({Op::sqrt, Op::rsqrt, Op::log}), away_from_zero(x), 8));
      case 4: return keep(same(Op::log1p, same(Op::abs, x, x.most), 8));
      case 5: return keep(same(one_of({Op::floor, Op::ceil, Op::round, Op::trunc}), x, x.most + 1));
      case 6: return keep(same(one_of({Op::atan, Op::asinh, Op::cbrt}), x, 8));
      case 7: return keep(same(one_of({Op::neg, Op::abs, Op::sign}), x, x.most));
      case 8: return keep(same(Op::square, x, x.most * x.most));
      case 9: return called(below(2) == 0 ? "silu" : "gelu", x.most);
      case 10: return called(below(2) == 0 ? "softplus" : "mish", x.most + 1);
      case 11: return called(below(2) == 0 ? "relu" : "hardswish", x.most);
      case 12: return keep(same(Op::reciprocal, away_from_zero(x), 2));
      default: return keep(same(one_of({Op::tanh, Op::cosh}), bounded(x, 4), 30));
    }
  }

  Drawn condition(const Drawn& given) {
    const Drawn a = numeric(given);
    const Op op = one_of(
        {Op::less, Op::less_equal, Op::greater, Op::greater_equal, Op::equal, Op::not_equal});
    if (below(2) == 0) return apply(op, {a, number(1, a.dtype)}, DType::boolean, 1);
    return apply(op, {a, numeric(partner(given))}, DType::boolean, 1);
  }

  void compare(const Drawn& x) {
    const Drawn yes = condition(x);
    if (below(2) == 0) return keep(yes);
    if (below(3) == 0) return keep(apply(Op::logical_not, {yes}, DType::boolean, 1));
    keep(apply(one_of({Op::logical_and, Op::logical_or, Op::logical_xor}), {yes, partner(yes)},
               DType::boolean, 1));
  }

  void choose(const Drawn& x) {
    const Drawn yes = x.dtype == DType::boolean ? x : condition(x);
    const Drawn a = numeric(partner(yes));
    const auto shape = fusion::broadcast(yes.shape, a.shape);
    if (below(2) == 0) {
      return keep(apply(Op::where, {yes, a, number(1, a.dtype)}, a.dtype, std::max(1.0, a.most)));
    }
    const Drawn b = numeric(partner(a));
    const auto wider = fusion::broadcast(*shape, b.shape);
    if (!wider || size_of(*wider) > 2 * kind_.elements) return;
    const DType dtype = common(a, b);
    const bool mixed = is_floating(dtype);
    const Drawn left = mixed ? bounded(a, 100) : a;
    const Drawn right = mixed ? bounded(b, 100) : b;
    keep(apply(Op::where, {yes, left, right}, dtype,
               mixed ? std::max(left.most, right.most) : largest_of(dtype)));
  }

  void convert(const Drawn& x) {
    using enum DType;
    DType dtype = one_of({i32, i8, u8, i64, boolean, i16, u16, u32, u64});
    if (kind_.floats && below(3) != 0) dtype = one_of({f32, f16, bf16, f64, f8e4m3, f8e5m2});
    const bool changes = is_floating(x.dtype) != is_floating(dtype) && dtype != boolean;
    keep(cast(changes && x.dtype != boolean ? bounded(x, 100) : x, dtype));
  }

  // One axis, or two, or all.
  std::vector<int> axes_of(const Drawn& x) {
    const auto rank = static_cast<int>(x.shape.size());
    const int first = static_cast<int>(below(x.shape.size()));
    std::vector<int> axes{below(2) == 0 ? first : first - rank};
    const int second = (first + 1) % rank;
    if (rank > 1 && below(5) == 0) axes.push_back(second);
    return axes;
  }

  Drawn reduced(const Drawn& x, NodeId id, const std::vector<int>& axes, DType dtype, double most) {
    Dims shape = x.shape;
    const auto rank = static_cast<int>(shape.size());
    for (const int axis : axes) shape[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)] = 1;
    if (is_integer(dtype)) most = std::min(most, largest_of(dtype));
    return {id, dtype, shape, most};
  }

  static std::size_t row_of(const Drawn& x, const std::vector<int>& axes) {
    const auto rank = static_cast<int>(x.shape.size());
    std::size_t row = 1;
    for (const int axis : axes) {
      row *= static_cast<std::size_t>(
          x.shape[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)]);
    }
    return row;
  }

  static DType accumulated(DType dtype) {
    if (is_floating(dtype)) return dtype;
    return kind(dtype) == Kind::unsigned_integer ? DType::u64 : DType::i64;
  }

  void reduce(const Drawn& given) {
    if (given.shape.empty()) return arithmetic(given);
    const std::vector<int> axes = axes_of(given);
    const std::size_t row = row_of(given, axes);
    const auto length = static_cast<double>(row);
    const auto with = [&](Op op, const Drawn& x, DType dtype, double most) {
      const NodeId id = graph_.reduce(op, x.id, fusion::axis_set(axes, "random"));
      keep(reduced(x, id, axes, dtype, most));
    };
    switch (below(row == 0 ? 4 : 12)) {
      case 0:
      case 1: {
        const Drawn x =
            is_floating(given.dtype) ? bounded(given, 30000 / std::max(length, 1.0)) : given;
        return with(Op::sum, x, accumulated(x.dtype), x.most * length);
      }
      case 2:
        return with(one_of({Op::reduce_any, Op::reduce_all}), condition_of_shape(given),
                    DType::boolean, 1);
      case 3: {
        const NodeId bit = graph_.cast(given.id, DType::boolean);
        return with(Op::sum, {bit, DType::boolean, given.shape, 1}, DType::i64, length);
      }
      case 4:
      case 5: {
        const Drawn& x = given;
        return with(one_of({Op::reduce_max, Op::reduce_min}), x, x.dtype,
                    is_integer(x.dtype) ? largest_of(x.dtype) : x.most);
      }
      case 6:
      case 7: return with(one_of({Op::argmax, Op::argmin}), given, DType::i64, length);
      case 8: {
        Drawn x = numeric(given);
        if (is_floating(x.dtype) && row > 8) x = cast(bounded(x, 100), DType::i32);
        if (is_floating(x.dtype)) x = bounded(x, 2);
        return with(Op::prod, x, accumulated(x.dtype), std::pow(x.most, length));
      }
      default: {
        if (!kind_.floats) return with(Op::sum, given, accumulated(given.dtype), 1e9);
        const Drawn x = real(given, 50);
        return with(Op::mean, x, x.dtype, x.most);
      }
    }
  }

  Drawn condition_of_shape(const Drawn& given) {
    const Drawn a = numeric(given);
    return apply(Op::greater, {a, number(1, a.dtype)}, DType::boolean, 1);
  }

  // What is composed of reductions.
  void normalise(const Drawn& given) {
    if (given.shape.empty()) return function(given);
    const std::vector<int> axes = axes_of(given);
    const std::size_t row = row_of(given, axes);
    if (row == 0) return reduce(given);
    const Drawn x = real(given, 8);
    const auto called = [&](std::string_view name, std::span<const NodeId> operands) {
      return fusion::call(graph_, name, operands);
    };
    std::vector<NodeId> operands{x.id};
    for (const int axis : axes) operands.push_back(graph_.constant(Literal::integer(axis)));
    const auto along = [&](std::string_view name, double most) {
      keep({called(name, operands), x.dtype, x.shape, most});
    };
    const auto over = [&](std::string_view name, double most) {
      keep(reduced(x, called(name, operands), axes, x.dtype, most));
    };
    switch (below(8)) {
      case 0: return along("softmax", 1);
      case 1: return along("log_softmax", 32);
      case 2: return over("var", 64);
      case 3: return over("std", 8);
      case 4: return over("norm2", 8 * std::sqrt(static_cast<double>(row)));
      case 5: return over("logsumexp", 8 + std::log(static_cast<double>(row)));
      default: {
        operands = {x.id, graph_.constant(Literal::floating(0.01))};
        if (x.shape[x.shape.size() - 1] == 0) return;
        return along(below(2) == 0 ? "rms_norm" : "layer_norm", 64);
      }
    }
  }

  void run_along(const Drawn& given) {
    if (given.shape.empty()) return arithmetic(given);
    const auto rank = static_cast<int>(given.shape.size());
    const int axis = static_cast<int>(below(given.shape.size()));
    const auto length = static_cast<double>(given.shape[static_cast<std::size_t>(axis)]);
    const auto with = [&](Op op, const Drawn& x, DType dtype, double most) {
      const int written = below(2) == 0 ? axis : axis - rank;
      const NodeId id = graph_.reduce(op, x.id, fusion::axis_set({written}, "random"));
      if (is_integer(dtype)) most = std::min(most, largest_of(dtype));
      keep({id, dtype, x.shape, most});
    };
    const Drawn x = numeric(given);
    switch (below(4)) {
      case 0: return with(Op::cummax, given, given.dtype, given.most);
      case 1: {
        if (is_floating(x.dtype) && length > 8) break;
        const Drawn small = is_floating(x.dtype) ? bounded(x, 2) : x;
        return with(Op::cumprod, small, accumulated(x.dtype), std::pow(small.most, length));
      }
      default: break;
    }
    const Drawn small = is_floating(x.dtype) ? bounded(x, 30000 / std::max(length, 1.0)) : given;
    with(Op::cumsum, small, accumulated(small.dtype), small.most * length);
  }

  // Beside a value: a count alone has no shape.
  void count(const Drawn& given) {
    const Drawn x = numeric(given);
    if (x.shape.empty()) return arithmetic(given);
    if (below(2) == 0) {
      const NodeId operands[] = {graph_.constant(Literal::integer(3)),
                                 graph_.constant(Literal::integer(static_cast<int>(below(9))))};
      const Drawn drawn{fusion::call(graph_, "uniform", operands), DType::f32, {}, 1};
      const Drawn yes = apply(Op::less, {drawn, number(0.5, DType::f32)}, DType::boolean, 1);
      return keep(apply(Op::where, {yes, x, number(1, x.dtype)}, x.dtype, std::max(x.most, 1.0)));
    }
    const std::int64_t axis = below(3) == 0 ? fusion::kAllAxes : -1;
    const auto most = static_cast<double>(2 * kind_.elements);
    const Drawn places{graph_.iota(axis, DType::i32), DType::i32, {}, most};
    const DType dtype = common(x, places);
    const Drawn limited = is_floating(dtype) ? bounded(x, 100) : x;
    keep(apply(one_of({Op::add, Op::maximum}), {limited, places}, dtype, limited.most + most));
  }

  // -- Shape ops

  void view(const Drawn& x) {
    const std::size_t rank = x.shape.size();
    if (rank == 0 || size_of(x.shape) > kind_.elements) return arithmetic(x);
    const auto axis = static_cast<std::int64_t>(below(rank));
    const std::int64_t written = below(2) == 0 ? axis : axis - static_cast<std::int64_t>(rank);
    const std::int64_t extent = x.shape[static_cast<std::size_t>(axis)];
    switch (below(7)) {
      case 0:
      case 1: {
        const std::int64_t step = one_of<std::int64_t>({1, 1, 2, -1, 3});
        fusion::ShapeList list{written, static_cast<std::int64_t>(below(3)),
                               below(2) == 0 ? fusion::kOmitted : extent, step};
        if (step < 0) std::swap(list[1], list[2]);
        return moved(Op::slice, {x}, std::move(list));
      }
      case 2:
        if (below(2) == 0) return moved(Op::transpose, {x}, {});
        return moved(Op::swapaxes, {x}, {written, static_cast<std::int64_t>(below(rank))});
      case 3: {
        if (size_of(x.shape) == 0) return arithmetic(x);
        if (below(3) == 0 && x.shape[rank - 1] % 2 == 0) return moved(Op::reshape, {x}, {-1, 2});
        if (below(2) == 0) return moved(Op::reshape, {x}, {-1});
        return moved(Op::reshape, {x}, {x.shape[0], -1});
      }
      case 4:
        if (extent == 1 && rank > 1) return moved(Op::squeeze, {x}, {written});
        if (rank < 4) return moved(Op::expand_dims, {x}, {written});
        return arithmetic(x);
      default: return concat(x, written, static_cast<std::size_t>(axis));
    }
  }

  void concat(const Drawn& x, std::int64_t written, std::size_t axis) {
    for (int tries = 0; tries < 6; ++tries) {
      const Drawn other = pick();
      if (other.shape.size() != x.shape.size()) continue;
      bool fits = true;
      for (std::size_t k = 0; k < x.shape.size(); ++k) {
        fits = fits && (k == axis || x.shape[k] == other.shape[k]);
      }
      const bool small = size_of(x.shape) + size_of(other.shape) <= kind_.elements;
      if (!fits || !small) continue;
      if (x.dtype == other.dtype) return moved(Op::concat, {x, other}, {written});
      const DType dtype = common(x, other);
      const bool mixed = is_floating(dtype);
      return moved(Op::concat,
                   {mixed ? bounded_if_number(x) : x, mixed ? bounded_if_number(other) : other},
                   {written});
    }
    arithmetic(x);
  }

  Drawn bounded_if_number(const Drawn& x) {
    return x.dtype == DType::boolean ? x : bounded(x, 100);
  }

  void moved(Op op, const std::vector<Drawn>& operands, fusion::ShapeList list) {
    std::vector<NodeId> ids;
    std::vector<Dims> shapes;
    DType dtype = operands[0].dtype;
    double most = 0;
    for (const Drawn& operand : operands) {
      ids.push_back(operand.id);
      shapes.push_back(operand.shape);
      dtype = fusion::promote(dtype, operand.dtype);
      most = std::max(most, operand.most);
    }
    const Dims shape = fusion::result_shape(op, list, shapes, "random");
    if (size_of(shape) == 0 && !kind_.empty) return;
    if (operands.size() > 1 && is_integer(dtype)) most = largest_of(dtype);
    values_.push_back({graph_.shape_op(op, ids, std::move(list)), dtype, shape, most});
  }

  void add_outputs() {
    const std::size_t outputs = 1 + below(4);
    for (std::size_t i = 0; i < outputs; ++i) {
      const std::size_t window = std::min<std::size_t>(values_.size(), 6 * i + 1);
      graph_.add_output(values_[values_.size() - 1 - below(window)].id);
    }
    if (!kind_.whole) return;
    std::vector<bool> read(graph_.nodes().size(), false);
    for (const fusion::Node& node : graph_.nodes()) {
      for (const NodeId operand : node.inputs()) read[operand] = true;
    }
    for (const Drawn& value : values_) {
      if (!read[value.id] && graph_[value.id].arity > 0) graph_.add_output(value.id);
    }
  }

  ProgramKind kind_;
  std::mt19937_64 random_;
  fusion::Graph graph_;
  Dims base_;
  std::vector<DType> dtypes_;
  std::vector<Dims> shapes_;
  std::vector<Drawn> values_;
};

}  // namespace

RandomProgram random_program(std::uint64_t seed, const ProgramKind& kind) {
  return Draw(seed, kind).run();
}

}  // namespace kiln::testing
