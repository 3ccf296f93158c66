// DLPack's structures as they lie in memory, of version 1: what `__dlpack__` gives, and the table
// of functions of the C exchange API (`__dlpack_c_exchange_api__`), which many headers of DLPack do
// not have yet.
#pragma once

#include <cstdint>

namespace kiln::python::dlpack {

struct Version {
  std::uint32_t major;
  std::uint32_t minor;
};

struct Device {
  std::int32_t type;
  std::int32_t index;
};

struct Type {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t rank;
  Type type;
  std::int64_t* shape;
  std::int64_t* strides;  ///< in elements; null: C order
  std::uint64_t byte_offset;
};

/// In a capsule "dltensor".
struct Managed {
  Tensor tensor;
  void* context;
  void (*deleter)(Managed*);
};

inline constexpr std::uint64_t kReadOnly = 1;

/// In a capsule "dltensor_versioned".
struct ManagedVersioned {
  Version version;
  void* context;
  void (*deleter)(ManagedVersioned*);
  std::uint64_t flags;
  Tensor tensor;
};

using SetError = void (*)(void* context, const char* kind, const char* message);

struct ExchangeHeader {
  Version version;
  ExchangeHeader* previous;  ///< of an older major version
};

/// In a capsule "dlpack_exchange_api", an attribute of a type of arrays. All return 0, or -1 with a
/// Python exception set, but for `allocate`, which calls `set_error`. None of them synchronises.
struct Exchange {
  ExchangeHeader header;
  int (*allocate)(Tensor* prototype, ManagedVersioned** made, void* context, SetError set_error);
  int (*managed_of)(void* array, ManagedVersioned** managed);
  int (*array_of)(ManagedVersioned* managed, void** array);  ///< takes `managed` over
  int (*borrow)(void* array, Tensor* tensor);                ///< may be null
  int (*current_stream)(std::int32_t device_type, std::int32_t device, void** stream);
};

}  // namespace kiln::python::dlpack
