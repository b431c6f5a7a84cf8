// The files of the dashboard's page, compiled into the program (src/dashboard).
#pragma once

#include <span>
#include <string_view>

namespace gpulet::frontend {

struct DashboardAsset {
  std::string_view path;  // "/" is the page
  std::string_view content_type;
  std::string_view etag;   // quoted; changes with the content
  bool immutable = false;  // the path changes with the content
  std::string_view plain;
  std::string_view gzip;
};

// Static storage duration. Without the dashboard, a single page that says how to build it.
[[nodiscard]] std::span<const DashboardAsset> dashboard_assets();

}  // namespace gpulet::frontend
