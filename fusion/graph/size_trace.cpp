#include "fusion/graph/size_trace.hpp"

#include <algorithm>
#include <utility>

namespace kiln::fusion {
namespace {

constinit thread_local SizeTrace* current_trace = nullptr;

}  // namespace

SizeTrace::SizeTrace() { current_trace = this; }
SizeTrace::~SizeTrace() { current_trace = nullptr; }

SizeTrace* SizeTrace::current() { return current_trace; }

void SizeTrace::add_extents(const Dims& shape) {
  for (const std::int64_t extent : shape) {
    if (std::ranges::find(extents_, extent) == extents_.end()) extents_.push_back(extent);
  }
}

void SizeSum::decide() const {
  if (SizeTrace::current() == nullptr) return;
  double sum = 0;
  for (const SizeTerm& term : terms_) sum += term.factor * static_cast<double>(term.number);
  const std::int64_t sign = sum > 0 ? 1 : sum < 0 ? -1 : 0;
  SizeTrace::current()->add({SizeFact::Kind::sign, false, sign, terms_});
}

void trace_order(const Dims& a, const Dims& b) {
  if (SizeTrace::current() == nullptr) return;
  for (std::size_t k = 0; k < std::min(a.size(), b.size()); ++k) trace_order(a[k], b[k]);
}

void trace_divides(std::int64_t a, std::int64_t b) {
  if (SizeTrace::current() == nullptr) return;
  SizeTrace::current()->add({SizeFact::Kind::divides, false, a % b == 0 ? 1 : 0, {{1, a}, {1, b}}});
}

void trace_remainder(std::int64_t a, std::int64_t b) {
  if (SizeTrace::current() == nullptr) return;
  SizeTrace::current()->add({SizeFact::Kind::remainder, false, a % b, {{1, a}, {1, b}}});
}

void trace_splits(const Dims& from, const Dims& to, bool read_again, std::int64_t splits) {
  if (SizeTrace::current() == nullptr) return;
  SizeFact fact{SizeFact::Kind::splits, read_again, splits, {}};
  for (const Dims* shape : {&from, &to}) {
    for (const std::int64_t extent : *shape) fact.terms.push_back({1, extent});
  }
  SizeTrace::current()->add(std::move(fact));
}

void trace_key_splits(std::int64_t keys, std::int64_t splits) {
  if (SizeTrace::current() == nullptr) return;
  SizeTrace::current()->add({SizeFact::Kind::key_splits, false, splits, {{1, keys}}});
}

}  // namespace kiln::fusion
