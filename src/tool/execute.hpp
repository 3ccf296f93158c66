// Runs a function once on arrays in host memory: on a device of jit/, or by the reference
// interpreter. What is read and written, and how it is reported, is in run.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ahead/compile_only.hpp"
#include "files/tensor_file.hpp"
#include "kiln/function.hpp"
#include "kiln/program.hpp"

namespace kiln::tool {

/// An argument of the function: an array or a number.
struct Input {
  std::string name;
  std::optional<files::HostTensor> tensor;
  std::optional<Scalar> scalar;
};

/// The types of such a call, whose outputs have at least the shape `at_least`.
Specification specify(const std::vector<Input>& inputs, const Dims& at_least);

struct Output {
  DType dtype = DType::f32;
  Dims shape;
  files::Buffer bytes;  ///< in C order
};

struct Execution {
  std::vector<Output> outputs;
  std::string device;    ///< "cuda:0"
  std::string hardware;  ///< for people, "NVIDIA H200"
  KernelInfo kernel;     ///< of the reference: only function and expression; of a program besides
                         ///< the bytes and the number of kernels
  std::optional<ProgramInfo> program;  ///< if it took several kernels
  double launch_us = 0;  ///< the median of the launches; of the reference: its run time
};

/// "auto", "cpu", "hip[:N]", "cuda[:N]": a device that is there.
Device choose_device(const std::string& text);

Execution run_on_device(const Function& function, const std::vector<Input>& inputs,
                        const std::vector<DType>& outputs, const Dims& at_least, Device device,
                        int repeat);

Execution run_on_reference(const Function& function, const std::vector<Input>& inputs,
                           const std::vector<DType>& outputs, const Dims& at_least);

}  // namespace kiln::tool
