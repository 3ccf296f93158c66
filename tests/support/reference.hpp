// A call as the reference interpreter computes it, on the same arrays as tests/support/devices.hpp
// runs on a device.
#pragma once

#include <cstdint>
#include <vector>

#include "fusion/graph/broadcast.hpp"
#include "fusion/graph/typed_graph.hpp"
#include "fusion/infer/infer.hpp"
#include "fusion/reference/reference.hpp"
#include "fusion/text/text.hpp"
#include "tests/support/devices.hpp"

namespace kiln::testing {

/// Fills the outputs' elements; bytes that they do not cover are left as they are.
inline void run_on_reference(const Function& function, const std::vector<TestInput>& inputs,
                             std::vector<HostArray>& outputs) {
  const Dims& shape = outputs.at(0).shape;
  std::vector<fusion::ArgumentType> types;
  std::vector<fusion::ReferenceOperand> arguments;
  std::vector<std::uint64_t> numbers(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (const auto* scalar = std::get_if<Scalar>(&inputs[i])) {
      types.push_back({scalar->dtype(), true, scalar->weak()});
      numbers[i] = scalar->bits();
      // A typed narrow float came as a double.
      const DType stored = is_floating(scalar->dtype()) ? DType::f64 : scalar->dtype();
      arguments.push_back({&numbers[i], stored, Dims(shape.size(), 0), 0});
      continue;
    }
    const HostArray& array = std::get<HostArray>(inputs[i]);
    types.push_back({array.dtype, false, false});
    // Arguments are only read.
    arguments.push_back({const_cast<std::byte*>(array.bytes.data()) + array.first, array.dtype,
                         fusion::broadcast_strides(array.shape, array.strides, shape),
                         array.offset});
  }
  std::vector<DType> dtypes;
  std::vector<fusion::ReferenceOperand> results;
  for (HostArray& output : outputs) {
    dtypes.push_back(output.dtype);
    results.push_back(
        {output.bytes.data() + output.first, output.dtype, output.strides, output.offset});
  }
  const fusion::TypedGraph typed =
      fusion::infer(fusion::parse(function.expression()), types, dtypes,
                    function.options().rounding, function.name());
  fusion::evaluate(typed, shape, arguments, results);
}

}  // namespace kiln::testing
