// A list of numbers of which there are mostly few: these are in the list itself, so that axes with
// the strides of all operands are moved and copied without other memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "fusion/schedule/scratch.hpp"

namespace kiln::fusion {

/// More than kFew take scratch memory.
template <class T, std::size_t kFew>
class ShortList {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  ShortList() = default;
  ShortList(std::size_t size, T value) {
    reserve(size);
    std::fill_n(data(), size, value);
    size_ = static_cast<std::uint32_t>(size);
  }
  ShortList(std::initializer_list<T> values) { append(values.begin(), values.size()); }
  ShortList(const ShortList& other) { append(other.data(), other.size()); }
  ShortList(ShortList&& other) noexcept { take(other); }
  ShortList& operator=(const ShortList& other) { return *this = ShortList(other); }
  ShortList& operator=(ShortList&& other) noexcept {
    if (this == &other) return *this;
    free();
    take(other);
    return *this;
  }
  ~ShortList() { free(); }

  void reserve(std::size_t capacity) {
    if (capacity > capacity_) grow(capacity);
  }
  /// What it adds is not initialised.
  void resize(std::size_t size) {
    reserve(size);
    size_ = static_cast<std::uint32_t>(size);
  }
  void clear() { size_ = 0; }
  void push_back(T value) {
    if (size_ == capacity_) grow(2 * std::size_t{capacity_});
    data()[size_++] = value;
  }
  void append(const T* values, std::size_t count) {
    reserve(size_ + count);
    std::copy_n(values, count, data() + size_);
    size_ += static_cast<std::uint32_t>(count);
  }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return more_ != nullptr ? more_ : few_; }
  const T* data() const { return more_ != nullptr ? more_ : few_; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  T& operator[](std::size_t i) { return data()[i]; }
  T operator[](std::size_t i) const { return data()[i]; }

 private:
  void free() {
    if (on_heap_) ::operator delete(more_);
  }
  void take(ShortList& other) {
    size_ = std::exchange(other.size_, 0u);
    capacity_ = other.capacity_;
    on_heap_ = other.on_heap_;
    more_ = std::exchange(other.more_, nullptr);
    other.capacity_ = kFew;
    other.on_heap_ = false;
    if (more_ == nullptr) std::copy_n(other.few_, kFew, few_);
  }
  void grow(std::size_t capacity) {
    const detail::Scratch larger = detail::allocate_scratch(capacity * sizeof(T));
    std::copy_n(data(), size_, static_cast<T*>(larger.memory));
    free();
    more_ = static_cast<T*>(larger.memory);
    on_heap_ = larger.on_heap;
    capacity_ = static_cast<std::uint32_t>(capacity);
  }

  std::uint32_t size_ = 0;
  std::uint32_t capacity_ : 31 = kFew;
  bool on_heap_ : 1 = false;
  T* more_ = nullptr;
  T few_[kFew];
};

}  // namespace kiln::fusion
