// Code objects: kernels, their metadata (LLVM's "User Guide for AMDGPU Backend", Code Object
// Metadata) and their descriptors (there, Kernel Descriptor).
#include "tests/amd/isa/code_object.hpp"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/bytes.hpp"
#include "base/elf.hpp"
#include "jit/compilers/offload_bundle.hpp"
#include "kiln/error.hpp"
#include "tests/amd/isa/wave.hpp"

namespace kiln::amd {
namespace {

using Json = nlohmann::json;

constexpr std::uint16_t kMachineAmd = 224;
constexpr std::uint32_t kNoteMetadata = 32;  // NT_AMDGPU_METADATA
constexpr std::size_t kDescriptorBytes = 64;

Error malformed(std::string_view what) {
  return Error(Code::invalid_argument, fmt::format("CodeObject::load: the image {}", what));
}

std::uint32_t number(const Json& map, const char* key) {
  const auto found = map.find(key);
  return found == map.end() ? 0 : found->get<std::uint32_t>();
}

Kernel read_metadata(const Json& map) {
  Kernel kernel;
  kernel.name = map.at(".name").get<std::string>();
  kernel.segment_bytes = number(map, ".kernarg_segment_size");
  kernel.lds_bytes = number(map, ".group_segment_fixed_size");
  kernel.scratch_bytes = number(map, ".private_segment_fixed_size");
  kernel.wave_size = number(map, ".wavefront_size");
  kernel.max_threads = number(map, ".max_flat_workgroup_size");
  if (const auto arguments = map.find(".args"); arguments != map.end()) {
    for (const Json& argument : *arguments) {
      kernel.arguments.push_back({number(argument, ".offset"), number(argument, ".size"),
                                  argument.at(".value_kind").get<std::string>()});
    }
  }
  for (const KernelArgument& argument : kernel.arguments) {
    const std::uint32_t end = argument.offset + argument.bytes;
    if (!argument.hidden()) kernel.argument_bytes = std::max(kernel.argument_bytes, end);
    kernel.segment_bytes = std::max(kernel.segment_bytes, end);
  }
  return kernel;
}

// "gfx90a:sramecc+" is 0x90a.
std::uint32_t generation(std::string_view target) {
  std::uint32_t value = 0;
  for (const char digit : target.substr(0, target.find(':')).substr(3)) {
    value = value * 16 + static_cast<std::uint32_t>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
  }
  return value;
}

// "gfx90a" of "gfx90a:xnack-" and of "amdgcn-amd-amdhsa--gfx90a:xnack-".
std::string_view processor(std::string_view target) {
  target = target.substr(0, target.find(':'));
  return target.substr(target.rfind('-') + 1);
}

template <class T>
T field(std::string_view descriptor, std::size_t offset) {
  T value;
  std::memcpy(&value, descriptor.data() + offset, sizeof value);
  return value;
}

void read_descriptor(Kernel& kernel, std::string_view descriptor, std::uint64_t address) {
  kernel.entry = address + field<std::uint64_t>(descriptor, 16);
  const auto resources3 = field<std::uint32_t>(descriptor, 44);
  kernel.resources1 = field<std::uint32_t>(descriptor, 48);
  kernel.resources2 = field<std::uint32_t>(descriptor, 52);
  kernel.properties = field<std::uint16_t>(descriptor, 56);
  kernel.preload = field<std::uint16_t>(descriptor, 58);
  const std::uint32_t generation = amd::generation(kernel.target);
  const bool accumulators_are_vgprs =
      generation == 0x90a || generation >> 4 == 0x94 || generation == 0x950;
  const std::uint32_t granule =
      generation < 0x1000 ? (accumulators_are_vgprs ? 8 : 4) : (kernel.wave_size == 32 ? 8 : 4);
  kernel.vgprs = ((kernel.resources1 & 0x3f) + 1) * granule;
  // gfx10 and newer allocate all that there are: s0 to s105 and VCC.
  kernel.sgprs = generation < 0x1000 ? ((kernel.resources1 >> 6 & 0xf) / 2 + 1) * 16 : 106;
  kernel.accumulators = accumulators_are_vgprs ? ((resources3 & 0x3f) + 1) * 4 : kernel.vgprs;
}

// Programs by kernel, translated when they are first asked for.
class Programs {
 public:
  template <class Listing>
  const Program& find(const Kernel& kernel, Listing listing) const {
    const std::lock_guard guard(lock_);
    std::unique_ptr<Program>& program = programs_[&kernel];
    if (!program) program = translate(kernel, listing());
    return *program;
  }

 private:
  mutable std::mutex lock_;
  mutable std::map<const Kernel*, std::unique_ptr<Program>> programs_;
};

class Listing final : public LoadedCode {
 public:
  Listing(std::string listing, Kernel kernel) : listing_(std::move(listing)) {
    target_ = kernel.target;
    kernel.object = this;
    kernels_.push_back(std::move(kernel));
  }
  std::span<const std::byte> memory() const override { return {}; }
  const Program& program(const Kernel& kernel) const override {
    return programs_.find(kernel, [&] { return listing_; });
  }

 private:
  const std::string listing_;
  Programs programs_;
};

class LoadedObject final : public LoadedCode {
 public:
  LoadedObject(std::string image, std::string_view target, Disassembler disassembler)
      : image_(std::move(image)), disassembler_(std::move(disassembler)) {
    target_ = target;
    const auto elf = base::Elf::parse(image_);
    if (!elf) throw malformed(base::Elf::header_error(image_));
    if (elf->machine() != kMachineAmd) throw malformed("is not of an AMD GPU");
    bool described = false;
    for (const base::ElfNote& note : elf->notes()) {
      if (note.type != kNoteMetadata || note.name != "AMDGPU") continue;
      try {
        const Json metadata = Json::from_msgpack(note.descriptor.begin(), note.descriptor.end());
        described = true;
        const std::string made_for = metadata.value("amdhsa.target", "");
        if (!made_for.empty() && processor(made_for) != processor(target)) {
          throw malformed(fmt::format("is for {} and not for {}", made_for, target));
        }
        for (const Json& map : metadata.at("amdhsa.kernels"))
          kernels_.push_back(read_metadata(map));
      } catch (const Json::exception& error) {
        throw malformed(fmt::format("has metadata that cannot be read: {}", error.what()));
      }
    }
    if (!described) throw malformed("has no metadata");
    for (Kernel& kernel : kernels_) {
      kernel.target = target_;
      kernel.object = this;
      const std::string name = kernel.name + ".kd";
      const auto symbols = elf->symbols();
      const auto found = std::ranges::find(symbols, name, &base::ElfSymbol::name);
      if (found == symbols.end() || found->section >= elf->sections().size()) {
        throw malformed(fmt::format("has no descriptor {}", name));
      }
      const base::ElfSection& section = elf->sections()[found->section];
      const std::uint64_t offset = found->value - section.address;
      if (found->value < section.address || offset > section.bytes.size() ||
          section.bytes.size() - offset < kDescriptorBytes) {
        throw malformed(fmt::format("has a descriptor {} that lies outside of it", name));
      }
      read_descriptor(kernel, section.bytes.substr(offset, kDescriptorBytes), found->value);
    }
    for (const base::ElfSegment& segment : elf->segments()) {
      if (segment.type != PT_LOAD) continue;
      if (segment.offset > image_.size() || segment.file_bytes > image_.size() - segment.offset ||
          segment.memory_bytes > kMostBytes || segment.address > kMostBytes) {
        throw malformed("has segments that lie outside of it");
      }
      const std::size_t end = segment.address + segment.memory_bytes;
      if (memory_.size() < end) memory_.resize(end);
      std::memcpy(memory_.data() + segment.address, image_.data() + segment.offset,
                  std::min(segment.file_bytes, segment.memory_bytes));
    }
  }

  std::span<const std::byte> memory() const override { return memory_; }

  const Program& program(const Kernel& kernel) const override {
    return programs_.find(kernel, [&] {
      if (listing_.empty()) listing_ = disassembler_(image_, target_);
      return listing_;
    });
  }

 private:
  static constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 28;

  const std::string image_;
  const Disassembler disassembler_;
  std::vector<std::byte> memory_;
  Programs programs_;
  mutable std::string listing_;  ///< of all functions; written under the lock of the programs
};

}  // namespace

std::shared_ptr<const CodeObject> object_of_listing(std::string listing, Kernel kernel) {
  return std::make_shared<Listing>(std::move(listing), std::move(kernel));
}

const Kernel* CodeObject::kernel(std::string_view name) const {
  const auto found = std::ranges::find(kernels_, name, &Kernel::name);
  return found == kernels_.end() ? nullptr : &*found;
}

std::shared_ptr<const CodeObject> CodeObject::load(std::span<const std::byte> image,
                                                   std::string_view target,
                                                   Disassembler disassembler) {
  const std::string bytes(reinterpret_cast<const char*>(image.data()), image.size());
  return std::make_shared<LoadedObject>(jit::unbundle(bytes, target), target,
                                        std::move(disassembler));
}

}  // namespace kiln::amd
