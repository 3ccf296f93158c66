// What the cache tests share: entries that look like real ones, and a record of what was logged.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/bundle.hpp"
#include "cache/cache.hpp"
#include "kiln/error.hpp"
#include "tests/support/temporary_directory.hpp"

namespace kiln::cache {

namespace fs = std::filesystem;

using kiln::testing::read_file;
using kiln::testing::TemporaryDirectory;

enum class From : std::uint8_t { disk, compiled };
struct Fetched {
  Entry entry;
  From from = From::compiled;
};

/// What a build of kernels does with a cache: look, else take the lock, compile and publish.
inline Fetched fetch(Cache& cache, const Key& key, const std::function<Entry()>& compile) {
  if (auto found = cache.find(key)) return {*std::move(found), From::disk};
  Locked locked = cache.lock(key, std::chrono::steady_clock::now() + cache.config().wait_limit);
  if (locked.entry) return {*std::move(locked.entry), From::disk};
  Fetched fetched{compile(), From::compiled};
  cache.publish(key, fetched.entry);
  return fetched;
}

/// A parent for temporary directories: in memory where there is room for `bytes`, because thousands
/// of small files take minutes on a slow or busy disk.
inline std::string fast_directory(std::uintmax_t bytes) {
  std::error_code error;
  const bool fits = fs::space("/dev/shm", error).available > bytes && !error;
  return fits ? "/dev/shm" : fs::temp_directory_path().string();
}

/// The bytes of the bundle of those entry files, signed if there is a secret.
inline std::string encode_bundle(const std::map<Key, std::string>& files, const Secret& secret) {
  const auto memory_file = [] { return base::UniqueFd(::memfd_create("bundle", MFD_CLOEXEC)); };
  BundleWriter writer(base::system_io(), memory_file(), secret);
  for (const auto& [key, file] : files) EXPECT_TRUE(writer.add(key, file));
  const base::UniqueFd written = memory_file();
  EXPECT_TRUE(writer.write(written));
  std::string bytes;
  struct stat status = {};
  EXPECT_EQ(::fstat(written.get(), &status), 0);
  const auto size = static_cast<std::uint64_t>(status.st_size);
  EXPECT_TRUE(base::read_bytes(base::system_io(), written.get(), 0, size, bytes));
  return bytes;
}

/// Bytes that no compressor shrinks, the same for the same seed.
inline std::string noise(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(generator());
  return bytes;
}

/// An ELF header without tables, and `size` bytes after it.
inline std::string elf(std::size_t size, std::uint64_t seed = 1) {
  std::string code(64, '\0');
  code.replace(0, 7,
               std::string_view("\x7f"
                                "ELF\x02\x01\x01",
                                7));
  return code + noise(size, seed);
}

inline std::vector<Ingredient> sample_ingredients(std::uint64_t number = 0) {
  return {{"source", "__global__ void k() { /* " + std::to_string(number) + " */ }"},
          {"option", "-O3"},
          {"option", "--gpu-max-threads-per-block=256"},
          {"target", "gfx90a:sramecc+:xnack-"},
          {"toolchain", "comgr:1234abcd"},
          {"wave_size", "64"}};
}

inline Key sample_key(std::uint64_t number = 0) { return make_key(sample_ingredients(number)); }

inline Entry sample_entry(std::uint64_t number = 0, std::size_t code_size = 300) {
  Entry entry;
  Metadata& metadata = entry.metadata;
  metadata.function = "swiglu";
  metadata.expression = "silu(gate) * up";
  metadata.signature = "bf16[r2] bf16[r2] -> bf16[r2]";
  metadata.target = "gfx90a:sramecc+:xnack-";
  metadata.toolchain = "HIP 5.2.21153";
  metadata.toolchain_identity = "comgr:1234abcd";
  metadata.options = {"-O3", "--gpu-max-threads-per-block=256"};
  metadata.ingredients = summarise(sample_ingredients(number));
  metadata.compile_ms = 412.25;
  metadata.created = 1'700'000'000;
  metadata.registers = 24;
  metadata.sgprs = 40;
  metadata.lds = 0;
  metadata.scratch = 16;
  metadata.entry = "kiln_swiglu_0123456789abcdef";
  metadata.kiln_version = "0.1.0";
  metadata.launch = R"({"vector":8})";
  entry.source = sample_ingredients(number)[0].value;
  entry.code = elf(code_size, number);
  return entry;
}

inline void write_text(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary)
      .write(text.data(), static_cast<std::streamsize>(text.size()));
}

inline Config config_for(const std::string& directory) {
  Config config;
  config.directory = directory;
  return config;
}

inline std::string path_of(const std::string& directory, const Key& key) {
  return directory + "/" + key.hex().substr(0, 2) + "/" + entry_name(key);
}

/// How many files of that directory tree have a name that contains `part`.
inline std::size_t count_files(const std::string& directory, std::string_view part) {
  std::size_t count = 0;
  std::error_code error;
  for (const auto& file : fs::recursive_directory_iterator(directory, error)) {
    count +=
        !file.is_directory() && file.path().filename().string().find(part) != std::string::npos;
  }
  return count;
}
inline std::size_t count_quarantined(const std::string& directory) {
  std::error_code error;
  const fs::directory_iterator files(directory + "/quarantine", error);
  return error ? 0 : static_cast<std::size_t>(std::distance(files, fs::directory_iterator()));
}

/// Collects what kiln logs while it lives.
class LogRecord {
 public:
  LogRecord() {
    set_log([this](LogLevel, std::string_view line) {
      const std::lock_guard lock(mutex_);
      text_ += std::string(line) + "\n";
    });
  }
  ~LogRecord() { set_log({}); }
  LogRecord(const LogRecord&) = delete;
  LogRecord& operator=(const LogRecord&) = delete;
  std::string text() {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  std::mutex mutex_;
  std::string text_;
};

}  // namespace kiln::cache
