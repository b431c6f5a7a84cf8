// The dashboard of a program that is built without it (GPULET_DASHBOARD=OFF): one page.
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
constexpr DashboardAsset kAssets[] = {{.path = "/",
                                       .content_type = "text/html; charset=utf-8",
                                       .etag = "\"absent\"",
                                       .plain = kPage,
                                       .gzip = {}}};

}  // namespace

std::span<const DashboardAsset> dashboard_assets() { return kAssets; }

}  // namespace gpulet::frontend
