#include "base/profiler_ranges.hpp"

#include <iterator>
#include <string>
#include <vector>

#include "base/dynamic_library.hpp"
#include "base/environment.hpp"

namespace kiln::base {
namespace {

constexpr const char* kOfAmd[] = {"librocprofiler-sdk-roctx.so.1", "libroctx64.so.4"};
constexpr const char* kOfNvidia[] = {"libnvToolsExt.so.1", "libnvtx3interop.so.1"};

// The library that the setting names or, without it, one that somebody else has use for.
DynamicLibrary find_library() {
  const std::string setting = environment("KILN_PROFILER_RANGES");
  if (setting == "off" || setting == "0") return {};
  if (!setting.empty() && setting != "on" && setting != "1") return DynamicLibrary(setting);
  std::vector<std::string> names(std::begin(kOfAmd), std::end(kOfAmd));
  names.insert(names.end(), std::begin(kOfNvidia), std::end(kOfNvidia));
  for (const std::string& name : names) {
    if (DynamicLibrary loaded = DynamicLibrary::find_loaded(name)) return loaded;
  }
  if (!setting.empty()) return DynamicLibrary(names);
  if (environment("NVTX_INJECTION64_PATH").empty()) return {};
  return DynamicLibrary(std::vector<std::string>(std::begin(kOfNvidia), std::end(kOfNvidia)));
}

RangeFunctions find_functions() {
  DynamicLibrary library = find_library();
  if (!library) return {};
  RangeFunctions found;
  for (const std::string prefix : {"roctx", "nvtx"}) {
    if (found.push != nullptr && found.pop != nullptr) break;
    found.push =
        reinterpret_cast<int (*)(const char*)>(library.symbol((prefix + "RangePushA").c_str()));
    found.pop = reinterpret_cast<int (*)()>(library.symbol((prefix + "RangePop").c_str()));
  }
  if (found.push == nullptr || found.pop == nullptr) return {};
  library.keep_loaded();
  return found;
}

}  // namespace

const RangeFunctions& range_functions() {
  static const RangeFunctions functions = find_functions();
  return functions;
}

}  // namespace kiln::base
