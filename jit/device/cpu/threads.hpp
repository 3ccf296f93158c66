// How many threads the CPU device has, and work cut over them. What is computed is not known here.
#pragma once

#include <cstdint>
#include <string>

namespace kiln::jit::cpu {

/// What kiln::configure() has set, else KILN_CPU_THREADS, else the usable cores
/// (base/usable_cores.hpp). Read once.
int thread_count();

/// A number of threads as KILN_CPU_THREADS gives it. Throws Error(invalid_argument) that names the
/// variable for anything but a whole number from 1 to 4096.
int parse_thread_count(const std::string& text);

/// How [0, items) is cut: into `parts` of `length` items, the last one shorter, none of them
/// empty. There are at most as many parts as threads and as blocks; long ones are multiples of 64
/// items, so that no two cores write into one cache line.
struct Cut {
  std::uint64_t parts = 0;
  std::uint64_t length = 0;
};
Cut cut(std::uint64_t items, std::uint64_t block, int threads);

}  // namespace kiln::jit::cpu
