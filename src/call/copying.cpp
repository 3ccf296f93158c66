#include "call/copying.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "jit/device/backend.hpp"
#include "kiln/copy.hpp"
#include "kiln/error.hpp"

namespace kiln {
namespace {

// Whether the elements fill one stretch of memory that starts at the first.
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

void check_block(const View& view, Device device, std::string_view function,
                 std::string_view what) {
  if (view.device() != device) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: {}: is on {}, but the stream is on {}", function, what,
                            to_string(view.device()), to_string(device)));
  }
  if (view.data() == nullptr && view.size() != 0) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: {}: the data pointer is null", function, what));
  }
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
// copy may be the last thing that a program does.
const Function& copy_function(std::optional<DType> to) {
  static const auto* const functions = [] {
    auto* const made = new std::vector<Function>;
    for (const DTypeInfo& dtype : kDTypes) {
      made->push_back(parse("copy", fmt::format("dst = {}(src)", dtype.name)));
    }
    made->push_back(parse("copy", "dst = src"));
    return made;
  }();
  return (*functions)[to ? static_cast<std::size_t>(*to) : kDTypes.size()];
}

}  // namespace

std::optional<std::size_t> block_bytes(const View& src, const View& dst, Device device,
                                       std::string_view function) {
  const std::int64_t width = bits(dst.dtype());
  if (src.dtype() != dst.dtype() || src.shape() != dst.shape()) return std::nullopt;
  const bool empty = dst.size() == 0;
  // Half a byte cannot be moved alone.
  const bool whole = dst.size() * width % 8 == 0 && src.offset() == 0 && dst.offset() == 0;
  if (!empty && !(whole && same_strides(src, dst) && is_dense(dst))) return std::nullopt;
  check_block(src, device, function, "src");
  check_block(dst, device, function, "dst");
  const auto bytes = static_cast<std::size_t>(dst.size() * width / 8);
  const auto from = reinterpret_cast<std::uintptr_t>(src.data());
  const auto to = reinterpret_cast<std::uintptr_t>(dst.data());
  if (from == to) return 0;
  if (from < to + bytes && to < from + bytes) {
    throw Error(
        Code::invalid_argument,
        fmt::format("{}: the two views overlap: dst must be exactly src, or lie apart from it",
                    function));
  }
  return bytes;
}

CopyCall copy_call(const View& src, const View& dst) {
  if (src.dtype() != dst.dtype()) return {copy_function(dst.dtype()), src, dst};
  const DType moved = moved_as(dst.dtype());
  return {copy_function(std::nullopt), with_dtype(src, moved), with_dtype(dst, moved)};
}

void copy(const Stream& stream, const View& src, const View& dst) {
  if (const auto bytes = block_bytes(src, dst, stream.device, "copy")) {
    if (*bytes != 0) {
      jit::backend(stream.device).copy_on_device(dst.data(), src.data(), *bytes, stream);
    }
    return;
  }
  const CopyCall call = copy_call(src, dst);
  const std::array<Argument, 1> inputs = {Argument(call.src)};
  call.function.call(stream, inputs, std::span(&call.dst, 1));
}

}  // namespace kiln
