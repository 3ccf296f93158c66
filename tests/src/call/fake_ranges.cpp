// A library of profiler ranges that writes down what it is told: "(name" where one begins, ")"
// where it ends.
#include <string>

namespace {
std::string& log() {
  static std::string text;
  return text;
}
}  // namespace

extern "C" {
int roctxRangePushA(const char* name) {
  log() += std::string("(") + name;
  return 0;
}
int roctxRangePop() {
  log() += ")";
  return 0;
}
const char* ranges_so_far() { return log().c_str(); }
}
