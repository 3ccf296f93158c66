// The decoder of bench/decode with the weights of a real model: what it says is what the model is
// known to say, by one recorded graph from the first position to the last, which nothing compiles,
// records or allocates for in between.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "bench/decode/decoder.hpp"
#include "kiln/statistics.hpp"
#include "tests/support/counted.hpp"
#include "tests/support/device_test.hpp"
#include "tests/support/private_cache.hpp"

namespace kiln {
namespace {

/// KILN_TEST_DATA where the tests have been taken elsewhere.
std::string data_file() {
  const char* moved = std::getenv("KILN_TEST_DATA");
  return std::string(moved != nullptr ? moved : KILN_TEST_DATA) + "/stories260k.safetensors";
}

template <class T>
std::vector<T> elements(const decode::Tensor& tensor) {
  std::vector<T> result(tensor.bytes.size() / sizeof(T));
  std::memcpy(result.data(), tensor.bytes.data(), tensor.bytes.size());
  return result;
}

class Stories : public testing::DeviceTest {
 protected:
  decode::Memory own_memory() {
    decode::Memory result;
    result.stream = stream;
    result.allocate = [this](std::size_t bytes) {
      memory.push_back(backend->allocate(bytes));
      return memory.back();
    };
    result.wait = [this] { backend->synchronize(stream); };
    result.to_device = [this](void* to, const void* from, std::size_t bytes) {
      backend->copy_in(to, from, bytes, stream);
      backend->synchronize(stream);
    };
    result.to_host = [this](void* to, const void* from, std::size_t bytes) {
      backend->copy_out(to, from, bytes, stream);
      backend->synchronize(stream);
    };
    return result;
  }

  /// Fewer where a token takes seconds.
  std::size_t tokens_of(std::size_t all) const {
    constexpr std::size_t kFew = 12;
    return on_gpu() && !on_real_gpu() ? kFew : all;
  }

  struct Errors {
    double element = 0;  ///< the largest of a logit, relative to its size or to 1
    double norm = 0;     ///< the largest of a token's logits as a vector, relative to its length
  };

  Errors errors_of_logits(DType activations, DType cache) {
    decode::Weights weights = decode::stories260k(file, own_memory());
    weights.shape.activations = activations;
    weights.shape.cache = cache;
    const auto vocabulary = static_cast<std::size_t>(weights.shape.vocabulary);
    const std::vector<float> expected = elements<float>(file.at("greedy_logits"));
    const std::size_t count = tokens_of(expected.size() / vocabulary);
    std::vector<std::int32_t> prompt = elements<std::int32_t>(file.at("greedy_tokens"));
    prompt.insert(prompt.begin(), 1);
    prompt.resize(count);
    decode::Decoder decoder(weights, own_memory(), 1, static_cast<std::int64_t>(count));
    decoder.reset(prompt);
    Errors errors;
    for (std::size_t i = 0; i < count; ++i) {
      decoder.step();
      const std::vector<float> logits = decoder.logits();
      double squares = 0;
      double square_errors = 0;
      for (std::size_t k = 0; k < vocabulary; ++k) {
        const double wanted = expected[i * vocabulary + k];
        const double error = std::abs(double{logits[k]} - wanted);
        errors.element =
            std::max(errors.element, error / std::max(1.0, std::abs(double{logits[k]})));
        squares += wanted * wanted;
        square_errors += error * error;
      }
      errors.norm = std::max(errors.norm, std::sqrt(square_errors / squares));
    }
    RecordProperty("element", fmt::format("{}", errors.element));
    RecordProperty("norm", fmt::format("{}", errors.norm));
    return errors;
  }

  const decode::Tensors file = decode::read_safetensors(data_file());
};

TEST_P(Stories, AreTheKnownTokens) {
  const decode::Weights weights = decode::stories260k(file, own_memory());
  std::vector<std::int32_t> expected = elements<std::int32_t>(file.at("greedy_tokens"));
  expected.resize(tokens_of(expected.size()));
  decode::Decoder decoder(weights, own_memory(), 1, static_cast<std::int64_t>(expected.size()));
  decoder.reset({1});
  decoder.step();
  const Statistics before = statistics(device);
  const std::size_t allocations = testing::allocations;
  for (std::size_t i = 1; i < expected.size(); ++i) decoder.step();
  const std::size_t allocated = testing::allocations - allocations;
#ifndef KILN_SANITIZED  // which has its own allocator
  if (!testing::is_emulated(*backend)) {
    EXPECT_EQ(allocated, 0U);
  }
#endif
  std::vector<std::int32_t> tokens = decoder.tokens();
  EXPECT_EQ(tokens.front(), 1);
  tokens.erase(tokens.begin());
  EXPECT_EQ(tokens, expected);
  const Statistics after = statistics(device);
  EXPECT_EQ(after.plans, before.plans);
  EXPECT_EQ(after.kernels, before.kernels);
}

// Against logits computed in f64, after the tokens that the model says.
TEST_P(Stories, HaveTheLogitsOfTheModel) {
  EXPECT_LT(errors_of_logits(DType::f32, DType::f32).element, 1e-5);
}
TEST_P(Stories, HaveNearlyTheLogitsOfTheModelInNarrowFloats) {
  EXPECT_LT(errors_of_logits(DType::bf16, DType::f16).norm, 1e-2);
}

// Sequences of a batch stand beside each other, each at its own position.
TEST_P(Stories, OfABatchAreThoseOfEach) {
  const decode::Weights weights = decode::stories260k(file, own_memory());
  std::vector<std::int32_t> expected = elements<std::int32_t>(file.at("greedy_tokens"));
  expected.resize(tokens_of(24));
  expected.insert(expected.begin(), 1);
  const auto positions = static_cast<std::int64_t>(expected.size() - 1);
  constexpr std::int64_t kBatch = 3;
  decode::Decoder decoder(weights, own_memory(), kBatch, positions);
  // A prompt is what the model would have said.
  decoder.reset({expected.begin(), expected.begin() + 3});
  for (std::int64_t i = 0; i < positions; ++i) decoder.step();
  for (std::int64_t sequence = 0; sequence < kBatch; ++sequence) {
    EXPECT_EQ(decoder.tokens(sequence), expected);
  }
}

KILN_ON_EVERY_DEVICE(Stories);

}  // namespace
}  // namespace kiln
