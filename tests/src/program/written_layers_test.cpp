// The layer of a decoder in all the ways in which layer_writings.hpp has it, on every device that
// is there, against the reference.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fusion/text/text.hpp"
#include "tests/src/program/indexed_run.hpp"
#include "tests/src/program/layer_writings.hpp"
#include "tests/support/settings.hpp"

namespace kiln {
namespace {

using testing::HostArray;

class WrittenLayers : public testing::IndexedOps {};

INSTANTIATE_TEST_SUITE_P(Devices, WrittenLayers,
                         ::testing::Values(DeviceType::cpu, DeviceType::hip, DeviceType::cuda),
                         testing::device_type_name);

// Integers are places and ends: of each of two sequences, and of heads.
HostArray layer_array(const std::string& name, const testing::LayerOperand& operand,
                      const testing::LayerSizes& sizes, std::uint64_t seed) {
  const std::int64_t p = sizes.positions;
  if (name == "rows") return testing::integers(operand.dtype, operand.shape, {4, p + 6});
  if (name == "position") return testing::integers(operand.dtype, operand.shape, {4, 6});
  if (name == "end1") return testing::integers(operand.dtype, operand.shape, {7});
  if (name.starts_with("end")) return testing::integers(operand.dtype, operand.shape, {5, 7});
  if (name == "headrow") return testing::integers(operand.dtype, operand.shape, {0, 1});
  if (name == "headof")
    return testing::integers(operand.dtype, operand.shape, {0, 0, 0, 0, 1, 1, 1, 1});
  return testing::random_array(operand.dtype, operand.shape, seed, 0.25);
}

TEST_P(WrittenLayers, ComputeWhatTheySay) {
  testing::Share share(GetParam(), 12, testing::random_seed());
  for (const std::int64_t batch : {2, 1}) {
    const testing::LayerSizes sizes{batch, 12, 8, 2, 8, 128};
    const std::map<std::string, testing::LayerOperand> operands = testing::layer_operands(sizes);
    std::uint64_t seed = 1;
    for (const testing::LayerWriting& writing : testing::layer_writings()) {
      if (!share.next()) continue;
      SCOPED_TRACE(fmt::format("{}, {} sequences", writing.name, batch));
      const std::string text = testing::written_layer(writing, sizes);
      std::vector<HostArray> inputs;
      const fusion::Graph graph = fusion::parse(text);
      for (const std::string& name : graph.arguments()) {
        inputs.push_back(layer_array(name, operands.at(name), sizes, ++seed));
      }
      // bf16 between kernels rounds what differs in its last bits apart.
      check(text, inputs, 4e-3, How::program);
    }
  }
}

}  // namespace
}  // namespace kiln
