// The program of README.md, built outside the tree against an installed kiln.
#include <cstdio>
#include <kiln/kiln.hpp>
#include <vector>

int main() {
  // Describe once. Any C++ callable on kiln::Value.
  kiln::Function swiglu =
      kiln::fuse("swiglu", [](kiln::Value gate, kiln::Value up) { return kiln::silu(gate) * up; });

  // Call often, on memory and streams you own. The first call compiles, later ones only launch.
  std::vector<float> gate = {-1, 0, 1, 2}, up = {1, 2, 3, 4}, out(4);
  kiln::Stream stream;  // the CPU's; on an AMD GPU {{kiln::DeviceType::hip, 0}, your_hip_stream}
  auto view = [&](std::vector<float>& array) {
    return kiln::View(array.data(), kiln::DType::f32, {4}, stream.device);
  };
  swiglu(stream, {view(gate), view(up)}, {view(out)});

  for (float value : out) std::printf("%.4f\n", value);  // -0.2689 0.0000 2.1932 7.0464
}
