// Makes the library use the compiler that belongs to the CUDA driver made for tests. Linked into
// the tests that run over that driver.
#include <cstdlib>

namespace {
const int chosen = setenv("KILN_NVRTC", KILN_HOST_NVRTC, 1);
}  // namespace
