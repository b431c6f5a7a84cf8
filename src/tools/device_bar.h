// One device as a bar as wide as the window (72 columns where it has no limit), divided by the
// shares of its gpulets; what is free stays visible. Pure.
//
//   [######## 40% lenet 100/s b5 ########|......... 60% free .........]
#pragma once

#include <string>
#include <vector>

namespace gpulet::tools {

struct PictureStyle;

struct DeviceShare {
  struct Model {
    std::string name;
    std::string details;  // shown where there is room
  };
  int percent = 0;
  std::string state;   // of the gpulet, as in docs/status.md; others than "ready" are shown
  std::string status;  // why, in words; may be empty
  std::vector<Model> models;
  std::string instance{};  // of MIG, as "3g@4"; empty: none
};

// Lines, each ending with a newline: the bar, then one line for each share whose label did not fit
// into it or that has a status to tell. Shares beyond 100 % in all (while a device is reorganised)
// shrink the bar's scale.
[[nodiscard]] std::string draw_device(const std::vector<DeviceShare>& shares,
                                      const PictureStyle& style);

}  // namespace gpulet::tools
