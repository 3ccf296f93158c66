// Kernels for GPUs on a machine without one: what is emitted for a target is compiled by the host's
// compiler and run thread by thread (emulated_gpu_device.h), with waves of any size.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "ahead/compile_only.hpp"
#include "base/dynamic_library.hpp"
#include "fusion/emit/emit.hpp"
#include "kernel/emit_kernel.hpp"
#include "kiln/function.hpp"
#include "preamble/preamble.hpp"
#include "tests/support/arrays.hpp"
#include "tests/support/host_compiler.hpp"

namespace kiln::testing {

/// One call of a function whose kernel is for `target`.
struct EmulatedCall {
  std::string text;
  std::vector<HostArray> inputs;
  std::string target;
};

class EmulatedGpu {
 public:
  /// Compiles the kernels of all calls at once. Each must be one kernel.
  EmulatedGpu(const std::vector<EmulatedCall>& calls, int wave, const std::string& directory) {
    std::string texts;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      kernels_.push_back(emit(calls[i]));
      texts += with_own_entry(kernels_.back().call.request.text, fmt::format("kernel_{}", i));
    }
    const std::string stem = fmt::format("{}/wave{}", directory, wave);
    std::ofstream out(stem + ".cpp");
    out << "#define EMULATED_WAVE " << wave << "\n#include \"" << KILN_TEST_SUPPORT
        << "/emulated_gpu_device.h\"\n"
        << preamble::text(preamble::needed_by(texts, kCompiledAs), kCompiledAs)
        << "#undef KILN_DYNAMIC_SHARED\n"
           "#define KILN_DYNAMIC_SHARED(alignment, name) \\\n"
           "  auto* const name = (::kiln::Chunk<16>*)emulated::launched[emulated::block_now]\n"
           "namespace kiln {\n"
           "u32 block_of_cluster() { return emulated::block_now; }\n"
           "void* place_in_block(void* own, u32 block) {\n"
           "  return emulated::place_in_block(own, block);\n"
           "}\n"
           "void arrive_in_cluster() {}\n"
           "void await_cluster() { emulated::wait_at(emulated::Barrier::cluster); }\n"
           "}\n"
        << texts;
    out.close();
    const base::CommandResult compiled =
        run_compiler({KILN_TEST_CXX, "-std=c++17", "-w", "-O1", "-ffp-contract=off", "-shared",
                      "-fPIC", "-o", stem + ".so", stem + ".cpp"});
    if (!compiled.succeeded())
      throw std::runtime_error(KILN_TEST_CXX " failed: " + compiled.errors);
    library_ = base::DynamicLibrary(stem + ".so");
    if (!library_) throw std::runtime_error(library_.error());
  }

  const std::string& schedule(std::size_t i) const { return kernels_[i].call.schedule_text; }

  /// The outputs, of memory that was all ones before.
  std::vector<HostArray> run(std::size_t i, const EmulatedCall& what, bool backwards = false) {
    const Kernel& kernel = kernels_[i];
    std::vector<HostArray> results;
    for (std::size_t k = 0; k < kernel.types.dtypes.size(); ++k) {
      results.push_back(HostArray::contiguous(kernel.types.dtypes[k], kernel.types.shapes[k]));
      std::memset(results.back().bytes.data(), 0xff, results.back().bytes.size());
    }
    const fusion::KernelDescription& description = kernel.call.kernel;
    fusion::ParameterBlock block = fusion::pack_parameters(description, kernel.call.layout);
    std::vector<void*> arguments;
    for (std::size_t p = 0; p < description.parameters.size(); ++p) {
      std::byte* const at = block.bytes.data() + block.offsets[p];
      const fusion::Parameter& parameter = description.parameters[p];
      if (parameter.kind == fusion::Parameter::Kind::pointer) {
        const std::size_t index = parameter.index;
        const void* data = index < what.inputs.size()
                               ? what.inputs[index].bytes.data() + what.inputs[index].first
                               : results[index - what.inputs.size()].bytes.data();
        std::memcpy(at, &data, sizeof data);
      }
      arguments.push_back(at);
    }
    using Run = void (*)(void* const*, unsigned, unsigned, unsigned, bool);
    const auto run =
        reinterpret_cast<Run>(library_.symbol(fmt::format("run_kernel_{}", i).c_str()));
    run(arguments.data(), static_cast<unsigned>(kernel.call.layout.work_items), description.block,
        static_cast<unsigned>(kernel.call.layout.schedule.reduction.cluster_blocks), backwards);
    return results;
  }

 private:
  // Whatever the target: this is what emulated_gpu_device.h says that the compiler is.
  static constexpr auto kCompiledAs = preamble::Device::amd;

  struct Kernel {
    EmittedKernel call;
    OutputTypes types;
  };

  static Kernel emit(const EmulatedCall& what) {
    const Function function = parse("emulated", what.text);
    Specification specification;
    const std::vector<std::string> names = argument_names(function);
    for (std::size_t i = 0; i < what.inputs.size(); ++i) {
      const HostArray& input = what.inputs[i];
      ArgumentSpec argument{names[i], input.dtype, input.shape, input.strides};
      argument.misalignment = static_cast<std::uint32_t>(
          reinterpret_cast<std::uintptr_t>(input.bytes.data() + input.first) % 16);
      specification.arguments.push_back(argument);
    }
    std::vector<EmittedKernel> calls = emit_all(function, specification, what.target);
    if (calls.size() != 1) throw std::runtime_error(what.text + " is not one kernel");
    return {std::move(calls[0]), output_types(function, specification)};
  }

  // The entry through which the CPU's backend calls a kernel, for a whole grid.
  static std::string with_own_entry(const std::string& source, const std::string& name) {
    std::string text = fusion::with_entry(source, name);
    const auto replace = [&](const std::string& from, const std::string& to) {
      const std::size_t at = text.find(from);
      if (at == std::string::npos) throw std::runtime_error("no '" + from + "' in\n" + text);
      text.replace(at, from.size(), to);
    };
    replace("#if KILN_HOST\nextern \"C\" void " + name +
                "(void* const* arguments, kiln::u64 begin, "
                "kiln::u64 end)",
            "#if 1\nstatic void " + name + "_entry(void* const* arguments)");
    replace(name + "_range(begin, end\n      , ", name + "(");
    return text + fmt::format(
                      "\nextern \"C\" void run_{0}(void* const* arguments, unsigned blocks,\n"
                      "    unsigned block, unsigned cluster, bool backwards) {{\n"
                      "  emulate({0}_entry, arguments, blocks, block, cluster, backwards);\n}}\n",
                      name);
  }

  std::vector<Kernel> kernels_;
  base::DynamicLibrary library_;
};

}  // namespace kiln::testing
