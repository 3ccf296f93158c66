// Tests of bits that do not show what is computed beside.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/src/numerics/forced_schedule.hpp"
#include "tests/src/program/run_program.hpp"

namespace kiln::testing {

class BesideBits : public ProgramsOnDevices {
 protected:
  HostArray run_alone(const std::string& text, const std::vector<HostArray>& inputs,
                      const Dims& shape, const fusion::ForcedRows& forced = {}) const {
    std::vector<HostArray> outputs = {HostArray::contiguous(DType::f32, shape)};
    run_on(device(), with_schedule(parse("beside", text), forced), inputs, outputs);
    return outputs[0];
  }

  static void expect_same(const HostArray& got, const HostArray& want, const std::string& what) {
    ASSERT_EQ(got.shape, want.shape);
    std::int64_t different = 0;
    for (std::int64_t i = 0; i < got.size(); ++i) {
      different += get_bits(got, i) == get_bits(want, i) ? 0 : 1;
    }
    EXPECT_EQ(different, 0) << what << ", of " << got.size();
  }
};

}  // namespace kiln::testing
