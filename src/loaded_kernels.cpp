#include "loaded_kernels.hpp"

#include <map>
#include <mutex>
#include <span>

#include "kiln/error.hpp"

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

}  // namespace

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
  KernelCode code = make_code(request, std::move(named));
  info.entry = code.entry_name;
  info.key = code.key_text;
  std::shared_ptr<jit::Kernel> kernel;
  try {
    kernel = backend.load(bytes_of(code.code), code.entry_name);
  } catch (const Error& error) {
    if (code.state != CacheState::disk) throw;
    code = remake_code(request, code, error.what());
    kernel = backend.load(bytes_of(code.code), code.entry_name);
  }
  info.cache = code.state;
  info.compile_ms = code.state == CacheState::compiled ? code.compile_ms : 0;
  return loaded_kernels().insert(&backend, wanted, std::move(kernel));
}

}  // namespace kiln
