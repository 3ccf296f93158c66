// The commands of `kiln` as functions on plain options. cli.cpp fills the options from a command
// line; each command is a file of its own. A command returns the exit code, or throws: UsageError
// for what is wrong with the command line itself, kiln::Error for everything else.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "kiln/cache.hpp"
#include "kiln/options.hpp"

namespace CLI {
class App;
}

namespace kiln::tool {

inline constexpr int kSuccess = 0;
inline constexpr int kFailure = 1;
inline constexpr int kUsage = 2;

class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What is to be computed.
struct ExpressionOptions {
  std::string text;  ///< "-" reads standard input
  std::string name = "fused";
  Options options;
};

struct DoctorOptions {
  bool json = false;
};
int run_doctor(const DoctorOptions& options);

struct RunOptions {
  ExpressionOptions expression;
  std::vector<std::string> inputs;    ///< NAME=FILE[:TENSOR]
  std::vector<std::string> scalars;   ///< NAME=VALUE
  std::vector<std::string> outputs;   ///< NAME=FILE[:TENSOR]
  std::vector<std::string> dtypes;    ///< NAME=DTYPE, of outputs
  std::vector<std::string> expected;  ///< NAME=FILE[:TENSOR], of outputs
  std::string shape;                  ///< N,N,...: that the outputs have at least
  std::string device = "auto";
  int repeat = 1;
  bool json = false;
};
int run_run(const RunOptions& options);

/// A kernel without memory.
struct KernelOptions {
  ExpressionOptions expression;
  std::vector<std::string> types;    ///< NAME=DTYPE[SHAPE][@STRIDES], or NAME=DTYPE for a number
  std::vector<std::string> dtypes;   ///< NAME=DTYPE, of outputs
  std::string shape;                 ///< N,N,...: that the outputs have at least
  std::vector<std::string> targets;  ///< as written, separated by commas
  bool json = false;
};

struct EmitOptions {
  KernelOptions kernel;
  bool full = false;  ///< with the preamble
};
int run_emit(const EmitOptions& options);

struct CompileOptions {
  KernelOptions kernel;
  std::string directory;   ///< empty: only into the cache
  std::string manifest;    ///< in place of an expression
  bool base_pack = false;  ///< in place of an expression; `directory` is the bundle
};
int run_compile(const CompileOptions& options);
int run_compile_base_pack(const std::vector<std::string>& targets, const std::string& file,
                          bool json);
int run_compile_manifest(const std::string& path, const std::vector<std::string>& targets,
                         bool json);

/// The keys under which a remote cache may have the kernels of a manifest, and what is wrong with
/// its lines.
struct ManifestKeys {
  std::vector<cache::Key> keys;
  std::vector<std::string> problems;
};
ManifestKeys keys_of_manifest(const std::string& path, const std::vector<std::string>& targets);

struct ManifestRecordOptions {
  std::string file = "kiln-manifest.jsonl";
  std::vector<std::string> program;  ///< and its arguments
};
int run_manifest_record(const ManifestRecordOptions& options);

struct IsaOptions {
  KernelOptions kernel;
};
int run_isa(const IsaOptions& options);

struct ExplainOptions {
  KernelOptions kernel;
  std::string dot;  ///< where to write a program's kernels for Graphviz; "-": standard output
  std::string svg;
};
int run_explain(const ExplainOptions& options);

struct BenchOptions {
  std::vector<std::string> cases;  ///< names; empty: all
  std::string device = "auto";
  std::uint64_t mebibytes = 0;  ///< of the largest operand; 0: as bench_size.hpp says
  int samples = 15;
  std::string plot;    ///< an SVG file; empty: none
  std::string corpus;  ///< a file of functions, in place of the built-in cases
  bool sweep = false;  ///< functions drawn from a grammar, in place of the built-in cases
  std::uint64_t seed = 1;
  std::size_t count = 300;  ///< of drawn functions
  std::string family;       ///< of drawn functions; empty: all of them
  bool list = false;        ///< draws and prints, measures nothing
  bool json = false;
};
int run_bench(const BenchOptions& options);

struct GraphOptions {
  std::string file;  ///< a manifest, one call a line
  std::string device = "auto";
  std::string dot;  ///< where to write the graph for Graphviz; "-": standard output
  std::string svg;
  int samples = 30;
  bool json = false;
};
int run_graph(const GraphOptions& options);
struct NumericsOptions {
  std::vector<std::string> functions;  ///< ops and compositions; empty: all
  std::vector<std::string> dtypes;     ///< empty: f16, bf16, f32, f64
  std::string device = "auto";
  Accuracy accuracy = Accuracy::storage;
  bool complete = false;           ///< every f32
  std::vector<std::string> merge;  ///< files that --json wrote: shown instead of measuring
  bool markdown = false;
  bool json = false;
};
int run_numerics(const NumericsOptions& options);

struct ServeOptions {
  std::string remote;                ///< a URL; empty: KILN_REMOTE_CACHE
  std::vector<std::string> targets;  ///< as written, separated by commas; empty: all
  int jobs = 0;                      ///< 0: KILN_COMPILE_JOBS
  std::optional<int> metrics_port;
  bool status = false;  ///< only shows what compile servers do
  bool json = false;
};
int run_serve(const ServeOptions& options);

struct CacheOptions {
  bool json = false;
};
int run_cache_path(const CacheOptions& options);

struct CacheListOptions {
  std::string target;
  std::string function;
  std::string sort = "used";  ///< used, created, size, function or compile
  std::optional<std::size_t> limit;
  bool json = false;
};
int run_cache_ls(const CacheListOptions& options);

struct CacheShowOptions {
  std::string key;
  bool json = false;
};
int run_cache_show(const CacheShowOptions& options);

struct CacheStatsOptions {
  bool zero = false;
  bool remote = false;  ///< of the server instead
  bool json = false;
};
int run_cache_stats(const CacheStatsOptions& options);

struct CacheVerifyOptions {
  bool repair = false;
  bool recompile = false;
  bool json = false;
};
int run_cache_verify(const CacheVerifyOptions& options);

struct CacheTrimOptions {
  std::string max_size;    ///< "512M"
  std::string older_than;  ///< "30d"
  std::string target;
  std::string function;
  bool dry_run = false;
  bool json = false;
};
int run_cache_trim(const CacheTrimOptions& options);
int run_cache_clear(const CacheOptions& options);

struct CacheExtractOptions {
  std::string key;
  std::string what = "source";  ///< source, code, isa or meta
  std::string output;           ///< empty: standard output
  bool json = false;
};
int run_cache_extract(const CacheExtractOptions& options);

struct CacheExplainOptions {
  std::string a;
  std::string b;
  bool json = false;
};
int run_cache_explain(const CacheExplainOptions& options);

struct CacheTransferOptions {
  std::string file;
  std::string target;
  std::string function;
  std::vector<std::string> keys;
  std::string manifest;  ///< pull: in place of keys, compiled for the targets in `target`
  bool json = false;
};
int run_cache_export(const CacheTransferOptions& options);
int run_cache_import(const CacheTransferOptions& options);
/// Without a file.
int run_cache_push(const CacheTransferOptions& options);
int run_cache_pull(const CacheTransferOptions& options);

/// The manual page, in roff, of that command line.
int run_manual(const CLI::App& app);

struct CompletionOptions {
  std::string shell;  ///< bash, zsh or fish
};
/// A script for the shell that completes that command line.
int run_completion(const CLI::App& app, const CompletionOptions& options);

}  // namespace kiln::tool
