// Recorded graphs in C.
#include "kiln/graph.hpp"

#include <utility>
#include <vector>

#include "c/boundary.hpp"
#include "c/convert.hpp"
#include "c/handles.hpp"

namespace c = kiln::c;

struct kiln_recorder {
  kiln::Recorder& recorder;
  kiln::Device device;
};

struct kiln_graph {
  kiln::Graph graph;
};

namespace {

std::vector<kiln::View> to_views(const kiln_view* views, size_t count, const char* function,
                                 const char* argument) {
  if (count != 0) c::require(views, function, argument);
  std::vector<kiln::View> result;
  for (size_t i = 0; i < count; ++i) result.push_back(c::to_view(&views[i], function, argument));
  return result;
}

void put_operation(size_t* operation, size_t number) {
  if (operation != nullptr) *operation = number;
}

}  // namespace

kiln_status kiln_record(kiln_device device, kiln_record_function body, void* context,
                        kiln_graph** graph) {
  return c::guard(__func__, [&](const char* called) {
    c::require(graph, called, "graph");
    c::require(body, called, "body");
    const kiln::Device on = c::to_device(device, called);
    *graph = new kiln_graph{kiln::record(on, [&](kiln::Recorder& recorder) {
      kiln_recorder handle{recorder, on};
      c::check_callback(body(context, &handle));
    })};
  });
}

kiln_status kiln_recorder_call(kiln_recorder* recorder, const kiln_function* function,
                               const kiln_call* call, size_t* operation) {
  return c::guard(__func__, [&](const char* called) {
    const c::Operands operands(call, called);
    put_operation(operation, c::require(recorder, called, "recorder")
                                 .recorder.call(c::require(function, called, "function").function,
                                                operands.inputs(), operands.outputs()));
  });
}

kiln_status kiln_recorder_kernel(kiln_recorder* recorder, const kiln_kernel* kernel,
                                 const kiln_grid* grid, const kiln_argument* arguments,
                                 size_t argument_count, size_t* operation) {
  return c::guard(__func__, [&](const char* called) {
    const kiln_call call{arguments, argument_count, nullptr, 0};
    const c::Operands operands(&call, called);
    put_operation(operation, c::require(recorder, called, "recorder")
                                 .recorder.call(c::require(kernel, called, "kernel").kernel,
                                                c::to_grid(grid, called), operands.inputs()));
  });
}

kiln_status kiln_recorder_copy(kiln_recorder* recorder, const kiln_view* from, const kiln_view* to,
                               size_t* operation) {
  return c::guard(__func__, [&](const char* called) {
    const kiln::Copy copy{.from = c::to_view(from, called, "from"),
                          .to = c::to_view(to, called, "to")};
    put_operation(operation, c::require(recorder, called, "recorder").recorder.copy(copy));
  });
}

kiln_status kiln_recorder_fill(kiln_recorder* recorder, const kiln_view* to, uint8_t byte,
                               size_t* operation) {
  return c::guard(__func__, [&](const char* called) {
    const kiln::View view = c::to_view(to, called, "to");
    put_operation(operation, c::require(recorder, called, "recorder").recorder.fill(view, byte));
  });
}

kiln_status kiln_recorder_program(kiln_recorder* recorder, const kiln_program* program,
                                  const kiln_call* call, const kiln_view* workspace) {
  return c::guard(__func__, [&](const char* called) {
    const kiln_recorder& to = c::require(recorder, called, "recorder");
    const c::Operands operands(call, called);
    c::require(program, called, "program")
        .program.record(to.recorder, to.device, operands.inputs(), operands.outputs(),
                        c::to_workspace(workspace, called));
  });
}

kiln_status kiln_recorder_sequence(kiln_recorder* recorder, const char* name,
                                   const kiln_view* reads, size_t read_count,
                                   const kiln_view* writes, size_t write_count,
                                   kiln_sequence_function body, void* context, size_t* operation) {
  return c::guard(__func__, [&](const char* called) {
    c::require(body, called, "body");
    const auto run = [body, context](const kiln::Stream& on) {
      const kiln_stream stream{c::from_device(on.device), on.native};
      c::check_callback(body(context, &stream));
    };
    put_operation(operation,
                  c::require(recorder, called, "recorder")
                      .recorder.sequence(c::require_text(name, called, "name"),
                                         to_views(reads, read_count, called, "reads"),
                                         to_views(writes, write_count, called, "writes"), run));
  });
}

kiln_status kiln_graph_launch(kiln_graph* graph, const kiln_stream* stream) {
  return c::guard(__func__, [&](const char* called) {
    c::require(graph, called, "graph").graph.launch(c::to_stream(stream, called));
  });
}

kiln_status kiln_graph_rebind(kiln_graph* graph, const void* old, void* now, size_t bytes,
                              size_t* count) {
  return c::guard(__func__, [&](const char* called) {
    put_operation(count, c::require(graph, called, "graph").graph.rebind(old, now, bytes));
  });
}

kiln_status kiln_graph_set_scalar(kiln_graph* graph, size_t operation, size_t input,
                                  const kiln_scalar* value) {
  return c::guard(__func__, [&](const char* called) {
    c::require(graph, called, "graph")
        .graph.set_scalar(operation, input,
                          c::to_scalar(c::require(value, called, "value"), called));
  });
}

void kiln_graph_destroy(kiln_graph* graph) { delete graph; }
