// The words for the choices of Options, as the tool, manifests, metadata and kernels' comments
// write them.
#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "kiln/options.hpp"

namespace kiln {

inline constexpr std::array<std::pair<std::string_view, Rounding>, 2> kRoundings = {
    {{"once", Rounding::once}, {"each", Rounding::each}}};
inline constexpr std::array<std::pair<std::string_view, Accuracy>, 3> kAccuracies = {
    {{"storage", Accuracy::storage}, {"fast", Accuracy::fast}, {"strict", Accuracy::strict}}};

constexpr std::string_view name(Rounding rounding) {
  return kRoundings[static_cast<std::size_t>(rounding)].first;
}
constexpr std::string_view name(Accuracy accuracy) {
  return kAccuracies[static_cast<std::size_t>(accuracy)].first;
}

}  // namespace kiln
