// See resources.hpp. AMD keeps the figures in a MessagePack note (LLVM's AMDGPUUsage, "Code Object
// V3 Metadata"), NVIDIA in .nv.info records (attribute numbers as `cuobjdump -elf` names them).
#include "jit/compilers/resources.hpp"

#include <elf.h>
#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>

#include "base/elf.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

constexpr std::uint16_t kMachineAmd = 224;
constexpr std::uint16_t kMachineNvidia = 190;
constexpr std::uint32_t kNoteAmdMetadata = 32;  // NT_AMDGPU_METADATA

std::uint64_t function_size(const Elf& elf, std::string_view entry) {
  for (const ElfSymbol& symbol : elf.symbols()) {
    if (symbol.name == entry && symbol.type == STT_FUNC) return symbol.size;
  }
  return 0;
}

std::optional<int> number(const nlohmann::json& kernel, const char* key) {
  const auto found = kernel.find(key);
  if (found == kernel.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<int>();
}

void read_amd_kernel(const nlohmann::json& kernel, Resources& result) {
  result.vgprs = number(kernel, ".vgpr_count");
  result.sgprs = number(kernel, ".sgpr_count");
  result.scratch = number(kernel, ".private_segment_fixed_size");
  result.lds = number(kernel, ".group_segment_fixed_size");
  const auto vector_spills = number(kernel, ".vgpr_spill_count");
  const auto scalar_spills = number(kernel, ".sgpr_spill_count");
  if (vector_spills || scalar_spills) {
    result.spills = vector_spills.value_or(0) + scalar_spills.value_or(0);
  }
}

Resources amd_resources(const Elf& elf, std::string_view entry) {
  Resources result;
  for (const ElfNote& note : elf.notes()) {
    if (note.type != kNoteAmdMetadata || note.name != "AMDGPU") continue;
    const auto metadata =
        nlohmann::json::from_msgpack(note.descriptor.begin(), note.descriptor.end(), true, false);
    if (!metadata.is_object()) continue;  // `discarded` too: not MessagePack
    const auto kernels = metadata.find("amdhsa.kernels");
    if (kernels == metadata.end() || !kernels->is_array()) continue;
    for (const auto& kernel : *kernels) {
      const auto name = kernel.is_object() ? kernel.find(".name") : kernel.end();
      if (name != kernel.end() && name->is_string() &&
          name->get_ref<const std::string&>() == entry) {
        read_amd_kernel(kernel, result);
      }
    }
  }
  result.code_bytes = function_size(elf, entry);
  return result;
}

// A record of .nv.info: one attribute of the symbol with that index.
struct NvRecord {
  std::uint8_t attribute;
  std::uint32_t symbol;
  std::uint32_t value;
};

std::vector<NvRecord> nv_records(std::string_view bytes) {
  constexpr std::uint8_t kSized =
      4;  // the only format that carries a symbol; the others are 4 bytes
  std::vector<NvRecord> records;
  while (bytes.size() >= 4) {
    std::uint16_t size = 0;
    if (static_cast<std::uint8_t>(bytes[0]) == kSized) std::memcpy(&size, &bytes[2], sizeof(size));
    if (size > bytes.size() - 4) break;
    if (size == 8) {
      NvRecord record{static_cast<std::uint8_t>(bytes[1]), 0, 0};
      std::memcpy(&record.symbol, &bytes[4], 4);
      std::memcpy(&record.value, &bytes[8], 4);
      records.push_back(record);
    }
    bytes.remove_prefix(4 + size);
  }
  return records;
}

Resources nvidia_resources(const Elf& elf, std::string_view entry) {
  constexpr std::uint8_t kFrameSize = 0x11;  // EIATTR_FRAME_SIZE
  constexpr std::uint8_t kRegisters = 0x2f;  // EIATTR_REGCOUNT
  Resources result;
  const std::string suffix = fmt::format(".{}", entry);
  if (const ElfSection* text = elf.section(".text" + suffix)) {
    result.code_bytes = text->size;
    const ElfSection* shared = elf.section(".nv.shared" + suffix);
    result.lds = shared != nullptr ? static_cast<int>(shared->size) : 0;
  }
  const ElfSection* info = elf.section(".nv.info");
  if (info == nullptr) return result;
  const std::vector<ElfSymbol> symbols = elf.symbols();
  for (const NvRecord& record : nv_records(info->bytes)) {
    if (record.symbol >= symbols.size() || symbols[record.symbol].name != entry) continue;
    if (record.attribute == kRegisters) result.vgprs = static_cast<int>(record.value);
    if (record.attribute == kFrameSize) result.scratch = static_cast<int>(record.value);
  }
  return result;
}

}  // namespace

Resources resources(std::string_view code, std::string_view entry) {
  const std::optional<Elf> elf = Elf::parse(code);
  if (!elf) {
    throw Error(Code::invalid_argument,
                fmt::format("resources: the code of {} is not a 64-bit ELF image ({} bytes)", entry,
                            code.size()));
  }
  switch (elf->machine()) {
    case kMachineAmd: return amd_resources(*elf, entry);
    case kMachineNvidia: return nvidia_resources(*elf, entry);
    default: {
      Resources result;
      result.code_bytes = function_size(*elf, entry);
      return result;
    }
  }
}

}  // namespace kiln::jit
