// What the texts of general kernels have in common: parameters, the frame, elements in C order; and
// the text of the one that moves elements.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "fallback/general_kernels.hpp"
#include "kiln/dtype.hpp"

namespace kiln {

/// One way through a kernel: what it does with each element, or item.
struct KernelCase {
  std::uint32_t code;  ///< of its parameter `what`
  std::string comment;
  std::string body;
};

/// A kernel of those cases, under fusion::kEntryMarker, behind functions that they call. What all
/// cases do first with each item stands in `item`, so that code of it is there once.
std::string kernel_text(std::string_view comment, GeneralKernel::Kind kind,
                        std::span<const KernelCase> cases, std::string_view functions = {},
                        std::string_view item = {});

/// The item's element of a value, in its storage type, and the statement that stores one. Elements
/// of four bits have a byte each between general kernels.
std::string loaded(DType dtype, std::string_view pointer);
std::string stored(DType dtype, std::string_view pointer, std::string_view value);

std::string move_text();

}  // namespace kiln
