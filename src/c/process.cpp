// The library, its settings and what there is to run on, in C.
#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "c/boundary.hpp"
#include "c/convert.hpp"
#include "kiln/configure.hpp"
#include "kiln/devices.hpp"
#include "kiln/error.hpp"
#include "kiln/fallback.hpp"
#include "kiln/statistics.hpp"
#include "kiln/version.hpp"

namespace c = kiln::c;

namespace {

static_assert(static_cast<int>(kiln::LogLevel::warning) == KILN_LOG_WARNING);

kiln::LogSink to_sink(kiln_log_function log, void* context) {
  if (log == nullptr) return {};
  return [log, context](kiln::LogLevel level, std::string_view message) {
    log(context, static_cast<int32_t>(level), std::string(message).c_str());
  };
}

kiln::Executor to_executor(kiln_executor_function executor, void* context) {
  if (executor == nullptr) return {};
  return [executor, context](std::size_t parts, const kiln::Task& task) {
    const auto run = [](const void* work, size_t part) {
      (*static_cast<const kiln::Task*>(work))(part);
    };
    c::check_callback(executor(context, parts, run, &task));
  };
}

/// The texts of a device, which live for ever.
const kiln::DeviceInfo& kept_info(kiln::Device device) {
  static auto* const mutex = new std::mutex;
  static auto* const kept = new std::map<std::pair<kiln::DeviceType, int>, kiln::DeviceInfo>;
  kiln::DeviceInfo info = kiln::device_info(device);
  const std::lock_guard lock(*mutex);
  return kept->try_emplace({device.type, device.index}, std::move(info)).first->second;
}

}  // namespace

const char* kiln_version(void) { return kiln::version().data(); }
int32_t kiln_version_number(void) { return KILN_VERSION; }

const char* kiln_dtype_name(int32_t dtype) {
  const bool known = dtype >= 0 && static_cast<size_t>(dtype) < kiln::kDTypes.size();
  return known ? kiln::name(static_cast<kiln::DType>(dtype)).data() : nullptr;
}

kiln_status kiln_set_log(kiln_log_function log, void* context) {
  return c::guard(__func__, [&](const char*) { kiln::set_log(to_sink(log, context)); });
}

kiln_status kiln_configure(const kiln_configuration* configuration, const char* file,
                           int32_t line) {
  return c::guard(__func__, [&](const char* called) {
    c::require(configuration, called, "configuration");
    const kiln_configuration given = c::sized(configuration, called, "configuration");
    kiln::Configuration chosen;
    if (given.cache_directory != nullptr) chosen.cache_directory = given.cache_directory;
    if (given.cache_max_size != nullptr) chosen.cache_max_size = *given.cache_max_size;
    if (given.cache_readonly != nullptr) {
      std::vector<std::string>& layers = chosen.cache_readonly.emplace();
      for (size_t i = 0; i < given.cache_readonly_count; ++i) {
        layers.emplace_back(c::require_text(given.cache_readonly[i], called, "cache_readonly"));
      }
    }
    if (given.worker != nullptr) chosen.worker = given.worker;
    if (given.jobs != 0) chosen.jobs = given.jobs;
    if (given.threads != 0) chosen.threads = given.threads;
    chosen.executor = to_executor(given.executor, given.executor_context);
    if (given.memory_limit != nullptr) chosen.memory_limit = *given.memory_limit;
    if (given.fallback_memory != nullptr) chosen.fallback_memory = *given.fallback_memory;
    if (given.on_miss != nullptr) chosen.on_miss = c::to_on_miss(*given.on_miss, called);
    chosen.log = to_sink(given.log, given.log_context);
    kiln::configure(std::move(chosen), file != nullptr ? file : "an unknown place", line);
  });
}

kiln_status kiln_devices(kiln_device* devices, size_t capacity, size_t* count) {
  return c::guard(__func__, [&](const char* called) {
    c::require(count, called, "count");
    if (capacity != 0) c::require(devices, called, "devices");
    const std::vector<kiln::Device> found = kiln::devices();
    for (size_t i = 0; i < std::min(capacity, found.size()); ++i) {
      devices[i] = c::from_device(found[i]);
    }
    *count = found.size();
  });
}

kiln_status kiln_describe_device(kiln_device device, kiln_device_info* info) {
  return c::guard(__func__, [&](const char* called) {
    c::require_sized(info, called, "info");
    const kiln::DeviceInfo& kept = kept_info(c::to_device(device, called));
    kiln_device_info result{};
    result.name = kept.name.c_str();
    result.target = kept.target.c_str();
    result.compute_units = kept.compute_units;
    result.wave_size = kept.wave_size;
    c::put_sized(info, result);
  });
}

kiln_status kiln_get_statistics(kiln_device device, kiln_statistics* statistics) {
  return c::guard(__func__, [&](const char* called) {
    c::require_sized(statistics, called, "statistics");
    const kiln::Statistics kept = kiln::statistics(c::to_device(device, called));
    kiln_statistics result{};
    result.memory_limit = kept.memory_limit;
    result.plans = kept.plans;
    result.plan_bytes = kept.plan_bytes;
    result.plans_dropped = kept.plans_dropped;
    result.kernels = kept.kernels;
    result.kernel_bytes = kept.kernel_bytes;
    result.kernels_unloaded = kept.kernels_unloaded;
    result.fallbacks = kept.fallbacks;
    c::put_sized(statistics, result);
  });
}

kiln_status kiln_lend_fallback_memory(const kiln_view* memory) {
  return c::guard(__func__, [&](const char* called) {
    kiln::lend_fallback_memory(c::to_view(memory, called, "memory"));
  });
}

kiln_status kiln_for_each_target(kiln_target_visitor visit, void* context) {
  return c::guard(__func__, [&](const char* called) {
    c::require(visit, called, "visit");
    for (const kiln::CompileTarget& target : kiln::compile_targets()) {
      c::check_callback(visit(context, target.name.c_str(), target.compiler.c_str()));
    }
  });
}
