// Gpulets of the frontend's components (FrontendParts) that exist and serve, without backends.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/serve/frontend_parts.h"

namespace gpulet::serve::testing {

// Half of device 0 of the node holds the wanted versions of these models. REQUIRES: the node's
// backend has joined.
inline void add_gpulet(FrontendParts& parts, std::uint64_t id, const std::string& node,
                       const std::vector<std::string>& names, Time now = at_ms(0)) {
  CreateGpulet create;
  create.id = GpuletId{id};
  create.size = Share{50};
  std::vector<schedule::RunningModel> loaded;
  for (const std::string& name : names)
    loaded.push_back({name, 4, parts.models.find(name)->wanted().id});
  parts.backends.add_gpulet(create, {node, 0}, std::move(loaded), now);
}

// The gpulet of that backend takes batches.
inline void set_ready(FrontendParts& parts, std::uint64_t id, BackendId backend = BackendId{1}) {
  GpuletReport report;
  report.id = GpuletId{id};
  report.state = GpuletState::ready;
  parts.backends.report_gpulet(backend, report);
}

// A route with the wanted versions of these models; a batch takes a second.
[[nodiscard]] inline GpuletRoute route_of(const FrontendParts& parts, std::uint64_t id,
                                          const std::vector<std::string>& names) {
  GpuletRoute route{GpuletId{id}, BackendId{1}, std::chrono::milliseconds(10), {}};
  for (const std::string& name : names)
    route.slots.push_back({parts.models.find(name)->wanted().index, {std::chrono::seconds(1)}});
  return route;
}

// Puts the routes in force, and determines which versions they let take over.
inline DispatchOutput put_in_force(FrontendParts& parts, const std::vector<GpuletRoute>& routes,
                                   Time now = at_ms(0)) {
  DispatchOutput output;
  parts.models.successions().begin(routes, now, output);
  parts.dispatcher.set_routes(routes, now);
  return output;
}

// A model with the same name and tensors as byte_model(), and another file.
[[nodiscard]] inline ServedModel new_version(const std::string& name, int number = 2) {
  ServedModel model = byte_model(name, 1000, 10);
  model.sha256 = "hash-" + std::to_string(number) + "-of-" + name;
  return model;
}

}  // namespace gpulet::serve::testing
