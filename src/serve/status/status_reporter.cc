#include "serve/status/status_reporter.h"

#include <array>
#include <limits>
#include <utility>

namespace gpulet::serve {

FrontendStatus StatusInSteps::finish() && {
  status_.devices.reserve(devices_.size());
  for (auto& [key, one] : devices_) status_.devices.push_back(std::move(one));
  return std::move(status_);
}

FrontendStatus StatusReporter::status(Time now) const {
  StatusInSteps taken(now);
  while (!take(taken, std::numeric_limits<std::size_t>::max())) {
  }
  return std::move(taken).finish();
}

bool StatusReporter::take(StatusInSteps& taken, std::size_t parts) const {
  using Stage = bool (StatusReporter::*)(StatusInSteps&, std::size_t) const;
  constexpr std::array<Stage, 5> kStages = {
      &StatusReporter::take_whole, &StatusReporter::take_backends, &StatusReporter::take_gpulets,
      &StatusReporter::take_models, &StatusReporter::take_applications};
  if (taken.stage_ < kStages.size() && (this->*kStages[taken.stage_])(taken, parts)) ++taken.stage_;
  return taken.stage_ == kStages.size();
}

bool StatusReporter::take_backends(StatusInSteps& taken, std::size_t parts) const {
  const auto& all = from_.gpulets.backends().backends();
  auto one = taken.backend_ ? all.upper_bound(*taken.backend_) : all.begin();
  for (std::size_t done = 0; one != all.end() && done < parts; ++one) {
    const auto& [id, backend] = *one;
    taken.status_.backends.insert_or_assign(id, backend);
    for (const DeviceOffer& offer : backend.devices) {
      taken.devices_[offer.device.key] = from_.gpulets.status_of(backend, offer);
    }
    taken.backend_ = id;
    done += 1 + backend.devices.size();
  }
  return one == all.end();
}

bool StatusReporter::take_gpulets(StatusInSteps& taken, std::size_t parts) const {
  const auto& all = from_.gpulets.backends().gpulets();
  auto one = taken.gpulet_ ? all.upper_bound(*taken.gpulet_) : all.begin();
  for (std::size_t done = 0; one != all.end() && done < parts; ++one) {
    const auto& [id, gpulet] = *one;
    taken.status_.gpulets.push_back(from_.gpulets.status_of(id, gpulet, taken.now_));
    if (const auto device = taken.devices_.find(gpulet.device); device != taken.devices_.end())
      from_.gpulets.add_to_device(device->second, id, gpulet);
    taken.gpulet_ = id;
    done += 1 + gpulet.models.size();
  }
  return one == all.end();
}

bool StatusReporter::take_models(StatusInSteps& taken, std::size_t parts) const {
  const auto& all = from_.models.models().all();
  auto one = all.upper_bound(taken.name_);
  for (std::size_t done = 0; one != all.end() && done < parts; ++one, ++done) {
    taken.status_.models.push_back(from_.models.status_of(one->first, one->second, taken.now_));
    taken.name_ = one->first;
  }
  if (one == all.end()) taken.name_.clear();
  return one == all.end();
}

bool StatusReporter::take_applications(StatusInSteps& taken, std::size_t parts) const {
  const auto rows = from_.models.applications().rows(taken.now_, taken.name_, parts);
  for (const auto& row : rows)
    taken.status_.models.push_back(from_.models.status_of(row, taken.now_));
  if (rows.empty()) return true;
  taken.name_ = rows.back().application->front.name;
  return rows.size() < parts;
}

bool StatusReporter::take_whole(StatusInSteps& taken, std::size_t /*parts*/) const {
  FrontendStatus& status = taken.status_;
  from_.cluster.add_to(status);
  status.state = from_.readiness.state();
  status.ready = from_.readiness.serving();
  status.policy = options_.policy;
  from_.plans.add_to(status);
  from_.troubles.add_to(status);
  adaptation_.add_to(status, from_.cluster.leads());
  status.leaving = for_clients_.leaving();
  return true;
}

}  // namespace gpulet::serve
