// The .safetensors format: the length of a JSON header, the header, then the tensors' bytes, which
// must cover the rest of the file without gap or overlap, as the format's own reader requires.
// https://github.com/huggingface/safetensors#format
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_set>

#include "base/bytes.hpp"
#include "files/format.hpp"

namespace kiln::files {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;  // the format's own limit
constexpr int kMaxDepth = 8;                                  // a header has 3
constexpr std::string_view kMetadata = "__metadata__";

struct FileType {
  std::string_view text;
  int bits;
  std::optional<DType> dtype;
};
constexpr FileType kSafetensorsTypes[] = {
    {"BOOL", 8, DType::boolean},
    {"U8", 8, DType::u8},
    {"I8", 8, DType::i8},
    {"U16", 16, DType::u16},
    {"I16", 16, DType::i16},
    {"U32", 32, DType::u32},
    {"I32", 32, DType::i32},
    {"U64", 64, DType::u64},
    {"I64", 64, DType::i64},
    {"F16", 16, DType::f16},
    {"BF16", 16, DType::bf16},
    {"F32", 32, DType::f32},
    {"F64", 64, DType::f64},
    {"C64", 64, DType::c64},
    {"F8_E4M3", 8, DType::f8e4m3},
    {"F8_E5M2", 8, DType::f8e5m2},
    {"F8_E4M3FNUZ", 8, DType::f8e4m3fnuz},
    {"F8_E5M2FNUZ", 8, DType::f8e5m2fnuz},
    {"F4", 4, DType::f4e2m1},
    {"F8_E8M0", 8, std::nullopt},
    {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},
};

std::string shown(std::string_view name) {
  constexpr std::size_t kMost = 60;
  std::string result;
  for (const char c : name.substr(0, kMost)) {
    result += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  }
  return name.size() > kMost ? result + "..." : result;
}

json parse_header(const std::string& path, std::string_view text) {
  std::unordered_set<std::string> names;
  const auto check = [&](int depth, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::key && depth == 1 &&
        !names.insert(value.get<std::string>()).second) {
      bad_file(path,
               fmt::format("the tensor '{}' is there twice", shown(value.get<std::string>())));
    }
    if (depth > kMaxDepth) bad_file(path, "the header is nested deeper than the format allows");
    return true;
  };
  json header;
  try {
    header = json::parse(text, check);
  } catch (const json::exception& error) {
    bad_file(path, fmt::format("the header is not JSON: {}", shown(error.what())));
  }
  if (!header.is_object()) bad_file(path, "the header is not a JSON object");
  return header;
}

std::uint64_t unsigned_number(const std::string& path, const std::string& name, const json& value,
                              std::string_view what) {
  if (!value.is_number_unsigned()) {
    bad_file(path, fmt::format("tensor '{}': {} must be an unsigned 64-bit integer, it is {}",
                               shown(name), what,
                               value.is_structured() ? value.type_name() : shown(value.dump())));
  }
  return value.get<std::uint64_t>();
}

const json& field(const std::string& path, const std::string& name, const json& tensor,
                  const char* key) {
  const auto found = tensor.is_object() ? tensor.find(key) : tensor.end();
  if (!tensor.is_object() || found == tensor.end()) {
    bad_file(path, fmt::format("tensor '{}': '{}' is missing", shown(name), key));
  }
  return *found;
}

Located decode_tensor(const std::string& path, const std::string& name, const json& tensor,
                      std::uint64_t data_begin, std::uint64_t data_size) {
  const json& type = field(path, name, tensor, "dtype");
  const json& shape = field(path, name, tensor, "shape");
  const json& offsets = field(path, name, tensor, "data_offsets");
  if (!type.is_string())
    bad_file(path, fmt::format("tensor '{}': dtype is no string", shown(name)));
  const auto text = type.get<std::string>();
  const auto* known = std::find_if(std::begin(kSafetensorsTypes), std::end(kSafetensorsTypes),
                                   [&](const FileType& entry) { return entry.text == text; });
  if (known == std::end(kSafetensorsTypes)) {
    bad_file(path, fmt::format("tensor '{}': unknown dtype '{}'", shown(name), shown(text)));
  }
  if (!shape.is_array()) bad_file(path, fmt::format("tensor '{}': shape is no list", shown(name)));
  std::vector<std::int64_t> sizes;
  for (const json& size : shape) {
    const std::uint64_t value = unsigned_number(path, name, size, "a size");
    sizes.push_back(static_cast<std::int64_t>(value));
  }
  const auto bytes = byte_count(sizes, known->bits);
  if (!bytes) {
    bad_file(path, fmt::format("tensor '{}': the shape {} has more bytes than 64 bits can count",
                               shown(name), shown(shape.dump())));
  }
  if (!offsets.is_array() || offsets.size() != 2) {
    bad_file(path, fmt::format("tensor '{}': data_offsets must be two numbers", shown(name)));
  }
  const std::uint64_t begin = unsigned_number(path, name, offsets[0], "an offset");
  const std::uint64_t end = unsigned_number(path, name, offsets[1], "an offset");
  if (begin > end || end > data_size) {
    bad_file(path, fmt::format("tensor '{}': its bytes are at {} to {}, the file has data up to {}",
                               shown(name), begin, end, data_size));
  }
  if (end - begin != *bytes) {
    bad_file(path, fmt::format("tensor '{}': {} of shape {} has {} bytes, its offsets give {}",
                               shown(name), text, shown(shape.dump()), *bytes, end - begin));
  }
  return {{name, known->dtype, text, Dims(std::span<const std::int64_t>(sizes))},
          false,
          false,
          data_begin + begin,
          *bytes};
}

void check_coverage(const std::string& path, std::vector<const Located*> tensors,
                    std::uint64_t begin, std::uint64_t end) {
  std::sort(tensors.begin(), tensors.end(), [](const Located* a, const Located* b) {
    return std::pair(a->begin, a->bytes) < std::pair(b->begin, b->bytes);
  });
  const Located* before = nullptr;
  for (const Located* tensor : tensors) {
    if (tensor->begin < begin) {
      bad_file(path, fmt::format("the bytes of tensor '{}' overlap those of '{}'",
                                 shown(tensor->info.name), shown(before->info.name)));
    }
    if (tensor->begin > begin) {
      bad_file(path, fmt::format("{} bytes before tensor '{}' belong to no tensor",
                                 tensor->begin - begin, shown(tensor->info.name)));
    }
    begin = tensor->begin + tensor->bytes;
    before = tensor;
  }
  if (begin != end) {
    bad_file(path, fmt::format("the last {} bytes belong to no tensor", end - begin));
  }
}

}  // namespace

std::uint64_t safetensors_header_size(const std::string& path, std::string_view probe,
                                      std::uint64_t file_size) {
  if (file_size == 0) bad_file(path, "the file is empty");
  if (file_size < 8 || probe.size() < 8) {
    bad_file(path,
             fmt::format("truncated: {} bytes, a .safetensors file has at least 8", file_size));
  }
  const std::uint64_t length = base::ByteReader(probe).u64();
  if (length > kMaxSafetensorsHeader) {
    bad_file(path,
             fmt::format("not a .safetensors file: a header of {} bytes, the format allows {}",
                         length, kMaxSafetensorsHeader));
  }
  if (8 + length > file_size) {
    bad_file(path, fmt::format("truncated: the header needs {} bytes, the file has {}", 8 + length,
                               file_size));
  }
  return 8 + length;
}

std::vector<Located> decode_safetensors(const std::string& path, std::string_view header,
                                        std::uint64_t file_size) {
  const std::uint64_t data_size = file_size - header.size();
  const json tensors = parse_header(path, header.substr(8));
  std::vector<Located> result;
  for (const auto& [name, tensor] : tensors.items()) {  // json sorts its keys
    if (name == kMetadata) continue;
    result.push_back(decode_tensor(path, name, tensor, header.size(), data_size));
  }
  std::vector<const Located*> all;
  for (const Located& tensor : result) all.push_back(&tensor);
  check_coverage(path, std::move(all), header.size(), file_size);
  return result;
}

std::optional<std::string_view> safetensors_name(DType dtype) {
  for (const FileType& entry : kSafetensorsTypes) {
    if (entry.dtype == dtype) return entry.text;
  }
  return std::nullopt;
}

std::string encode_safetensors_header(const std::string& path, std::span<const TensorData> tensors,
                                      std::vector<std::size_t>& order) {
  // Wide dtypes first, so that every tensor is aligned to its element.
  order.resize(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const auto rank = [&](std::size_t i) { return -bits(tensors[i].dtype); };
    return std::pair(rank(a), std::string_view(tensors[a].name)) <
           std::pair(rank(b), std::string_view(tensors[b].name));
  });
  auto header = nlohmann::ordered_json::object();
  std::unordered_set<std::string> names;
  std::uint64_t offset = 0;
  for (const std::size_t i : order) {
    const TensorData& tensor = tensors[i];
    if (tensor.name == kMetadata || !names.insert(tensor.name).second) {
      bad_file(
          path,
          fmt::format("'{}' cannot be the name of a tensor here: {}", shown(tensor.name),
                      tensor.name == kMetadata ? "the format reserves it" : "another one has it"),
          Code::invalid_argument);
    }
    const std::uint64_t end = offset + byte_count(tensor.shape, bits(tensor.dtype)).value();
    header[tensor.name] = {{"dtype", safetensors_name(tensor.dtype).value()},
                           {"shape", std::vector(tensor.shape.begin(), tensor.shape.end())},
                           {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    bad_file(path, "a tensor's name is not UTF-8", Code::invalid_argument);
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string result;
  for (std::size_t i = 0; i < 8; ++i) result += static_cast<char>(text.size() >> (8 * i) & 0xff);
  return result + text;
}

}  // namespace kiln::files
