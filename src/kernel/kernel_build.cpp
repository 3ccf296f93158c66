#include "kernel/kernel_build.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>

#include "base/configuration.hpp"
#include "kernel/process_cache.hpp"
#include "kernel/remote_compile.hpp"
#include "kiln/error.hpp"

namespace kiln {
namespace {

Error cancelled_error(const jit::CompileRequest& request) {
  return Error(Code::would_compile, fmt::format("{}: the compile for {} was cancelled",
                                                request.function, request.target));
}

void warn_unidentified(const jit::Toolchain& toolchain) {
  log_once(LogLevel::warning, "toolchain identity " + toolchain.path,
           fmt::format("cannot tell which compiler {} is, so what it makes is not kept on disk",
                       toolchain.path));
}

class Build {
 public:
  Build(std::span<const KernelRequest> requests, std::span<const NamedKernel> names,
        BuildControl& control)
      : requests_(requests),
        control_(control),
        results_(requests.size()),
        kernels_(requests.size()) {
    for (std::size_t i = 0; i < requests.size(); ++i) named(i) = names[i];
  }

  std::vector<BuildResult> run() {
    find_compilers();
    std::erase_if(missing_, [this](std::size_t i) { return found(i); });
    if (!missing_.empty() && can_be_kept(missing_.front())) {
      lock_missing();
      fetch_missing();
    }
    const auto deadline = std::chrono::steady_clock::now() + process_cache().config().wait_limit;
    for (int turn = 0; !missing_.empty();) {
      std::vector<std::size_t> elsewhere = claim_missing(deadline);
      if (missing_.empty() && !elsewhere.empty()) process_cache().pause_for_others(turn++);
      if (missing_.size() < 2 || !compile_as_one()) compile_one_by_one();
      publish();
      missing_ = std::move(elsewhere);
    }
    return std::move(results_);
  }

 private:
  struct Kernel {
    cache::Entry entry;                    // once it is compiled
    std::unique_ptr<cache::KeyLock> lock;  // against other processes, until it is published
    std::unique_ptr<cache::Lease> lease;   // against other machines
  };

  NamedKernel& named(std::size_t i) { return results_[i].code.named; }
  bool can_be_kept(std::size_t i) { return !named(i).toolchain.identity.empty(); }

  // Without a compiler for the target, nothing stays missing.
  void find_compilers() {
    std::vector<std::size_t> elsewhere;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      results_[i].failure = failure_of([&] {
        if (requests_[i].any_toolchain) named(i).toolchain = toolchain_of(requests_[i]);
        if (!named(i).toolchain.path.empty()) {
          compile_here(i);
        } else if (auto code = find_any_toolchain(requests_[i], true)) {
          results_[i].code = *std::move(code);
        } else {
          elsewhere.push_back(i);
        }
      });
    }
    if (!elsewhere.empty()) ask_compile_servers(elsewhere);
  }

  void compile_here(std::size_t i) {
    if (!can_be_kept(i)) warn_unidentified(named(i).toolchain);
    missing_.push_back(i);
  }

  void ask_compile_servers(const std::vector<std::size_t>& elsewhere) {
    std::vector<const KernelRequest*> requests;
    for (const std::size_t i : elsewhere) requests.push_back(&requests_[i]);
    std::vector<BuildResult> compiled = compile_remotely(requests, control_);
    for (std::size_t k = 0; k < elsewhere.size(); ++k) {
      const std::size_t i = elsewhere[k];
      const std::optional<Failure>& remote = compiled[k].failure;
      if (!remote) {
        results_[i] = std::move(compiled[k]);
        continue;
      }
      if (remote->code == Code::would_compile) {  // it was cancelled
        results_[i].failure = remote;
        continue;
      }
      // Says which compiler is missing, or finds one, which KILN_COMPILE=remote is to spare or
      // which has come meanwhile.
      results_[i].failure = failure_of([&] {
        named(i) = name_with(requests_[i], jit::toolchain(jit::toolchain_for(requests_[i].target)));
        log_once(LogLevel::warning, "compiled here",
                 fmt::format("{}; compiling here", remote->message));
        compile_here(i);
      });
      if (!results_[i].failure || remote->message.empty()) continue;
      // What a compile server says of the source is worth more than that nobody can compile here.
      results_[i].failure = remote->code != Code::not_found
                                ? *remote
                                : Failure{remote->code, fmt::format("{}. {}", remote->message,
                                                                    results_[i].failure->message)};
    }
  }

  void take(std::size_t i, cache::Entry entry, CacheState state = CacheState::disk) {
    results_[i].code.code = std::move(entry.code);
    results_[i].code.state = state;
  }

  bool found(std::size_t i) {
    if (!can_be_kept(i)) return false;
    auto entry = process_cache().find(named(i).key);
    if (!entry) return false;
    const bool was_remote = process_cache().take_prefetched(named(i).key);
    take(i, *std::move(entry), was_remote ? CacheState::remote : CacheState::disk);
    return true;
  }

  // Takes the right to compile each key; in one order everywhere, so that no two builds with
  // kernels in common wait for each other. What another process publishes meanwhile is not missing
  // any more.
  void lock_missing() {
    const auto deadline = std::chrono::steady_clock::now() + process_cache().config().wait_limit;
    std::ranges::sort(missing_, {}, [this](std::size_t i) { return named(i).key.hex(); });
    std::erase_if(missing_, [&](std::size_t i) {
      cache::Locked locked = process_cache().lock(named(i).key, deadline);
      kernels_[i].lock = std::move(locked.lock);
      if (locked.entry) take(i, *std::move(locked.entry));
      return locked.entry.has_value();
    });
  }

  // What another machine has compiled is not missing any more, here and for who waits for a lock.
  void fetch_missing() {
    std::vector<cache::Key> keys;
    for (const std::size_t i : missing_) keys.push_back(named(i).key);
    std::vector<std::optional<cache::Entry>> fetched = process_cache().fetch(keys);
    std::size_t next = 0;
    std::erase_if(missing_, [&](std::size_t i) {
      std::optional<cache::Entry>& entry = fetched[next++];
      if (!entry) return false;
      take(i, *std::move(entry), CacheState::remote);
      kernels_[i].lock.reset();
      return true;
    });
  }

  // What this machine compiles stays missing; what another one compiles until the deadline is
  // given.
  std::vector<std::size_t> claim_missing(std::chrono::steady_clock::time_point deadline) {
    std::vector<std::size_t> elsewhere;
    if (!can_be_kept(missing_.front())) return elsewhere;
    std::vector<cache::Key> keys;
    for (const std::size_t i : missing_) keys.push_back(named(i).key);
    std::vector<cache::Cache::Claim> claims = process_cache().claim(keys);
    const bool waits = std::chrono::steady_clock::now() < deadline && !control_.is_cancelled();
    std::size_t next = 0;
    std::erase_if(missing_, [&](std::size_t i) {
      cache::Cache::Claim& claim = claims[next++];
      kernels_[i].lease = std::move(claim.lease);
      if (claim.entry) {
        take(i, *std::move(claim.entry), CacheState::remote);
        kernels_[i].lock.reset();
        return true;
      }
      if (!claim.elsewhere || !waits) return false;
      elsewhere.push_back(i);
      return true;
    });
    return elsewhere;
  }

  void compile_one_by_one() {
    for (const std::size_t i : missing_) {
      results_[i].failure = failure_of([&] {
        jit::CompileRequest job = compile_request(requests_[i], named(i));
        const jit::CompileResult result = control_.compile(job);
        keep(i, result, std::move(job.source));
      });
    }
  }

  // False if they have to be compiled one by one, because one of them may be to blame.
  bool compile_as_one() {
    jit::CompileRequest unit =
        compile_request(requests_[missing_.front()], named(missing_.front()));
    std::vector<SourcePart> parts;
    for (const std::size_t i : missing_) parts.push_back({&requests_[i], named(i).entry_name});
    unit.source = complete_source(parts);
    jit::CompileResult result;
    const std::optional<Failure> failure = failure_of([&] { result = control_.compile(unit); });
    if (failure && failure->code == Code::compile_failed) return false;
    result.milliseconds /= static_cast<double>(missing_.size());
    for (const std::size_t i : missing_) {
      results_[i].failure = failure ? failure : failure_of([&] { keep(i, result, unit.source); });
    }
    return true;
  }

  void keep(std::size_t i, const jit::CompileResult& result, std::string source) {
    kernels_[i].entry = make_entry(requests_[i], named(i), result, std::move(source));
    results_[i].code.log = result.log;
    results_[i].code.compile_ms = result.milliseconds;
  }

  void publish() {
    for (const std::size_t i : missing_) {
      if (!results_[i].failure) {
        if (can_be_kept(i)) process_cache().publish(named(i).key, kernels_[i].entry);
        results_[i].code.code = std::move(kernels_[i].entry.code);
      }
      kernels_[i].lease.reset();
      kernels_[i].lock.reset();
    }
  }

  const std::span<const KernelRequest> requests_;
  BuildControl& control_;
  std::vector<BuildResult> results_;
  std::vector<Kernel> kernels_;
  std::vector<std::size_t> missing_;  ///< not in the cache, and ours to compile
};

}  // namespace

std::optional<KernelCode> find_any_toolchain(const KernelRequest& request, bool may_wait) {
  cache::Cache& cache = process_cache();
  const std::vector<cache::Ingredient> ingredients = ingredients_of(request, {});
  auto key = cache.find_any_toolchain(ingredients);
  std::optional<cache::Entry> entry = key ? cache.find(*key) : std::nullopt;
  CacheState state = entry && cache.take_prefetched(*key) ? CacheState::remote : CacheState::disk;
  if (!entry && may_wait) {
    if (auto other = cache.fetch_any_toolchain(ingredients)) {
      key = other->key;
      entry = std::move(other->entry);
      state = CacheState::remote;
    }
  }
  if (!entry) return std::nullopt;
  log_once(LogLevel::info, "any toolchain " + entry->metadata.toolchain_identity,
           fmt::format("no compiler for {} here; using what {} has compiled", request.target,
                       entry->metadata.toolchain));
  KernelCode code;
  code.named.key = *key;
  code.named.key_text = key->hex();
  code.named.entry_name = std::move(entry->metadata.entry);
  code.code = std::move(entry->code);
  code.state = state;
  return code;
}

Error error_of(const Failure& failure) {
  return Error(failure.code, failure.message, failure.driver_code);
}

std::optional<Failure> failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const jit::CompileRefused& error) {
    return Failure{error.code(), error.what(), true};
  } catch (const Error& error) {
    return Failure{error.code(), error.what(), false, error.driver_code()};
  } catch (const std::exception& error) {
    return Failure{Code::internal, error.what()};
  }
  return std::nullopt;
}

KernelInfo info_of(const KernelCode& code) {
  KernelInfo info;
  info.entry = code.named.entry_name;
  info.key = code.named.key_text;
  info.cache = code.state;
  info.compile_ms = code.state == CacheState::compiled ? code.compile_ms : 0;
  return info;
}

jit::CompileResult BuildControl::compile(jit::CompileRequest request) {
  jit::CompileHandle handle;
  {
    const std::lock_guard lock(mutex_);
    if (cancelled_) throw cancelled_error(request);
    request.background = priority_ == Priority::background;
    handle_ = handle = jit::compile_async(request);
  }
  try {
    return handle.get();
  } catch (const Error&) {
    const std::lock_guard lock(mutex_);
    if (cancelled_) throw cancelled_error(request);
    throw;
  }
}

bool BuildControl::is_cancelled() {
  const std::lock_guard lock(mutex_);
  return cancelled_;
}

BuildControl::Priority BuildControl::priority() {
  const std::lock_guard lock(mutex_);
  return priority_;
}

void BuildControl::raise_priority() {
  const std::lock_guard lock(mutex_);
  if (priority_ == Priority::foreground) return;
  priority_ = Priority::foreground;
  if (handle_.valid()) handle_.raise_priority();
}

void BuildControl::cancel() {
  const std::lock_guard lock(mutex_);
  if (priority_ == Priority::foreground) return;
  cancelled_ = true;
  if (handle_.valid()) handle_.cancel();
}

void RemoteKeys::add(const KernelRequest& request) {
  const NamedKernel named = name_kernel(request);
  if (request.any_toolchain) keys_.insert(named.key);
  if (named.toolchain.path.empty()) {
    sources_.insert(source_key(request));
  } else if (!named.toolchain.identity.empty()) {
    keys_.insert(named.key);
  }
}

std::vector<cache::Key> RemoteKeys::find() const {
  std::unordered_set<cache::Key> keys = keys_;
  const std::vector<cache::Key> sources(sources_.begin(), sources_.end());
  for (const std::optional<cache::Key>& key : process_cache().find_sources(sources)) {
    if (key) keys.insert(*key);
  }
  return {keys.begin(), keys.end()};
}

std::optional<KernelCode> find_code(const KernelRequest& request, const NamedKernel& named) {
  // What is compiled in the background is looked for on the server there, and nobody waits for it.
  const OnMiss on_miss = base::on_miss_of(request.options.on_miss);
  const bool may_wait = on_miss != OnMiss::background && on_miss != OnMiss::fallback;
  if (!request.any_toolchain) {
    if (named.toolchain.path.empty()) return find_any_toolchain(request, may_wait);
    if (named.toolchain.identity.empty()) return std::nullopt;
  }
  CacheState state = CacheState::disk;
  std::optional<cache::Entry> entry = process_cache().find(named.key);
  if (!entry && request.any_toolchain) return find_any_toolchain(request, false);
  if (!entry && may_wait) {
    entry = std::move(process_cache().fetch({&named.key, 1}).front());
    state = CacheState::remote;
  }
  if (!entry) return std::nullopt;
  return KernelCode{named, std::move(entry->code), {}, state, 0};
}

std::vector<BuildResult> build_kernels(std::span<const KernelRequest> requests,
                                       std::span<const NamedKernel> names, BuildControl& control) {
  return Build(requests, names, control).run();
}

KernelCode build_kernel(const KernelRequest& request) {
  BuildControl control(BuildControl::Priority::foreground);
  const NamedKernel named = name_kernel(request);
  BuildResult result = std::move(build_kernels({&request, 1}, {&named, 1}, control).front());
  if (result.failure) throw Error(result.failure->code, result.failure->message);
  return std::move(result.code);
}

BuildResult rebuild_kernel(const KernelRequest& request, const NamedKernel& named,
                           const KernelCode& refused, std::string_view reason,
                           BuildControl& control) {
  if (!refused.named.key_text.empty()) process_cache().reject(refused.named.key, reason);
  return std::move(build_kernels({&request, 1}, {&named, 1}, control).front());
}

}  // namespace kiln
