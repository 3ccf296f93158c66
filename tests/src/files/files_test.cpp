// .npy and .safetensors: what other programs write is read bit for bit, what kiln writes is what
// they expect, and a file that lies is refused with a message that says how.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "files/tensor_file.hpp"
#include "kiln/error.hpp"
#include "kiln/view.hpp"
#include "tests/support/temporary_directory.hpp"

namespace kiln::files {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace std::string_literals;

class Files : public ::testing::Test {
 protected:
  // So that it can be removed.
  void TearDown() override { fs::permissions(directory_.path(), fs::perms::owner_all); }

  std::string path(std::string_view name) const { return directory_.path(name); }
  std::string put(std::string_view name, std::string_view bytes) const {
    return directory_.put(name, bytes);
  }
  std::string get(std::string_view name) const { return kiln::testing::read_file(path(name)); }
  std::size_t file_count() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(directory_.path()), fs::directory_iterator()));
  }

  const kiln::testing::TemporaryDirectory directory_;
};

std::string error_of(const std::function<void()>& body, Code code) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

std::string bytes_of(const HostTensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.data()), tensor.bytes.size()};
}

std::string npy(std::string_view dictionary, std::string_view data, char version = 1) {
  std::string header(dictionary);
  header += '\n';
  std::string result = "\x93NUMPY"s + version + '\0';
  for (std::size_t i = 0; i < (version == 1 ? 2u : 4u); ++i) {
    result += static_cast<char>(header.size() >> (8 * i) & 0xff);
  }
  return result + header + std::string(data);
}

std::string npy_of(std::string_view descr, std::string_view shape, std::string_view data,
                   bool fortran = false) {
  return npy(fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': {}, }}", descr,
                         fortran ? "True" : "False", shape),
             data);
}

std::string safetensors(std::string_view header, std::string_view data) {
  std::string result;
  for (std::size_t i = 0; i < 8; ++i) result += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return result + std::string(header) + std::string(data);
}

template <class T>
std::string raw(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}

// ---- .npy

TEST_F(Files, ReadsEveryNumPyDtypeKilnHas) {
  const std::pair<std::string_view, DType> types[] = {
      {"|b1", DType::boolean}, {"|u1", DType::u8},  {"<u2", DType::u16}, {"<u4", DType::u32},
      {"<u8", DType::u64},     {"|i1", DType::i8},  {"<i2", DType::i16}, {"<i4", DType::i32},
      {"<i8", DType::i64},     {"<f2", DType::f16}, {"<f4", DType::f32}, {"<f8", DType::f64},
      {"<c8", DType::c64}};
  for (const auto& [descr, dtype] : types) {
    const std::string data(static_cast<std::size_t>(bits(dtype) / 8 * 6), '\x01');
    const HostTensor tensor = read_tensor(put("a.npy", npy_of(descr, "(2, 3)", data)));
    EXPECT_EQ(tensor.dtype, dtype);
    EXPECT_EQ(tensor.shape, (Dims{2, 3}));
    EXPECT_EQ(tensor.strides, (Dims{3, 1}));
    EXPECT_EQ(bytes_of(tensor), data);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data()) % 64, 0u);
  }
}

TEST_F(Files, ReadsEveryVersionShapeAndSpelling) {
  const std::string data = raw<float>({1, 2, 3, 4, 5, 6});
  for (const char version : {1, 2, 3}) {
    const std::string file =
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }   ", data, version);
    EXPECT_EQ(read_tensor(put("a.npy", file)).shape, Dims{6});
  }
  const std::string other = npy(R"({"shape":(2L,3L),"fortran_order":False,"descr":"<f4"})", data);
  EXPECT_EQ(read_tensor(put("a.npy", other)).shape, (Dims{2, 3}));
  EXPECT_EQ(read_tensor(put("a.npy", npy_of("<f4", "()", raw<float>({7})))).shape, Dims{});
  EXPECT_EQ(read_tensor(put("a.npy", npy_of("<f4", "(0, 3)", ""))).shape, (Dims{0, 3}));
  EXPECT_EQ(read_tensor(put("a.npy", npy_of("=f4", "(6,)", data))).shape, Dims{6});
}

TEST_F(Files, ReadsFortranOrderAsStrides) {
  const HostTensor tensor = read_tensor(
      put("a.npy", npy_of("<i4", "(2, 3)", raw<std::int32_t>({1, 4, 2, 5, 3, 6}), true)));
  EXPECT_EQ(tensor.shape, (Dims{2, 3}));
  EXPECT_EQ(tensor.strides, (Dims{1, 2}));
}

TEST_F(Files, ConvertsBigEndian) {
  EXPECT_EQ(bytes_of(read_tensor(put("a.npy", npy_of(">i4", "(2,)", "\0\0\0\x01\0\0\x01\0"s)))),
            raw<std::int32_t>({1, 256}));
  EXPECT_EQ(bytes_of(read_tensor(put("a.npy", npy_of(">c8", "(1,)", "\x3f\x80\0\0\x40\0\0\0"s)))),
            raw<float>({1, 2}));
}

TEST_F(Files, NormalisesBooleans) {
  EXPECT_EQ(bytes_of(read_tensor(put("a.npy", npy_of("|b1", "(4,)", "\0\x01\x02\xff"s)))),
            "\0\x01\x01\x01"s);
}

TEST_F(Files, WritesWhatNumPyWrites) {
  const float values[] = {1, 2, 3, 4, 5, 6};
  write_tensors(path("a.npy"), std::vector<TensorData>{{"", DType::f32, {2, 3}, {}, values}});
  // numpy.save of the same array.
  EXPECT_EQ(get("a.npy"),
            "\x93NUMPY\x01\0v\0{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"s +
                std::string(58, ' ') + "\n" + raw<float>({1, 2, 3, 4, 5, 6}));
}

TEST_F(Files, WritesStridedArraysInCOrder) {
  const std::int16_t values[] = {1, 2, 3, 4, 5, 6};
  for (const std::string_view name : {"t.npy", "t.safetensors"}) {
    write_tensors(path(name), std::vector<TensorData>{{"t", DType::i16, {3, 2}, {1, 3}, values}});
    const HostTensor read = read_tensor(path(name));
    EXPECT_EQ(read.shape, (Dims{3, 2}));
    EXPECT_EQ(bytes_of(read), raw<std::int16_t>({1, 4, 2, 5, 3, 6}));
  }
  const TensorData reversed{"r", DType::i16, {6}, {-1}, values + 5};
  write_tensors(path("r.npy"), {&reversed, 1});
  EXPECT_EQ(bytes_of(read_tensor(path("r.npy"))), raw<std::int16_t>({6, 5, 4, 3, 2, 1}));
}

TEST_F(Files, RefusesHostileNpy) {
  struct Case {
    std::string bytes;
    std::string message;
    Code code = Code::io;
  };
  const std::string good = npy_of("<f4", "(2,)", raw<float>({1, 2}));
  const Case cases[] = {
      {"", "the file is empty"},
      {"not an array", "does not begin with \\x93NUMPY"},
      {good.substr(0, 4), "truncated: 4 bytes"},
      {good.substr(0, 9), "truncated: 9 bytes"},
      {good.substr(0, 40), "truncated: the header needs"},
      {good.substr(0, good.size() - 1), "has 8 bytes, the file has 7 after its header"},
      {good + "x", "too long: a <f4 array of shape (2) has 8 bytes, the file has 9"},
      {"\x93NUMPY\x09\x00 0123456789"s, "format version 9.0", Code::unsupported},
      {"\x93NUMPY\x02\x00\xff\xff\xff\xff{}"s, "a header of 4294967295 bytes"},
      {"\x93NUMPY\x02\x00\x01"s, "truncated"},
      {npy("", ""), "expected '{'"},
      {npy("{}", ""), "'descr' is missing"},
      {npy("{'descr': '<f4', 'shape': (1,)}", "1234"), "'fortran_order' is missing"},
      {npy("{'descr': '<f4', 'descr': '<f4'}", ""), "'descr' is unknown or there twice"},
      {npy("{'descr': '<f4', 'x': 1}", ""), "'x' is unknown"},
      {npy("{'descr': '<f4", ""), "a string does not end"},
      {npy("{'descr': '<f4', 'fortran_order': 0, 'shape': ()}", ""), "expected True or False"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3)}", ""), "not a tuple"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", ""), "follows"},
      {npy_of("<f4", "(-1,)", ""), "the size -1 is negative"},
      {npy_of("<f4", "(99999999999999999999,)", ""), "does not fit 64 bits"},
      {npy_of("<f4", "(4611686018427387904, 4)", ""), "more bytes than 64 bits can count"},
      {npy_of("<f4", "(0, 4611686018427387904, 4)", ""), "more bytes than 64 bits can count"},
      {npy_of("<f4", "(1152921504606846976,)", "1234"), "truncated"},
      {npy_of("<f4", "(x,)", ""), "expected a size"},
      {npy_of("|O", "(1,)", ""), "Python objects", Code::unsupported},
      {npy_of("<c16", "(1,)", ""), "convert it to complex64", Code::unsupported},
      {npy_of("<V2", "(1,)", ""), "bf16 has no type in .npy", Code::unsupported},
      {npy_of("<f\x01", "(1,)", ""), "the NumPy type '<f?'", Code::unsupported},
      {npy_of("f4", "(1,)", ""), "does not begin with a byte order"},
      {npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", ""),
       "its elements are structures", Code::unsupported},
  };
  for (const Case& hostile : cases) {
    const std::string file = put("bad.npy", hostile.bytes);
    EXPECT_THAT(error_of([&] { read_tensor(file); }, hostile.code),
                AllOf(HasSubstr(file), HasSubstr(hostile.message)));
  }
}

TEST_F(Files, RefusesEveryTruncationOfANpyFile) {
  const std::string good = npy_of("<f8", "(3, 2)", std::string(48, 'x'));
  for (std::size_t size = 0; size < good.size(); ++size) {
    const std::string file = put("bad.npy", good.substr(0, size));
    EXPECT_THAT(error_of([&] { read_tensor(file); }, Code::io), HasSubstr(file)) << size;
  }
}

// ---- .safetensors

TEST_F(Files, KeepsEverySafetensorsDtypeBitForBit) {
  std::string data;
  for (int i = 0; i < 64; ++i) data += static_cast<char>(i * 37);
  std::string bools = "\0\x01\x01\0"s;
  std::vector<TensorData> tensors;
  for (const DTypeInfo& entry : kDTypes) {
    if (entry.dtype == DType::u4 || entry.dtype == DType::i4) continue;
    const void* bytes = entry.dtype == DType::boolean ? bools.data() : data.data();
    tensors.push_back({std::string(entry.name), entry.dtype, {2, 2}, {}, bytes});
  }
  write_tensors(path("all.safetensors"), tensors);
  EXPECT_EQ(list_tensors(path("all.safetensors")).size(), tensors.size());
  for (const TensorData& tensor : tensors) {
    const HostTensor read = read_tensor(path("all.safetensors") + ":" + tensor.name);
    EXPECT_EQ(read.dtype, tensor.dtype);
    EXPECT_EQ(read.shape, tensor.shape);
    EXPECT_EQ(bytes_of(read), std::string(static_cast<const char*>(tensor.data),
                                          static_cast<std::size_t>(bits(tensor.dtype) / 2)));
  }
}

TEST_F(Files, WritesWhatTheFormatsOwnWriterWrites) {
  const float values[] = {0, 1, 2, 3, 4, 5};
  const TensorData tensor{"attn.0", DType::f32, {1, 2, 3}, {}, values};
  write_tensors(path("a.safetensors"), {&tensor, 1});
  // A case from the tests of the safetensors format itself.
  EXPECT_EQ(get("a.safetensors"),
            safetensors(R"({"attn.0":{"dtype":"F32","shape":[1,2,3],"data_offsets":[0,24]}})",
                        raw<float>({0, 1, 2, 3, 4, 5})));
}

TEST_F(Files, ReadsRealTensors) {
  const std::string file = std::string(KILN_TEST_DATA) + "/tinystories-bf16.safetensors";
  const HostTensor gate = read_tensor(file + ":gate0");
  EXPECT_EQ(gate.dtype, DType::bf16);
  EXPECT_EQ(gate.shape, (Dims{63, 172}));
  EXPECT_THAT(error_of([&] { read_tensor(file); }, Code::invalid_argument),
              AllOf(HasSubstr("tensors; name one as"), HasSubstr("gate0")));
  EXPECT_THAT(error_of([&] { read_tensor(file + ":gaet0"); }, Code::not_found),
              AllOf(HasSubstr("no tensor 'gaet0'"), HasSubstr("it holds")));
}

TEST_F(Files, IgnoresMetadataAndAllowsEmptyTensors) {
  const std::string file = put(
      "a.safetensors",
      safetensors(R"({"__metadata__":{"a":"b"},"e":{"dtype":"F32","shape":[0,4],)"
                  R"("data_offsets":[0,0]},"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
                  "hi"));
  EXPECT_EQ(list_tensors(file).size(), 2u);
  EXPECT_EQ(bytes_of(read_tensor(file + ":x")), "hi");
  EXPECT_EQ(read_tensor(file + ":e").shape, (Dims{0, 4}));
}

TEST_F(Files, ListsDtypesItCannotRead) {
  const std::string file =
      put("a.safetensors",
          safetensors(R"({"x":{"dtype":"F8_E8M0","shape":[2],"data_offsets":[0,2]}})", "hi"));
  EXPECT_FALSE(list_tensors(file)[0].dtype);
  EXPECT_THAT(error_of([&] { read_tensor(file); }, Code::unsupported),
              HasSubstr("kiln has no dtype for F8_E8M0"));
}

TEST_F(Files, RefusesHostileSafetensors) {
  const auto one = [](std::string_view dtype, std::string_view shape, std::string_view offsets,
                      std::string_view data) {
    return safetensors(fmt::format(R"({{"x":{{"dtype":{},"shape":{},"data_offsets":{}}}}})", dtype,
                                   shape, offsets),
                       data);
  };
  struct Case {
    std::string bytes;
    std::string message;
  };
  const Case cases[] = {
      {"", "the file is empty"},
      {"1234567", "truncated: 7 bytes"},
      {std::string(8, '\xff') + "{}", "a header of 18446744073709551615 bytes"},
      {"\xff\xff\0\0\0\0\0\0{}"s, "truncated: the header needs 65543 bytes, the file has 10"},
      {safetensors("", ""), "the header is not JSON"},
      {safetensors("{", ""), "the header is not JSON"},
      {safetensors("{\"\xff\":1}", ""), "the header is not JSON"},
      {safetensors("[]", ""), "the header is not a JSON object"},
      {safetensors(std::string(100'000, '[') + std::string(100'000, ']'), ""), "nested deeper"},
      {safetensors(R"({"x":3})", ""), "tensor 'x': 'dtype' is missing"},
      {safetensors(R"({"x":{"dtype":"F32","shape":[]}})", ""), "'data_offsets' is missing"},
      {one("3", "[1]", "[0,4]", "1234"), "dtype is no string"},
      {one("\"F99\"", "[1]", "[0,4]", "1234"), "unknown dtype 'F99'"},
      {one("\"F32\"", "3", "[0,4]", "1234"), "shape is no list"},
      {one("\"F32\"", "[-1]", "[0,4]", "1234"),
       "a size must be an unsigned 64-bit integer, it is -1"},
      {one("\"F32\"", "[1.5]", "[0,4]", "1234"), "it is 1.5"},
      {one("\"F32\"", "[[1]]", "[0,4]", "1234"), "it is array"},
      {one("\"F32\"", "[18446744073709551615]", "[0,4]", "1234"), "more bytes than 64 bits"},
      {one("\"F32\"", "[4294967296,4294967296]", "[0,4]", "1234"), "more bytes than 64 bits"},
      {one("\"F32\"", "[1]", "[0]", "1234"), "data_offsets must be two numbers"},
      {one("\"F32\"", "[1]", "[4,0]", "1234"), "its bytes are at 4 to 0"},
      {one("\"F32\"", "[1]", "[0,99999999999999]", "1234"), "the file has data up to 4"},
      {one("\"F32\"", "[1]", "[0,1e30]", "1234"), "an offset must be an unsigned"},
      {one("\"F32\"", "[2]", "[0,4]", "1234"), "has 8 bytes, its offsets give 4"},
      {one("\"F4\"", "[3]", "[0,1]", "1"), "has 2 bytes, its offsets give 1"},
      {one("\"F32\"", "[1]", "[0,4]", "1234extra"), "the last 5 bytes belong to no tensor"},
      {one("\"F32\"", "[1]", "[4,8]", "1234abcd"), "4 bytes before tensor 'x' belong to no tensor"},
      {safetensors(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                   R"("x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                   "a"),
       "the tensor 'x' is there twice"},
      {safetensors(R"({"x":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                   R"("y":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
                   "abcd"),
       "the bytes of tensor 'y' overlap those of 'x'"},
  };
  for (const Case& hostile : cases) {
    const std::string file = put("bad.safetensors", hostile.bytes);
    EXPECT_THAT(error_of([&] { read_tensor(file + ":x"); }, Code::io),
                AllOf(HasSubstr(file), HasSubstr(hostile.message)));
  }
}

TEST_F(Files, RefusesEveryTruncationOfASafetensorsFile) {
  const std::string good =
      safetensors(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", std::string(8, 'x'));
  for (std::size_t size = 0; size < good.size(); ++size) {
    const std::string file = put("bad.safetensors", good.substr(0, size));
    EXPECT_THAT(error_of([&] { read_tensor(file); }, Code::io), HasSubstr(file)) << size;
  }
}

// ---- paths

TEST_F(Files, SplitsFileAndTensor) {
  EXPECT_EQ(split_tensor_path("a/b.npy").file, "a/b.npy");
  EXPECT_FALSE(split_tensor_path("a:b.npy").tensor);
  EXPECT_EQ(split_tensor_path("m.safetensors:l:0").file, "m.safetensors");
  EXPECT_EQ(split_tensor_path("m.safetensors:l:0").tensor, "l:0");
}

TEST_F(Files, SaysWhatIsWrongWithAnInputPath) {
  EXPECT_THAT(error_of([&] { read_tensor(path("no.npy")); }, Code::not_found),
              HasSubstr("No such file or directory"));
  EXPECT_THAT(error_of([&] { read_tensor(path("a.txt")); }, Code::invalid_argument),
              HasSubstr("ends in .npy or .safetensors"));
  fs::create_directory(path("d.npy"));
  EXPECT_THAT(error_of([&] { read_tensor(path("d.npy")); }, Code::io), HasSubstr("a directory"));
  ASSERT_EQ(::mkfifo(path("p.npy").c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { read_tensor(path("p.npy")); }, Code::io), HasSubstr("a pipe"));
  fs::create_symlink("loop.npy", path("loop.npy"));
  EXPECT_THAT(error_of([&] { read_tensor(path("loop.npy")); }, Code::io),
              HasSubstr("symbolic links"));
  fs::create_symlink("gone.npy", path("dangling.npy"));
  EXPECT_THAT(error_of([&] { read_tensor(path("dangling.npy")); }, Code::not_found),
              HasSubstr("No such file"));
  const std::string file = put("a.npy", npy_of("<f4", "(1,)", "1234"));
  EXPECT_THAT(error_of([&] { read_tensor(file + ":x"); }, Code::invalid_argument),
              HasSubstr("one array without a name"));
}

TEST_F(Files, DoesNotAllocateWhatASparseFileClaims) {
  // A sparse file can be as large as its header claims.
  const std::string file = put("huge.npy", npy_of("|u1", "(4611686018427387904,)", ""));
  const auto size = static_cast<off_t>(fs::file_size(file));
  if (::truncate(file.c_str(), size + (off_t{1} << 42)) != 0) {
    GTEST_SKIP() << "the file system has no sparse files of 4 TiB";
  }
  EXPECT_THAT(error_of([&] { read_tensor(file); }, Code::io), HasSubstr("truncated"));
}

TEST_F(Files, SaysWhatIsWrongWithAnOutput) {
  const float value = 1;
  const TensorData f32{"x", DType::f32, {}, {}, &value};
  const auto write = [&](const std::string& to, const TensorData& tensor) {
    return [&, to] { write_tensors(to, {&tensor, 1}); };
  };
  EXPECT_THAT(error_of(write(path("x.txt"), f32), Code::invalid_argument),
              HasSubstr("ends in .npy or .safetensors"));
  EXPECT_THAT(error_of(write(path("no/x.npy"), f32), Code::io),
              AllOf(HasSubstr(path("no/x.npy")), HasSubstr("No such file or directory")));
  fs::create_directory(path("d.npy"));
  EXPECT_THAT(error_of(write(path("d.npy"), f32), Code::io), HasSubstr("a directory"));
  TensorData bf16 = f32;
  bf16.dtype = DType::bf16;
  EXPECT_THAT(error_of(write(path("x.npy"), bf16), Code::unsupported),
              HasSubstr(".npy has no type for bf16; write a .safetensors file, or store f32"));
  TensorData i4 = f32;
  i4.dtype = DType::i4;
  EXPECT_THAT(error_of(write(path("x.safetensors"), i4), Code::unsupported),
              HasSubstr("no type for i4; store it as u8"));
  const TensorData two[] = {f32, f32};
  EXPECT_THAT(error_of([&] { write_tensors(path("x.npy"), two); }, Code::invalid_argument),
              HasSubstr("a .npy file holds one array, 2 were given"));
  EXPECT_THAT(error_of([&] { write_tensors(path("x.safetensors"), two); }, Code::invalid_argument),
              HasSubstr("another one has it"));
  EXPECT_EQ(file_count(), 1u) << "something was left behind";
}

TEST_F(Files, SaysThatAnOutputIsNotWritable) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  fs::permissions(directory_.path(), fs::perms::owner_read | fs::perms::owner_exec);
  const float value = 1;
  const TensorData tensor{"x", DType::f32, {}, {}, &value};
  EXPECT_THAT(error_of(
                  [&] {
                    write_tensors(path("x.npy"), {&tensor, 1});
                  },
                  Code::io),
              AllOf(HasSubstr("write " + path("x.npy")), HasSubstr("Permission denied")));
}

TEST_F(Files, ReplacesAFileAtOnceAndFollowsLinks) {
  const std::int32_t values[] = {1, 2};
  const TensorData tensor{"x", DType::i32, {2}, {}, values};
  put("real.npy", "old");
  fs::create_symlink("real.npy", path("link.npy"));
  fs::create_symlink("new.npy", path("dangling.npy"));
  write_tensors(path("link.npy"), {&tensor, 1});
  write_tensors(path("dangling.npy"), {&tensor, 1});
  EXPECT_TRUE(fs::is_symlink(path("link.npy")));
  EXPECT_EQ(bytes_of(read_tensor(path("real.npy"))), raw<std::int32_t>({1, 2}));
  EXPECT_EQ(bytes_of(read_tensor(path("new.npy"))), raw<std::int32_t>({1, 2}));
  EXPECT_EQ(file_count(), 4u);
}

}  // namespace
}  // namespace kiln::files
