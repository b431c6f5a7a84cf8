#include "frontend/endpoints/dashboard_assets.h"

namespace gpulet::frontend {
namespace {

constexpr std::string_view kPage =
    "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>gpulet</title>\n"
    "<h1>This gpulet-frontend was built without the dashboard</h1>\n"
    "<p>To enable it, install Node.js and npm (on Debian: <code>apt-get install nodejs "
    "npm</code>), "
    "then configure and build again: <code>cmake --preset release -DGPULET_DASHBOARD=ON &amp;&amp; "
    "cmake --build build/release</code>.</p>\n"
    "<p>Metrics are at <a href=\"/metrics\">/metrics</a>; <code>gpulet top</code> shows the same "
    "state in a terminal.</p>\n</html>\n";
constexpr DashboardAsset kAssets[] = {
    {"/", "text/html; charset=utf-8", "\"absent\"", false, kPage, {}}};

}  // namespace

std::span<const DashboardAsset> dashboard_assets() { return kAssets; }

}  // namespace gpulet::frontend
