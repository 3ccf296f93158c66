#include "kernel_code.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "fusion/emit.hpp"
#include "kiln/error.hpp"
#include "preamble/preamble.hpp"

namespace kiln {
namespace {

std::vector<cache::Ingredient> ingredients_of(const KernelRequest& request, const std::string& text,
                                              const std::vector<std::string>& options,
                                              const std::string& identity) {
  std::vector<cache::Ingredient> ingredients;
  ingredients.push_back({"source", text});
  for (const std::string& option : options) ingredients.push_back({"option", option});
  ingredients.push_back({"target", request.target});
  ingredients.push_back({"toolchain", identity});
  for (const auto& [variable, value] : jit::compiler_environment()) {
    ingredients.push_back({"env." + variable, value});
  }
  return ingredients;
}

bool contracts(const Options& options) { return options.accuracy == Accuracy::fast; }

std::string options_text(const Options& options) {
  static constexpr std::string_view kAccuracy[] = {"storage", "fast", "strict"};
  return fmt::format("round {}, accuracy {}", options.rounding == Rounding::once ? "once" : "each",
                     kAccuracy[static_cast<std::size_t>(options.accuracy)]);
}

struct Named {
  KernelCode code;
  std::vector<cache::Ingredient> ingredients;
  jit::Toolchain toolchain;
};

Named name_with(const KernelRequest& request, jit::Toolchain toolchain) {
  Named named;
  std::string text(preamble::text());
  text += '\n';
  text += request.text;
  named.ingredients = ingredients_of(
      request, text, jit::compile_options(request.target, contracts(request.options)),
      toolchain.identity);
  named.code.key = cache::make_key(named.ingredients);
  named.code.entry_name = cache::module_name(request.function, named.code.key);
  if (!toolchain.identity.empty()) named.code.key_text = named.code.key.hex();
  named.code.source = fusion::with_entry(text, named.code.entry_name);
  named.toolchain = std::move(toolchain);
  return named;
}

cache::Entry compile_entry(const KernelRequest& request, Named& named) {
  jit::CompileRequest job;
  job.function = request.function;
  job.entry = named.code.entry_name;
  job.source = named.code.source;
  job.target = request.target;
  job.options = jit::compile_options(request.target, contracts(request.options));
  jit::CompileResult result = jit::compile(job);
  named.code.log = std::move(result.log);
  named.code.compile_ms = result.milliseconds;

  cache::Entry entry;
  entry.code = std::move(result.code);
  entry.source = named.code.source;
  cache::Metadata& metadata = entry.metadata;
  metadata.function = request.function;
  metadata.expression = request.expression;
  metadata.signature = request.signature;
  metadata.target = request.target;
  metadata.toolchain = named.toolchain.version;
  metadata.toolchain_identity = named.toolchain.identity;
  metadata.options = job.options;
  metadata.ingredients = cache::summarise(named.ingredients);
  metadata.compile_ms = result.milliseconds;
  metadata.entry = named.code.entry_name;
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

KernelCode make_named(const KernelRequest& request, Named named) {
  const bool persistent = !named.toolchain.identity.empty();
  if (request.options.on_miss != OnMiss::compile) {
    std::optional<cache::Entry> found;
    if (persistent) found = process_cache().find(named.code.key);
    if (!found) throw_would_compile(request);
    named.code.code = std::move(found->code);
    named.code.state = CacheState::disk;
    return std::move(named.code);
  }
  if (!persistent) {
    log_once(LogLevel::warning, "toolchain identity " + named.toolchain.path,
             fmt::format("cannot tell which compiler {} is, so what it makes is not kept on disk",
                         named.toolchain.path));
    named.code.code = compile_entry(request, named).code;
    return std::move(named.code);
  }
  cache::Fetched fetched =
      process_cache().get(named.code.key, [&] { return compile_entry(request, named); });
  named.code.state = fetched.from == cache::From::disk ? CacheState::disk : CacheState::compiled;
  named.code.code = std::move(fetched.entry.code);
  return std::move(named.code);
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
  return name_with(request, std::move(toolchain)).code;
}

KernelCode make_code(const KernelRequest& request) {
  return make_named(request,
                    name_with(request, jit::toolchain(jit::toolchain_for(request.target))));
}

KernelCode remake_code(const KernelRequest& request, const KernelCode& refused,
                       std::string_view reason) {
  if (!refused.key_text.empty()) process_cache().reject(refused.key, std::string(reason));
  return make_code(request);
}

}  // namespace kiln
