/* kiln/kiln.h as a program in C99 uses it: everything of it once, on the CPU, and its errors. Ends with 77
 * where there is no compiler for the CPU. */
#include <kiln/kiln.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;

static void expect(int holds, const char *what, int line) {
  if (holds) return;
  ++failures;
  printf("api_test.c:%d: %s\n  last error: %s\n", line, what, kiln_last_error()->message);
}
#define EXPECT(condition) expect((condition) ? 1 : 0, #condition, __LINE__)
#define OK(call) EXPECT((call) == KILN_OK)
#define HAS(text) EXPECT(strstr(kiln_last_error()->message, text) != NULL)
#define SIZE 1000

static const kiln_stream cpu = {{KILN_CPU, 0}, NULL};
static const int64_t shape[] = {SIZE};
static float x[SIZE], y[SIZE], z[SIZE];

static kiln_view view_of(float *data) {
  kiln_view view = {0};
  view.data = data;
  view.dtype = KILN_F32;
  view.rank = 1;
  view.shape = shape;
  return view;
}

/* A call of two inputs and one output. */
struct binary {
  kiln_argument inputs[2];
  kiln_view output;
  kiln_call call;
};
static const kiln_call *binary(struct binary *made, kiln_argument a, kiln_argument b, float *out) {
  made->inputs[0] = a;
  made->inputs[1] = b;
  made->output = view_of(out);
  made->call.inputs = made->inputs;
  made->call.input_count = 2;
  made->call.outputs = &made->output;
  made->call.output_count = 1;
  return &made->call;
}

/* out[i] == a * i + b for all i? */
static int is_linear(const float *out, float a, float b) {
  int i;
  for (i = 0; i < SIZE; ++i) {
    if (out[i] != a * (float)i + b) return 0;
  }
  return 1;
}

static void fill_inputs(void) {
  int i;
  for (i = 0; i < SIZE; ++i) {
    x[i] = (float)i;
    y[i] = 1;
    z[i] = -1;
  }
}

/* ---- Errors ---- */

static void *fail_elsewhere(void *code) {
  kiln_function *function = NULL;
  *(kiln_status *)code = kiln_parse("other", "1 +", NULL, &function);
  return NULL;
}

static void test_errors(void) {
  kiln_function *function = NULL;
  kiln_device_info info;
  struct {
    kiln_options options;
    int64_t newer;
  } later;
  kiln_status elsewhere = KILN_OK;
  pthread_t thread;
  char before[200];

  EXPECT(kiln_last_error()->code == KILN_OK && kiln_last_error()->message[0] == '\0');
  EXPECT(kiln_parse("f", "x +", NULL, &function) == KILN_INVALID_ARGUMENT);
  EXPECT(function == NULL);
  EXPECT(kiln_last_error()->code == KILN_INVALID_ARGUMENT);
  EXPECT(kiln_last_error()->has_driver_code == 0);
  strncpy(before, kiln_last_error()->message, sizeof before - 1);
  before[sizeof before - 1] = '\0';
  EXPECT(pthread_create(&thread, NULL, fail_elsewhere, &elsewhere) == 0);
  pthread_join(thread, NULL);
  EXPECT(elsewhere == KILN_INVALID_ARGUMENT);
  EXPECT(strncmp(before, kiln_last_error()->message, sizeof before - 1) == 0);

  EXPECT(kiln_parse("f", NULL, NULL, &function) == KILN_INVALID_ARGUMENT);
  HAS("kiln_parse: expression: expected a pointer, got NULL");
  info.size = 0;
  EXPECT(kiln_describe_device(cpu.device, &info) == KILN_INVALID_ARGUMENT);
  HAS("KILN_INIT");

  /* What a caller of a later kiln sets and this one does not know is an error, unless it is zero. */
  KILN_INIT(&later.options);
  later.options.size = sizeof later;
  later.newer = 1;
  EXPECT(kiln_parse("f", "x", &later.options, &function) == KILN_INVALID_ARGUMENT);
  HAS("does not know");
  later.newer = 0;
  OK(kiln_parse("f", "x", &later.options, &function));
  kiln_function_destroy(function);
  function = NULL;
  /* And what a caller of an earlier one has not is the default. */
  later.options.size = offsetof(kiln_options, on_miss);
  later.options.on_miss = 77;
  OK(kiln_parse("f", "x", &later.options, &function));
  kiln_function_destroy(function);
  later.options.size = sizeof later.options;
  EXPECT(kiln_parse("f", "x", &later.options, &function) == KILN_INVALID_ARGUMENT);
  HAS("on_miss: expected a number from 0 to 4, got 77");

  EXPECT(strcmp(kiln_status_name(KILN_WOULD_COMPILE), "would_compile") == 0);
  EXPECT(strcmp(kiln_status_name(-5), "unknown") == 0);
  EXPECT(strcmp(kiln_dtype_name(KILN_BF16), "bf16") == 0);
  EXPECT(kiln_dtype_name(KILN_F4E2M1 + 1) == NULL);
  kiln_function_destroy(NULL);
}

/* ---- The process ---- */

static int logged = 0;
static size_t executed = 0;

static void log_line(void *context, int32_t level, const char *message) {
  EXPECT(context == &logged && level >= KILN_LOG_DEBUG && message != NULL);
  ++logged;
}

static kiln_status execute(void *context, size_t parts, void (*run)(const void *, size_t),
                           const void *work) {
  size_t i;
  EXPECT(context == &executed);
  executed += parts;
  for (i = parts; i-- > 0;) run(work, i);
  return KILN_OK;
}

static void test_process(const char *directory) {
  kiln_configuration configuration;
  kiln_device devices[64];
  kiln_device_info info;
  kiln_statistics statistics;
  const uint64_t memory_limit = 1u << 30;
  const uint64_t fallback_memory = 1u << 20;
  size_t count = 0;

  EXPECT(strcmp(kiln_version(), KILN_VERSION_STRING) == 0);
  EXPECT(kiln_version_number() == KILN_VERSION);
  KILN_INIT(&configuration);
  configuration.cache_directory = directory;
  configuration.jobs = 1;
  configuration.threads = 3;
  configuration.executor = execute;
  configuration.executor_context = &executed;
  configuration.log = log_line;
  configuration.log_context = &logged;
  configuration.memory_limit = &memory_limit;
  configuration.fallback_memory = &fallback_memory;
  OK(kiln_configure(&configuration, "engine.c", 42));
  configuration.executor = NULL;
  configuration.log = NULL;
  configuration.jobs = 2;
  EXPECT(kiln_configure(&configuration, NULL, 0) == KILN_INVALID_ARGUMENT);
  HAS("engine.c:42");
  OK(kiln_set_log(log_line, &logged));

  OK(kiln_devices(devices, 64, &count));
  EXPECT(count >= 1 && devices[count - 1].type == KILN_CPU);
  OK(kiln_devices(NULL, 0, &count));
  KILN_INIT(&info);
  OK(kiln_describe_device(cpu.device, &info));
  EXPECT(info.name[0] != '\0' && info.target[0] != '\0' && info.compute_units == 3);
  KILN_INIT(&statistics);
  OK(kiln_get_statistics(cpu.device, &statistics));
  EXPECT(statistics.memory_limit == memory_limit && statistics.plans_dropped == 0);
}

/* ---- Functions ---- */

/* Served before its kernel is there. */
static void test_fallback(void) {
  kiln_function *function = NULL;
  kiln_preparation *preparation = NULL;
  kiln_options options;
  kiln_statistics statistics;
  kiln_kernel_info info;
  struct binary made;
  KILN_INIT(&options);
  options.on_miss = KILN_ON_MISS_FALLBACK;
  OK(kiln_parse("served", "a * 2 + b - 0.375", &options, &function));
  binary(&made, kiln_array(view_of(x)), kiln_number(1.375), z);
  KILN_INIT(&info);
  OK(kiln_function_look_up(function, &cpu, &made.call, &info));
  EXPECT(info.fallback == 1 && strcmp(info.function, "served") == 0);
  OK(kiln_function_call(function, &cpu, &made.call));
  EXPECT(is_linear(z, 2, 1));
  KILN_INIT(&statistics);
  OK(kiln_get_statistics(cpu.device, &statistics));
  EXPECT(statistics.fallbacks == 1);
  OK(kiln_function_prepare(function, cpu.device, &made.call, &preparation));
  OK(kiln_preparation_wait(preparation, NULL));
  OK(kiln_function_look_up(function, &cpu, &made.call, &info));
  EXPECT(info.fallback == 0 && strlen(info.key) == 32);
  kiln_preparation_destroy(preparation);
  kiln_function_destroy(function);
  EXPECT(kiln_lend_fallback_memory(NULL) == KILN_INVALID_ARGUMENT);
}

static void test_function(void) {
  const kiln_options *defaults = NULL;
  const char *names[] = {"b", "a"};
  kiln_function *function = NULL;
  kiln_launch *launch = NULL;
  kiln_preparation *preparation = NULL;
  kiln_kernel_info info;
  kiln_scalar number = kiln_number(3).scalar;
  struct binary made;
  int32_t ready = -1;
  const int64_t reversed[] = {-1};
  kiln_view backwards;

  OK(kiln_parse("axpb", "a * x + b", defaults, &function));
  EXPECT(kiln_function_argument_count(function) == 3 && kiln_function_output_count(function) == 1);
  EXPECT(strcmp(kiln_function_argument_name(function, 1), "x") == 0);
  EXPECT(kiln_function_argument_name(function, 3) == NULL);
  kiln_function_destroy(function);

  OK(kiln_parse_with_arguments("sum", "y = a + 2 * b", defaults, names, 2, &function));
  EXPECT(strcmp(kiln_function_name(function), "sum") == 0);
  EXPECT(strcmp(kiln_function_output_name(function, 0), "y") == 0);
  EXPECT(kiln_function_expression(function)[0] != '\0');
  binary(&made, kiln_array(view_of(x)), kiln_integer(5), z);
  OK(kiln_function_call(function, &cpu, &made.call));
  EXPECT(is_linear(z, 2, 5));
  binary(&made, kiln_array(view_of(x)), kiln_typed_number(0.5, KILN_F32, 0), z);
  OK(kiln_function_call(function, &cpu, &made.call));
  EXPECT(is_linear(z, 2, 0.5F));
  backwards = view_of(x + SIZE - 1);
  backwards.strides = reversed;
  binary(&made, kiln_array(backwards), kiln_integer(0), z);
  OK(kiln_function_call(function, &cpu, &made.call));
  EXPECT(is_linear(z, -2, 2 * (SIZE - 1)));

  binary(&made, kiln_array(view_of(x)), kiln_array(view_of(y)), z);
  made.call.input_count = 1;
  EXPECT(kiln_function_call(function, &cpu, &made.call) == KILN_INVALID_ARGUMENT);
  made.call.input_count = 2;
  made.output.dtype = 99;
  EXPECT(kiln_function_call(function, &cpu, &made.call) == KILN_INVALID_ARGUMENT);
  HAS("dtype: expected a number from 0 to 20, got 99");
  made.output.dtype = KILN_F32;
  made.output.rank = -1;
  EXPECT(kiln_function_call(function, &cpu, &made.call) == KILN_INVALID_ARGUMENT);
  HAS("rank");

  test_fallback();

  /* Without memory: addresses that are none. */
  binary(&made, kiln_array(view_of((float *)16)), kiln_array(view_of((float *)32)), (float *)48);
  OK(kiln_function_prepare(function, cpu.device, &made.call, &preparation));
  KILN_INIT(&info);
  OK(kiln_preparation_wait(preparation, &info));
  EXPECT(strcmp(info.function, "sum") == 0 && strlen(info.key) == 32 && info.kernels == 1);
  OK(kiln_preparation_ready(preparation, &ready));
  EXPECT(ready == 1);
  kiln_preparation_destroy(preparation);

  binary(&made, kiln_array(view_of(x)), kiln_number(1), z);
  OK(kiln_function_bind(function, &cpu, &made.call, &launch));
  OK(kiln_launch_set_scalar(launch, 1, &number));
  OK(kiln_launch_run(launch, &cpu));
  EXPECT(is_linear(z, 2, 3));
  OK(kiln_launch_set_input(launch, 0, z));
  OK(kiln_launch_set_output(launch, 0, z));
  OK(kiln_launch_run(launch, &cpu));
  EXPECT(is_linear(z, 4, 9));
  EXPECT(kiln_launch_set_input(launch, 1, x) == KILN_INVALID_ARGUMENT);
  OK(kiln_launch_info(launch, &info));
  EXPECT(strstr(info.source, info.entry) != NULL);
  kiln_launch_destroy(launch);
  kiln_function_destroy(function);
}

static kiln_status count_items(void *context, size_t index, size_t done, size_t total) {
  size_t *const counted = context;
  EXPECT(index < total && done == *counted + 1);
  *counted = done;
  return KILN_OK;
}
static kiln_status refuse_item(void *context, size_t index, size_t done, size_t total) {
  (void)context;
  return index < total && done > 0 ? 77 : KILN_OK;
}

static void test_prepare_all(void) {
  kiln_function *first = NULL, *second = NULL;
  kiln_preparation *preparations[3] = {NULL, NULL, NULL};
  kiln_prepare_item items[3];
  kiln_kernel_info info;
  struct binary calls[3];
  size_t done = 0, i;
  const int64_t other[] = {SIZE + 1};

  OK(kiln_parse("first", "a * 3 - b", NULL, &first));
  OK(kiln_parse("second", "a - 3 * b", NULL, &second));
  for (i = 0; i < 3; ++i) {
    items[i].function = i == 1 ? second : first;
    items[i].device = cpu.device;
    items[i].call = *binary(&calls[i], kiln_array(view_of(x)), kiln_array(view_of(y)), z);
  }
  calls[2].inputs[1].view.shape = other; /* no broadcast: of this item alone */
  OK(kiln_prepare_all(items, 3, count_items, &done, preparations));
  EXPECT(done == 3);
  KILN_INIT(&info);
  OK(kiln_preparation_wait(preparations[0], &info));
  EXPECT(strcmp(info.function, "first") == 0);
  OK(kiln_preparation_wait(preparations[1], &info));
  EXPECT(strcmp(info.function, "second") == 0);
  EXPECT(kiln_preparation_wait(preparations[2], NULL) == KILN_INVALID_ARGUMENT);
  for (i = 0; i < 3; ++i) kiln_preparation_destroy(preparations[i]);

  preparations[0] = NULL;
  EXPECT(kiln_prepare_all(items, 2, refuse_item, NULL, preparations) == KILN_CALLBACK);
  HAS("77");
  EXPECT(preparations[0] == NULL);
  OK(kiln_prepare_all(NULL, 0, NULL, NULL, NULL));
  items[1].function = NULL;
  EXPECT(kiln_prepare_all(items, 2, NULL, NULL, preparations) == KILN_INVALID_ARGUMENT);
  HAS("kiln_prepare_all: items: function: expected a pointer, got NULL");
  kiln_function_destroy(first);
  kiln_function_destroy(second);
}

static void test_executor(void) {
  const size_t size = 100000;
  float *large = malloc(size * sizeof *large);
  const int64_t extent = (int64_t)size;
  kiln_function *function = NULL;
  kiln_argument input;
  kiln_call call = {0};
  size_t i;
  int right = 1;
  kiln_view view = {0};

  for (i = 0; i < size; ++i) large[i] = (float)i;
  view.data = large;
  view.dtype = KILN_F32;
  view.rank = 1;
  view.shape = &extent;
  input = kiln_array(view);
  call.inputs = &input;
  call.input_count = 1;
  call.outputs = &view;
  call.output_count = 1;
  OK(kiln_parse("next", "x + 1", NULL, &function));
  executed = 0;
  OK(kiln_function_call(function, &cpu, &call));
  EXPECT(executed == 3);
  for (i = 0; i < size; ++i) right = right && large[i] == (float)(i + 1);
  EXPECT(right);
  kiln_function_destroy(function);
  free(large);
}

/* ---- Programs and graphs ---- */

static kiln_program *program = NULL;
static kiln_function *add = NULL;
static void *workspace_memory = NULL;
static int64_t workspace_bytes = 0;
static size_t scaled = 0;

static const kiln_view *workspace(void) {
  static kiln_view view;
  memset(&view, 0, sizeof view);
  view.data = workspace_memory;
  view.dtype = KILN_U8;
  view.rank = 1;
  view.shape = &workspace_bytes;
  return &view;
}

static kiln_view matrix_of(float *data) {
  static const int64_t extents[] = {SIZE / 40, 40};
  kiln_view view = view_of(data);
  view.rank = 2;
  view.shape = extents;
  return view;
}

static const kiln_call *program_call(struct binary *made) {
  binary(made, kiln_array(matrix_of(x)), kiln_array(matrix_of(y)), z);
  made->output = matrix_of(z);
  return &made->call;
}

static int is_right_program(void) {
  int i;
  for (i = 0; i < SIZE; ++i) {
    const float distance = z[i] - 1640.0F * (float)(i / 40 - 12);
    if (distance < -1 || distance > 1) return 0;
  }
  return 1;
}

static void test_program(void) {
  struct binary made;
  uint64_t bytes = 0;
  kiln_preparation *preparation = NULL;
  kiln_launch *launch = NULL;
  kiln_kernel_info info;

  /* Reductions of columns and of rows, of which one waits for the other: several kernels. */
  OK(kiln_parse_program("centred", "d = x - mean(x, 0); d + y * sum(d, 1)", NULL, &program));
  EXPECT(kiln_program_argument_count(program) == 2 && kiln_program_output_count(program) == 1);
  EXPECT(strcmp(kiln_program_argument_name(program, 0), "x") == 0);
  EXPECT(strcmp(kiln_program_name(program), "centred") == 0);
  EXPECT(kiln_program_expression(program)[0] != '\0');
  EXPECT(kiln_program_output_name(program, 1) == NULL);
  program_call(&made);
  OK(kiln_program_workspace(program, &cpu, &made.call, &bytes));
  EXPECT(bytes > 0);
  workspace_bytes = (int64_t)bytes;
  workspace_memory = malloc(bytes); /* aligned to 16 */
  EXPECT(kiln_program_run(program, &cpu, &made.call, NULL) == KILN_INVALID_ARGUMENT);
  HAS("workspace");
  OK(kiln_program_run(program, &cpu, &made.call, workspace()));
  EXPECT(is_right_program());

  OK(kiln_program_prepare(program, cpu.device, &made.call, &preparation));
  KILN_INIT(&info);
  OK(kiln_preparation_wait(preparation, &info));
  EXPECT(strcmp(info.function, "centred") == 0);
  kiln_preparation_destroy(preparation);
  OK(kiln_program_bind(program, &cpu, &made.call, workspace(), &launch));
  memset(z, 0, sizeof z);
  OK(kiln_launch_set_output(launch, 0, z));
  OK(kiln_launch_run(launch, &cpu));
  EXPECT(is_right_program());
  EXPECT(kiln_launch_set_input(launch, 0, (const char *)x + 4) == KILN_INVALID_ARGUMENT);
  HAS("input 0 'x'");
  kiln_launch_destroy(launch);
}

static kiln_status double_in_place(void *context, const kiln_stream *stream) {
  float *data = context;
  int i;
  EXPECT(stream->device.type == KILN_CPU);
  for (i = 0; i < SIZE; ++i) data[i] *= 2;
  return KILN_OK;
}

static kiln_status record_all(void *context, kiln_recorder *recorder) {
  struct binary made;
  const kiln_view vy = view_of(y), vz = view_of(z);
  kiln_status status;
  (void)context;
  program_call(&made);
  if ((status = kiln_recorder_program(recorder, program, &made.call, workspace()))) return status;
  if ((status = kiln_recorder_fill(recorder, &vz, 0, NULL))) return status;
  binary(&made, kiln_array(vz), kiln_number(1), z);
  if ((status = kiln_recorder_call(recorder, add, &made.call, &scaled))) return status;
  if ((status = kiln_recorder_copy(recorder, &vz, &vy, NULL))) return status;
  return kiln_recorder_sequence(recorder, "doubled", &vz, 1, &vz, 1, double_in_place, z, NULL);
}

static kiln_status record_what_fails(void *context, kiln_recorder *recorder) {
  const kiln_view vx = view_of(x);
  (void)context;
  return kiln_recorder_copy(recorder, &vx, NULL, NULL);
}

static kiln_status record_and_give_up(void *context, kiln_recorder *recorder) {
  (void)recorder;
  return *(kiln_status *)context;
}

static void test_graph(void) {
  kiln_graph *graph = NULL;
  kiln_scalar five = kiln_number(5).scalar;
  kiln_status own = 1234;
  size_t count = 0;

  OK(kiln_parse("add", "a + b", NULL, &add));
  OK(kiln_record(cpu.device, record_all, NULL, &graph));
  OK(kiln_graph_launch(graph, &cpu));
  EXPECT(is_linear(z, 0, 2) && is_linear(y, 0, 1));
  OK(kiln_graph_set_scalar(graph, scaled, 1, &five));
  OK(kiln_graph_launch(graph, &cpu));
  EXPECT(is_linear(z, 0, 10) && is_linear(y, 0, 5));
  kiln_graph_destroy(graph);

  graph = NULL;
  EXPECT(kiln_record(cpu.device, record_what_fails, NULL, &graph) == KILN_INVALID_ARGUMENT);
  HAS("kiln_recorder_copy: to: expected a pointer, got NULL");
  EXPECT(kiln_record(cpu.device, record_and_give_up, &own, &graph) == KILN_CALLBACK);
  HAS("1234");
  EXPECT(graph == NULL);
  fill_inputs();
  own = KILN_OK;
  OK(kiln_record(cpu.device, record_and_give_up, &own, &graph));
  OK(kiln_graph_rebind(graph, x, y, sizeof x, &count));
  EXPECT(count == 0);
  kiln_graph_destroy(graph);
  kiln_function_destroy(add);
  kiln_program_destroy(program);
  free(workspace_memory);
}

/* ---- Code and the cache ---- */

static const char scale_source[] =
    "extern \"C\" __global__ void scale(const float* x, float* y, float a, unsigned n) {\n"
    "  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "  if (i < n) y[i] = a * x[i];\n"
    "}\n";
static const kiln_kernel_parameter scale_parameters[] = {
    {KILN_READS, KILN_F32}, {KILN_WRITES, KILN_F32}, {KILN_SCALAR, KILN_F32}, {KILN_SCALAR, KILN_U32}};
static kiln_kernel *scale = NULL;

static kiln_status record_kernel(void *context, kiln_recorder *recorder) {
  const kiln_grid grid = kiln_grid_covering(SIZE, 64);
  const kiln_argument arguments[] = {kiln_array(view_of(x)), kiln_array(view_of(y)), kiln_number(3),
                                     kiln_integer(SIZE)};
  return kiln_recorder_kernel(recorder, scale, &grid, arguments, 4, (size_t *)context);
}

static void test_kernel(void) {
  kiln_grid grid = kiln_grid_covering(SIZE, 64);
  kiln_argument arguments[4];
  kiln_graph *graph = NULL;
  kiln_scalar five = kiln_number(5).scalar;
  size_t operation = 99;

  EXPECT(kiln_kernel_create("other", scale_source, scale_parameters, 4, NULL, &scale) == KILN_INVALID_ARGUMENT);
  HAS("there is no kernel of that name in it");
  EXPECT(scale == NULL);
  OK(kiln_kernel_create("scale", scale_source, scale_parameters, 4, NULL, &scale));
  OK(kiln_kernel_prepare(scale, &cpu));
  fill_inputs();
  arguments[0] = kiln_array(view_of(x));
  arguments[1] = kiln_array(view_of(y));
  arguments[2] = kiln_number(2);
  arguments[3] = kiln_integer(SIZE);
  OK(kiln_kernel_launch(scale, &cpu, &grid, arguments, 4));
  EXPECT(is_linear(y, 2, 0));
  EXPECT(kiln_kernel_launch(scale, &cpu, &grid, arguments, 3) == KILN_INVALID_ARGUMENT);
  HAS("expected 4 arguments, got 3");
  EXPECT(kiln_kernel_launch(scale, &cpu, NULL, arguments, 4) == KILN_INVALID_ARGUMENT);
  HAS("kiln_kernel_launch: grid: expected a pointer, got NULL");
  OK(kiln_record(cpu.device, record_kernel, &operation, &graph));
  OK(kiln_graph_launch(graph, &cpu));
  EXPECT(operation == 0 && is_linear(y, 3, 0));
  OK(kiln_graph_set_scalar(graph, operation, 2, &five));
  OK(kiln_graph_launch(graph, &cpu));
  EXPECT(is_linear(y, 5, 0));
  kiln_graph_destroy(graph);
  kiln_kernel_destroy(scale);
}

static void test_compile(void) {
  kiln_function *function = NULL;
  kiln_code *code = NULL;
  kiln_code_info info;
  struct binary made;

  OK(kiln_parse("ahead", "a * b - a", NULL, &function));
  binary(&made, kiln_array(view_of(NULL)), kiln_number(2), NULL);
  made.call.output_count = 0; /* those that follow */
  OK(kiln_function_compile(function, &made.call, "cpu", &code));
  EXPECT(kiln_code_count(code) == 1);
  KILN_INIT(&info);
  OK(kiln_code_describe(code, 0, &info));
  EXPECT(info.code_bytes > 4 && memcmp(info.code, "\177ELF", 4) == 0);
  EXPECT(strcmp(info.function, "ahead") == 0 && strstr(info.source, info.entry) != NULL);
  EXPECT(info.cache == KILN_FROM_COMPILER && info.compile_ms > 0 && info.lds == -1);
  EXPECT(kiln_code_describe(code, 1, &info) == KILN_INVALID_ARGUMENT);
  kiln_code_destroy(code);
  code = NULL;
  EXPECT(kiln_function_compile(function, &made.call, "nonsense", &code) == KILN_INVALID_ARGUMENT);
  EXPECT(code == NULL);
  kiln_function_destroy(function);

  OK(kiln_compile_source("scale", scale_source, scale_parameters, 4, NULL, "cpu", &code));
  OK(kiln_code_describe(code, 0, &info));
  EXPECT(strcmp(info.function, "scale") == 0 && strstr(info.source, "blockDim.x") != NULL);
  kiln_code_destroy(code);
  code = NULL;
  EXPECT(kiln_compile_source("scale", "void scale() { nonsense }", NULL, 0, NULL, "cpu", &code) ==
         KILN_INVALID_ARGUMENT);
  HAS("__global__");
}

static char first_key[33];
static int listed = 0;

static kiln_status list_one(void *context, const kiln_cache_entry *entry) {
  EXPECT(entry->size >= sizeof *entry && strlen(entry->key) == 32 && entry->problem[0] == '\0');
  EXPECT(entry->file_bytes > entry->code_bytes && entry->code_bytes > 0);
  memcpy(first_key, entry->key, sizeof first_key);
  ++listed;
  return context == NULL ? KILN_OK : *(kiln_status *)context;
}

static kiln_status count_transfers(void *context, uint64_t done, uint64_t total) {
  *(uint64_t *)context = done;
  return done <= total ? KILN_OK : KILN_INTERNAL;
}
static kiln_status stop_transfer(void *context, uint64_t done, uint64_t total) {
  (void)done;
  (void)total;
  return *(kiln_status *)context;
}
static void expect_no_problem(void *context, const char *path, const char *reason, int32_t repaired) {
  (void)context;
  (void)repaired;
  printf("%s: %s\n", path, reason);
  EXPECT(0);
}

static void test_bundles(kiln_cache *cache, const char *directory) {
  kiln_transfer_options options;
  kiln_transfer transfer, again;
  kiln_cache_filter filter;
  kiln_trim_policy everything;
  kiln_removed removed;
  kiln_status stop = 55;
  uint64_t done = 0;
  char path[4096];
  FILE *file;

  snprintf(path, sizeof path, "%s.bundle", directory);
  KILN_INIT(&options);
  options.progress = stop_transfer;
  options.progress_context = &stop;
  EXPECT(kiln_cache_export(cache, path, &options, NULL) == KILN_CALLBACK);
  HAS("55");
  file = fopen(path, "rb");
  EXPECT(file == NULL);
  options.progress = count_transfers;
  options.progress_context = &done;
  options.visit = expect_no_problem;
  KILN_INIT(&transfer);
  OK(kiln_cache_export(cache, path, &options, &transfer));
  EXPECT(transfer.entries > 4 && done == transfer.entries && transfer.bytes > 0 && transfer.problems == 0);

  KILN_INIT(&everything);
  KILN_INIT(&removed);
  OK(kiln_cache_trim(cache, &everything, &removed));
  EXPECT(removed.entries == transfer.entries);
  EXPECT(kiln_cache_export(cache, path, NULL, NULL) == KILN_NOT_FOUND);
  KILN_INIT(&filter);
  filter.function = "scale";
  options.filter = &filter;
  EXPECT(kiln_cache_import(cache, path, &options, NULL) == KILN_INVALID_ARGUMENT);
  HAS("kiln_cache_import: options: filter: expected NULL");
  options.filter = NULL;
  KILN_INIT(&again);
  OK(kiln_cache_import(cache, path, &options, &again));
  EXPECT(again.entries == transfer.entries && again.present == 0 && again.signature == KILN_SIGNATURE_NONE);
  OK(kiln_cache_import(cache, path, NULL, &again));
  EXPECT(again.entries == 0 && again.present == transfer.entries);
  remove(path);
  EXPECT(kiln_cache_import(cache, path, NULL, NULL) == KILN_IO);

  /* Without a remote tier. With one: api_test.py. */
  EXPECT(kiln_cache_push(cache, NULL, NULL) == KILN_NOT_FOUND);
  EXPECT(kiln_cache_pull(cache, NULL, NULL) == KILN_NOT_FOUND);
  EXPECT(kiln_cache_use_remote("http://nowhere", "0123456789abcdef0123456789abcdef") != KILN_OK);
  OK(kiln_cache_use_remote("", NULL));
}

static void test_cache(const char *directory) {
  kiln_cache *cache = NULL;
  kiln_code *code = NULL;
  kiln_code_info info;
  kiln_cache_filter filter;
  kiln_verification verification;
  kiln_trim_policy policy;
  kiln_removed removed;
  kiln_status stop = 99;

  OK(kiln_cache_open(NULL, &cache));
  EXPECT(strcmp(kiln_cache_directory(cache), directory) == 0);
  OK(kiln_cache_list(cache, NULL, list_one, NULL));
  EXPECT(listed > 4);
  listed = 0;
  EXPECT(kiln_cache_list(cache, NULL, list_one, &stop) == KILN_CALLBACK);
  EXPECT(listed == 1);
  KILN_INIT(&filter);
  filter.function = "scale";
  listed = 0;
  OK(kiln_cache_list(cache, &filter, list_one, NULL));
  EXPECT(listed == 1);
  OK(kiln_cache_read(cache, first_key, &code));
  KILN_INIT(&info);
  OK(kiln_code_describe(code, 0, &info));
  EXPECT(strcmp(info.function, "scale") == 0 && strcmp(info.key, first_key) == 0);
  EXPECT(strstr(info.source, "blockDim.x") != NULL);
  kiln_code_destroy(code);
  EXPECT(kiln_cache_read(cache, "not a key", &code) == KILN_INVALID_ARGUMENT);

  test_bundles(cache, directory);

  KILN_INIT(&verification);
  OK(kiln_cache_verify(cache, 0, NULL, NULL, &verification));
  EXPECT(verification.entries > 4 && verification.problems == 0);
  KILN_INIT(&policy);
  KILN_INIT(&removed);
  policy.filter = &filter;
  policy.dry_run = 1;
  OK(kiln_cache_trim(cache, &policy, &removed));
  EXPECT(removed.entries == 1 && removed.bytes > 0);
  policy.dry_run = 0;
  OK(kiln_cache_trim(cache, &policy, &removed));
  listed = 0;
  OK(kiln_cache_list(cache, &filter, list_one, NULL));
  EXPECT(listed == 0);
  kiln_cache_destroy(cache);
}

/* ---- DLPack: the layout of a DLTensor ---- */

typedef struct tensor {
  void *data;
  int32_t device_type, device_id, rank;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} tensor;

static void test_dlpack(void) {
  int64_t sizes[] = {3, 4}, strides[] = {8, 2};
  tensor given = {x, 1, 0, 2, 2, 32, 1, NULL, NULL, 8}, back;
  kiln_view view;

  given.shape = sizes;
  given.strides = strides;
  OK(kiln_view_from_dlpack(&given, &view));
  EXPECT(view.data == x + 2 && view.dtype == KILN_F32 && view.rank == 2);
  EXPECT(view.shape == sizes && view.strides == strides && view.device.type == KILN_CPU);
  OK(kiln_view_to_dlpack(&view, &back));
  EXPECT(back.data == x + 2 && back.byte_offset == 0 && back.code == 2 && back.bits == 32);
  EXPECT(back.lanes == 1 && back.rank == 2 && back.device_type == 1 && back.shape == sizes);
  given.lanes = 4;
  EXPECT(kiln_view_from_dlpack(&given, &view) == KILN_UNSUPPORTED);
  HAS("4 lanes");
  view.dtype = KILN_U4;
  EXPECT(kiln_view_to_dlpack(&view, &back) == KILN_UNSUPPORTED);
}

/* Whether a kernel can be compiled here. */
static int has_compiler(void) {
  kiln_function *function = NULL;
  struct binary made;
  kiln_status status;

  OK(kiln_parse("first", "a + b", NULL, &function));
  binary(&made, kiln_array(view_of(x)), kiln_array(view_of(y)), z);
  status = kiln_function_call(function, &cpu, &made.call);
  kiln_function_destroy(function);
  if (status == KILN_NOT_FOUND) return 0;
  EXPECT(status == KILN_OK && is_linear(z, 1, 1));
  return 1;
}

int main(int count, char **arguments) {
  if (count != 2) {
    printf("api_test: expected a directory of its own for the cache\n");
    return 2;
  }
  fill_inputs();
  test_errors();
  test_process(arguments[1]);
  if (!has_compiler()) {
    printf("C API: Skipped\nno compiler for the CPU: %s\n", kiln_last_error()->message);
    return failures ? 1 : 77;
  }
  test_function();
  test_prepare_all();
  test_executor();
  test_program();
  test_graph();
  test_kernel();
  test_compile();
  test_cache(arguments[1]);
  test_dlpack();
  printf("%d failed\n", failures);
  return failures ? 1 : 0;
}
