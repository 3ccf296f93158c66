#include "kernel/loaded_kernels.hpp"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <span>

#include "kiln/error.hpp"
#include "kernel/preparer.hpp"

namespace kiln {
namespace {

// Modules that are loaded, by device and key: calls of another shape or another function with the
// same text share one. They stay for the life of the process, as the plans that use them do.
class LoadedKernels {
 public:
  std::shared_ptr<jit::Kernel> find(const jit::Backend* backend, const cache::Key& key) {
    const std::lock_guard lock(mutex_);
    const auto found = kernels_.find({backend, key});
    return found == kernels_.end() ? nullptr : found->second;
  }
  std::shared_ptr<jit::Kernel> insert(const jit::Backend* backend, const cache::Key& key,
                                      std::shared_ptr<jit::Kernel> kernel) {
    const std::lock_guard lock(mutex_);
    return kernels_.emplace(std::pair(backend, key), std::move(kernel)).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<const jit::Backend*, cache::Key>, std::shared_ptr<jit::Kernel>> kernels_;
};

LoadedKernels& loaded_kernels() {
  static auto* const kernels = new LoadedKernels;
  return *kernels;
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// What Options::on_miss says.
KernelCode code_for_call(jit::Backend& backend, const KernelRequest& request, KernelCode named) {
  if (request.options.on_miss == OnMiss::compile) return make_code(request, std::move(named));
  if (auto found = find_code(request, std::move(named))) return *std::move(found);
  const bool background = request.options.on_miss == OnMiss::background;
  if (background) Preparer::instance().add_missed({request, &backend});
  throw Error(Code::would_compile,
              fmt::format("{}: no kernel for {} ({}) is in the cache, and {}", request.function,
                          request.target, request.signature,
                          background ? "it is being compiled in the background (on_miss)"
                                     : "on_miss forbids compiling in the call"));
}

}  // namespace

bool is_loaded(const jit::Backend& backend, const cache::Key& key) {
  return loaded_kernels().find(&backend, key) != nullptr;
}

std::shared_ptr<jit::Kernel> load_code(jit::Backend& backend, const KernelRequest& request,
                                       KernelCode& code, const cache::Key& wanted) {
  std::shared_ptr<jit::Kernel> kernel;
  try {
    kernel = backend.load(bytes_of(code.code), code.entry_name);
  } catch (const Error& error) {
    if (code.state != CacheState::disk) throw;
    code = remake_code(request, code, error.what());
    kernel = backend.load(bytes_of(code.code), code.entry_name);
  }
  return loaded_kernels().insert(&backend, wanted, std::move(kernel));
}

std::shared_ptr<jit::Kernel> load_kernel(jit::Backend& backend, const KernelRequest& request,
                                         KernelInfo& info) {
  KernelCode named = name_kernel(request);
  info.entry = named.entry_name;
  info.key = named.key_text;
  if (auto kernel = loaded_kernels().find(&backend, named.key)) {
    info.cache = CacheState::memory;
    return kernel;
  }
  const cache::Key wanted = named.key;
  KernelCode code = code_for_call(backend, request, std::move(named));
  auto kernel = load_code(backend, request, code, wanted);
  info.entry = code.entry_name;
  info.key = code.key_text;
  info.cache = code.state;
  info.compile_ms = code.state == CacheState::compiled ? code.compile_ms : 0;
  cache::Cache::reuse(std::move(code.code));
  return kernel;
}

}  // namespace kiln
