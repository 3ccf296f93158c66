#include "call/copying.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "core/check_view.hpp"
#include "jit/device/backend.hpp"
#include "kiln/error.hpp"

namespace kiln {
namespace {

// Whether the elements are contiguous in memory, in any order of the axes, from the first on.
bool is_dense(const View& view) {
  std::array<std::size_t, 64> axes{};
  const std::size_t rank = view.shape().size();
  if (rank > axes.size()) return false;
  std::iota(axes.begin(), axes.end(), std::size_t{0});
  const auto order = std::span(axes).first(rank);
  std::ranges::sort(order, {}, [&](std::size_t k) { return view.strides()[k]; });
  std::int64_t step = 1;
  for (const std::size_t k : order) {
    if (view.shape()[k] == 1) continue;
    if (view.strides()[k] != step) return false;
    step *= view.shape()[k];
  }
  return true;
}

bool same_strides(const View& a, const View& b) {
  for (std::size_t k = 0; k < a.shape().size(); ++k) {
    if (a.shape()[k] != 1 && a.strides()[k] != b.strides()[k]) return false;
  }
  return true;
}

// Bits that only move are those of an unsigned integer: one kernel for all dtypes of a width, and
// nothing that could touch a NaN. c64 stays, since it need not be aligned as u64 is.
DType moved_as(DType dtype) {
  if (dtype == DType::c64) return dtype;
  switch (bits(dtype)) {
    case 4: return DType::u4;
    case 8: return DType::u8;
    case 16: return DType::u16;
    case 32: return DType::u32;
    default: return DType::u64;
  }
}

View with_dtype(const View& view, DType dtype) {
  return View(view.data(), dtype, view.shape(), view.strides(), view.device()).from(view.offset());
}

// By the dtype that is cast to, and one more that stores what it reads. Made once, never freed: a
// copy may be the last thing that a process does.
const Function& copy_function(std::optional<DType> to) {
  static const auto* const functions = [] {
    auto* const made = new std::vector<Function>;
    for (const DTypeInfo& dtype : kDTypes) {
      made->push_back(parse("copy", fmt::format("to = {}(from)", dtype.name)));
    }
    made->push_back(parse("copy", "to = from"));
    return made;
  }();
  return (*functions)[to ? static_cast<std::size_t>(*to) : kDTypes.size()];
}

}  // namespace

std::optional<std::size_t> block_bytes(const Copy& copy, Device device, std::string_view function) {
  const View& from = copy.from;
  const View& to = copy.to;
  const std::int64_t width = bits(to.dtype());
  if (from.dtype() != to.dtype() || from.shape() != to.shape()) return std::nullopt;
  const bool empty = to.size() == 0;
  // Half a byte cannot be moved alone.
  const bool whole = to.size() * width % 8 == 0 && from.offset() == 0 && to.offset() == 0;
  if (!empty && !(whole && same_strides(from, to) && is_dense(to))) return std::nullopt;
  check_view(from, device, function, "from");
  check_view(to, device, function, "to");
  const auto bytes = static_cast<std::size_t>(to.size() * width / 8);
  const auto source = reinterpret_cast<std::uintptr_t>(from.data());
  const auto target = reinterpret_cast<std::uintptr_t>(to.data());
  if (source == target) return 0;
  if (source < target + bytes && target < source + bytes) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: the two views overlap: `to` must be exactly `from`, or lie apart "
                            "from it",
                            function));
  }
  return bytes;
}

CopyCall copy_call(const Copy& copy) {
  const DType to = copy.to.dtype();
  if (copy.from.dtype() != to) return {copy_function(to), copy};
  const DType moved = moved_as(to);
  return {copy_function(std::nullopt), {with_dtype(copy.from, moved), with_dtype(copy.to, moved)}};
}

void copy(const Stream& stream, const Copy& copy) {
  if (const auto bytes = block_bytes(copy, stream.device, "copy")) {
    if (*bytes != 0) {
      jit::backend(stream.device).copy_on_device(copy.to.data(), copy.from.data(), *bytes, stream);
    }
    return;
  }
  const CopyCall call = copy_call(copy);
  const std::array<Argument, 1> inputs = {Argument(call.views.from)};
  call.function.call(stream, inputs, std::span(&call.views.to, 1));
}

}  // namespace kiln
