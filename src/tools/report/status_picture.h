// Draws a frontend's status document (docs/status.md) for the terminal: problems, each device as a
// bar divided into its gpulets, a table of models, and the latest events. Pure; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/base/status.h"

namespace gpulet::tools {

struct PictureStyle {
  bool utf8 = false;    // block characters instead of '#' and '.'
  bool colour = false;  // ANSI colours by a gpulet's state
  // The window's width; 0: no limit. Text is wrapped, the least important columns are left out.
  std::size_t columns = 0;
};

// Missing fields are shown as "-" or left out. Fails with malformed for another document.
[[nodiscard]] Result<std::string> render_status(std::string_view document,
                                                const PictureStyle& style);

// One gpulet in the bar of its device.
struct DeviceShare {
  struct Model {
    std::string name;
    std::string details;  // shown if they fit
  };
  int percent = 0;
  std::string state;   // as in docs/status.md; shown unless it is "ready"
  std::string status;  // the reason, in words; may be empty
  std::vector<Model> models;
  std::string instance{};  // the MIG instance, such as "3g@4"; empty: none
  int policy_percent = 0;  // the size that the policy chose; shown if it differs; 0: unknown
};

// The device as a bar that fills the window (72 columns if its width has no limit):
//
//   [######## 40% lenet 100/s b5 ########|......... 60% free .........]
//
// A line follows for each share that has a status or whose label does not fit into the bar. If the
// shares add up to more than 100 %, as during a reorganisation, the scale of the bar shrinks. Every
// line ends with a newline.
[[nodiscard]] std::string draw_device(const std::vector<DeviceShare>& shares,
                                      const PictureStyle& style);

}  // namespace gpulet::tools
