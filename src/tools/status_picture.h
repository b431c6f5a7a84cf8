// A frontend's status document (docs/status.md) as a picture for the terminal: every device as a
// bar that is divided as the device is, then the models in a table, then the latest events. Pure;
// any thread.
#pragma once

#include <string>
#include <string_view>

#include "gpulet/core/status.h"

namespace gpulet::tools {

struct PictureStyle {
  bool utf8 = false;    // block characters instead of '#' and '.'
  bool colour = false;  // ANSI colours by a gpulet's state
};

// Fields that the document lacks show as "-" or as nothing. Fails (malformed) where it is not a
// status document.
[[nodiscard]] Result<std::string> render_status(std::string_view document,
                                                const PictureStyle& style);

}  // namespace gpulet::tools
