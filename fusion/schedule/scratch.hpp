// Vectors for what the planners compute, which is many short lists for each call: inside a
// ScratchScope they take their memory from the thread's, and nothing is allocated.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace kiln::fusion {

/// While one lives, memory of the thread's ScratchVectors comes from a block that the thread keeps,
/// and is taken again when the outermost one ends: vectors that are made inside must be gone by
/// then. What does not fit the block comes from the heap.
class ScratchScope {
 public:
  ScratchScope();
  ~ScratchScope();
  ScratchScope(const ScratchScope&) = delete;
  ScratchScope& operator=(const ScratchScope&) = delete;
};

namespace detail {
constexpr std::size_t kScratchBytes = 2 << 20;  // of addresses: memory is what has been used

// Without a constructor or destructor, which every access would have to ask for, and in memory that
// a thread has from its beginning. Outside of scopes nothing of the block is left.
struct ThreadScratch {
  std::byte* block = nullptr;
  std::byte* next = nullptr;
  std::size_t left = 0;
  int scopes = 0;
};
[[gnu::tls_model("initial-exec")]] extern constinit thread_local ThreadScratch thread_scratch;

// Room for elements of a list.
struct Scratch {
  void* memory;
  bool on_heap;  // to be deleted
};

inline Scratch allocate_scratch(std::size_t bytes) {
  constexpr std::size_t kAlignment = alignof(std::max_align_t);
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  ThreadScratch& scratch = thread_scratch;
  if (bytes > scratch.left) return {::operator new(bytes), true};
  scratch.left -= bytes;
  return {std::exchange(scratch.next, scratch.next + bytes), false};
}
}  // namespace detail

/// What std::vector is, as far as the planners need it. On the heap outside of a ScratchScope.
template <class T>
class ScratchVector {
  static_assert(alignof(T) <= alignof(std::max_align_t));
  static_assert(std::is_nothrow_move_constructible_v<T>);

 public:
  using value_type = T;

  ScratchVector() = default;
  explicit ScratchVector(std::size_t size) { resize(size); }
  ScratchVector(std::size_t size, const T& value) { assign(size, value); }
  ScratchVector(const ScratchVector& other) { append(other.begin(), other.end()); }
  ScratchVector(ScratchVector&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0u)),
        capacity_(other.capacity_),
        on_heap_(other.on_heap_) {
    other.capacity_ = 0;
    other.on_heap_ = false;
  }
  ScratchVector& operator=(const ScratchVector& other) { return *this = ScratchVector(other); }
  ScratchVector& operator=(ScratchVector&& other) noexcept {
    if (this == &other) return *this;
    std::destroy_at(this);
    return *::new (this) ScratchVector(std::move(other));
  }
  ~ScratchVector() {
    std::destroy_n(data_, size_);
    if (on_heap_) ::operator delete(data_);
  }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  T& front() { return data_[0]; }
  const T& front() const { return data_[0]; }
  T& back() { return data_[size_ - 1]; }
  const T& back() const { return data_[size_ - 1]; }

  void reserve(std::size_t capacity) {
    if (capacity > capacity_) grow(capacity);
  }
  void resize(std::size_t size) {
    reserve(size);
    while (size_ < size) ::new (data_ + size_++) T();
    shorten(size);
  }
  void assign(std::size_t size, const T& value) {
    clear();
    reserve(size);
    while (size_ < size) ::new (data_ + size_++) T(value);
  }
  void shorten(std::size_t size) {
    while (size_ > size) std::destroy_at(data_ + --size_);
  }
  void clear() { shorten(0); }
  void pop_back() { shorten(size_ - 1); }
  template <class... Values>
  T& emplace_back(Values&&... values) {
    if (size_ == capacity_) grow(std::size_t{2} * size_ + 2);
    return *::new (data_ + size_++) T(std::forward<Values>(values)...);
  }
  /// What a call of `make` returns, which is not moved.
  template <class Make>
  T& emplace_result(const Make& make) {
    if (size_ == capacity_) grow(std::size_t{2} * size_ + 2);
    T* const made = ::new (data_ + size_) T(make());
    ++size_;
    return *made;
  }
  /// Not an element of this.
  void push_back(const T& value) { emplace_back(value); }
  void push_back(T&& value) { emplace_back(std::move(value)); }

  /// Of elements that are not of this. Iterators after the place are invalid, as are all where it
  /// grows.
  template <class Iterator>
  void insert(T* before, Iterator first, Iterator last) {
    const auto place = before - data_;
    const auto old = static_cast<std::ptrdiff_t>(size_);
    append(first, last);
    std::rotate(data_ + place, data_ + old, data_ + size_);
  }
  void insert(T* before, std::initializer_list<T> values) {
    insert(before, values.begin(), values.end());
  }
  void insert(T* before, T value) {
    insert(before, std::move_iterator(&value), std::move_iterator(&value + 1));
  }
  void erase(T* element) {
    std::move(element + 1, end(), element);
    pop_back();
  }

  friend bool operator==(const ScratchVector& a, const ScratchVector& b) {
    if constexpr (std::has_unique_object_representations_v<T>) {
      return a.size_ == b.size_ &&
             (a.size_ == 0 || std::memcmp(a.data_, b.data_, a.size_ * sizeof(T)) == 0);
    } else {
      return std::equal(a.begin(), a.end(), b.begin(), b.end());
    }
  }

 private:
  template <class Iterator>
  void append(Iterator first, Iterator last) {
    reserve(size_ + static_cast<std::size_t>(last - first));
    for (; first != last; ++first) ::new (data_ + size_++) T(*first);
  }
  void grow(std::size_t capacity) {
    const detail::Scratch larger = detail::allocate_scratch(capacity * sizeof(T));
    T* const data = static_cast<T*>(larger.memory);
    std::uninitialized_move_n(data_, size_, data);
    std::destroy_n(data_, size_);
    if (on_heap_) ::operator delete(data_);
    data_ = data;
    capacity_ = static_cast<std::uint32_t>(capacity);
    on_heap_ = larger.on_heap;
  }

  T* data_ = nullptr;
  std::uint32_t size_ = 0;
  std::uint32_t capacity_ : 31 = 0;
  bool on_heap_ : 1 = false;
};

}  // namespace kiln::fusion
