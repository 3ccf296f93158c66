#include "kernel/named_kernel.hpp"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <tuple>

#include "fusion/emit/emit.hpp"
#include "kernel/target.hpp"
#include "kiln/error.hpp"
#include "kiln/option_names.hpp"
#include "preamble/preamble.hpp"

namespace kiln {
namespace {

std::string options_text(const Options& options) {
  return fmt::format("round {}, accuracy {}", name(options.rounding), name(options.accuracy));
}

using Ingredients = std::vector<cache::Ingredient>;

preamble::Device device_of(std::string_view target) {
  switch (backend_of(target)) {
    case fusion::Backend::amd: return preamble::Device::amd;
    case fusion::Backend::nvidia: return preamble::Device::nvidia;
    case fusion::Backend::host: break;
  }
  return preamble::Device::host;
}

// A header as an ingredient: its name and the hash of its text. Made once, when the first kernel
// needs it: the names of all kernels are made of them.
const cache::Ingredient& header_summary(std::size_t header, preamble::Device device) {
  struct Summary {
    std::once_flag made;
    cache::Ingredient ingredient;
  };
  constexpr std::size_t kDevices = 3;
  static auto* const all = new std::vector<Summary>(kDevices * preamble::header_count());
  Summary& summary = (*all)[header * kDevices + static_cast<std::size_t>(device)];
  std::call_once(summary.made, [&] {
    const std::string text = preamble::text(preamble::Headers::only(header), device);
    const Ingredients hashed = cache::summarise(Ingredients{{"preamble", text}});
    summary.ingredient = {
        "preamble", fmt::format("{} {}", preamble::header_name(header), hashed.front().value)};
  });
  return summary.ingredient;
}

Ingredients header_summaries(preamble::Headers headers, preamble::Device device) {
  Ingredients summaries;
  for (std::size_t i = 0; i < preamble::header_count(); ++i) {
    if (headers.contains(i)) summaries.push_back(header_summary(i, device));
  }
  return summaries;
}

Ingredients text_of(const KernelRequest& request) {
  const preamble::Device device = device_of(request.target);
  Ingredients ingredients = header_summaries(preamble::needed_by(request.text, device), device);
  ingredients.push_back({"source", request.text});
  return ingredients;
}

// Those that kernels of one target and accuracy share.
Ingredients make_settings(const KernelRequest& request, const std::string& identity) {
  Ingredients ingredients;
  for (std::string& option : kernel_options(request)) {
    ingredients.push_back({"option", std::move(option)});
  }
  for (std::string& option : jit::scarce_register_options(request.target)) {
    ingredients.push_back({"option.scarce_registers", std::move(option)});
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

// What stands for the compiler in a key.
const std::string& identity_of(const KernelRequest& request, const jit::Toolchain& toolchain) {
  static const auto* const any = new std::string("any");
  return request.any_toolchain ? *any : toolchain.identity;
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
  const std::string& identity = identity_of(request, toolchain);
  named.key = cache::make_key(text_of(request), settings_of(request, identity));
  named.entry_name =
      cache::module_name(request.form.empty() ? request.function : request.form, named.key);
  if (!identity.empty()) named.key_text = named.key.hex();
  named.toolchain = std::move(toolchain);
  return named;
}

jit::Toolchain toolchain_of(const KernelRequest& request) {
  if (jit::compiles_remotely()) return {};
  try {
    return jit::toolchain(jit::toolchain_for(request.target));
  } catch (const Error& error) {
    if (error.code() != Code::not_found) throw;
  }
  return {};
}

NamedKernel name_kernel(const KernelRequest& request) {
  return name_with(request, request.any_toolchain ? jit::Toolchain() : toolchain_of(request));
}

bool is_named_at_once(const KernelRequest& request) {
  return request.any_toolchain || jit::compiles_remotely() ||
         jit::was_looked_for(jit::toolchain_for(request.target));
}

cache::Key source_key(const KernelRequest& request) {
  return cache::key_without_toolchain(cache::summarise(ingredients_of(request, {})));
}

std::string preamble_digits(std::string_view target) {
  const preamble::Device device = device_of(target);
  return cache::make_key(header_summaries(preamble::all(device), device)).hex().substr(0, 8);
}

std::string complete_source(std::span<const SourcePart> kernels) {
  const preamble::Device device = device_of(kernels.front().request->target);
  preamble::Headers headers;
  for (const SourcePart& kernel : kernels) {
    headers |= preamble::needed_by(kernel.request->text, device);
  }
  std::string source = preamble::text(headers, device);
  for (const SourcePart& kernel : kernels) {
    source += '\n';
    source += fusion::with_entry(kernel.request->text, kernel.entry_name);
  }
  return source;
}

std::string complete_source(const KernelRequest& request, std::string_view entry_name) {
  const SourcePart kernel{&request, entry_name};
  return complete_source({&kernel, 1});
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
  metadata.arguments = request.arguments;
  metadata.outputs = request.outputs;
  metadata.target = request.target;
  metadata.toolchain = named.toolchain.version;
  metadata.toolchain_identity = named.toolchain.identity;
  metadata.options = kernel_options(request);
  metadata.ingredients =
      cache::summarise(ingredients_of(request, identity_of(request, named.toolchain)));
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
