#include "tool/cli.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kiln/option_names.hpp"
#include "kiln/version.hpp"
#include "tool/bench_cases.hpp"
#include "tool/cli_text.hpp"
#include "tool/commands.hpp"
#include "tool/sweep/draw.hpp"

namespace kiln::tool {
namespace {

constexpr auto kKernelFooter =
    "Types: x=f32[64,172] is an array in C order, x=f32[64,64]@1,64 an array with these strides "
    "in\n"
    "elements, s=f32 a number passed by value. An expression that begins with '-' goes in "
    "parentheses.\n"
    "Example: kiln emit 'silu(gate) * up' --type gate=bf16[63,172] --type up=bf16[63,172] "
    "--target gfx90a";
constexpr auto kRunFooter =
    "Files are .npy or .safetensors, by their extension. An expression that begins with '-' goes "
    "in\n"
    "parentheses.\n"
    "Example: kiln run 'y = silu(gate) * up' --in gate=block.safetensors:gate0 "
    "--in up=block.safetensors:up0 --out y=y.npy";

constexpr auto kManifestFooter =
    "A manifest has one JSON object per line: name, expression, types (an object from arguments "
    "to\n"
    "dtype[shape], in the order of the arguments), and optionally options (round, accuracy) and\n"
    "outputs. What takes several kernels has program in place of expression; a kernel of one's "
    "own\n"
    "has its source as kernel, and parameters (reads f32, writes f32, f32, ...) in place of "
    "types.\n"
    "A program writes a manifest itself if KILN_RECORD=FILE is set.\n"
    "Example: kiln manifest record -o engine.jsonl -- ./engine --warm-up\n"
    "         kiln compile --manifest engine.jsonl --target gfx90a,gfx942";

constexpr auto kGraphFooter =
    "FILE is a manifest (kiln manifest --help). An argument or output uses the buffer of its own\n"
    "name, or the one that \"buffers\" gives it; scalars are 1.\n"
    "Example: {\"name\": \"gate\", \"expression\": \"h = silu(g) * u\",\n"
    "          \"types\": {\"g\": \"bf16[172]\", \"u\": \"bf16[172]\"}, \"buffers\": {\"h\": "
    "\"hidden\"}}";

constexpr auto kServeFooter =
    "A machine without a compiler for a target, or with KILN_COMPILE=remote, asks compile servers\n"
    "for its kernels. SIGTERM ends a server when it has answered what it has taken; a second one\n"
    "ends it at once.\n"
    "Example: kiln serve --target gfx90a,gfx942 --jobs 16\n"
    "         kiln serve --status";

class Builder {
 public:
  explicit Builder(CommandLine& line) : line_(line) {}

  void build() {
    line_.app->description("Fuses chains of array operations into kernels, compiled at run time");
    line_.app->set_version_flag("--version", std::string("kiln ") + KILN_VERSION_STRING);
    line_.app->require_subcommand(1);
    line_.app->formatter(help_formatter());  // before the subcommands, which take it over
    doctor();
    run();
    kernels();
    manifest();
    bench();
    graph();
    numerics();
    cache();
    serve();
    documents();
  }

 private:
  /// A subcommand with options of its own, which live as long as the command line.
  template <class Options>
  std::pair<CLI::App*, std::shared_ptr<Options>> add(CLI::App& parent, const std::string& name,
                                                     const std::string& description,
                                                     int (*run)(const Options&)) {
    auto options = std::make_shared<Options>();
    CLI::App* app = parent.add_subcommand(name, description);
    app->callback([command = line_.command, options, run] {
      *command = [options, run] { return run(*options); };
    });
    return {app, options};
  }

  void add_json(CLI::App& app, bool& value) {
    app.add_flag_callback(
        "--json", [json = line_.json, &value] { *json = value = true; },
        "Write one JSON value to standard output, also for an error");
  }

  static CLI::Option* add_expression(CLI::App& app, ExpressionOptions& options) {
    CLI::Option* expression =
        app.add_option("EXPR", options.text, "The expression; - reads it from standard input")
            ->required();
    app.add_option("--name", options.name, "The function's name in kernel names and the cache")
        ->capture_default_str();
    add_choice<Rounding>(
        app, "--round", options.options.rounding, kRoundings,
        "Round f16 and bf16 once, where a value is stored or cast, or after each operation");
    add_choice<Accuracy>(app, "--accuracy", options.options.accuracy, kAccuracies,
                         "How accurate functions are");
    return expression;
  }

  template <class Value>
  static void add_choice(CLI::App& app, const std::string& name, Value& value,
                         std::span<const std::pair<std::string_view, Value>> choices,
                         const std::string& description) {
    std::vector<std::string> words;
    std::string initial;
    for (const auto& [word, meaning] : choices) {
      words.emplace_back(word);
      if (meaning == value) initial = word;
    }
    app.add_option_function<std::string>(
           name,
           [&value, choices](const std::string& chosen) {
             for (const auto& [word, meaning] : choices) {
               if (word == chosen) value = meaning;
             }
           },
           description)
        ->check(CLI::IsMember(words))
        ->default_str(initial);
  }

  // One value for each time an option is written, so that what follows is not taken for another.
  static CLI::Option* add_list(CLI::App& app, const std::string& name,
                               std::vector<std::string>& values, const std::string& type,
                               const std::string& description) {
    return app.add_option(name, values, description)
        ->type_name(type)
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }

  static void add_shape(CLI::App& app, std::string& shape) {
    app.add_option("--shape", shape, "The outputs' shape, if it is larger than the inputs'")
        ->type_name("N,N,...");
  }

  void doctor() {
    auto [app, options] = add<DoctorOptions>(
        *line_.app, "doctor",
        "Show devices, compilers and the caches, and which packages are missing", run_doctor);
    add_json(*app, options->json);
  }

  void run() {
    auto [app, options] =
        add<RunOptions>(*line_.app, "run", "Run an expression on arrays in files", run_run);
    add_expression(*app, options->expression);
    add_list(*app, "--in", options->inputs, "NAME=FILE[:TENSOR]",
             "Read an input array from a file");
    add_list(*app, "--scalar", options->scalars, "NAME=VALUE", "Pass a number by value");
    add_list(*app, "--out", options->outputs, "NAME=FILE[:TENSOR]", "Write an output to a file");
    add_list(*app, "--type-out", options->dtypes, "NAME=DTYPE",
             "The dtype of an output, if not the one that the expression gives");
    add_list(*app, "--expect", options->expected, "NAME=FILE[:TENSOR]",
             "Compare an output with this array and report the largest error");
    add_shape(*app, options->shape);
    app->add_option("--device", options->device, "Where to run: auto uses a GPU if there is one")
        ->type_name("auto|cpu|hip[:N]|cuda[:N]|reference")
        ->capture_default_str();
    app->add_option("--repeat", options->repeat, "Timed launches; the median is reported")
        ->check(CLI::Range(1, 1'000'000))
        ->capture_default_str();
    add_json(*app, options->json);
    app->footer(kRunFooter);
  }

  CLI::Option* add_kernel(CLI::App& app, KernelOptions& options,
                          const std::string& default_target) {
    CLI::Option* expression = add_expression(app, options.expression);
    add_list(app, "--type", options.types, "NAME=DTYPE[SHAPE]",
             "The dtype and shape of an argument");
    add_list(app, "--type-out", options.dtypes, "NAME=DTYPE",
             "The dtype of an output, if not the one that the expression gives");
    add_shape(app, options.shape);
    CLI::Option* target = add_list(app, "--target", options.targets, "TARGET[,TARGET...]",
                                   "gfx90a, gfx942:xnack-, sm_90, cpu, ...");
    if (default_target.empty()) {
      target->required();
    } else {
      options.targets = {default_target};
      target->capture_default_str();
    }
    add_json(app, options.json);
    app.footer(kKernelFooter);
    return expression;
  }

  void kernels() {
    auto [emit, emit_options] =
        add<EmitOptions>(*line_.app, "emit", "Print the source of a kernel", run_emit);
    add_kernel(*emit, emit_options->kernel, "cpu");
    emit->add_flag("--full", emit_options->full,
                   "Include the device code that every kernel starts with");

    auto [compile, compile_options] = add<CompileOptions>(
        *line_.app, "compile",
        "Compile into the cache, also for GPUs that this machine does not have", run_compile);
    add_kernel(*compile, compile_options->kernel, "")->required(false);
    compile
        ->add_option("--manifest", compile_options->manifest,
                     "Compile every line of a manifest (kiln manifest --help) in parallel, instead "
                     "of EXPR; kernels that are in the cache are skipped")
        ->type_name("FILE");
    compile->add_flag(
        "--base-pack", compile_options->base_pack,
        "Compile, instead of EXPR, the general kernels that serve calls until their own "
        "kernels are compiled (Options::on_miss = fallback), and write them as a bundle "
        "to --output, for KILN_CACHE_READONLY_DIRS or kiln cache import");
    compile
        ->add_option(
            "-o,--output", compile_options->directory,
            "Also write code objects and sources into this directory; with --base-pack, the "
            "bundle")
        ->type_name("PATH");

    auto [isa, isa_options] = add<IsaOptions>(
        *line_.app, "isa", "Disassemble a kernel and show the registers and memory that it uses",
        run_isa);
    add_kernel(*isa, isa_options->kernel, "");

    auto [explain, explain_options] = add<ExplainOptions>(
        *line_.app, "explain",
        "Explain which kernels an expression needs, how each one runs and why, and what it costs",
        run_explain);
    add_kernel(*explain, explain_options->kernel, "cpu");
    explain
        ->add_option("--dot", explain_options->dot,
                     "Write the kernels and their dependencies for Graphviz; - is standard output")
        ->type_name("FILE");
    explain->add_option("--svg", explain_options->svg, "Write a picture, drawn by Graphviz")
        ->type_name("FILE");
  }

  void manifest() {
    CLI::App& parent =
        *line_.app->add_subcommand("manifest", "Lists of the kernels that a program needs");
    parent.require_subcommand(1);
    parent.footer(kManifestFooter);
    auto [app, options] = add<ManifestRecordOptions>(
        parent, "record", "Run a program and record every function and signature that it calls",
        run_manifest_record);
    app->add_option("-o,--output", options->file,
                    "The manifest; lines that it does not have yet are added")
        ->type_name("FILE")
        ->capture_default_str();
    app->add_option("PROGRAM", options->program, "The program and its arguments, after --")
        ->required();
    app->footer(kManifestFooter);
  }

  void graph() {
    auto [app, options] = add<GraphOptions>(
        *line_.app, "graph", "Record calls as one graph, show its dependencies, and time it",
        run_graph);
    app->add_option("FILE", options->file, "A manifest: one call per line, in order")->required();
    app->add_option("--device", options->device, "Where to run: auto uses a GPU if there is one")
        ->type_name("auto|cpu|hip[:N]|cuda[:N]")
        ->capture_default_str();
    app->add_option("--dot", options->dot, "Write the graph for Graphviz; - is standard output")
        ->type_name("FILE");
    app->add_option("--svg", options->svg, "Write a picture, drawn by Graphviz")->type_name("FILE");
    app->add_option("--samples", options->samples, "Timings; the median is reported")
        ->check(CLI::Range(1, 10'000))
        ->capture_default_str();
    add_json(*app, options->json);
    app->footer(kGraphFooter);
  }

  void bench() {
    auto [app, options] = add<BenchOptions>(
        *line_.app, "bench", "Measure fused kernels against a copy in the same run", run_bench);
    CLI::Option* cases =
        app->add_option("CASE", options->cases, "Cases to run; all of them by default");
    app->footer("Cases: " + bench_case_names() + ".");
    app->add_option("--device", options->device, "Where to run: auto uses a GPU if there is one")
        ->type_name("auto|cpu|hip[:N]|cuda[:N]")
        ->capture_default_str();
    app->add_option("--size", options->mebibytes,
                    "MiB of a case's largest operand (default: 512 on a GPU; on the CPU 64 or "
                    "twice its caches)")
        ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 20));
    app->add_option("--samples", options->samples,
                    "Number of timings per case; the median is reported")
        ->check(CLI::Range(1, 10'000))
        ->capture_default_str();
    CLI::Option* corpus =
        app->add_option(
               "--corpus", options->corpus,
               "Run the functions in this file instead, such as bench/corpus/functions.txt")
            ->type_name("FILE");
    CLI::Option* sweep =
        app->add_flag("--sweep", options->sweep,
                      "Run functions drawn from a grammar of what inference engines fuse")
            ->excludes(cases)
            ->excludes(corpus);
    app->add_option("--seed", options->seed, "What the sweep's functions follow from")
        ->needs(sweep)
        ->capture_default_str();
    app->add_option("--count", options->count, "Functions of the sweep")
        ->needs(sweep)
        ->check(CLI::Range(1, 100'000))
        ->capture_default_str();
    app->add_option("--family", options->family,
                    fmt::format("Draw only of this family: {}", fmt::join(sweep_families(), ", ")))
        ->type_name("NAME")
        ->needs(sweep);
    app->add_flag("--list", options->list, "Print the sweep's functions and measure nothing")
        ->needs(sweep);
    app->add_option("--plot", options->plot, "Draw the results as a chart in an SVG file")
        ->type_name("FILE.svg");
    add_json(*app, options->json);
  }

  void numerics() {
    auto [app, options] = add<NumericsOptions>(
        *line_.app, "numerics",
        "Measure the errors of operations and compare them with their bounds", run_numerics);
    add_list(*app, "--op", options->functions, "NAME", "Only this op or library function");
    add_list(*app, "--dtype", options->dtypes, "f16|bf16|f32|f64|c64", "Only this dtype");
    app->add_option("--device", options->device, "Where to run: auto uses a GPU if there is one")
        ->type_name("auto|cpu|hip[:N]|cuda[:N]")
        ->capture_default_str();
    add_choice<Accuracy>(*app, "--accuracy", options->accuracy, kAccuracies,
                         "How accurate functions are");
    app->add_flag("--long", options->complete,
                  "Test functions of one argument on every f32 instead of a sample");
    CLI::Option* merge =
        add_list(*app, "--merge", options->merge, "FILE",
                 "Measure nothing; combine results that --json wrote into one table");
    app->add_flag("--markdown", options->markdown, "Write the table as Markdown");
    for (const char* other : {"--op", "--dtype", "--long"}) merge->excludes(app->get_option(other));
    add_json(*app, options->json);
  }

  void cache() {
    CLI::App& parent = *line_.app->add_subcommand("cache", "Show and change the cache");
    parent.require_subcommand(1);
    cache_look(parent);
    cache_change(parent);
  }

  void cache_look(CLI::App& parent) {
    auto [path, path_options] =
        add<CacheOptions>(parent, "path", "Print the directory", run_cache_path);
    add_json(*path, path_options->json);

    auto [ls, ls_options] = add<CacheListOptions>(parent, "ls", "List entries", run_cache_ls);
    add_filter(*ls, ls_options->target, ls_options->function);
    ls->add_option("--sort", ls_options->sort,
                   "Sort by last use, creation, size, function or compile time")
        ->check(CLI::IsMember({"used", "created", "size", "function", "compile"}))
        ->capture_default_str();
    ls->add_option("--limit", ls_options->limit, "List at most this many entries")
        ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 30));
    add_json(*ls, ls_options->json);

    auto [show, show_options] =
        add<CacheShowOptions>(parent, "show", "Show one entry", run_cache_show);
    add_key(*show, "KEY", show_options->key);
    add_json(*show, show_options->json);

    auto [stats, stats_options] =
        add<CacheStatsOptions>(parent, "stats", "Show size, hits and misses", run_cache_stats);
    stats->add_flag("--zero", stats_options->zero, "Reset the counters after showing them");
    stats->add_flag("--remote", stats_options->remote,
                    "Show what the server of KILN_REMOTE_CACHE has instead");
    add_json(*stats, stats_options->json);

    auto [extract, extract_options] =
        add<CacheExtractOptions>(parent, "extract", "Write a part of an entry", run_cache_extract);
    add_key(*extract, "KEY", extract_options->key);
    extract->add_option("--what", extract_options->what, "Which part")
        ->check(CLI::IsMember({"source", "code", "isa", "meta"}))
        ->capture_default_str();
    extract
        ->add_option("-o,--output", extract_options->output,
                     "Write to this file instead of standard output")
        ->type_name("FILE");
    add_json(*extract, extract_options->json);

    auto [explain, explain_options] = add<CacheExplainOptions>(
        parent, "explain", "Show how the keys of two entries differ", run_cache_explain);
    add_key(*explain, "A", explain_options->a);
    add_key(*explain, "B", explain_options->b);
    add_json(*explain, explain_options->json);
  }

  void cache_change(CLI::App& parent) {
    auto [verify, verify_options] =
        add<CacheVerifyOptions>(parent, "verify", "Read and check every entry", run_cache_verify);
    verify->add_flag("--repair", verify_options->repair, "Move bad entries to quarantine");
    verify->add_flag("--recompile", verify_options->recompile,
                     "Also compile every entry again and compare the code byte by byte");
    add_json(*verify, verify_options->json);

    auto [trim, trim_options] = add<CacheTrimOptions>(
        parent, "trim", "Remove entries, the least recently used first", run_cache_trim);
    trim->add_option("--max-size", trim_options->max_size,
                     "Remove entries until the cache has this size, such as 512M");
    trim->add_option("--older-than", trim_options->older_than,
                     "Remove entries that were not used for this long, such as 30d");
    add_filter(*trim, trim_options->target, trim_options->function);
    trim->add_flag("--dry-run", trim_options->dry_run, "Only show what would be removed");
    add_json(*trim, trim_options->json);

    auto [clear, clear_options] =
        add<CacheOptions>(parent, "clear", "Remove every entry", run_cache_clear);
    add_json(*clear, clear_options->json);

    auto [export_app, export_options] = add<CacheTransferOptions>(
        parent, "export", "Write entries to one file, for other machines", run_cache_export);
    export_app->add_option("FILE", export_options->file, "The bundle")->required();
    add_filter(*export_app, export_options->target, export_options->function);
    add_list(*export_app, "--key", export_options->keys, "KEY", "Only these entries");
    add_json(*export_app, export_options->json);

    auto [import_app, import_options] = add<CacheTransferOptions>(
        parent, "import", "Check a bundle and add its entries to the cache", run_cache_import);
    import_app->add_option("FILE", import_options->file, "The bundle")->required();
    add_json(*import_app, import_options->json);

    auto [push, push_options] = add<CacheTransferOptions>(
        parent, "push", "Send entries to the server of KILN_REMOTE_CACHE", run_cache_push);
    add_filter(*push, push_options->target, push_options->function);
    add_list(*push, "--key", push_options->keys, "KEY", "Only these entries");
    add_json(*push, push_options->json);

    auto [pull, pull_options] = add<CacheTransferOptions>(
        parent, "pull", "Copy entries from the server of KILN_REMOTE_CACHE", run_cache_pull);
    add_filter(*pull, pull_options->target, pull_options->function);
    add_list(*pull, "--key", pull_options->keys, "KEY",
             "Only these entries, all 32 digits of each");
    pull->add_option("--manifest", pull_options->manifest,
                     "Only the kernels of a manifest (kiln manifest --help) for the targets of "
                     "--target, separated by commas")
        ->type_name("FILE");
    add_json(*pull, pull_options->json);
  }

  void serve() {
    auto [app, options] = add<ServeOptions>(
        *line_.app, "serve",
        "Compile for machines that cannot, which share the server of KILN_REMOTE_CACHE", run_serve);
    app->add_option("--remote", options->remote,
                    "The server, if not that of KILN_REMOTE_CACHE; without a password")
        ->type_name("URL");
    add_list(
        *app, "--target", options->targets, "TARGET[,TARGET...]",
        "Compile only for gfx90a, sm_90, cpu, ...; by default for all that the compilers know");
    app->add_option("--jobs", options->jobs, "Compiles at a time (default: KILN_COMPILE_JOBS)")
        ->check(CLI::Range(1, 1024));
    app->add_option("--metrics-port", options->metrics_port,
                    "Give numbers for Prometheus at this port of 127.0.0.1; 0: any")
        ->check(CLI::Range(0, 65535));
    app->add_flag("--status", options->status,
                  "Show the compile servers that are alive, the queues and what was answered");
    add_json(*app, options->json);
    app->footer(kServeFooter);
  }

  void documents() {
    CLI::App& root = *line_.app;
    root.add_subcommand("manual", "Print the manual page (kiln manual | man -l -)")
        ->callback(
            [command = line_.command, &root] { *command = [&root] { return run_manual(root); }; });
    auto options = std::make_shared<CompletionOptions>();
    CLI::App* completion =
        root.add_subcommand("completion", "Print a script that completes kiln's arguments");
    completion->add_option("SHELL", options->shell, "bash, zsh or fish")
        ->required()
        ->check(CLI::IsMember({"bash", "zsh", "fish"}));
    completion->footer("Example: source <(kiln completion bash)");
    completion->callback([command = line_.command, &root, options] {
      *command = [&root, options] { return run_completion(root, *options); };
    });
  }

  static void add_key(CLI::App& app, const std::string& name, std::string& key) {
    app.add_option(name, key, "The first digits of an entry's key")->required();
  }

  static void add_filter(CLI::App& app, std::string& target, std::string& function) {
    app.add_option("--target", target, "Only entries for this target");
    app.add_option("--function", function, "Only entries of this function");
  }

  CommandLine& line_;
};

}  // namespace

CommandLine make_command_line() {
  CommandLine line{std::make_unique<CLI::App>(), std::make_shared<std::function<int()>>(),
                   std::make_shared<bool>(false)};
  line.app->name("kiln");
  Builder(line).build();
  return line;
}

}  // namespace kiln::tool
