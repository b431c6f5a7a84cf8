#include "tools/measure/parked_gpulets.h"

#include <algorithm>
#include <utility>

namespace gpulet::tools {

ParkedGpulets::ParkedGpulets(ParkOptions options, MeasuredDevice& device)
    : options_(std::move(options)),
      device_(device),
      factory_(loop_.executor(), options_.proxies, device.shared_process) {}

ParkedGpulets::~ParkedGpulets() = default;

Result<ParkedGpulets::Failures> ParkedGpulets::keep(const std::set<PairGpulet>& gpulets,
                                                    const AfterLoad& after_load) {
  if (Status stopped = stop_others(gpulets); !stopped.ok()) return stopped;
  Failures failures;
  const auto failed = [&](const PairGpulet& gpulet, const Status& why) {
    failures.insert_or_assign(gpulet, why.within(gpulet.side.model));
    drop(gpulet);
  };
  std::deque<PairGpulet> loading;
  bool more = true;
  const auto finish_oldest = [&]() -> Status {
    const PairGpulet gpulet = loading.front();
    loading.pop_front();
    Status ready = finish(gpulet);
    if (ready.code() == StatusCode::cancelled) return ready;
    if (!ready.ok()) {
      failed(gpulet, ready);
    } else {
      more = after_load(gpulet) && more;
    }
    return {};
  };
  for (const PairGpulet& gpulet : gpulets) {
    if (parked_.contains(gpulet)) continue;
    while (loading.size() >= options_.loads_at_once) {
      if (Status finished = finish_oldest(); !finished.ok()) return finished;
    }
    if (!more) break;
    if (Status begun = begin(gpulet); begun.ok()) {
      loading.push_back(gpulet);
    } else {
      failed(gpulet, begun);
    }
  }
  while (!loading.empty()) {
    if (Status finished = finish_oldest(); !finished.ok()) return finished;
  }
  return failures;
}

MeasuredProxy* ParkedGpulets::find(const PairGpulet& gpulet) const {
  const auto found = parked_.find(gpulet);
  return found == parked_.end() ? nullptr : found->second->proxy.get();
}

void ParkedGpulets::drop(const PairGpulet& gpulet) { parked_.erase(gpulet); }

Status ParkedGpulets::stop() { return stop_others({}); }

Status ParkedGpulets::stop_others(const std::set<PairGpulet>& gpulets) {
  std::vector<PairGpulet> others;
  for (const auto& [gpulet, parked] : parked_) {
    if (gpulets.contains(gpulet)) continue;
    others.push_back(gpulet);
    parked->proxy->begin_stop();
  }
  Status first;
  for (const PairGpulet& gpulet : others) {
    if (first.code() != StatusCode::cancelled) {
      Status stopped = parked_.at(gpulet)->proxy->finish_stop();
      if (!stopped.ok()) first = std::move(stopped);
    }
    drop(gpulet);
  }
  return first;
}

Status ParkedGpulets::begin(const PairGpulet& gpulet) {
  const auto model = std::find_if(
      options_.models.begin(), options_.models.end(),
      [&gpulet](const config::ModelConfig& one) { return one.name == gpulet.side.model; });
  if (model == options_.models.end()) {
    return {StatusCode::not_found,
            "the models file has no model called \"" + gpulet.side.model + "\""};
  }
  auto created = std::make_unique<Parked>(*device_.driver, last_gpulet_);
  Parked& parked = *created;
  GPULET_TRY(auto granted, parked.share.grant(gpulet.side.share));
  GPULET_TRY(
      auto started,
      MeasuredProxy::start(loop_, factory_, granted, *model, options_.largest_batch(gpulet.side),
                           [&parked](pid_t process) { return parked.share.end(process); }));
  parked.proxy = std::move(started);
  parked_.emplace(gpulet, std::move(created));
  if (Status attached = parked.share.attach(parked.proxy->pid()); !attached.ok()) return attached;
  return parked.proxy->begin_load();
}

Status ParkedGpulets::finish(const PairGpulet& gpulet) {
  Parked& parked = *parked_.at(gpulet);
  if (const auto ready = parked.proxy->finish_load(); !ready.ok()) return ready.status();
  return parked.share.activate();
}

}  // namespace gpulet::tools
