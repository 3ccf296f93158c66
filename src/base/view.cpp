#include "kiln/view.hpp"

#include <fmt/format.h>

#include <charconv>

#include "kiln/error.hpp"

namespace kiln {

std::string to_string(Device device) {
  switch (device.type) {
    case DeviceType::cpu: return "cpu";
    case DeviceType::hip: return fmt::format("hip:{}", device.index);
    case DeviceType::cuda: return fmt::format("cuda:{}", device.index);
  }
  return "unknown";
}

Device parse_device(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view type = text.substr(0, colon);
  Device device;
  if (colon != std::string_view::npos) {
    const std::string_view digits = text.substr(colon + 1);
    const auto [end, status] =
        std::from_chars(digits.data(), digits.data() + digits.size(), device.index);
    if (status != std::errc() || end != digits.data() + digits.size() || device.index < 0) {
      throw Error(Code::invalid_argument,
                  fmt::format("parse_device: '{}': expected a device number after ':'", text));
    }
  }
  if (type == "cpu" && device.index == 0) return device;
  if (type == "hip" || type == "cuda") {
    device.type = type == "hip" ? DeviceType::hip : DeviceType::cuda;
    return device;
  }
  throw Error(Code::invalid_argument,
              fmt::format("parse_device: '{}': expected cpu, hip, hip:N, cuda or cuda:N", text));
}

Dims contiguous_strides(const Dims& shape) {
  Dims strides(shape.size(), 1);
  for (std::size_t axis = shape.size(); axis-- > 1;) {
    strides[axis - 1] = strides[axis] * std::max<std::int64_t>(shape[axis], 1);
  }
  return strides;
}

namespace {

void check_shape(const Dims& shape) {
  std::int64_t size = 1;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] < 0) {
      throw Error(Code::invalid_argument,
                  fmt::format("View: shape: axis {} is {}, expected 0 or more", axis, shape[axis]));
    }
    if (__builtin_mul_overflow(size, std::max<std::int64_t>(shape[axis], 1), &size)) {
      throw Error(Code::invalid_argument,
                  "View: shape: the number of elements does not fit 63 bits");
    }
  }
}

}  // namespace

View::View(void* data, DType dtype, Dims shape, Device device)
    : data_(data), dtype_(dtype), device_(device), shape_(std::move(shape)) {
  check_shape(shape_);
  strides_ = contiguous_strides(shape_);
}

View::View(void* data, DType dtype, Dims shape, Dims strides, Device device)
    : data_(data),
      dtype_(dtype),
      device_(device),
      shape_(std::move(shape)),
      strides_(std::move(strides)) {
  check_shape(shape_);
  if (strides_.size() != shape_.size()) {
    throw Error(Code::invalid_argument,
                fmt::format("View: strides: expected {} (one per axis), got {}", shape_.size(),
                            strides_.size()));
  }
}

View View::from(std::int64_t elements) const {
  View result = *this;
  auto* const bytes = static_cast<char*>(data_);
  if (is_packed(dtype_)) {
    const std::int64_t halves = offset_ + elements;
    result.data_ = bytes + (halves >> 1);
    result.offset_ = static_cast<std::uint8_t>(halves & 1);
  } else {
    result.data_ = bytes + elements * (bits(dtype_) / 8);
  }
  return result;
}

View View::with_data(void* data) const {
  View result = *this;
  result.data_ = data;
  return result;
}

std::int64_t View::size() const {
  std::int64_t size = 1;
  for (const std::int64_t extent : shape_) size *= extent;
  return size;
}

}  // namespace kiln
