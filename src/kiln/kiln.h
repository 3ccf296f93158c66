/* kiln in C99: what kiln/kiln.hpp gives, without exceptions and with a stable ABI. For C, and for
 * languages that call C.
 *
 *   kiln_function *swiglu = NULL;
 *   if (kiln_parse("swiglu", "silu(gate) * up", NULL, &swiglu) != KILN_OK)
 *     fprintf(stderr, "%s\n", kiln_last_error()->message);
 *   const kiln_argument inputs[] = {kiln_array(gate), kiln_array(up)};
 *   const kiln_call call = {inputs, 2, &out, 1};
 *   kiln_function_call(swiglu, &stream, &call);
 *   kiln_function_destroy(swiglu);
 *
 * Status. Every function that can fail returns a kiln_status: KILN_OK, or the code of the error
 * that kiln_last_error() describes. When it fails, what the other arguments point at is unchanged.
 *
 * Ownership. A handle (kiln_function, ...) belongs to the caller until it is given to the _destroy
 * function of its type, which takes NULL too. What a function is given stays the caller's and is
 * not used after it has returned, but for the memory of arrays, which is used until the work on the
 * stream is done. Text and structures that a handle gives live as long as it, unchanged, if nothing
 * else is said.
 *
 * Threads. All functions are safe from any thread. A kiln_launch is for one thread at a time, and
 * so is destroying a handle: nobody else may use it any more.
 *
 * ABI. Programs that were compiled with this header run with every later libkiln of the same
 * soname. Functions are never changed or taken away; new ones carry a new symbol version.
 * Structures with a `size` grow at the end: the caller sets it to sizeof, by KILN_INIT, and what it
 * does not know is zero, which means the default. All others stay as they are. Enumerations are
 * constants for int32_t; a later kiln may return more of them. */
#ifndef KILN_KILN_H
#define KILN_KILN_H

#include <stddef.h>
#include <stdint.h>

#include "kiln/version.h"

#if defined(__GNUC__)
#define KILN_API __attribute__((visibility("default")))
#else
#define KILN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** Sets a structure with a `size` to its defaults: kiln_options options; KILN_INIT(&options); */
#define KILN_INIT(structure)                                                \
  do {                                                                      \
    unsigned char* kiln_init_at = (unsigned char*)(structure);              \
    size_t kiln_init_i;                                                     \
    for (kiln_init_i = 0; kiln_init_i < sizeof *(structure); ++kiln_init_i) \
      kiln_init_at[kiln_init_i] = 0;                                        \
    (structure)->size = sizeof *(structure);                                \
  } while (0)

/* ---- Errors ---------------------------------------------------------------------------------- */

typedef int32_t kiln_status;
enum {
  KILN_OK = 0,
  KILN_INVALID_ARGUMENT = 1, /**< the caller passed something that cannot be right */
  KILN_UNSUPPORTED = 2,      /**< right, but not on this device, toolchain or release */
  KILN_NOT_FOUND = 3,        /**< a file, entry, device or library that is not there */
  KILN_COMPILE_FAILED = 4,   /**< the compiler refused the source, crashed or ran out of time */
  KILN_WOULD_COMPILE = 5,    /**< the kernel is not ready: on_miss, or a cancelled preparation */
  KILN_DEVICE = 6,           /**< a driver call failed */
  KILN_IO = 7,               /**< a file, directory or socket failed */
  KILN_INTERNAL = 8,         /**< a bug in kiln */
  KILN_NO_MEMORY = 9,        /**< the host has no memory left */
  KILN_CALLBACK = 10         /**< a function of the caller returned a status that is not kiln's */
};

typedef struct kiln_error {
  kiln_status code;
  int32_t has_driver_code; /**< 1 where a call of a driver failed */
  int32_t driver_code;     /**< then what it gave: a hipError_t or a CUresult */
  int32_t reserved;
  const char* message; /**< for people: function, argument, what was expected and given */
} kiln_error;

/** Of the last call on this thread that failed; code KILN_OK and an empty message if none has.
 * Valid until the next failure on this thread, or its end. */
KILN_API const kiln_error* kiln_last_error(void);
/** "invalid_argument"; "unknown" for a number that is no status. Lives for ever. */
KILN_API const char* kiln_status_name(kiln_status status);

/* ---- The library and this process ------------------------------------------------------------ */

/** Of the library, "0.1.0" and, as KILN_VERSION, 100. The text lives for ever. */
KILN_API const char* kiln_version(void);
KILN_API int32_t kiln_version_number(void);

enum { KILN_LOG_DEBUG = 0, KILN_LOG_INFO = 1, KILN_LOG_WARNING = 2 };
/** One line without a newline. May be called from any thread, also while the call that logs runs.
 */
typedef void (*kiln_log_function)(void* context, int32_t level, const char* message);
/** Replaces what receives the log, which prints warnings to stderr at first; NULL silences it.
 * `context` must live until the process ends, for a thread may be logging meanwhile. */
KILN_API kiln_status kiln_set_log(kiln_log_function log, void* context);

/** Work of one launch on the CPU device: run(work, part) is to be called exactly once for each part
 * from 0 up to `parts`, in any order and on any threads. Returns KILN_OK when all have returned;
 * with another status, the launch fails with it, and no part may run any more. */
typedef kiln_status (*kiln_executor_function)(void* context, size_t parts,
                                              void (*run)(const void* work, size_t part),
                                              const void* work);

/** kiln::Configuration: what is not NULL or 0 comes before the environment. */
typedef struct kiln_configuration {
  size_t size;
  const char* cache_directory;       /**< "": nothing is kept on disk */
  const uint64_t* cache_max_size;    /**< bytes; 0: no limit */
  const char* const* cache_readonly; /**< directories and bundles; counted by the next */
  size_t cache_readonly_count;
  const char* worker;
  int32_t jobs;
  int32_t threads;
  kiln_executor_function executor;
  void* executor_context; /**< lives until the process ends */
  kiln_log_function log;
  void* log_context;
  const uint64_t* memory_limit;    /**< bytes; 0: no limit */
  const uint64_t* fallback_memory; /**< bytes of each device; 0: none */
  const int32_t* on_miss;          /**< KILN_ON_MISS_... of calls that leave it to this */
} kiln_configuration;
/** Before the first use of kiln, once: a second time only with the same values (executor and log
 * cannot be compared). Else fails with KILN_INVALID_ARGUMENT and says who was first. `file` and
 * `line` are where this call is, for that message: __FILE__ and __LINE__, or NULL and 0. */
KILN_API kiln_status kiln_configure(const kiln_configuration* configuration, const char* file,
                                    int32_t line);

/* ---- Devices --------------------------------------------------------------------------------- */

enum { KILN_CPU = 0, KILN_HIP = 1, KILN_CUDA = 2 };
typedef struct kiln_device {
  int32_t type;
  int32_t index;
} kiln_device;

/** A stream of the caller: `native` is a hipStream_t or CUstream, and NULL on the CPU, where a call
 * has finished when it returns. */
typedef struct kiln_stream {
  kiln_device device;
  void* native;
} kiln_stream;

/** Writes the first `capacity` devices to `devices` and sets *count to how many there are: AMD
 * GPUs, NVIDIA GPUs, the CPU. */
KILN_API kiln_status kiln_devices(kiln_device* devices, size_t capacity, size_t* count);

typedef struct kiln_device_info {
  size_t size;
  const char* name;   /**< for people; these live for ever */
  const char* target; /**< what its kernels are compiled for */
  int32_t compute_units;
  int32_t wave_size;
} kiln_device_info;
KILN_API kiln_status kiln_describe_device(kiln_device device, kiln_device_info* info);

/** What is kept in memory of a device (kiln/statistics.hpp). */
typedef struct kiln_statistics {
  size_t size;
  uint64_t memory_limit; /**< bytes for plans, and as many for kernels */
  uint64_t plans;
  uint64_t plan_bytes;
  uint64_t plans_dropped;
  uint64_t kernels;
  uint64_t kernel_bytes;
  uint64_t kernels_unloaded;
  uint64_t fallbacks; /**< calls and programs' kernels served before their kernel was there */
} kiln_statistics;
KILN_API kiln_status kiln_get_statistics(kiln_device device, kiln_statistics* statistics);

/** Calls visit(context, name, compiler) for each target that a compiler of this machine makes code
 * for, and stops when it returns another status than KILN_OK, which is then returned. The texts
 * live until it returns. Takes seconds the first time on a machine. */
typedef kiln_status (*kiln_target_visitor)(void* context, const char* name, const char* compiler);
KILN_API kiln_status kiln_for_each_target(kiln_target_visitor visit, void* context);

/* ---- Arrays and numbers ---------------------------------------------------------------------- */

enum {
  KILN_BOOL = 0,
  KILN_U8 = 1,
  KILN_U16 = 2,
  KILN_U32 = 3,
  KILN_U64 = 4,
  KILN_I8 = 5,
  KILN_I16 = 6,
  KILN_I32 = 7,
  KILN_I64 = 8,
  KILN_F16 = 9,
  KILN_BF16 = 10,
  KILN_F32 = 11,
  KILN_F64 = 12,
  KILN_C64 = 13, /**< two f32 */
  KILN_F8E4M3 = 14,
  KILN_F8E5M2 = 15,
  KILN_F8E4M3FNUZ = 16,
  KILN_F8E5M2FNUZ = 17,
  KILN_U4 = 18, /**< two to a byte, the first in its low half, as the next two */
  KILN_I4 = 19,
  KILN_F4E2M1 = 20
};
/** "bf16"; NULL for a number that is no dtype. Lives for ever. */
KILN_API const char* kiln_dtype_name(int32_t dtype);

/** A typed, strided view of memory of the caller: `data` points at element (0, 0, ...). */
typedef struct kiln_view {
  void* data;
  kiln_device device;
  int32_t dtype;
  int32_t rank;
  const int64_t* shape;   /**< `rank` sizes */
  const int64_t* strides; /**< in elements, may be zero or negative; NULL: C order */
  int64_t offset;         /**< of element (0, 0, ...) from `data`, in elements: for packed dtypes */
} kiln_view;

/** A number by value. `bits` are those of a double (floating dtypes) or of an int64_t (all others).
 * A weak one takes the dtype of its partner, as a literal does; its own is f64, i64, u64 or bool.
 */
typedef struct kiln_scalar {
  uint64_t bits;
  int32_t dtype;
  int32_t weak;
} kiln_scalar;

/** An array, or with `is_scalar` a number. */
typedef struct kiln_argument {
  int32_t is_scalar;
  int32_t reserved;
  kiln_scalar scalar;
  kiln_view view;
} kiln_argument;

static inline kiln_argument kiln_array(kiln_view view) {
  kiln_argument argument = {0, 0, {0, 0, 0}, {0, {0, 0}, 0, 0, 0, 0, 0}};
  argument.view = view;
  return argument;
}
static inline kiln_argument kiln_typed_number(double value, int32_t dtype, int32_t weak) {
  union {
    double value;
    uint64_t bits;
  } number;
  kiln_argument argument = {1, 0, {0, 0, 0}, {0, {0, 0}, 0, 0, 0, 0, 0}};
  number.value = value;
  argument.scalar.bits = number.bits;
  argument.scalar.dtype = dtype;
  argument.scalar.weak = weak;
  return argument;
}
static inline kiln_argument kiln_typed_integer(int64_t value, int32_t dtype, int32_t weak) {
  kiln_argument argument = {1, 0, {0, 0, 0}, {0, {0, 0}, 0, 0, 0, 0, 0}};
  argument.scalar.bits = (uint64_t)value;
  argument.scalar.dtype = dtype;
  argument.scalar.weak = weak;
  return argument;
}
/** Weak ones. */
static inline kiln_argument kiln_number(double value) {
  return kiln_typed_number(value, KILN_F64, 1);
}
static inline kiln_argument kiln_integer(int64_t value) {
  return kiln_typed_integer(value, KILN_I64, 1);
}

/** Inputs and outputs of a call. */
typedef struct kiln_call {
  const kiln_argument* inputs; /**< in the order of the arguments */
  size_t input_count;
  const kiln_view* outputs;
  size_t output_count;
} kiln_call;

/** Views of DLPack tensors and back. A `DLTensor *` of dlpack.h, of any DLPack version: of a
 * managed tensor its dl_tensor. Nothing is copied: the view's shape and strides are those of the
 * tensor, and the other way about, and memory stays whose it is. A view with an offset, of the
 * upper half of a byte, and dtypes that DLPack has not in the tensor's layout, are
 * KILN_UNSUPPORTED. */
KILN_API kiln_status kiln_view_from_dlpack(const void* tensor, kiln_view* view);
KILN_API kiln_status kiln_view_to_dlpack(const kiln_view* view, void* tensor);

/** Every element of `from`, broadcast and cast, into `to`: kiln::copy. */
KILN_API kiln_status kiln_copy(const kiln_stream* stream, const kiln_view* from,
                               const kiln_view* to);

/** Lends memory of a device to calls with KILN_ON_MISS_FALLBACK, in C order and aligned to 16,
 * until other memory of that device is lent; a view without data takes it back. Waits for the
 * device. */
KILN_API kiln_status kiln_lend_fallback_memory(const kiln_view* memory);

/* ---- Functions ------------------------------------------------------------------------------- */

enum { KILN_ROUND_ONCE = 0, KILN_ROUND_EACH = 1 };
enum { KILN_ACCURACY_STORAGE = 0, KILN_ACCURACY_FAST = 1, KILN_ACCURACY_STRICT = 2 };
enum {
  KILN_ON_MISS_COMPILE = 0,
  KILN_ON_MISS_FAIL = 1,
  KILN_ON_MISS_BACKGROUND = 2,
  KILN_ON_MISS_FALLBACK = 3,
  KILN_ON_MISS_CONFIGURED = 4 /**< what kiln_configure says, or else compile */
};
/** kiln::Options. */
typedef struct kiln_options {
  size_t size;
  int32_t rounding;
  int32_t accuracy;
  int32_t on_miss;
  int32_t reserved; /**< 0 */
} kiln_options;

typedef struct kiln_function kiln_function;
typedef struct kiln_launch kiln_launch;
typedef struct kiln_preparation kiln_preparation;

enum { KILN_FROM_MEMORY = 0, KILN_FROM_DISK = 1, KILN_FROM_REMOTE = 2, KILN_FROM_COMPILER = 3 };
/** kiln::KernelInfo: the kernel of a call. */
typedef struct kiln_kernel_info {
  size_t size;
  const char* function;
  const char* expression;
  const char* entry;
  const char* key; /**< of the cache entry, 32 hex digits; empty if nothing could be kept */
  const char* target;
  const char* variant;
  const char* source;
  uint64_t bytes;
  double compile_ms;
  int32_t cache;   /**< KILN_FROM_... */
  int32_t kernels; /**< launched by a call */
  int32_t
      fallback; /**< 1: of look_up: it is not there; KILN_ON_MISS_FALLBACK would serve the call */
  int32_t reserved;
} kiln_kernel_info;

/** A function from its text form. `name` is for people. `options` may be NULL. Its arguments are
 * the free names of `expression` in order of first use. */
KILN_API kiln_status kiln_parse(const char* name, const char* expression,
                                const kiln_options* options, kiln_function** function);
/** The same, where `arguments` come first, in that order. */
KILN_API kiln_status kiln_parse_with_arguments(const char* name, const char* expression,
                                               const kiln_options* options,
                                               const char* const* arguments, size_t argument_count,
                                               kiln_function** function);
KILN_API void kiln_function_destroy(kiln_function* function);

KILN_API const char* kiln_function_name(const kiln_function* function);
KILN_API const char* kiln_function_expression(const kiln_function* function);
KILN_API size_t kiln_function_argument_count(const kiln_function* function);
KILN_API size_t kiln_function_output_count(const kiln_function* function);
/** NULL for an index that is too large. */
KILN_API const char* kiln_function_argument_name(const kiln_function* function, size_t index);
KILN_API const char* kiln_function_output_name(const kiln_function* function, size_t index);

/** Finds or makes the kernel and launches it on the stream; on a GPU it returns before the kernel
 * has run. kiln::Function::call says what inputs and outputs may be. */
KILN_API kiln_status kiln_function_call(const kiln_function* function, const kiln_stream* stream,
                                        const kiln_call* call);
/** What such a call would use now: compiles and launches nothing. The texts live until this thread
 * asks again, of a function or a program. */
KILN_API kiln_status kiln_function_look_up(const kiln_function* function, const kiln_stream* stream,
                                           const kiln_call* call, kiln_kernel_info* info);
/** Finds or compiles what such a call uses, and launches nothing. The types and shapes of the views
 * count, and of their addresses the last four bits; they need not be memory. Returns at once: the
 * work is done in the background. */
KILN_API kiln_status kiln_function_prepare(const kiln_function* function, kiln_device device,
                                           const kiln_call* call, kiln_preparation** preparation);
/** Decides everything about a call but pointers and numbers, and launches nothing. */
KILN_API kiln_status kiln_function_bind(const kiln_function* function, const kiln_stream* stream,
                                        const kiln_call* call, kiln_launch** launch);

/** *ready is 1 when wait would not wait. */
KILN_API kiln_status kiln_preparation_ready(const kiln_preparation* preparation, int32_t* ready);
/** Waits; fails with what the preparation failed with. `info` may be NULL; its texts live as long
 * as the preparation. */
KILN_API kiln_status kiln_preparation_wait(kiln_preparation* preparation, kiln_kernel_info* info);
/** Nobody waits for it any more: what no other preparation wants is not compiled. */
KILN_API kiln_status kiln_preparation_cancel(kiln_preparation* preparation);
/** Does not stop it. */
KILN_API void kiln_preparation_destroy(kiln_preparation* preparation);

/** One call to prepare. */
typedef struct kiln_prepare_item {
  const kiln_function* function;
  kiln_device device;
  kiln_call call; /**< as for kiln_function_prepare */
} kiln_prepare_item;
/** Item `index` is done, as `done` of `total` are; from one thread at a time. */
typedef kiln_status (*kiln_prepare_progress)(void* context, size_t index, size_t done,
                                             size_t total);
/** Prepares all items side by side, several kernels to a program where that is faster, and returns
 * when every one is done. Writes a preparation of each to `preparations`, which has room for
 * `count`: kiln_preparation_wait says whether it failed, which stops no other item. `progress` may
 * be NULL; with another status of it than KILN_OK, everything is prepared, nothing is written, and
 * kiln_prepare_all returns it. */
KILN_API kiln_status kiln_prepare_all(const kiln_prepare_item* items, size_t count,
                                      kiln_prepare_progress progress, void* context,
                                      kiln_preparation** preparations);

KILN_API kiln_status kiln_launch_run(const kiln_launch* launch, const kiln_stream* stream);
/** Other memory with the same dtype, shape, strides and alignment, or another number of the same
 * dtype and weakness. */
KILN_API kiln_status kiln_launch_set_input(kiln_launch* launch, size_t index, const void* data);
KILN_API kiln_status kiln_launch_set_output(kiln_launch* launch, size_t index, void* data);
KILN_API kiln_status kiln_launch_set_scalar(kiln_launch* launch, size_t index,
                                            const kiln_scalar* value);
KILN_API kiln_status kiln_launch_info(const kiln_launch* launch, kiln_kernel_info* info);
KILN_API void kiln_launch_destroy(kiln_launch* launch);

/* ---- Programs -------------------------------------------------------------------------------- */

typedef struct kiln_program kiln_program;

/** A program of several kernels from its text form: statements separated by `;`, the outputs last.
 */
KILN_API kiln_status kiln_parse_program(const char* name, const char* text,
                                        const kiln_options* options, kiln_program** program);
KILN_API void kiln_program_destroy(kiln_program* program);

KILN_API const char* kiln_program_name(const kiln_program* program);
KILN_API const char* kiln_program_expression(const kiln_program* program);
KILN_API size_t kiln_program_argument_count(const kiln_program* program);
KILN_API size_t kiln_program_output_count(const kiln_program* program);
/** NULL for an index that is too large. */
KILN_API const char* kiln_program_argument_name(const kiln_program* program, size_t index);
KILN_API const char* kiln_program_output_name(const kiln_program* program, size_t index);

/** The bytes of workspace that such a call needs; nothing is compiled. */
KILN_API kiln_status kiln_program_workspace(const kiln_program* program, const kiln_stream* stream,
                                            const kiln_call* call, uint64_t* bytes);
/** Runs all kernels in order. `workspace` is a view of at least that many bytes on the device,
 * aligned to 16; NULL if none are needed. */
KILN_API kiln_status kiln_program_run(const kiln_program* program, const kiln_stream* stream,
                                      const kiln_call* call, const kiln_view* workspace);
/** As kiln_function_look_up. */
KILN_API kiln_status kiln_program_look_up(const kiln_program* program, const kiln_stream* stream,
                                          const kiln_call* call, kiln_kernel_info* info);
/** Finds the kernels of such a call, or compiles them in the background, and loads them: data is
 * not looked at but for its alignment. What is wrong with the types is an error here. */
KILN_API kiln_status kiln_program_prepare(const kiln_program* program, kiln_device device,
                                          const kiln_call* call, kiln_preparation** preparation);
/** Decides everything about a run but pointers and numbers, and launches nothing. The workspace is
 * used by each launch. */
KILN_API kiln_status kiln_program_bind(const kiln_program* program, const kiln_stream* stream,
                                       const kiln_call* call, const kiln_view* workspace,
                                       kiln_launch** launch);

/* ---- Kernels of one's own -------------------------------------------------------------------- */

enum { KILN_READS = 0, KILN_WRITES = 1, KILN_READS_AND_WRITES = 2, KILN_SCALAR = 3 };
typedef struct kiln_kernel_parameter {
  int32_t kind; /**< a pointer that is read, written or both, or a number by value */
  int32_t dtype;
} kiln_kernel_parameter;

/** Blocks of the grid and threads of a block along x, y, z, and bytes of dynamic shared memory. */
typedef struct kiln_grid {
  uint32_t blocks[3];
  uint32_t threads[3];
  uint32_t shared_bytes;
} kiln_grid;

/** Enough blocks of `threads` threads along x for `count` of them. */
static inline kiln_grid kiln_grid_covering(uint64_t count, uint32_t threads) {
  kiln_grid grid = {{1, 1, 1}, {1, 1, 1}, 0};
  grid.blocks[0] = (uint32_t)((count + threads - 1) / threads);
  grid.threads[0] = threads;
  return grid;
}

typedef struct kiln_kernel kiln_kernel;

/** A kernel from HIP source that has `name` in one of the two forms that kiln::kernel() describes;
 * its parameters in the order in which it declares them. Compiles nothing. `options` may be NULL.
 */
KILN_API kiln_status kiln_kernel_create(const char* name, const char* source,
                                        const kiln_kernel_parameter* parameters,
                                        size_t parameter_count, const kiln_options* options,
                                        kiln_kernel** kernel);
KILN_API void kiln_kernel_destroy(kiln_kernel* kernel);
/** Finds or compiles it for the stream's device, and launches nothing. */
KILN_API kiln_status kiln_kernel_prepare(const kiln_kernel* kernel, const kiln_stream* stream);
/** Checks, finds or compiles, and launches. Of arrays it is handed the pointers: shapes and strides
 * are its own affair, but a view must span all that the kernel touches. */
KILN_API kiln_status kiln_kernel_launch(const kiln_kernel* kernel, const kiln_stream* stream,
                                        const kiln_grid* grid, const kiln_argument* arguments,
                                        size_t argument_count);

/* ---- Graphs ---------------------------------------------------------------------------------- */

/** Lives during kiln_record(), for the thread that records. */
typedef struct kiln_recorder kiln_recorder;
typedef struct kiln_graph kiln_graph;

/** Records what `body` asks of the recorder, for one device. With another status of `body` than
 * KILN_OK, nothing is made and kiln_record returns it. */
typedef kiln_status (*kiln_record_function)(void* context, kiln_recorder* recorder);
KILN_API kiln_status kiln_record(kiln_device device, kiln_record_function body, void* context,
                                 kiln_graph** graph);
/** Each sets *operation, where that is not NULL, to the number of what it has recorded. */
KILN_API kiln_status kiln_recorder_call(kiln_recorder* recorder, const kiln_function* function,
                                        const kiln_call* call, size_t* operation);
KILN_API kiln_status kiln_recorder_copy(kiln_recorder* recorder, const kiln_view* from,
                                        const kiln_view* to, size_t* operation);
/** Sets every byte of a C-ordered view. */
KILN_API kiln_status kiln_recorder_fill(kiln_recorder* recorder, const kiln_view* to, uint8_t byte,
                                        size_t* operation);
KILN_API kiln_status kiln_recorder_kernel(kiln_recorder* recorder, const kiln_kernel* kernel,
                                          const kiln_grid* grid, const kiln_argument* arguments,
                                          size_t argument_count, size_t* operation);
/** All kernels of a program. */
KILN_API kiln_status kiln_recorder_program(kiln_recorder* recorder, const kiln_program* program,
                                           const kiln_call* call, const kiln_view* workspace);
/** Work of the caller's own on a stream, captured once and replayed: it touches no memory but the
 * views. `context` lives as long as the graph. */
typedef kiln_status (*kiln_sequence_function)(void* context, const kiln_stream* stream);
KILN_API kiln_status kiln_recorder_sequence(kiln_recorder* recorder, const char* name,
                                            const kiln_view* reads, size_t read_count,
                                            const kiln_view* writes, size_t write_count,
                                            kiln_sequence_function body, void* context,
                                            size_t* operation);

KILN_API kiln_status kiln_graph_launch(kiln_graph* graph, const kiln_stream* stream);
/** For a block of `bytes` bytes that was at `old` and is at `now`: sets *count, where that is not
 * NULL, to how many operands lay in it. */
KILN_API kiln_status kiln_graph_rebind(kiln_graph* graph, const void* old, void* now, size_t bytes,
                                       size_t* count);
KILN_API kiln_status kiln_graph_set_scalar(kiln_graph* graph, size_t operation, size_t input,
                                           const kiln_scalar* value);
KILN_API void kiln_graph_destroy(kiln_graph* graph);

/* ---- Code without a device ------------------------------------------------------------------- */

/** Kernels that were compiled or read: source, code object and what is known of them. */
typedef struct kiln_code kiln_code;

typedef struct kiln_code_info {
  size_t size;
  const void* code; /**< the code object, an ELF image of `code_bytes` bytes */
  size_t code_bytes;
  const char* source; /**< what was compiled, complete */
  const char* log;    /**< of the compiler, if it ran */
  const char* function;
  const char* expression;
  const char* entry; /**< the kernel's name in the code object */
  const char* key;   /**< of the cache entry, 32 hex digits; empty if nothing could be kept */
  const char* target;
  double compile_ms; /**< 0 where it was not compiled now */
  int32_t cache;     /**< KILN_FROM_... */
  int32_t registers; /**< per thread; here and below -1 where it is not known */
  int32_t scalar_registers;
  int32_t lds;     /**< bytes of a block */
  int32_t scratch; /**< bytes of a thread */
  int32_t spills;
} kiln_code_info;

/** Compiles the kernels of such a call for a target ("gfx90a", "sm_90", "cpu"), or finds them in
 * the cache; what takes several kernels gives several. Of the views, types, shapes and the
 * addresses' last four bits count. Without outputs they are those that follow from the inputs, in C
 * order. */
KILN_API kiln_status kiln_function_compile(const kiln_function* function, const kiln_call* call,
                                           const char* target, kiln_code** code);

/** The same for a kernel of the caller's own: HIP source that has `name` in one of the two forms
 * that kiln::kernel() describes. `options` may be NULL. */
KILN_API kiln_status kiln_compile_source(const char* name, const char* source,
                                         const kiln_kernel_parameter* parameters,
                                         size_t parameter_count, const kiln_options* options,
                                         const char* target, kiln_code** code);

KILN_API size_t kiln_code_count(const kiln_code* code);
/** Of kernel `index`, in the order in which they run. All that it points at lives as long as
 * `code`. */
KILN_API kiln_status kiln_code_describe(const kiln_code* code, size_t index, kiln_code_info* info);
KILN_API void kiln_code_destroy(kiln_code* code);

/* ---- The cache ------------------------------------------------------------------------------- */

typedef struct kiln_cache kiln_cache;

/** The cache in `directory`, or with NULL the one that functions use. */
KILN_API kiln_status kiln_cache_open(const char* directory, kiln_cache** cache);
KILN_API const char* kiln_cache_directory(const kiln_cache* cache);
KILN_API void kiln_cache_destroy(kiln_cache* cache);

/** Which entries: those that match everything that is not NULL. */
typedef struct kiln_cache_filter {
  size_t size;
  const char* target; /**< the whole target, or its part before the first colon */
  const char* function;
  const char* const* keys; /**< 32 hex digits each */
  size_t key_count;
} kiln_cache_filter;

/** One entry, from the head of its file. The texts live until the visitor returns. */
typedef struct kiln_cache_entry {
  size_t size; /**< of the library's structure: newer fields are behind it */
  const char* key;
  const char* function;
  const char* expression;
  const char* signature;
  const char* target;
  const char* toolchain;
  const char* path;
  const char* problem; /**< why it is not usable; empty if it seems to be */
  uint64_t file_bytes;
  uint64_t code_bytes;
  int64_t created;   /**< seconds since 1970 */
  int64_t last_used; /**< renewed every ten minutes of use */
  double compile_ms;
} kiln_cache_entry;

/** Calls visit for every entry that matches (`filter` may be NULL), in the order of their keys;
 * stops when it returns another status than KILN_OK, and returns that. Fails with KILN_IO if
 * something could not be looked at, after the rest. */
typedef kiln_status (*kiln_cache_visitor)(void* context, const kiln_cache_entry* entry);
KILN_API kiln_status kiln_cache_list(kiln_cache* cache, const kiln_cache_filter* filter,
                                     kiln_cache_visitor visit, void* context);
/** The whole entry of a key, or of the first digits of one, checked. */
KILN_API kiln_status kiln_cache_read(kiln_cache* cache, const char* key, kiln_code** code);

typedef struct kiln_verification {
  size_t size;
  uint64_t entries; /**< read whole and checked */
  uint64_t bytes;
  uint64_t problems;
  uint64_t repaired;
} kiln_verification;
/** What is not as it should be, and whether it was repaired. */
typedef void (*kiln_problem_visitor)(void* context, const char* path, const char* reason,
                                     int32_t repaired);
/** Reads and checks every entry; with `repair` moves bad ones to quarantine and deletes what dead
 * processes left. `visit` and `verification` may be NULL. Problems are not a failure. */
KILN_API kiln_status kiln_cache_verify(kiln_cache* cache, int32_t repair,
                                       kiln_problem_visitor visit, void* context,
                                       kiln_verification* verification);

/** What goes: above max_size the least recently used, and what was not used for so long; with
 * neither, everything that matches. */
typedef struct kiln_trim_policy {
  size_t size;
  const uint64_t* max_size;        /**< bytes; NULL: does not count */
  const int64_t* unused_seconds;   /**< NULL: does not count */
  const kiln_cache_filter* filter; /**< only these; NULL: all */
  int32_t dry_run;                 /**< only counts what would go */
  int32_t reserved;                /**< 0 */
} kiln_trim_policy;
typedef struct kiln_removed {
  size_t size;
  uint64_t entries;
  uint64_t bytes;
} kiln_removed;
/** `removed` may be NULL. */
KILN_API kiln_status kiln_cache_trim(kiln_cache* cache, const kiln_trim_policy* policy,
                                     kiln_removed* removed);

/* ---- Bundles and the remote tier ------------------------------------------------------------- */

/** How entries are copied; NULL or zero for what is not wanted. */
typedef struct kiln_transfer_options {
  size_t size;
  const kiln_cache_filter* filter; /**< only these; NULL: all. A bundle is imported whole: NULL */
  /** Called after each entry, with how many of how many were looked at. With another status than
   * KILN_OK, nothing more is copied, no bundle is written, and the function returns it. */
  kiln_status (*progress)(void* context, uint64_t done, uint64_t total);
  void* progress_context;
  kiln_problem_visitor visit; /**< of what was left out, and why; `repaired` is 0 */
  void* visit_context;
} kiln_transfer_options;

enum { KILN_SIGNATURE_NONE = 0, KILN_SIGNATURE_UNCHECKED = 1, KILN_SIGNATURE_GOOD = 2 };
/** kiln::cache::Transfer. */
typedef struct kiln_transfer {
  size_t size;
  uint64_t entries; /**< that were copied */
  uint64_t bytes;
  uint64_t present;  /**< that were there already */
  uint64_t vanished; /**< that others removed meanwhile, left out */
  uint64_t problems;
  int32_t signature; /**< of the bundle: KILN_SIGNATURE_... */
  int32_t reserved;
} kiln_transfer;

/* Of all four `options` and `transfer` may be NULL. Problems are not a failure. */

/** Writes entries, each checked, into one file, signed where there is a KILN_CACHE_SECRET: for
 * kiln_cache_import or, as it is, for KILN_CACHE_READONLY_DIRS. Fails with KILN_NOT_FOUND if there
 * are none. */
KILN_API kiln_status kiln_cache_export(kiln_cache* cache, const char* path,
                                       const kiln_transfer_options* options,
                                       kiln_transfer* transfer);
/** Checks a whole bundle, then copies its entries. Fails with KILN_INVALID_ARGUMENT when it is not
 * intact, or not signed with the KILN_CACHE_SECRET that there is. */
KILN_API kiln_status kiln_cache_import(kiln_cache* cache, const char* path,
                                       const kiln_transfer_options* options,
                                       kiln_transfer* transfer);
/** Sends entries to the remote tier. Fails with KILN_NOT_FOUND without one or if there are none,
 * with KILN_IO if its server does not answer. */
KILN_API kiln_status kiln_cache_push(kiln_cache* cache, const kiln_transfer_options* options,
                                     kiln_transfer* transfer);
/** Copies what the remote tier has and the directory does not. */
KILN_API kiln_status kiln_cache_pull(kiln_cache* cache, const kiln_transfer_options* options,
                                     kiln_transfer* transfer);

/** The server at `url`, as in KILN_REMOTE_CACHE, is the remote tier of the cache that functions use
 * and of those that are opened from now on, with a secret as in KILN_CACHE_SECRET; "": there is
 * none. Does not connect yet. */
KILN_API kiln_status kiln_cache_use_remote(const char* url, const char* secret);

#ifdef __cplusplus
}
#endif

#endif
