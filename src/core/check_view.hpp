// What every view has to be before kiln hands it to a device.
#pragma once

#include <string_view>

#include "kiln/view.hpp"

namespace kiln {

/// Whether it is on `device`, and has data if it has elements.
inline bool is_usable(const View& view, Device device) {
  return view.device() == device && (view.data() != nullptr || view.size() == 0);
}

/// Throws Error(invalid_argument) in the name of `function`, calling the view `what`, unless it
/// is usable on `device`, where `user` is ("the stream").
void check_view(const View& view, Device device, std::string_view function, std::string_view what,
                std::string_view user = "the stream");

}  // namespace kiln
