#include "fusion/schedule/size_tape.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace kiln::fusion {
namespace {

__extension__ using Wide = __int128;

constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

std::int64_t clamped(Wide value) {
  return static_cast<std::int64_t>(std::clamp<Wide>(value, kLeast, kMost));
}

Wide divided_down(Wide a, Wide b) { return a / b - (a % b != 0 && a < 0 ? 1 : 0); }

}  // namespace

// False where nothing can be divided so.
inline bool SizeTape::apply(Size::Op op, std::int64_t a, std::int64_t b, std::int64_t& result) {
  using Op = Size::Op;
  const auto x = static_cast<std::uint64_t>(a);
  const auto y = static_cast<std::uint64_t>(b);
  switch (op) {
    case Op::add: result = static_cast<std::int64_t>(x + y); return true;
    case Op::sub: result = static_cast<std::int64_t>(x - y); return true;
    case Op::mul: result = static_cast<std::int64_t>(x * y); return true;
    case Op::bit_or: result = a | b; return true;
    case Op::bit_and: result = a & b; return true;
    case Op::div:
      if (b <= 0) return false;
      result = a / b;
      return true;
    case Op::mod:
      if (b <= 0) return false;
      result = a % b;
      return true;
  }
  return false;
}

// ---- Recording ---------------------------------------------------------------------------------

// Node 0 stands for constants that no node uses.
struct SizeRecorder::Nodes {
  using Op = Size::Op;
  enum class Kind : std::uint8_t { constant, input, step };
  struct Node {
    Kind kind = Kind::constant;
    Op op = Op::add;
    std::uint32_t a = 0;  ///< of an input, which one it is
    std::uint32_t b = 0;
    std::int64_t value = 0;
    std::int64_t low = kLeast;  ///< what it has been asked to be in
    std::int64_t high = kMost;
    bool is_asked() const { return low != kLeast || high != kMost; }
  };

  std::vector<Node> all{1};
  std::uint32_t inputs = 0;
  std::map<std::int64_t, std::uint32_t> constants;
  std::map<std::tuple<Op, std::uint32_t, std::uint32_t>, std::uint32_t> steps;
  std::set<std::pair<std::uint32_t, std::int64_t>>
      others;  ///< what nodes have been found not to be

  std::uint32_t add(const Node& node) {
    all.push_back(node);
    return static_cast<std::uint32_t>(all.size() - 1);
  }
  std::uint32_t constant(std::int64_t value) {
    const auto [at, added] = constants.try_emplace(value, 0);
    if (added) at->second = add({.value = value});
    return at->second;
  }
  bool is_constant(std::uint32_t node) const { return all[node].kind == Kind::constant; }
  void narrow(std::uint32_t node, std::int64_t low, std::int64_t high) {
    all[node].low = std::max(all[node].low, low);
    all[node].high = std::min(all[node].high, high);
  }
  void ask_operand(std::uint32_t id);
  void ask_operands_of_others();
  void narrow_by_others();

  static thread_local Nodes* current;
};

thread_local SizeRecorder::Nodes* SizeRecorder::Nodes::current = nullptr;

// Where a step has one operand that is no constant, asks that instead: whenever it is in the range
// that this gives, so is the step, and nothing wraps.
void SizeRecorder::Nodes::ask_operand(std::uint32_t id) {
  const Node node = all[id];
  if (node.kind != Kind::step || !node.is_asked()) return;
  if (is_constant(node.a) == is_constant(node.b)) return;
  const bool first = is_constant(node.a);
  const std::uint32_t operand = first ? node.b : node.a;
  const Wide constant = all[first ? node.a : node.b].value;
  Wide low = node.low;
  Wide high = node.high;
  switch (node.op) {
    case Op::add:
      low -= constant;
      high -= constant;
      break;
    case Op::sub:
      if (first) {
        low = constant - node.high;
        high = constant - node.low;
      } else {
        low += constant;
        high += constant;
      }
      break;
    case Op::mul:
      if (constant <= 0) return;
      low = -divided_down(-low, constant);
      high = divided_down(high, constant);
      break;
    case Op::div:
      if (first || constant <= 0) return;
      low = low > 0 ? low * constant : (low - 1) * constant + 1;
      high = high < 0 ? high * constant : high * constant + constant - 1;
      break;
    default: return;
  }
  narrow(operand, clamped(low), clamped(high));
  all[id].low = kLeast;
  all[id].high = kMost;
}

// The same of what a sum or difference is not, which is so however it wraps.
void SizeRecorder::Nodes::ask_operands_of_others() {
  const auto has_operand = [&](const Node& node) {
    return node.kind == Kind::step && (node.op == Op::add || node.op == Op::sub) &&
           is_constant(node.a) != is_constant(node.b);
  };
  for (auto next = others.rbegin(); next != others.rend(); ++next) {  // what is added comes after
    const auto& [id, value] = *next;
    const Node& node = all[id];
    if (!has_operand(node)) continue;
    const bool first = is_constant(node.a);
    const Size constant = all[first ? node.a : node.b].value;
    const Size operand = node.op == Op::add ? value - constant
                         : first            ? constant - value
                                            : value + constant;
    others.emplace(first ? node.b : node.a, operand.value_);
  }
  std::erase_if(others, [&](const auto& other) { return has_operand(all[other.first]); });
}

// Leaves those that lie within the ranges.
void SizeRecorder::Nodes::narrow_by_others() {
  std::erase_if(others, [&](const auto& other) {
    const auto& [id, value] = other;
    Node& node = all[id];
    if (value == node.low) ++node.low;
    if (value == node.high) --node.high;
    return value < node.low || value > node.high;
  });
}

SizeRecorder::SizeRecorder() : nodes_(new Nodes) { Nodes::current = nodes_; }

SizeRecorder::~SizeRecorder() {
  Nodes::current = nullptr;
  delete nodes_;
}

Size SizeRecorder::input(std::int64_t value) {
  return {value, nodes_->add({.kind = Nodes::Kind::input, .a = nodes_->inputs++, .value = value})};
}

Size Size::record(Op op, Size a, Size b) {
  SizeRecorder::Nodes& nodes = *SizeRecorder::Nodes::current;
  const bool commutes = op == Op::add || op == Op::mul || op == Op::bit_or || op == Op::bit_and;
  if (commutes && a.node_ == 0) std::swap(a, b);  // a constant comes last
  if (op == Op::sub && b.node_ == 0) {
    op = Op::add;
    b = -b;
  }
  // What changes nothing is no step.
  if (b.node_ == 0) {
    const std::int64_t by = b.value_;
    if (by == 0 && (op == Op::add || op == Op::bit_or)) return a;
    if (by == 0 && (op == Op::mul || op == Op::bit_and)) return 0;
    if (by == 1 && (op == Op::mul || op == Op::div)) return a;
    if (by == 1 && op == Op::mod) return 0;
    // Nor is what was done to it before.
    const SizeRecorder::Nodes::Node& before = nodes.all[a.node_];
    const bool again = op == Op::add || op == Op::bit_or;
    if (again && before.kind == SizeRecorder::Nodes::Kind::step && before.op == op &&
        nodes.is_constant(before.b)) {
      const Size inner(nodes.all[before.a].value, before.a);
      const Size other = nodes.all[before.b].value;
      return record(op, inner, op == Op::add ? other + b : other | b);
    }
  }
  if (a.node_ == b.node_ && op == Op::bit_or) return a;
  if (a.node_ == b.node_ && op == Op::sub) return 0;
  const auto node_of = [&](Size number) {
    return number.node_ != 0 ? number.node_ : nodes.constant(number.value_);
  };
  std::uint32_t one = node_of(a);
  std::uint32_t other = node_of(b);
  if (commutes && b.node_ != 0 && other < one) std::swap(one, other);
  std::int64_t value = 0;
  if (op == Op::div || op == Op::mod) {
    value = op == Op::div ? a.value_ / b.value_ : a.value_ % b.value_;
  } else {
    SizeTape::apply(op, a.value_, b.value_, value);
  }
  const auto [at, added] = nodes.steps.try_emplace({op, one, other}, 0);
  if (added) {
    at->second = nodes.add(
        {.kind = SizeRecorder::Nodes::Kind::step, .op = op, .a = one, .b = other, .value = value});
  }
  return {value, at->second};
}

void Size::note_equal(Size a, Size b, bool same) {
  if (a.node_ == 0) std::swap(a, b);
  const Size difference = b.node_ != 0 ? a - b : a;
  const std::int64_t expected = b.node_ != 0 ? 0 : b.value_;
  if (difference.node_ == 0) return;
  if (same) return difference.note_range(expected, expected);
  SizeRecorder::Nodes::current->others.emplace(difference.node_, expected);
}

void Size::note_less(Size a, Size b, bool less) {
  if (a.node_ != 0 && b.node_ != 0) {
    a = a - b;
    b = 0;
  }
  if (a.node_ != 0) {
    if (less) return a.note_range(kLeast, b.value_ - 1);
    a.note_range(b.value_, kMost);
  } else if (b.node_ != 0) {
    if (less) return b.note_range(a.value_ + 1, kMost);
    b.note_range(kLeast, a.value_);
  }
}

void Size::note_range(std::int64_t low, std::int64_t high) const {
  SizeRecorder::Nodes::current->narrow(node_, low, high);
}

std::int64_t bit_ceil(Size a) {
  const auto power = static_cast<std::int64_t>(std::bit_ceil(a.bits()));
  if (a.node_ != 0) a.note_range(power / 2 + 1, power);
  return power;
}

std::int64_t bit_floor(Size a) {
  const auto power = static_cast<std::int64_t>(std::bit_floor(a.bits()));
  if (a.node_ != 0) a.note_range(power, power + (power - 1));
  return power;
}

std::int64_t lowest_bit(Size a) {
  const std::int64_t bit = a.value_ & -a.value_;
  if (a.node_ != 0) a.note_lowest_bit(bit);
  return bit;
}

void Size::note_lowest_bit(std::int64_t bit) const {
  const SizeRecorder::Nodes& nodes = *SizeRecorder::Nodes::current;
  const SizeRecorder::Nodes::Node& node = nodes.all[node_];
  Size bits = *this;
  std::int64_t mask = bit | (bit - 1);
  const bool has_constant = node.kind == SizeRecorder::Nodes::Kind::step && node.op == Op::bit_or &&
                            nodes.is_constant(node.b);
  if (has_constant) {
    bits = Size(nodes.all[node.a].value, node.a);
    // Of a constant bit only those below count.
    if ((nodes.all[node.b].value & bit) != 0) mask = bit - 1;
  }
  bits = bits & mask;
  if (bits.node_ != 0) bits.note_range(bits.value_, bits.value_);
}

std::optional<SizeTape> SizeRecorder::finish(std::span<const Size> results,
                                             std::vector<std::uint16_t>& places) {
  using Kind = Nodes::Kind;
  std::vector<Nodes::Node>& all = nodes_->all;
  for (std::size_t id = all.size(); id-- > 1;) nodes_->ask_operand(static_cast<std::uint32_t>(id));
  nodes_->ask_operands_of_others();
  nodes_->narrow_by_others();
  std::vector<bool> wanted(all.size(), false);
  for (const Size& result : results) wanted[result.node_] = true;
  for (const auto& [id, value] : nodes_->others) wanted[id] = true;
  for (std::size_t id = all.size(); id-- > 1;) {
    wanted[id] = wanted[id] || (all[id].kind != Kind::constant && all[id].is_asked());
    if (!wanted[id] || all[id].kind != Kind::step) continue;
    wanted[all[id].a] = true;
    wanted[all[id].b] = true;
  }
  SizeTape tape;
  std::vector<std::uint16_t> place_of(all.size(), 0);
  std::size_t count = 0;
  const auto each = [&](Kind kind, const auto& add) {
    for (std::size_t id = 1; id < all.size(); ++id) {
      if (!wanted[id] || all[id].kind != kind) continue;
      place_of[id] = static_cast<std::uint16_t>(count++);
      add(all[id]);
    }
  };
  each(Kind::constant, [&](const Nodes::Node& node) { tape.constants_.push_back(node.value); });
  each(Kind::input, [&](const Nodes::Node& node) { tape.inputs_.push_back(node.a); });
  each(Kind::step, [&](const Nodes::Node& node) {
    tape.steps_.push_back({node.op, place_of[node.a], place_of[node.b]});
  });
  if (count > SizeTape::kMostValues) return std::nullopt;
  // A number that is not in its own range was computed by what no range describes.
  const auto is_outside = [](const Nodes::Node& node) {
    return node.value < node.low || node.value > node.high;
  };
  if (std::ranges::any_of(all, is_outside)) return std::nullopt;
  places.clear();
  for (const Size& result : results) {
    places.push_back(result.node_ != 0 ? place_of[result.node_] : SizeTape::kFixed);
  }
  for (std::size_t id = 1; id < all.size(); ++id) {
    const Nodes::Node& node = all[id];
    if (!wanted[id] || node.kind == Kind::constant || !node.is_asked()) continue;
    const auto span = static_cast<std::uint64_t>(node.high) - static_cast<std::uint64_t>(node.low);
    tape.ranges_.push_back({place_of[id], node.low, span});
  }
  // From there to the one below it, past the largest number.
  for (const auto& [id, value] : nodes_->others) {
    const Size next = Size(value) + 1;
    tape.ranges_.push_back({place_of[id], next.value_, UINT64_MAX - 1});
  }
  std::ranges::stable_sort(tape.ranges_, {}, &SizeTape::Range::value);
  return tape;
}

// ---- Runs --------------------------------------------------------------------------------------

std::size_t SizeTape::bytes() const {
  return sizeof *this + 8 * constants_.size() + 4 * inputs_.size() + steps_.size() * sizeof(Step) +
         ranges_.size() * sizeof(Range);
}

std::int64_t* SizeTape::begin(std::int64_t* values) const {
  return std::copy(constants_.begin(), constants_.end(), values);
}

bool SizeTape::run(std::int64_t* values) const {
  std::int64_t* next = values + constants_.size() + inputs_.size();
  auto step = steps_.begin();
  const auto compute = [&] {
    const bool defined = apply(step->op, values[step->a], values[step->b], *next++);
    ++step;
    return defined;
  };
  // Most tapes that are tried fail at a range of an input or early.
  for (const Range& range : ranges_) {
    while (next <= values + range.value) {
      if (!compute()) return false;
    }
    const auto above =
        static_cast<std::uint64_t>(values[range.value]) - static_cast<std::uint64_t>(range.low);
    if (above > range.span) return false;
  }
  while (step != steps_.end()) {
    if (!compute()) return false;
  }
  return true;
}

}  // namespace kiln::fusion
