#include "kernel_code.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "fusion/emit.hpp"
#include "kiln/error.hpp"
#include "preamble/preamble.hpp"

namespace kiln {
namespace {

bool contracts(const Options& options) { return options.accuracy == Accuracy::fast; }

std::string options_text(const Options& options) {
  static constexpr std::string_view kAccuracy[] = {"storage", "fast", "strict"};
  return fmt::format("round {}, accuracy {}", options.rounding == Rounding::once ? "once" : "each",
                     kAccuracy[static_cast<std::size_t>(options.accuracy)]);
}

// What precedes the request's own text in what is compiled.
std::string_view text_before() {
  static const std::string before = std::string(preamble::text()) + '\n';
  return before;
}

// The key's ingredients but for the source, in their order.
std::vector<cache::Ingredient> settings_of(const KernelRequest& request,
                                           const std::string& identity) {
  std::vector<cache::Ingredient> ingredients;
  for (std::string& option : jit::compile_options(request.target, contracts(request.options))) {
    ingredients.push_back({"option", std::move(option)});
  }
  ingredients.push_back({"target", request.target});
  ingredients.push_back({"toolchain", identity});
  for (const auto& [variable, value] : jit::compiler_environment()) {
    ingredients.push_back({"env." + variable, value});
  }
  return ingredients;
}

std::vector<cache::Ingredient> ingredients_of(const KernelRequest& request,
                                              const std::string& identity) {
  std::vector<cache::Ingredient> ingredients = settings_of(request, identity);
  ingredients.insert(ingredients.begin(), {"source", std::string(text_before()) + request.text});
  return ingredients;
}

KernelCode name_with(const KernelRequest& request, jit::Toolchain toolchain) {
  const std::vector<cache::Ingredient> settings = settings_of(request, toolchain.identity);
  cache::KeyHasher hasher(1 + settings.size());
  hasher.add("source", {text_before(), request.text});
  for (const cache::Ingredient& one : settings) hasher.add(one.tag, {one.value});
  KernelCode code;
  code.key = hasher.finish();
  code.entry_name = cache::module_name(request.function, code.key);
  if (!toolchain.identity.empty()) code.key_text = code.key.hex();
  code.toolchain = std::move(toolchain);
  return code;
}

cache::Entry compile_entry(const KernelRequest& request, KernelCode& named) {
  jit::CompileRequest job;
  job.function = request.function;
  job.entry = named.entry_name;
  job.source = complete_source(request, named.entry_name);
  job.target = request.target;
  job.options = jit::compile_options(request.target, contracts(request.options));
  jit::CompileResult result = jit::compile(job);
  named.log = std::move(result.log);
  named.compile_ms = result.milliseconds;

  cache::Entry entry;
  entry.code = std::move(result.code);
  entry.source = std::move(job.source);
  cache::Metadata& metadata = entry.metadata;
  metadata.function = request.function;
  metadata.expression = request.expression;
  metadata.signature = request.signature;
  metadata.target = request.target;
  metadata.toolchain = named.toolchain.version;
  metadata.toolchain_identity = named.toolchain.identity;
  metadata.options = job.options;
  metadata.ingredients = cache::summarise(ingredients_of(request, named.toolchain.identity));
  metadata.compile_ms = result.milliseconds;
  metadata.entry = named.entry_name;
  metadata.launch = options_text(request.options);
  const jit::Resources resources = jit::resources(entry.code, metadata.entry);
  metadata.registers = resources.vgprs;
  metadata.sgprs = resources.sgprs;
  metadata.lds = resources.lds;
  metadata.scratch = resources.scratch;
  metadata.spills = resources.spills;
  return entry;
}

[[noreturn]] void throw_would_compile(const KernelRequest& request) {
  throw Error(
      Code::would_compile,
      fmt::format("{}: no kernel for {} ({}) is in the cache, and on_miss forbids compiling "
                  "in the call",
                  request.function, request.target, request.signature));
}

// Code that somebody else's compiler has made of the same source with the same options: all that a
// machine without a compiler can use. The entry has a name and a key of its own.
std::optional<KernelCode> find_made_elsewhere(const KernelRequest& request) {
  cache::Cache& cache = process_cache();
  const auto key = cache.find_made_elsewhere(ingredients_of(request, {}));
  std::optional<cache::Entry> entry = key ? cache.find(*key) : std::nullopt;
  if (!entry) return std::nullopt;
  log_once(LogLevel::info, "made elsewhere " + entry->metadata.toolchain_identity,
           fmt::format("no compiler for {} here; using what {} has compiled", request.target,
                       entry->metadata.toolchain));
  KernelCode code;
  code.key = *key;
  code.key_text = key->hex();
  code.entry_name = std::move(entry->metadata.entry);
  code.code = std::move(entry->code);
  code.state = CacheState::disk;
  return code;
}

}  // namespace

cache::Cache& process_cache() {
  // Never destroyed: a thread of the caller may still launch while the process ends.
  static auto* const cache = [] {
    auto* const opened =
        new std::shared_ptr<cache::Cache>(cache::Cache::open(cache::Config::from_environment()));
    // What it counted since it last wrote the counts is added when the process ends.
    std::atexit([] { process_cache().flush_stats(); });
    return opened;
  }();
  return **cache;
}

KernelCode name_kernel(const KernelRequest& request) {
  jit::Toolchain toolchain;
  try {
    toolchain = jit::toolchain(jit::toolchain_for(request.target));
  } catch (const Error& error) {
    if (error.code() != Code::not_found) throw;
  }
  return name_with(request, std::move(toolchain));
}

std::string complete_source(const KernelRequest& request, std::string_view entry_name) {
  return std::string(text_before()) + fusion::with_entry(request.text, entry_name);
}

KernelCode make_code(const KernelRequest& request) {
  return make_code(request, name_kernel(request));
}

KernelCode make_code(const KernelRequest& request, KernelCode named) {
  if (named.toolchain.path.empty()) {
    if (auto found = find_made_elsewhere(request)) return *std::move(found);
    // Says which compiler is missing, or finds one that has come meanwhile.
    named = name_with(request, jit::toolchain(jit::toolchain_for(request.target)));
  }
  const bool persistent = !named.toolchain.identity.empty();
  if (request.options.on_miss != OnMiss::compile) {
    std::optional<cache::Entry> found;
    if (persistent) found = process_cache().find(named.key);
    if (!found) throw_would_compile(request);
    named.code = std::move(found->code);
    named.state = CacheState::disk;
    return named;
  }
  if (!persistent) {
    log_once(LogLevel::warning, "toolchain identity " + named.toolchain.path,
             fmt::format("cannot tell which compiler {} is, so what it makes is not kept on disk",
                         named.toolchain.path));
    named.code = compile_entry(request, named).code;
    return named;
  }
  cache::Fetched fetched =
      process_cache().get(named.key, [&] { return compile_entry(request, named); });
  named.state = fetched.from == cache::From::disk ? CacheState::disk : CacheState::compiled;
  named.code = std::move(fetched.entry.code);
  return named;
}

KernelCode remake_code(const KernelRequest& request, const KernelCode& refused,
                       std::string_view reason) {
  if (!refused.key_text.empty()) process_cache().reject(refused.key, std::string(reason));
  return make_code(request);
}

}  // namespace kiln
