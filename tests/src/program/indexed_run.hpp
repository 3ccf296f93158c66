// Runs functions and programs with indexed ops (take, put): every array lies at the end of pages
// that cannot be passed, and an output that is updated in place is the argument.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "kiln/program.hpp"
#include "program/plan.hpp"
#include "tests/support/arrays.hpp"
#include "tests/support/guarded_memory.hpp"
#include "tests/support/private_cache.hpp"

namespace kiln::testing {

/// An array of integers in any dtype that holds them.
inline HostArray integers(DType dtype, const Dims& shape, const std::vector<std::int64_t>& values) {
  HostArray array = HostArray::contiguous(dtype, shape);
  for (std::int64_t i = 0; i < array.size(); ++i) {
    set_bits(array, i,
             static_cast<std::uint64_t>(values[static_cast<std::size_t>(i) % values.size()]));
  }
  return array;
}

/// The plan of a program for such inputs.
inline ProgramPlan plan_of(const std::string& text, const std::vector<HostArray>& inputs) {
  CallTypes call;
  for (const HostArray& input : inputs) {
    call.arguments.push_back({input.dtype, false, false});
    call.arrays.push_back({input.dtype, input.shape, input.strides});
  }
  return plan_program({"indexed", fusion::parse(text), Options(), text}, call);
}

/// The argument that an output updates in place.
inline std::optional<std::size_t> updated_argument(const fusion::Graph& graph, std::size_t output) {
  const fusion::Node& node = graph[graph.outputs()[output]];
  if (node.op != fusion::Op::put) return std::nullopt;
  return graph[node.operands[0]].payload;
}

class IndexedOps : public OnDevice {
 protected:
  enum class How { function, program, recorded };

  /// What `text` stores on the device, and that nothing around the arrays and in the inputs
  /// changed.
  std::vector<HostArray> outputs_of(const std::string& text, const std::vector<HostArray>& inputs,
                                    How how) {
    jit::Backend& backend = jit::backend(device());
    const Stream stream{device(), nullptr};
    const fusion::Graph graph = fusion::parse(text);
    std::vector<std::unique_ptr<GuardedMemory>> memories;
    std::vector<char*> places;
    const auto view = [&](const HostArray& array) {
      memories.push_back(std::make_unique<GuardedMemory>(backend, array.bytes.size() + 64));
      places.push_back(memories.back()->place(array.bytes.size(), true, 0));
      memories.back()->write(places.back(), array.bytes);
      return View(places.back() + array.first, array.dtype, array.shape, array.strides, device())
          .from(array.offset);
    };
    std::vector<Argument> arguments;
    for (const HostArray& input : inputs) arguments.emplace_back(view(input));
    std::vector<HostArray> outputs;
    std::vector<View> results;
    std::vector<std::size_t> stored;
    const std::vector<DType> dtypes = natural_dtypes(text, inputs);
    for (const HostArray& want : reference_of(text, inputs)) {
      const std::size_t i = outputs.size();
      if (const auto argument = updated_argument(graph, i)) {
        outputs.push_back(inputs[*argument]);
        results.push_back(arguments[*argument].view());
        stored.push_back(*argument);
        continue;
      }
      outputs.push_back(HostArray::contiguous(dtypes[i], want.shape));
      std::fill(outputs.back().bytes.begin(), outputs.back().bytes.end(), std::byte{0xee});
      results.push_back(view(outputs.back()));
      stored.push_back(memories.size() - 1);
    }
    if (how == How::function) {
      parse("indexed", text).call(stream, arguments, results);
    } else {
      const Program program = parse_program("indexed", text);
      const std::size_t bytes = program.workspace_bytes(stream, arguments, results);
      const DeviceBuffer memory(backend, std::vector<std::byte>(bytes, std::byte{0xff}));
      const View workspace(memory.data(), DType::u8, {static_cast<std::int64_t>(bytes)}, device());
      if (how == How::program) {
        program.run(stream, arguments, results, workspace);
      } else {
        Graph recorded = kiln::record(device(), [&](Recorder& recorder) {
          program.record(recorder, device(), arguments, results, workspace);
        });
        recorded.launch(stream);
      }
      backend.synchronize(stream);
      memory.read();
    }
    backend.synchronize(stream);
    bool intact = true;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      outputs[i].bytes =
          memories[stored[i]]->read(places[stored[i]], outputs[i].bytes.size(), intact);
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (std::ranges::find(stored, i) != stored.end()) continue;
      EXPECT_EQ(memories[i]->read(places[i], inputs[i].bytes.size(), intact), inputs[i].bytes)
          << text << ": input " << i << " has changed";
    }
    EXPECT_TRUE(intact) << text << ": a byte around an array was written";
    return outputs;
  }

  /// Compares with the reference; `slack` is relative.
  void check(const std::string& text, const std::vector<HostArray>& inputs, double slack = 0,
             How how = How::function) {
    SCOPED_TRACE(text);
    const std::vector<HostArray> got = outputs_of(text, inputs, how);
    const std::vector<HostArray> want = reference_of(text, inputs);
    for (std::size_t i = 0; i < want.size(); ++i) {
      const double rounding = slack == 0 ? 0 : rounding_of(got[i].dtype) * 1.01;
      expect_close(got[i], want[i], slack + rounding, slack * 4, fmt::format("output {}", i));
    }
  }
};

}  // namespace kiln::testing
