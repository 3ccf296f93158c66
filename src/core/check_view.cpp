#include "core/check_view.hpp"

#include <fmt/format.h>

#include "kiln/error.hpp"

namespace kiln {

void check_view(const View& view, Device device, std::string_view function, std::string_view what,
                std::string_view user) {
  if (view.device() != device) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: {}: is on {}, but {} is on {}", function, what,
                            to_string(view.device()), user, to_string(device)));
  }
  if (view.data() == nullptr && view.size() != 0) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: {}: the data pointer is null", function, what));
  }
}

}  // namespace kiln
