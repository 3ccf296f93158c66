// Runs programs on a device and compares what they store with the reference interpreter.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kiln/program.hpp"
#include "tests/support/arrays.hpp"
#include "tests/support/private_cache.hpp"

namespace kiln::testing {

class ProgramsOnDevices : public OnDevice {
 protected:
  std::vector<HostArray> run(const Program& program, const std::string& text,
                             const std::vector<HostArray>& inputs, bool recorded) {
    const std::vector<HostArray> want = reference_of(text, inputs);
    const std::vector<DType> dtypes = natural_dtypes(text, inputs);
    std::vector<HostArray> got;
    for (std::size_t i = 0; i < want.size(); ++i) {
      got.push_back(HostArray::contiguous(dtypes[i], want[i].shape));
    }
    return run(program, inputs, std::move(got), recorded);
  }

  /// What `program` stores in `outputs`.
  std::vector<HostArray> run(const Program& program, const std::vector<HostArray>& inputs,
                             std::vector<HostArray> outputs, bool recorded) {
    jit::Backend& backend = jit::backend(device());
    const Stream stream{device(), nullptr};
    std::vector<std::unique_ptr<DeviceBuffer>> buffers;
    const auto view = [&](const HostArray& array) {
      buffers.push_back(std::make_unique<DeviceBuffer>(backend, array.bytes));
      return View(static_cast<char*>(buffers.back()->data()) + array.first, array.dtype,
                  array.shape, array.strides, device());
    };
    std::vector<Argument> arguments;
    std::vector<View> results;
    for (const HostArray& input : inputs) arguments.emplace_back(view(input));
    for (const HostArray& output : outputs) results.push_back(view(output));
    const std::size_t bytes = program.workspace_bytes(stream, arguments, results);
    const DeviceBuffer memory(backend, std::vector<std::byte>(bytes, std::byte{0xff}));
    const View workspace(memory.data(), DType::u8, {static_cast<std::int64_t>(bytes)}, device());
    if (recorded) {
      Graph graph = kiln::record(device(), [&](Recorder& recorder) {
        program.record(recorder, device(), arguments, results, workspace);
      });
      graph.launch(stream);
    } else {
      program.run(stream, arguments, results, workspace);
    }
    backend.synchronize(stream);
    memory.read();
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      outputs[i].bytes = buffers[inputs.size() + i]->read();
    }
    return outputs;
  }

  void check(const std::string& text, const std::vector<HostArray>& inputs, double relative,
             bool recorded = false) {
    check(parse_program("program", text), text, inputs, relative, recorded);
  }

  /// `program` computes what `text` says.
  void check(const Program& program, const std::string& text, const std::vector<HostArray>& inputs,
             double relative, bool recorded) {
    const std::vector<HostArray> got = run(program, text, inputs, recorded);
    const std::vector<HostArray> want = reference_of(text, inputs);
    for (std::size_t i = 0; i < want.size(); ++i) {
      const double rounding = rounding_of(got[i].dtype) * 1.01;
      expect_close(got[i], want[i], relative + rounding, relative * 10,
                   fmt::format("{}, output {}", text, i));
    }
  }
};

}  // namespace kiln::testing
