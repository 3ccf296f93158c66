// The functions of the HIP or CUDA driver, as a program that knows nothing of kiln finds them.
// Those named here have the same parameters in both.
#pragma once

#include <stdexcept>
#include <string>

#include "base/dynamic_library.hpp"
#include "kiln/view.hpp"

namespace kiln::testing {

class DriverFunctions {
 public:
  /// The driver of such devices, of which one is in use. Throws std::runtime_error if its library
  /// is not loaded.
  explicit DriverFunctions(DeviceType type) : type_(type) {
    if (is_cuda()) {
      library_ = base::DynamicLibrary("libcuda.so.1");
    } else {
      for (const char* name :
           {"libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"}) {
        library_ = base::DynamicLibrary::find_loaded(name);
        if (library_) break;
      }
    }
    if (!library_) throw std::runtime_error("the library of the driver is not loaded");
  }

  bool is_cuda() const { return type_ == DeviceType::cuda; }

  /// Throws std::runtime_error if the driver has no such function.
  template <class Function>
  void find(Function& function, const char* cuda_name, const char* hip_name) const {
    const char* name = is_cuda() ? cuda_name : hip_name;
    function = reinterpret_cast<Function>(library_.symbol(name));
    if (function == nullptr) throw std::runtime_error(std::string("the driver has no ") + name);
  }

  /// Throws std::runtime_error for an error that the call `what` has given.
  static void check(int error, const char* what) {
    if (error == 0) return;
    throw std::runtime_error(std::string(what) + ": driver error " + std::to_string(error));
  }

 private:
  DeviceType type_;
  base::DynamicLibrary library_;
};

}  // namespace kiln::testing
