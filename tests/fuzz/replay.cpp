// Runs a fuzzer's function over the files that are named, or that are in the directories named:
// what libFuzzer does with a corpus, in a build by any compiler. No bytes at all are an input too.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

std::vector<std::filesystem::path> inputs_of(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return {path};
  std::vector<std::filesystem::path> inputs;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) inputs.push_back(entry.path());
  }
  return inputs;
}

}  // namespace

int main(int count, char** arguments) {
  const std::uint8_t none = 0;
  LLVMFuzzerTestOneInput(&none, 0);
  std::size_t replayed = 1;
  for (int i = 1; i < count; ++i) {
    for (const std::filesystem::path& path : inputs_of(arguments[i])) {
      std::ifstream file(path, std::ios::binary);
      const std::string bytes(std::istreambuf_iterator<char>(file), {});
      if (!file) {
        std::fprintf(stderr, "%s: cannot be read\n", path.c_str());
        return 1;
      }
      std::fprintf(stderr, "%s\n",
                   path.c_str());  // the last one printed is the one that ends the run
      LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
      ++replayed;
    }
  }
  std::fprintf(stderr, "%zu inputs\n", replayed);
}
