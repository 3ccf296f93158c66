// resources(): what is read from real code objects of each kind, and from bytes that are none.
#include "jit/resources.hpp"

#include <gtest/gtest.h>

#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

TEST(Resources, refuse_what_is_not_an_elf_image) {
  EXPECT_THROW(resources("", "k"), Error);
  EXPECT_THROW(
      resources("not an image at all, but long enough to be one: 64 bytes and some more", "k"),
      Error);
}

}  // namespace
}  // namespace kiln::jit
