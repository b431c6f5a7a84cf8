// What the dashboard's pages are told, as JSON on one line each (docs/dashboard.md). Pure
// functions; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "dashboard_history.h"
#include "gpulet/observe/trace.h"
#include "gpulet/serve/frontend_core.h"

namespace gpulet::frontend {

// What changes with a plan, and seldom otherwise: models with their objectives, devices with their
// gpulets. A page that knows it reads the other two by the order of its models and gpulets.
[[nodiscard]] std::string layout_document(const serve::FrontendStatus& status);

// What is wrong, the gravest first (serve::find_problems).
[[nodiscard]] std::string problems_document(const serve::FrontendStatus& status);

// What happened, the oldest first: the last events, and the reorganisations of the history.
[[nodiscard]] std::string events_document(const serve::FrontendStatus& status,
                                          const DashboardHistory& history,
                                          const observe::WallClock& wall);

// What the decision of that number gives which gpulet, and why. It is among the last ones of the
// status, or a reorganisation of the history; otherwise empty.
[[nodiscard]] std::string plan_document(const serve::FrontendStatus& status,
                                        const DashboardHistory& history, std::uint64_t number);

struct DashboardMoment {
  observe::WallClock wall;  // of the history's last sample
  Duration uptime{};
  std::size_t clients = 0;
};
// The numbers of this second.
[[nodiscard]] std::string tick_document(const serve::FrontendStatus& status,
                                        const DashboardHistory& history,
                                        const DashboardMoment& moment);

}  // namespace gpulet::frontend
