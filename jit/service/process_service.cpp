// The service of this process, behind the functions of compile.hpp.
#include <pthread.h>

#include <atomic>
#include <mutex>

#include "jit/service/service.hpp"

namespace kiln::jit {

Service& Service::instance() {
  // Never destroyed: when the process ends its workers see their sockets close. A forked child has
  // none of the threads, so it leaves the copy alone and makes a service of its own.
  static std::mutex mutex;
  static std::atomic<Service*> current{nullptr};
  if (Service* service = current.load(std::memory_order_acquire)) return *service;
  const std::lock_guard lock(mutex);
  static const int registered = pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); },
                                               [] {
                                                 current.store(nullptr);
                                                 mutex.unlock();
                                               });
  (void)registered;
  if (current.load() == nullptr) current.store(new Service(settings_from_environment()));
  return *current.load();
}

CompileHandle compile_async(CompileRequest request) {
  return Service::instance().compile_async(std::move(request));
}

CompileResult compile(const CompileRequest& request) { return compile_async(request).get(); }

int compile_jobs() { return Service::instance().jobs(); }

std::chrono::milliseconds compile_deadline() { return Service::instance().deadline(); }

std::vector<std::string> known_targets(ToolchainKind kind) {
  return Service::instance().known_targets(toolchain(kind));
}

std::string disassemble(std::string_view code, std::string_view target) {
  return Service::instance().disassemble(code, target);
}

}  // namespace kiln::jit
