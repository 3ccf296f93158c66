// Views of DLPack tensors.
#include "kiln/dlpack.hpp"

#include <gtest/gtest.h>

namespace kiln {
namespace {

DLTensor tensor(void* data, int code, int bits, std::vector<std::int64_t>& shape) {
  DLTensor result{};
  result.data = data;
  result.device = {static_cast<DLDeviceType>(1), 0};
  result.ndim = static_cast<int>(shape.size());
  result.dtype = {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(bits), 1};
  result.shape = shape.data();
  return result;
}

TEST(DLPack, AViewHasTheTensorsMemoryAndLayout) {
  float memory[16] = {};
  std::vector<std::int64_t> shape = {2, 3};
  std::vector<std::int64_t> strides = {1, 2};
  DLTensor source = tensor(memory, 2, 32, shape);
  source.byte_offset = 8;
  EXPECT_EQ(view_of(source).data(), memory + 2);
  EXPECT_EQ(view_of(source).strides(), Dims({3, 1}));
  source.strides = strides.data();
  EXPECT_EQ(view_of(source).strides(), Dims({1, 2}));
  EXPECT_EQ(view_of(source).shape(), Dims({2, 3}));
}

TEST(DLPack, EveryDtypeThatBothHave) {
  std::vector<std::int64_t> shape = {1};
  const auto dtype = [&](int code, int bits) {
    return view_of(tensor(nullptr, code, bits, shape)).dtype();
  };
  EXPECT_EQ(dtype(0, 8), DType::i8);
  EXPECT_EQ(dtype(0, 64), DType::i64);
  EXPECT_EQ(dtype(1, 16), DType::u16);
  EXPECT_EQ(dtype(2, 16), DType::f16);
  EXPECT_EQ(dtype(2, 64), DType::f64);
  EXPECT_EQ(dtype(4, 16), DType::bf16);
  EXPECT_EQ(dtype(5, 64), DType::c64);
  EXPECT_EQ(dtype(6, 8), DType::boolean);
  EXPECT_EQ(dtype(10, 8), DType::f8e4m3);
}

TEST(DLPack, DevicesKeepTheirNumber) {
  std::vector<std::int64_t> shape = {1};
  DLTensor source = tensor(nullptr, 2, 32, shape);
  source.device = {static_cast<DLDeviceType>(10), 3};
  EXPECT_EQ(view_of(source).device(), (Device{DeviceType::hip, 3}));
  source.device = {static_cast<DLDeviceType>(2), 1};
  EXPECT_EQ(view_of(source).device(), (Device{DeviceType::cuda, 1}));
}

TEST(DLPack, WhatKilnHasNotIsRefusedByName) {
  std::vector<std::int64_t> shape = {1};
  DLTensor source = tensor(nullptr, 5, 128, shape);
  try {
    view_of(source);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unsupported);
    EXPECT_NE(std::string(error.what()).find("code 5, 128 bits"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace kiln
