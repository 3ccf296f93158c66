// Shared objects in memory: loaded two ways, told apart, and refused when they are not whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "jit/device/backend.hpp"
#include "jit/device/cpu/shared_object.hpp"
#include "kiln/error.hpp"
#include "tests/jit/device/fixtures.hpp"

namespace kiln::jit::cpu {
namespace {

using ::testing::HasSubstr;

std::string returning(int value) {
  return "extern \"C\" int answer() { return " + std::to_string(value) + "; }";
}

class SharedObjectTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    for (int value : {1, 2}) {
      auto image = testing::compile_shared_object(returning(value), reason);
      if (!image) GTEST_SKIP() << reason;
      images_.push_back(*image);
    }
  }
  static int call(void* function) { return reinterpret_cast<int (*)()>(function)(); }

  std::vector<testing::Bytes> images_;
};

TEST_F(SharedObjectTest, TwoOfThemAreNotMistakenForEachOther) {
  // Both go through the same descriptor number, which the loader could take for the same library.
  SharedObject one(images_[0], "one");
  SharedObject two(images_[1], "two");
  EXPECT_EQ(call(one.symbol("answer")), 1);
  EXPECT_EQ(call(two.symbol("answer")), 2);
}

TEST_F(SharedObjectTest, LoadingManyLeavesNoDescriptorBehind) {
  const auto open = [] {
    std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const auto before = open();
  std::vector<SharedObject> kept;
  for (int i = 0; i < 100; ++i) kept.emplace_back(images_[i % 2], "kernel");
  EXPECT_EQ(open(), before);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(call(kept[i].symbol("answer")), 1 + i % 2);
}

TEST_F(SharedObjectTest, LoadsFromAPrivateFileAndRemovesIt) {
  std::string reason;
  const base::DynamicLibrary library = load_from_file(images_[1], reason);
  ASSERT_TRUE(library) << reason;
  EXPECT_EQ(call(library.symbol("answer")), 2);
  const std::filesystem::path path = library.path();
  EXPECT_TRUE(path.is_absolute()) << path;
  EXPECT_FALSE(std::filesystem::exists(path)) << path;
  EXPECT_FALSE(std::filesystem::exists(path.parent_path()));
}

TEST_F(SharedObjectTest, EveryTruncationIsRefusedOrHarmless) {
  // Symbol and section tables come last and are not needed, so a late cut may still load.
  const testing::Bytes& whole = images_[0];
  ASSERT_EQ(why_not_loadable(whole), "");
  std::size_t refused = 0;
  for (std::size_t size = 0; size < whole.size(); size += 7) {
    refused += !why_not_loadable(std::span(whole).first(size)).empty();
  }
  EXPECT_GT(refused, 100U);
  EXPECT_THAT(why_not_loadable(std::span(whole).first(4096)),
              HasSubstr("shorter than its segments"));
}

TEST_F(SharedObjectTest, SaysWhatIsWrongWithTheImage) {
  const auto with = [&](std::size_t at, unsigned char value) {
    testing::Bytes image = images_[0];
    image[at] = std::byte{value};
    return why_not_loadable(image);
  };
  EXPECT_THAT(with(0, 'x'), HasSubstr("ELF"));
  EXPECT_THAT(with(4, 1), HasSubstr("64-bit"));
  EXPECT_THAT(with(16, 1), HasSubstr("not a shared object"));
  EXPECT_THAT(with(18, 0xE0), HasSubstr("another machine"));
  EXPECT_THAT(with(57, 0x7F), HasSubstr("program headers"));
}

/// No address space beyond what is mapped now and `more` while it lives.
class AddressSpace {
 public:
  explicit AddressSpace(std::size_t more) {
    getrlimit(RLIMIT_AS, &before_);
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlimit limit{pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) + more,
                       before_.rlim_max};
    setrlimit(RLIMIT_AS, &limit);
  }
  ~AddressSpace() { setrlimit(RLIMIT_AS, &before_); }
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

 private:
  rlimit before_{};
};

TEST_F(SharedObjectTest, AnImageThatCannotBeMappedNowIsNotCalledInvalid) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs its address space";
#endif
  // A large segment, so that what the error itself needs is still to be had.
  std::string reason;
  const auto large = testing::compile_shared_object(
      returning(3) + " char zeros[1 << 28]; char* keep() { return zeros; }", reason);
  ASSERT_TRUE(large) << reason;
  std::string message;
  {
    const AddressSpace little(16 << 20);
    try {
      SharedObject object(*large, "kernel_name");
      ADD_FAILURE() << "it was loaded";
    } catch (const InvalidImage& error) {
      ADD_FAILURE() << "an intact image is called invalid: " << error.what();
    } catch (const Error& error) {
      EXPECT_EQ(name(error.code()), name(Code::device));
      message = error.what();
    }
  }
  EXPECT_THAT(message, HasSubstr("kernel_name"));
  EXPECT_EQ(call(SharedObject(*large, "kernel_name").symbol("answer")), 3);
}

TEST_F(SharedObjectTest, WhatCanNeverBeLoadedIsCalledInvalid) {
  const auto span = std::span(images_[0]);
  EXPECT_THROW(SharedObject(span.first(4096), "cut"), InvalidImage);
  testing::Bytes other = images_[0];
  other[18] = std::byte{0xE0};
  EXPECT_THROW(SharedObject(other, "other_machine"), InvalidImage);
  EXPECT_THROW(SharedObject(span, "whole").symbol("not_there"), InvalidImage);
}

TEST_F(SharedObjectTest, UnresolvedSymbolIsAnErrorThatNamesIt) {
  std::string reason;
  const auto image = testing::compile_shared_object(
      "extern \"C\" int kiln_not_defined(); extern \"C\" int answer() { return kiln_not_defined(); "
      "}",
      reason);
  ASSERT_TRUE(image) << reason;
  try {
    SharedObject object(*image, "kernel_name");
    ADD_FAILURE() << "it was loaded";
  } catch (const Error& error) {
    EXPECT_EQ(name(error.code()), name(Code::device));
    EXPECT_THAT(error.what(), HasSubstr("kernel_name"));
    EXPECT_THAT(error.what(), HasSubstr("kiln_not_defined"));
  }
}

}  // namespace
}  // namespace kiln::jit::cpu
