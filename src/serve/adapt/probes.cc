#include "serve/adapt/probes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace gpulet::serve {
namespace {

// A cell is probed for so long, or once. A CPU may give an idle process more than its share at
// first.
constexpr Duration kProbeFor = std::chrono::milliseconds(5);
constexpr Duration kProbeCpuFor = std::chrono::milliseconds(200);
constexpr std::uint32_t kMostRepeats = 512;
// The larger batch may take so long at most, if time grows in proportion to the batch.
constexpr Duration kLongestProbe = std::chrono::seconds(2);
// Nor may its input be larger.
constexpr std::size_t kMostProbeBytes = std::size_t{64} << 20U;
// Of the first batch, of which nothing is known.
constexpr Duration kExpectedFirst = std::chrono::seconds(1);
constexpr Duration kStartWithin = std::chrono::seconds(30);
// Clocks of two machines differ in their pace by less.
constexpr Duration kTolerance = std::chrono::milliseconds(1);

// A model file that cannot compute the sample batches is at fault, and stays so.
FailureCause cause_of(const BatchResult& result) {
  if (result.elsewhere) return FailureCause::unknown;
  if (result.cause == FailureCause::input) return FailureCause::model_file;
  const bool model =
      result.status.code() == StatusCode::invalid || result.status.code() == StatusCode::internal;
  return result.cause == FailureCause::unknown && model ? FailureCause::model_file : result.cause;
}

const profile::LatencySample* find(const std::vector<profile::LatencySample>& cells,
                                   std::uint32_t batch, Share size) {
  const auto found = std::find_if(cells.begin(), cells.end(), [&](const auto& one) {
    return one.batch == batch && one.share == size;
  });
  return found == cells.end() ? nullptr : &*found;
}

}  // namespace

bool Probes::hold(GpuletReport& report, Time now, FrontendEffects& effects) {
  const auto running = probed_.find(report.id);
  if (running != probed_.end()) {
    if (report.state == GpuletState::ready) return true;
    const std::string model = running->second.cell.model;
    static_cast<void>(take(report.id));
    if (report.state == GpuletState::restarting)
      make_failed(report, model, report.status, report.cause);
    return false;
  }
  const GpuletRecord& gpulet = *backends_.find(report.id);
  const DeviceOffer* const offer = backends_.offer_of(gpulet.device);
  const bool probes = report.state == GpuletState::ready &&
                      gpulet.state == GpuletState::preparing && gpulet.issued && !gpulet.retiring &&
                      backends_.commanded(gpulet.backend) &&
                      gpulet.part.service == schedule::Service::rounds && offer != nullptr;
  if (!probes) return false;
  Probed one{report, gpulet.backend, {offer->device.type, ""}};
  one.probe_for = schedule::is_cpu(offer->device) ? kProbeCpuFor : kProbeFor;
  for (const partition::RunningModel& model : gpulet.models) {
    if (estimates_.estimates({offer->device.type, model.name})) one.models.push_back(model);
  }
  Probed& begun = probed_.emplace(report.id, std::move(one)).first->second;
  begun.report.size = gpulet.size;
  if (advance(begun, now, effects)) return true;
  static_cast<void>(take(report.id));
  return false;
}

std::optional<std::uint32_t> Probes::next_batch(const Probed& probed) const {
  const partition::RunningModel& model = probed.models.front();
  const Share size = probed.report.size;
  std::vector<profile::LatencySample> cells = probed.cells;
  if (const auto* const known = estimates_.probes_of(probed.place, model.version))
    cells.insert(cells.end(), known->begin(), known->end());
  const profile::LatencySample* const one = find(cells, 1, size);
  if (one == nullptr) return 1;
  const double in_time = to_ms(kLongestProbe) / one->latency_ms;
  const double in_memory =
      static_cast<double>(kMostProbeBytes) / static_cast<double>(served(probed)->input_bytes + 1);
  const auto largest = static_cast<std::uint32_t>(
      std::max(1.0, std::min({in_time, in_memory, static_cast<double>(model.max_batch)})));
  const bool known = std::any_of(cells.begin(), cells.end(), [&](const auto& cell) {
    return cell.share == size && cell.batch >= largest;
  });
  return known ? std::nullopt : std::optional(largest);
}

bool Probes::advance(Probed& probed, Time now, FrontendEffects& effects) {
  while (!probed.models.empty()) {
    probed.place.model = probed.models.front().name;
    const auto batch = served(probed) == nullptr ? std::nullopt : next_batch(probed);
    if (batch) {
      probed.cell = {probed.place.model, *batch};
      send(probed, now, effects);
      return true;
    }
    if (!probed.cells.empty()) {
      estimates_.add(probed.place, probed.models.front().version, probed.cells);
      journal_.note(
          false,
          fmt::format("{} has no profile: a batch of {} takes {:.3g} ms on {} % of {}; the rest of "
                      "its latencies are estimated",
                      probed.place.model, probed.cells.back().batch, probed.cells.back().latency_ms,
                      probed.report.size.percent, probed.place.type),
          now, effects);
      journal_.request_urgent_plan(probed.place.model + " was probed");
      probed.cells.clear();
      estimates_.refresh();
    }
    probed.models.pop_front();
  }
  return false;
}

const ServedModel* Probes::served(const Probed& probed) const {
  const auto index = models_.version_in(probed.report.id, probed.place.model);
  return index ? &models_.served(*index) : nullptr;
}

void Probes::send(Probed& probed, Time now, FrontendEffects& effects) {
  Cell& cell = probed.cell;
  const ServedModel& model = *served(probed);
  while (cell.sent < cell.wanted && probed.running.size() < kBatchesInFlight) {
    Batch batch;
    batch.id = numbers_.take();
    batch.gpulet = probed.report.id;
    batch.model = cell.model;
    batch.count = cell.batch;
    batch.start_within = kStartWithin;
    batch.expected_duration = kExpectedFirst;
    if (const auto* const one = find(probed.cells, 1, probed.report.size))
      batch.expected_duration = from_ms(one->latency_ms * cell.batch);
    // Zeros: every element type has them, and every table that an input indexes.
    batch.inputs.push_back(Bytes::own(std::vector<std::byte>(model.input_bytes * cell.batch)));
    batch.term = backends_.term_for(probed.backend);
    probed.running.emplace(batch.id, now);
    gpulet_of_.emplace(batch.id, probed.report.id);
    ++cell.sent;
    effects.emplace_back(SendToBackend{probed.backend, std::move(batch)});
  }
}

Status Probes::fault_of(const Probed& probed, const BatchResult& result, Time sent_at,
                        Time now) const {
  if (!result.status.ok()) return result.status;
  const ServedModel& model = *served(probed);
  const std::size_t bytes =
      std::accumulate(model.output_sizes.begin(), model.output_sizes.end(), std::size_t{0}) *
      probed.cell.batch;
  if (result.outputs.size() != bytes) {
    return {StatusCode::internal,
            fmt::format("it returned {} bytes; {} were declared", result.outputs.size(), bytes)};
  }
  if (result.executed <= Duration::zero() || result.executed > now - sent_at + kTolerance) {
    return {StatusCode::malformed,
            fmt::format("it reported {:f} ms for a batch that ended {:f} ms after it was sent",
                        to_ms(result.executed), to_ms(now - sent_at))};
  }
  return {};
}

std::optional<GpuletReport> Probes::end(BackendId backend, const BatchResult& result, Time now,
                                        FrontendEffects& effects) {
  const GpuletId id = gpulet_of_.at(result.id);
  Probed& probed = probed_.at(id);
  if (probed.backend != backend) return std::nullopt;
  const Time sent_at = probed.running.at(result.id);
  probed.running.erase(result.id);
  gpulet_of_.erase(result.id);
  Cell& cell = probed.cell;
  const GpuletRecord* const gpulet = backends_.find(id);
  if (gpulet == nullptr || gpulet->retiring || !backends_.commanded(backend)) {
    static_cast<void>(take(id));
    return std::nullopt;
  }
  if (served(probed) == nullptr) return take(id);  // the model was removed meanwhile
  if (const Status fault = fault_of(probed, result, sent_at, now); !fault.ok()) {
    const std::string model = cell.model;
    GpuletReport report = take(id);
    make_failed(report, model, fault, cause_of(result));
    return report;
  }
  ++cell.ended;
  if (cell.ended == 1) {  // the first one shows how many are needed, and counts if it is long
    const double batches = std::ceil(to_seconds(probed.probe_for) / to_seconds(result.executed));
    cell.wanted = static_cast<std::uint32_t>(std::clamp<double>(batches, 1, kMostRepeats));
  }
  if (cell.ended > 1 || cell.wanted == 1) {
    ++cell.counted;
    cell.executed += result.executed;
  }
  if (cell.ended < cell.wanted) {
    send(probed, now, effects);
    return std::nullopt;
  }
  probed.cells.push_back({.batch = cell.batch,
                          .share = probed.report.size,
                          .latency_ms = to_ms(cell.executed) / cell.counted});
  if (advance(probed, now, effects)) return std::nullopt;
  return take(id);
}

void Probes::forget(BackendId backend) {
  for (auto one = probed_.begin(); one != probed_.end();) {
    const GpuletId id = one->first;
    const bool gone = one->second.backend == backend;
    ++one;
    if (gone) static_cast<void>(take(id));
  }
}

void Probes::begin_anew(BackendId backend, const std::vector<GpuletReport>& gpulets) {
  forget(backend);
  const std::vector<DeviceOffer>& offers = backends_.backends().at(backend).devices;
  for (const GpuletReport& gpulet : gpulets) {
    if (gpulet.device < offers.size()) estimates_.adopt(offers[gpulet.device].device.key, gpulet);
  }
  estimates_.refresh();
}

GpuletReport Probes::take(GpuletId gpulet) {
  auto taken = probed_.extract(gpulet);
  for (const auto& [batch, sent_at] : taken.mapped().running) gpulet_of_.erase(batch);
  return std::move(taken.mapped().report);
}

void Probes::make_failed(GpuletReport& report, const std::string& model, const Status& why,
                         FailureCause cause) {
  report.state = GpuletState::failed;
  report.status = Status(why.ok() ? StatusCode::unavailable : why.code(),
                         fmt::format("model '{}' has no profile, and its first batches failed: {}; "
                                     "measure it with `gpulet profile run`",
                                     model, why.message()));
  report.cause = cause;
  report.failed_model = model;
}

}  // namespace gpulet::serve
