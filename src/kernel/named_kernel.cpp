#include "kernel/named_kernel.hpp"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <tuple>

#include "fusion/emit/emit.hpp"
#include "kiln/error.hpp"
#include "kiln/option_names.hpp"
#include "preamble/preamble.hpp"

namespace kiln {
namespace {

std::string options_text(const Options& options) {
  return fmt::format("round {}, accuracy {}", name(options.rounding), name(options.accuracy));
}

using Ingredients = std::vector<cache::Ingredient>;

// The preamble as an ingredient: its hash, which is made once. Every kernel has the same one, and
// it is by far the longest thing in a key.
const cache::Ingredient& preamble_ingredient() {
  static const cache::Ingredient one =
      cache::summarise(Ingredients{{"preamble", std::string(preamble::text())}}).front();
  return one;
}

Ingredients text_of(const KernelRequest& request) {
  return {preamble_ingredient(), {"source", request.text}};
}

// Those that kernels of one target and accuracy share.
Ingredients make_settings(const KernelRequest& request, const std::string& identity) {
  Ingredients ingredients;
  for (std::string& option : kernel_options(request)) {
    ingredients.push_back({"option", std::move(option)});
  }
  ingredients.push_back({"target", request.target});
  ingredients.push_back({"toolchain", identity});
  for (const auto& [variable, value] : jit::compiler_environment()) {
    ingredients.push_back({"env." + variable, value});
  }
  return ingredients;
}

// Made once: a process has few targets, and its environment is read once.
const Ingredients& settings_of(const KernelRequest& request, const std::string& identity) {
  static auto* const mutex = new std::mutex;
  static auto* const all = new std::map<std::tuple<std::string, bool, std::string>, Ingredients>;
  const std::lock_guard lock(*mutex);
  const bool fast = request.options.accuracy == Accuracy::fast;
  const auto [found, made] = all->try_emplace({request.target, fast, identity});
  if (made) found->second = make_settings(request, identity);
  return found->second;
}

}  // namespace

std::vector<std::string> kernel_options(const KernelRequest& request) {
  return jit::compile_options(request.target, request.options.accuracy == Accuracy::fast);
}

std::vector<cache::Ingredient> ingredients_of(const KernelRequest& request,
                                              const std::string& identity) {
  Ingredients ingredients = text_of(request);
  const Ingredients& settings = settings_of(request, identity);
  ingredients.insert(ingredients.end(), settings.begin(), settings.end());
  return ingredients;
}

NamedKernel name_with(const KernelRequest& request, jit::Toolchain toolchain) {
  NamedKernel named;
  named.key = cache::make_key(text_of(request), settings_of(request, toolchain.identity));
  named.entry_name = cache::module_name(request.function, named.key);
  if (!toolchain.identity.empty()) named.key_text = named.key.hex();
  named.toolchain = std::move(toolchain);
  return named;
}

NamedKernel name_kernel(const KernelRequest& request) {
  jit::Toolchain toolchain;
  try {
    toolchain = jit::toolchain(jit::toolchain_for(request.target));
  } catch (const Error& error) {
    if (error.code() != Code::not_found) throw;
  }
  return name_with(request, std::move(toolchain));
}

std::string complete_source(const KernelRequest& request, std::string_view entry_name) {
  std::string source(preamble::text());
  source += '\n';
  return source += fusion::with_entry(request.text, entry_name);
}

jit::CompileRequest compile_request(const KernelRequest& request, const NamedKernel& named) {
  jit::CompileRequest job;
  job.function = request.function;
  job.expression = request.expression;
  job.entry = named.entry_name;
  job.source = complete_source(request, named.entry_name);
  job.target = request.target;
  job.options = kernel_options(request);
  return job;
}

cache::Entry make_entry(const KernelRequest& request, const NamedKernel& named,
                        const jit::CompileResult& result, std::string source) {
  cache::Entry entry;
  entry.code = result.code;
  entry.source = std::move(source);
  cache::Metadata& metadata = entry.metadata;
  metadata.function = request.function;
  metadata.expression = request.expression;
  metadata.signature = request.signature;
  metadata.target = request.target;
  metadata.toolchain = named.toolchain.version;
  metadata.toolchain_identity = named.toolchain.identity;
  metadata.options = kernel_options(request);
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

}  // namespace kiln
