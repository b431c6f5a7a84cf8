// A frontend's status document (docs/status.md) as a picture for the terminal: every device as a
// bar that is divided as the device is, then the models in a table, then the latest events. Above
// all stands what is wrong. Pure; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "gpulet/core/status.h"

namespace gpulet::tools {

struct PictureStyle {
  bool utf8 = false;    // block characters instead of '#' and '.'
  bool colour = false;  // ANSI colours by a gpulet's state
  // What lines have room for: longer text goes on in the next line, and the least important columns
  // of the models are left out. 0: no limit.
  std::size_t columns = 0;
};

// Fields that the document lacks show as "-" or as nothing. Fails (malformed) where it is not a
// status document.
[[nodiscard]] Result<std::string> render_status(std::string_view document,
                                                const PictureStyle& style);

}  // namespace gpulet::tools
