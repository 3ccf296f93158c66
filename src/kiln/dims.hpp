// A short list of 64-bit numbers, one per axis, that allocates only above eight axes: a View is
// made for every call of a fused function, so making one must cost nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>

#pragma GCC visibility push(default)

namespace kiln {

class Dims {
 public:
  static constexpr std::size_t kInline = 8;

  Dims() = default;
  Dims(std::initializer_list<std::int64_t> values)
      : Dims(std::span(values.begin(), values.size())) {}
  explicit Dims(std::span<const std::int64_t> values) : Dims(values.size()) {
    std::copy(values.begin(), values.end(), data());
  }
  /// `size` axes, every one `value`.
  explicit Dims(std::size_t size, std::int64_t value = 0) : size_(size) {
    if (size > kInline) heap_ = std::make_unique<std::int64_t[]>(size);
    std::fill_n(data(), size, value);
  }
  Dims(const Dims& other) : Dims(std::span<const std::int64_t>(other)) {}
  Dims(Dims&& other) noexcept
      : size_(std::exchange(other.size_, 0)), heap_(std::move(other.heap_)) {
    if (!heap_) std::copy_n(other.inline_, size_, inline_);
  }
  Dims& operator=(const Dims& other) { return *this = Dims(other); }
  Dims& operator=(Dims&& other) noexcept {
    size_ = std::exchange(other.size_, 0);
    heap_ = std::move(other.heap_);
    if (!heap_) std::copy_n(other.inline_, size_, inline_);
    return *this;
  }
  ~Dims() = default;

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::int64_t* data() { return heap_ ? heap_.get() : inline_; }
  const std::int64_t* data() const { return heap_ ? heap_.get() : inline_; }
  std::int64_t& operator[](std::size_t i) { return data()[i]; }
  std::int64_t operator[](std::size_t i) const { return data()[i]; }
  std::int64_t* begin() { return data(); }
  std::int64_t* end() { return data() + size_; }
  const std::int64_t* begin() const { return data(); }
  const std::int64_t* end() const { return data() + size_; }
  operator std::span<const std::int64_t>() const { return {data(), size_}; }

  friend bool operator==(const Dims& a, const Dims& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::size_t size_ = 0;
  std::int64_t inline_[kInline];
  std::unique_ptr<std::int64_t[]> heap_;
};

}  // namespace kiln

#pragma GCC visibility pop
