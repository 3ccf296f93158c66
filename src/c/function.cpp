// Functions, their preparations and bound calls in C.
#include "kiln/function.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "c/boundary.hpp"
#include "c/convert.hpp"
#include "c/handles.hpp"
#include "kiln/copy.hpp"
#include "kiln/prepare.hpp"

namespace c = kiln::c;

kiln_status kiln_copy(const kiln_stream* stream, const kiln_view* from, const kiln_view* to) {
  return c::guard(__func__, [&](const char* function) {
    kiln::copy(c::to_stream(stream, function),
               {.from = c::to_view(from, function, "from"), .to = c::to_view(to, function, "to")});
  });
}

// ---- Functions ---------------------------------------------------------------------------------

kiln_status kiln_parse_with_arguments(const char* name, const char* expression,
                                      const kiln_options* options, const char* const* arguments,
                                      size_t argument_count, kiln_function** function) {
  return c::guard("kiln_parse", [&](const char* called) {
    c::require(function, called, "function");
    if (argument_count != 0) c::require(arguments, called, "arguments");
    std::vector<std::string> first;
    for (size_t i = 0; i < argument_count; ++i) {
      first.emplace_back(c::require_text(arguments[i], called, "arguments"));
    }
    *function = new kiln_function(kiln::parse(c::require_text(name, called, "name"),
                                              c::require_text(expression, called, "expression"),
                                              c::to_options(options, called), first));
  });
}

kiln_status kiln_parse(const char* name, const char* expression, const kiln_options* options,
                       kiln_function** function) {
  return kiln_parse_with_arguments(name, expression, options, nullptr, 0, function);
}

void kiln_function_destroy(kiln_function* function) { delete function; }

const char* kiln_function_name(const kiln_function* function) {
  return function->description.name.c_str();
}
const char* kiln_function_expression(const kiln_function* function) {
  return function->description.expression.c_str();
}
size_t kiln_function_argument_count(const kiln_function* function) {
  return function->description.arguments.size();
}
size_t kiln_function_output_count(const kiln_function* function) {
  return function->description.outputs.size();
}
const char* kiln_function_argument_name(const kiln_function* function, size_t index) {
  return c::text_at(function->description.arguments, index);
}
const char* kiln_function_output_name(const kiln_function* function, size_t index) {
  return c::text_at(function->description.outputs, index);
}

kiln_status kiln_function_call(const kiln_function* function, const kiln_stream* stream,
                               const kiln_call* call) {
  return c::guard(__func__, [&](const char* called) {
    const c::Operands operands(call, called);
    c::require(function, called, "function")
        .function.call(c::to_stream(stream, called), operands.inputs(), operands.outputs());
  });
}

kiln_status kiln_function_bind(const kiln_function* function, const kiln_stream* stream,
                               const kiln_call* call, kiln_launch** launch) {
  return c::guard(__func__, [&](const char* called) {
    c::require(launch, called, "launch");
    const c::Operands operands(call, called);
    *launch = new kiln_launch{
        c::require(function, called, "function")
            .function.bind(c::to_stream(stream, called), operands.inputs(), operands.outputs())};
  });
}

kiln_status kiln_function_look_up(const kiln_function* function, const kiln_stream* stream,
                                  const kiln_call* call, kiln_kernel_info* info) {
  return c::guard(__func__, [&](const char* called) {
    c::require_sized(info, called, "info");
    const c::Operands operands(call, called);
    c::put_sized(info,
                 c::kept_for_thread(c::require(function, called, "function")
                                        .function.look_up(c::to_stream(stream, called),
                                                          operands.inputs(), operands.outputs())));
  });
}

// ---- Preparations ------------------------------------------------------------------------------

kiln_status kiln_function_prepare(const kiln_function* function, kiln_device device,
                                  const kiln_call* call, kiln_preparation** preparation) {
  return c::guard(__func__, [&](const char* called) {
    c::require(preparation, called, "preparation");
    const kiln_function& prepared = c::require(function, called, "function");
    *preparation = new kiln_preparation(prepared.function.prepare(
        c::to_device(device, called),
        c::to_specification(call, prepared.description.arguments, called)));
  });
}

kiln_status kiln_preparation_ready(const kiln_preparation* preparation, int32_t* ready) {
  return c::guard(__func__, [&](const char* called) {
    c::require(ready, called, "ready") =
        c::require(preparation, called, "preparation").preparation.ready() ? 1 : 0;
  });
}

kiln_status kiln_preparation_wait(kiln_preparation* preparation, kiln_kernel_info* info) {
  return c::guard(__func__, [&](const char* called) {
    kiln_preparation& waited = c::require(preparation, called, "preparation");
    if (info != nullptr) c::require_sized(info, called, "info");
    std::call_once(waited.described, [&] { waited.info = waited.preparation.get(); });
    if (info != nullptr) c::put_sized(info, c::from_info(waited.info));
  });
}

kiln_status kiln_preparation_cancel(kiln_preparation* preparation) {
  return c::guard(__func__, [&](const char* called) {
    c::require(preparation, called, "preparation").preparation.cancel();
  });
}

void kiln_preparation_destroy(kiln_preparation* preparation) { delete preparation; }

kiln_status kiln_prepare_all(const kiln_prepare_item* items, size_t count,
                             kiln_prepare_progress progress, void* context,
                             kiln_preparation** preparations) {
  return c::guard(__func__, [&](const char* called) {
    if (count == 0) return;
    c::require(items, called, "items");
    c::require(preparations, called, "preparations");
    std::vector<kiln::PrepareItem> calls;
    for (size_t i = 0; i < count; ++i) {
      const kiln_function& prepared = c::require(items[i].function, called, "items: function");
      calls.push_back(
          {prepared.function, c::to_device(items[i].device, called),
           c::to_specification(&items[i].call, prepared.description.arguments, called)});
    }
    const auto report = [&](const kiln::PrepareProgress& done) {
      if (progress != nullptr) {
        c::check_callback(progress(context, done.index, done.done, done.total));
      }
    };
    std::vector<std::unique_ptr<kiln_preparation>> made;
    for (kiln::Preparation& preparation : kiln::prepare_all(calls, report)) {
      made.push_back(std::make_unique<kiln_preparation>(std::move(preparation)));
    }
    std::ranges::transform(made, preparations, [](auto& handle) { return handle.release(); });
  });
}

// ---- Bound calls -------------------------------------------------------------------------------

kiln_status kiln_launch_run(const kiln_launch* launch, const kiln_stream* stream) {
  return c::guard(__func__, [&](const char* called) {
    c::require(launch, called, "launch").launch(c::to_stream(stream, called));
  });
}

kiln_status kiln_launch_set_input(kiln_launch* launch, size_t index, const void* data) {
  return c::guard(__func__, [&](const char* called) {
    c::require(launch, called, "launch").launch.set_input(index, data);
  });
}

kiln_status kiln_launch_set_output(kiln_launch* launch, size_t index, void* data) {
  return c::guard(__func__, [&](const char* called) {
    c::require(launch, called, "launch").launch.set_output(index, data);
  });
}

kiln_status kiln_launch_set_scalar(kiln_launch* launch, size_t index, const kiln_scalar* value) {
  return c::guard(__func__, [&](const char* called) {
    c::require(launch, called, "launch")
        .launch.set_scalar(index, c::to_scalar(c::require(value, called, "value"), called));
  });
}

kiln_status kiln_launch_info(const kiln_launch* launch, kiln_kernel_info* info) {
  return c::guard(__func__, [&](const char* called) {
    c::require_sized(info, called, "info");
    c::put_sized(info, c::from_info(c::require(launch, called, "launch").launch.info()));
  });
}

void kiln_launch_destroy(kiln_launch* launch) { delete launch; }
