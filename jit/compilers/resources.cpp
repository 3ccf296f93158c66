// See resources.hpp. AMD keeps the figures in a MessagePack note (LLVM's AMDGPUUsage, "Code Object
// V3 Metadata"), NVIDIA in .nv.info records (attribute numbers as `cuobjdump -elf` names them).
#include "jit/compilers/resources.hpp"

#include <elf.h>
#include <fmt/format.h>

#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/bytes.hpp"
#include "base/elf.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

constexpr std::uint16_t kMachineAmd = 224;
constexpr std::uint16_t kMachineNvidia = 190;
constexpr std::uint32_t kNoteAmdMetadata = 32;  // NT_AMDGPU_METADATA

std::uint64_t function_size(const base::Elf& elf, std::string_view entry) {
  for (const base::ElfSymbol& symbol : elf.symbols()) {
    if (symbol.name == entry && symbol.type == STT_FUNC) return symbol.size;
  }
  return 0;
}

std::optional<int> figure(std::uint64_t value) {
  if (value > static_cast<std::uint64_t>(std::numeric_limits<int>::max())) return std::nullopt;
  return static_cast<int>(value);
}

// Takes the figures of one kernel from the metadata as it is read, so that nothing else of it is
// kept:
//   {"amdhsa.kernels": [{".name": "...", ".vgpr_count": 12, ".args": [...], ...}, ...], ...}
class AmdMetadata : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit AmdMetadata(std::string_view entry) : entry_(entry) {}

  Resources result;
  std::string reason;  ///< why the reading ended early

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t value) override {
    return value < 0 || number_unsigned(static_cast<number_unsigned_t>(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (in_kernel() && !key_.empty()) figures_.insert_or_assign(key_, value);
    return true;
  }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t& value) override {
    if (in_kernel() && key_ == ".name") name_ = std::move(value);
    return true;
  }
  bool binary(binary_t&) override { return true; }
  bool key(string_t& value) override {
    if (depth_ == 1) in_kernels_ = value == "amdhsa.kernels";
    if (in_kernel()) key_ = is_figure(value) || value == ".name" ? value : std::string();
    return true;
  }
  bool start_array(std::size_t) override { return enter(); }
  bool start_object(std::size_t) override {
    if (!enter()) return false;
    if (in_kernel()) {
      name_.clear();
      figures_.clear();
    }
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool end_object() override {
    if (in_kernel() && name_ == entry_) read_kernel();
    --depth_;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    reason = fmt::format("is no MessagePack at its byte {}", position);
    return false;
  }

 private:
  // What compilers write is 5 deep. The library calls itself for each level.
  static constexpr int kDeepest = 32;

  static bool is_figure(std::string_view key) {
    return key.ends_with("_count") || key.ends_with("_fixed_size");
  }

  // Directly in a kernel's object: the root, the array, the object.
  bool in_kernel() const { return in_kernels_ && depth_ == 3; }

  bool enter() {
    if (++depth_ <= kDeepest) return true;
    reason = fmt::format("is nested deeper than {} levels", kDeepest);
    return false;
  }

  std::optional<int> number(const char* key) const {
    const auto found = figures_.find(key);
    return found == figures_.end() ? std::nullopt : figure(found->second);
  }

  void read_kernel() {
    result.vgprs = number(".vgpr_count");
    result.sgprs = number(".sgpr_count");
    result.scratch = number(".private_segment_fixed_size");
    result.lds = number(".group_segment_fixed_size");
    const auto vector_spills = number(".vgpr_spill_count");
    result.scalar_spills = number(".sgpr_spill_count");
    if (vector_spills || result.scalar_spills) {
      result.spills = figure(std::uint64_t(vector_spills.value_or(0)) +
                             std::uint64_t(result.scalar_spills.value_or(0)));
    }
  }

  const std::string_view entry_;
  int depth_ = 0;
  bool in_kernels_ = false;
  std::string key_;  ///< of the value that comes next, if it is of interest
  std::string name_;
  std::map<std::string, std::uint64_t> figures_;
};

Resources amd_resources(const base::Elf& elf, std::string_view entry) {
  AmdMetadata metadata(entry);
  for (const base::ElfNote& note : elf.notes()) {
    if (note.type != kNoteAmdMetadata || note.name != "AMDGPU") continue;
    if (!nlohmann::json::sax_parse(note.descriptor, &metadata,
                                   nlohmann::json::input_format_t::msgpack)) {
      throw Error(Code::invalid_argument,
                  fmt::format("resources: the AMDGPU metadata of the code of {} {}", entry,
                              metadata.reason));
    }
  }
  metadata.result.code_bytes = function_size(elf, entry);
  return metadata.result;
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
  base::ByteReader reader(bytes);
  while (reader.left() >= 4) {
    const std::string_view kind = reader.raw(2);
    const std::uint16_t value = reader.u16();
    if (static_cast<std::uint8_t>(kind[0]) != kSized) continue;
    base::ByteReader sized(reader.raw(value));
    if (value != 8 || !reader.ok()) continue;
    const std::uint32_t symbol = sized.u32();
    records.push_back({static_cast<std::uint8_t>(kind[1]), symbol, sized.u32()});
  }
  return records;
}

Resources nvidia_resources(const base::Elf& elf, std::string_view entry) {
  constexpr std::uint8_t kFrameSize = 0x11;  // EIATTR_FRAME_SIZE
  constexpr std::uint8_t kRegisters = 0x2f;  // EIATTR_REGCOUNT
  Resources result;
  const std::string suffix = fmt::format(".{}", entry);
  if (const base::ElfSection* text = elf.section(".text" + suffix)) {
    result.code_bytes = text->size;
    const base::ElfSection* shared = elf.section(".nv.shared" + suffix);
    result.lds = figure(shared != nullptr ? shared->size : 0);
  }
  const base::ElfSection* info = elf.section(".nv.info");
  if (info == nullptr) return result;
  const std::vector<base::ElfSymbol> symbols = elf.symbols();
  for (const NvRecord& record : nv_records(info->bytes)) {
    if (record.symbol >= symbols.size() || symbols[record.symbol].name != entry) continue;
    if (record.attribute == kRegisters) result.vgprs = figure(record.value);
    if (record.attribute == kFrameSize) result.scratch = figure(record.value);
  }
  return result;
}

}  // namespace

Resources resources(std::string_view code, std::string_view entry) {
  const std::optional<base::Elf> elf = base::Elf::parse(code);
  if (!elf) {
    throw Error(
        Code::invalid_argument,
        fmt::format("resources: the code of {} is not a well-formed 64-bit ELF image ({} bytes)",
                    entry, code.size()));
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
