// A sequence like one token's in a language model, 300 fused calls over real activations: a graph
// gives bit for bit what the calls give one after the other, with other memory and other numbers in
// every replay.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <tuple>

#include "files/tensor_file.hpp"
#include "kiln/kiln.hpp"
#include "tests/support/device_test.hpp"
#include "tests/support/private_cache.hpp"

namespace kiln {
namespace {

constexpr std::int64_t kWidth = 64;
constexpr std::int64_t kHidden = 172;
constexpr std::int64_t kTokens = 63;
constexpr int kLayers = 50;
constexpr int kCallsPerLayer = 6;

/// KILN_TEST_DATA where the tests have been taken elsewhere.
std::string data_file() {
  const char* moved = std::getenv("KILN_TEST_DATA");
  return std::string(moved != nullptr ? moved : KILN_TEST_DATA) + "/tinystories-f32.safetensors";
}

int replays(bool on_gpu) {  // a real one
  const char* wanted = std::getenv("KILN_TEST_REPLAYS");
  return wanted != nullptr ? std::atoi(wanted) : on_gpu ? 1000 : 100;
}

/// What one run of the sequence works on. Eager and graph have one each.
struct State {
  float* x = nullptr;       // the residual stream, in place
  float* normed = nullptr;  // [kWidth]
  float* query = nullptr;   // [kWidth], rotated
  float* hidden = nullptr;  // [kHidden]
  float* down = nullptr;    // [kWidth]
  float* cache = nullptr;   // [kLayers, kTokens, kWidth] as bf16
};

class Decode : public testing::DeviceTest {
 protected:
  void SetUp() override {
    testing::DeviceTest::SetUp();
    if (IsSkipped()) return;
    try {
      for (const char* name : {"x0", "q0", "gate0", "up0", "gate4", "up4", "ffn0", "rope_cos",
                               "rope_sin", "ffn_norm_weight0", "ffn_norm_weight4"}) {
        tensors[name] = load(name);
      }
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }

  float* load(const std::string& name) {
    const files::HostTensor tensor = files::read_tensor(data_file() + ":" + name);
    std::vector<float> values(tensor.bytes.size() / sizeof(float));
    std::memcpy(values.data(), tensor.data(), tensor.bytes.size());
    return allocate(values);
  }

  State make_state() {
    return {zeros(kWidth),  zeros(kWidth), zeros(kWidth),
            zeros(kHidden), zeros(kWidth), zeros(kLayers * kTokens * kWidth / 2)};
  }

  /// Row `token` of a tensor.
  float* row(const char* name, std::int64_t token, std::int64_t width) const {
    return tensors.at(name) + token * width;
  }
  /// The place of a token in the cache of a layer.
  static char* slot(const State& state, int layer, std::int64_t token) {
    return reinterpret_cast<char*>(state.cache) + (layer * kTokens + token) * kWidth * 2;
  }
  View vector(float* data, std::int64_t size) const { return view(data, size); }
  /// Every other number of a vector that is made of pairs, by heads of eight.
  View half(float* data, int which) const {
    return {data + which, DType::f32, {kWidth / 8, 4}, {8, 2}, device};
  }

  const Function start = fuse("start", [](Value embedding) { return embedding * 1; });
  const Function norm = fuse("norm", [](Value x, Value w, Value s) { return x * s * w; });
  const Function rope = fuse("rope", [](Value a, Value b, Value c, Value s) {
    return std::tuple(a * c - b * s, a * s + b * c);
  });
  const Function swiglu = fuse("swiglu", [](Value g, Value u, Value n) { return silu(g) * u + n; });
  const Function project = fuse("project", [](Value h, Value f) { return tanh(h) + f * 0.5; });
  const Function residual = fuse("residual", [](Value x, Value d, Value a) { return x + a * d; });
  const Function remember = fuse("remember", [](Value x) { return cast(x, DType::bf16); });

  /// What differs between tokens.
  static double scale_of(std::int64_t step) { return 0.75 + 0.001 * double(step % 97); }
  static double alpha_of(std::int64_t step) { return 0.0625 * double(1 + step % 5); }

  /// Calls `call(function, inputs, outputs)` for the whole sequence, in order.
  template <class CallOne>
  void each_call(const State& s, std::int64_t token, std::int64_t step, const CallOne& call) {
    for (int layer = 0; layer < kLayers; ++layer) {
      const bool even = layer % 2 == 0;
      const View x = vector(s.x, kWidth);
      const View normed = vector(s.normed, kWidth);
      const View hidden = vector(s.hidden, kHidden);
      const View down = vector(s.down, kWidth);
      const float* const weight = tensors.at(even ? "ffn_norm_weight0" : "ffn_norm_weight4");
      if (layer == 0) {
        call(start, {vector(row("x0", token, kWidth), kWidth)}, {x});
      } else {
        call(swiglu, {down, normed, 0.125}, {normed});
      }
      call(norm, {x, vector(const_cast<float*>(weight), kWidth), scale_of(step)}, {normed});
      float* const q = row("q0", token, kWidth);
      call(rope,
           {half(q, 0), half(q, 1), vector(row("rope_cos", token, 4), 4),
            vector(row("rope_sin", token, 4), 4)},
           {half(s.query, 0), half(s.query, 1)});
      float* const gate = row(even ? "gate0" : "gate4", token, kHidden);
      float* const up = row(even ? "up0" : "up4", token, kHidden);
      call(swiglu, {vector(gate, kHidden), vector(up, kHidden), 0.0}, {hidden});
      if (even) {
        call(project, {View(s.hidden + 4, DType::f32, {kWidth}, device), vector(s.query, kWidth)},
             {down});
      } else {
        call(remember, {x}, {View(slot(s, layer, token), DType::bf16, {kWidth}, device)});
      }
      call(residual, {x, down, alpha_of(step)}, {x});
    }
  }

  std::vector<std::vector<float>> results(const State& s) {
    return {read(s.x, kWidth),     read(s.normed, kWidth),
            read(s.query, kWidth), read(s.hidden, kHidden),
            read(s.down, kWidth),  read(s.cache, kLayers * kTokens * kWidth / 2)};
  }

  std::map<std::string, float*> tensors;
};

bool same_bits(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0) return false;
  }
  return true;
}

TEST_P(Decode, GraphAndCallsAgreeInEveryBitThroughManyReplays) {
  const State eager = make_state();
  const State graphed = make_state();
  std::size_t calls = 0;
  std::vector<std::size_t> norms;
  std::vector<std::size_t> residuals;
  Graph graph = record(device, [&](Recorder& r) {
    each_call(graphed, 0, 0,
              [&](const Function& f, std::initializer_list<Argument> inputs,
                  std::initializer_list<View> outputs) {
                const std::size_t number = r.call(f, inputs, outputs);
                if (&f == &norm) norms.push_back(number);
                if (&f == &residual) residuals.push_back(number);
                ++calls;
              });
  });
  ASSERT_EQ(calls, std::size_t{kLayers * kCallsPerLayer});
  ASSERT_EQ(graph.operations().size(), calls);
  EXPECT_EQ(graph.is_replayed(), on_gpu());

  const auto rebind = [&](const char* name, std::int64_t from, std::int64_t to,
                          std::int64_t width) {
    const auto bytes = static_cast<std::size_t>(width) * sizeof(float);
    EXPECT_GT(graph.rebind(row(name, from, width), row(name, to, width), bytes), 0u);
  };
  std::int64_t last = 0;
  const int count = replays(on_real_gpu());
  for (int step = 0; step < count; ++step) {
    const std::int64_t token = (step * 17) % kTokens;
    if (token != last) {
      for (const char* name : {"x0", "q0"}) rebind(name, last, token, kWidth);
      for (const char* name : {"gate0", "up0", "gate4", "up4"}) rebind(name, last, token, kHidden);
      for (const char* name : {"rope_cos", "rope_sin"}) rebind(name, last, token, 4);
      for (int layer = 1; layer < kLayers; layer += 2) {
        ASSERT_EQ(graph.rebind(slot(graphed, layer, last), slot(graphed, layer, token)), 1u);
      }
      last = token;
    }
    for (const std::size_t number : norms) graph.set_scalar(number, 2, scale_of(step));
    for (const std::size_t number : residuals) graph.set_scalar(number, 2, alpha_of(step));
    graph.launch(stream);
    each_call(eager, token, step,
              [&](const Function& f, std::initializer_list<Argument> inputs,
                  std::initializer_list<View> outputs) { f(stream, inputs, outputs); });
    ASSERT_TRUE(same_bits(results(graphed), results(eager))) << "replay " << step;
  }
  EXPECT_EQ(graph.is_replayed(), on_gpu());
  std::printf("%d replays of %zu calls, %zu edges\n", count, calls, graph.edges().size());
}

KILN_ON_EVERY_DEVICE(Decode);

}  // namespace
}  // namespace kiln
