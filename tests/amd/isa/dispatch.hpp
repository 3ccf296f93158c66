// An AMD GPU made of software, as far as kernels see it: code objects in, their instructions
// executed. Who calls it owns the memory. The only header that users of this directory need.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::amd {

/// What a kernel did that hardware would punish or that nobody defines, or what this interpreter
/// does not know. The message says the kernel, the instruction and its address in the code, the
/// block, the wave and, where it is one lane's doing, the lane.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Device memory that was allocated at once. Addresses are those of the host.
struct Allocation {
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
  /// A byte for each byte: not 0 once it has been written. Null: all of it is written. Kernels that
  /// store set it.
  std::uint8_t* written = nullptr;
};

class Memory {
 public:
  virtual ~Memory() = default;
  /// The allocation that holds the byte at `address`, or null. It stays as it is while a kernel
  /// runs. Asked by every thread that executes.
  virtual const Allocation* find(std::uint64_t address) const = 0;
};

struct KernelArgument {
  std::uint32_t offset = 0;  ///< in the kernel's argument segment
  std::uint32_t bytes = 0;
  std::string kind;  ///< "global_buffer", "by_value", "hidden_block_count_x"...
  bool hidden() const { return kind.starts_with("hidden_"); }
};

struct Program;

/// One kernel of a code object: what its metadata and its descriptor say.
struct Kernel {
  std::string name;
  std::string target;                     ///< "gfx90a:sramecc+:xnack-"
  std::vector<KernelArgument> arguments;  ///< in the order of the source, then the hidden ones
  std::uint32_t argument_bytes = 0;       ///< of the explicit ones, with the gaps between them
  std::uint32_t segment_bytes = 0;        ///< of the explicit and the hidden ones
  std::uint32_t lds_bytes = 0;            ///< static
  std::uint32_t scratch_bytes = 0;        ///< for each lane
  std::uint32_t wave_size = 64;
  std::uint32_t vgprs = 0;           ///< allocated, AccVGPRs included
  std::uint32_t sgprs = 0;           ///< allocated
  std::uint32_t max_threads = 1024;  ///< of a block
  std::uint32_t accumulators = 0;    ///< the register that is a0, where there are AccVGPRs
  std::uint32_t resources1 = 0;      ///< COMPUTE_PGM_RSRC1
  std::uint32_t resources2 = 0;      ///< COMPUTE_PGM_RSRC2
  std::uint16_t properties = 0;      ///< which registers are filled in before the first instruction
  std::uint16_t preload = 0;         ///< arguments that are in scalar registers at the start
  std::uint64_t entry = 0;           ///< the address of the first instruction
  const class CodeObject* object = nullptr;
};

/// Gives the disassembly of a code object for a target, as disassemble_with_comgr() does.
using Disassembler = std::function<std::string(const std::string& code, const std::string& target)>;

/// A loaded code object. Kernels are decoded when they first run, under a lock.
class CodeObject {
 public:
  /// `image` is an ELF image or an offload bundle that holds one for `target`. Throws kiln::Error
  /// for what is neither, and Fault for a kernel whose registers cannot be told.
  static std::shared_ptr<const CodeObject> load(std::span<const std::byte> image,
                                                std::string_view target, Disassembler disassembler);
  virtual ~CodeObject() = default;

  const std::string& target() const { return target_; }
  const std::vector<Kernel>& kernels() const { return kernels_; }
  /// Null if there is none of that name.
  const Kernel* kernel(std::string_view name) const;

 protected:
  std::string target_;
  std::vector<Kernel> kernels_;
};

struct Dispatch {
  const Kernel* kernel = nullptr;          ///< its CodeObject outlives the call
  std::array<std::uint32_t, 3> blocks{};   ///< grid size in blocks
  std::array<std::uint32_t, 3> threads{};  ///< of a block
  std::uint32_t dynamic_lds = 0;           ///< bytes
  std::span<const std::byte> arguments;    ///< laid out as Kernel::arguments says, hidden ones not
};

struct Options {
  std::uint64_t seed = 0;   ///< of the order in which waves take turns
  bool check_races = true;  ///< between waves, on LDS and on device memory
  /// Of a wave: more are a loop without an end.
  std::uint64_t most_instructions = 100'000'000;
  bool check_waits = true;  ///< a register that a load has yet to fill must not be used
  /// v_exp, v_log, v_rcp, v_rsq, v_sqrt, v_sin and v_cos of f32 give now the nearest float and now
  /// the one on the other side of the exact value, as their documented error of one unit in the
  /// last place allows; v_rcp, v_rsq and v_sqrt of f64 err by nearly the 2^29 units of theirs.
  bool worst_transcendentals = false;
};

/// The units that issue instructions; `other` has waits, barriers and branches.
enum class Unit : std::uint8_t { vector, transcendental, matrix, scalar, lds, memory, other };
inline constexpr std::size_t kUnits = 7;

/// What a launch executed, over all its waves.
struct Trace {
  struct Count {
    std::uint64_t instructions = 0;  ///< issued, by a wave each
    std::uint64_t lanes = 0;         ///< that were active in them; 0 for scalar ones
  };
  std::array<Count, kUnits> units{};
  std::uint64_t waves = 0;
  std::uint64_t bytes_read = 0;     ///< of device memory, by active lanes
  std::uint64_t bytes_written = 0;  ///< of device memory

  void add(const Trace& other);
};

/// What a kernel consists of, executed or not.
struct Coverage {
  std::set<std::string> mnemonics;
  std::vector<std::string> unknown;  ///< instructions that this interpreter cannot execute
};
Coverage coverage_of(const Kernel& kernel);

/// Runs a whole grid in the calling thread, block after block, the waves of a block in turns. Calls
/// in several threads are independent.
/// Throws Fault; what ran before it has been done.
Trace execute(const Dispatch& dispatch, const Memory& memory, const Options& options = {});

}  // namespace kiln::amd
