// The files of the dashboard's page, which the build puts into the program (src/dashboard).
#pragma once

#include <span>
#include <string_view>

namespace gpulet::frontend {

struct DashboardAsset {
  std::string_view path;  // "/" is the page
  std::string_view content_type;
  std::string_view etag;   // quoted; another content has another
  bool immutable = false;  // its name changes with its content
  std::string_view plain;
  std::string_view gzip;
};

// A page in words where the program was built without the dashboard. Lasts as long as the program.
[[nodiscard]] std::span<const DashboardAsset> dashboard_assets();

}  // namespace gpulet::frontend
