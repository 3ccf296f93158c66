// Kernels for GPUs on a machine without one: what is emitted for a target is compiled by the host's
// compiler and run thread by thread (emulated_gpu_device.h), with waves of any size.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ahead/compile_only.hpp"
#include "base/dynamic_library.hpp"
#include "fusion/emit/emit.hpp"
#include "kernel/emit_kernel.hpp"
#include "kiln/function.hpp"
#include "preamble/preamble.hpp"
#include "tests/src/numerics/forced_schedule.hpp"
#include "tests/support/arrays.hpp"
#include "tests/support/host_compiler.hpp"
#include "tests/support/temporary_directory.hpp"

namespace kiln::testing {

/// A text for NVIDIA GPUs with calls of functions of emulated_instructions.h in the place of asm
/// statements. Those that are not emulated end the program.
inline std::string with_emulated_instructions(const std::string& text) {
  static constexpr std::pair<std::string_view, std::string_view> kFunctions[] = {
      {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "multiply<emulated::Bfloats>"},
      {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "multiply<emulated::Halves>"},
      {"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", "load_transposed"},
      {"fma.rn.bf16x2", "fma_pairs<emulated::Bfloats>"},
      {"fma.rn.f16x2", "fma_pairs<emulated::Halves>"},
      {"add.rn.f16x2", "add_halves"},
      {"cvt.rn.f16x2.f32", "pack_halves"},
      {"cvt.f32.f16", "half_to_float"},
      {"cvt.rn.f16.f32", "float_to_half"},
      {"cvt.rn.bf16.f32", "float_to_bfloat"},
      {"{\\n.reg .b16 low, high;\\nmov.b32 {low, high}, %1;\\nmov.b32 %0, {low, low}", "low_twice"},
      {"{\\n.reg .b16 low, high;\\nmov.b32 {low, high}, %1;\\nmov.b32 %0, {high, high}",
       "high_twice"},
      {"lop3.b32 %0, %1, %2, %3, 0x6a", "and_xor"},
      {"rcp.approx.ftz.f32", "reciprocal"},
      {"cp.async.cg.shared.global", "copy_chunk"},
      {"cp.async.ca.shared.global", "copy_part"},
      {"cp.async.commit_group", "nothing"},
      {"cp.async.wait_all", "nothing"},
      {"cp.async.wait_group", "wait_copies"},
      {"createpolicy.fractional", "choose_policy"},
      {"ld.global.nc.L1::no_allocate.v4.u32", "load_four"},
      {"ld.global.nc.L1::no_allocate.v2.u32", "load_two"},
      {"ld.global.nc.L1::no_allocate.u32", "load_word"},
      {"ld.global.v4.u32", "load_four"},
      {"st.volatile.shared.v4.u32", "store_four"},
      {"ld.volatile.shared.v4.u32", "load_four_shared"},
      {"bar.sync", "wait_for_team"},
      // Of the threads of a wave, for each other.
      {"mbarrier.init.shared.b64", "begin_barrier"},
      {"cp.async.mbarrier.arrive.noinc.shared.b64", "arrive_at_barrier"},
      {"{\\n.reg .pred over;", "wait_at_barrier"},
  };
  const std::regex statement(R"(\basm( volatile)?\()");
  std::string result;
  auto from = text.begin();
  for (std::sregex_iterator match(text.begin(), text.end(), statement), end; match != end;
       ++match) {
    // The instructions, then operands in parentheses behind strings.
    auto at = text.begin() + match->position() + match->length();
    std::string instructions;
    std::string operands;
    bool in_string = false;
    int depth = 1;
    for (; depth != 0; ++at) {
      if (*at == '"' && depth == 1) {
        in_string = !in_string;
        if (!in_string) operands += ' ';  // of strings one by one
        continue;
      }
      if (in_string) {
        if (operands.find(':') == std::string::npos) instructions += *at;
        continue;
      }
      depth += *at == '(' ? 1 : *at == ')' ? -1 : 0;
      if (depth != 0) operands += *at;
    }
    std::string arguments;
    for (const char c : operands) arguments += c == ':' || c == '\n' ? ' ' : c;
    const auto* const known = std::ranges::find_if(
        kFunctions, [&](const auto& one) { return instructions.starts_with(one.first); });
    result.append(from, text.begin() + match->position());
    from = at;
    if (instructions.empty()) {  // hides a value from the compiler
      result += "void(0)";
      continue;
    }
    if (known == std::end(kFunctions)) {
      result += fmt::format("emulated::not_emulated(\"{}\")", instructions);
      continue;
    }
    std::string listed;  // without what stands between
    int open = 0;
    for (const char c : arguments) {
      if (c == '(' && open++ == 0) listed += listed.empty() ? "" : ", ";
      if (open > 0 && !(c == '(' && open == 1) && !(c == ')' && open == 1)) listed += c;
      if (c == ')') --open;
    }
    result += fmt::format("emulated::{}({})", known->second, listed);
  }
  return result.append(from, text.end());
}

/// One call of a function whose kernel is for `target`.
struct EmulatedCall {
  std::string text;
  std::vector<HostArray> inputs;
  std::string target;
  fusion::ForcedRows forced{};
};

class EmulatedGpu {
 public:
  /// Compiles the kernels of all calls at once, as they are for `compiled_as`, whatever their
  /// target. Each must be one kernel.
  EmulatedGpu(const std::vector<EmulatedCall>& calls, int wave, const std::string& directory,
              preamble::Device compiled_as = preamble::Device::amd) {
    const bool is_nvidia = compiled_as == preamble::Device::nvidia;
    std::string texts;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      kernels_.push_back(emit(calls[i]));
      texts += with_own_entry(kernels_.back().call.request.text, fmt::format("kernel_{}", i));
    }
    texts = preamble::text(preamble::needed_by(texts, compiled_as), compiled_as) +
            "#undef KILN_DYNAMIC_SHARED\n"
            "#define KILN_DYNAMIC_SHARED(alignment, name) \\\n"
            "  auto* const name = (::kiln::Chunk<16>*)emulated::launched[emulated::block_now]\n"
            "namespace kiln {\n"
            "u32 block_of_cluster() { return emulated::block_now; }\n"
            "void* place_in_block(void* own, u32 block) {\n"
            "  return emulated::place_in_block(own, block);\n"
            "}\n"
            "void arrive_in_cluster() {}\n"
            "void await_cluster() { emulated::wait_at(emulated::Barrier::cluster); }\n"
            "}\n" +
            texts;
    const std::string stem = fmt::format("{}/wave{}", directory, wave);
    std::ofstream out(stem + ".cpp");
    out << "#define EMULATED_WAVE " << wave << "\n#define EMULATED_NVIDIA " << is_nvidia
        << "\n#include \"" << KILN_TEST_SUPPORT << "/emulated_gpu_device.h\"\n"
        << (is_nvidia ? with_emulated_instructions(texts) : texts);
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
  const fusion::Layout& layout(std::size_t i) const { return kernels_[i].call.layout; }

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
  struct Kernel {
    EmittedKernel call;
    OutputTypes types;
  };

  static Kernel emit(const EmulatedCall& what) {
    const Function function = with_schedule(parse("emulated", what.text), what.forced);
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

/// Tests that compile and run such kernels, in a directory of their own.
class EmulatedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!run_compiler({KILN_TEST_CXX, "--version"}).succeeded()) {
      GTEST_SKIP() << "the compiler that built this test, " KILN_TEST_CXX ", is not here";
    }
  }
  const TemporaryDirectory directory_;
};

}  // namespace kiln::testing
