#include "dashboard_history.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "json_line.h"

namespace gpulet::frontend {
namespace {

constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();
constexpr Duration kKept = std::chrono::seconds(DashboardHistory::kSamples);
// Plans follow each other a second apart at most, so this is a bound for a badly configured one.
constexpr std::size_t kMostReorganisations = 200;
constexpr std::size_t kMostGpulets = 50000;  // of all their plans

static_assert(std::endian::native == std::endian::little, "the document is copied as it lies here");

template <typename Value>
void append(std::vector<std::byte>& bytes, const Value* values, std::size_t count) {
  const auto* const begin = reinterpret_cast<const std::byte*>(values);
  bytes.insert(bytes.end(), begin, begin + count * sizeof(Value));
}

}  // namespace

ControlSample control_sample(const serve::ModelControlStatus& control) {
  const bool answered = control.response_ms > 0;
  return {answered ? static_cast<float>(control.response_ms) : kUnknown,
          answered ? static_cast<float>(control.gpu_part) : kUnknown,
          static_cast<float>(control.cores_asked), static_cast<float>(control.cores_given)};
}

std::size_t DashboardHistory::samples() const {
  return count_ < kSamples ? static_cast<std::size_t>(count_) : kSamples;
}

ModelSample DashboardHistory::sample_of(const serve::ModelStatus& now,
                                        const serve::ModelCounters& before, double seconds) {
  // Counters begin again where a name is given to another model.
  const auto rate = [seconds](std::uint64_t later, std::uint64_t earlier) {
    return later < earlier ? kUnknown : static_cast<float>(double(later - earlier) / seconds);
  };
  return {rate(now.counters.offered, before.offered), rate(now.counters.served, before.served),
          rate(now.counters.violations(), before.violations()), static_cast<float>(now.p50_ms),
          static_cast<float>(now.p99_ms)};
}

DashboardHistory::Model& DashboardHistory::known(const std::string& name) {
  const auto [entry, is_new] = models_.try_emplace(name);
  if (is_new) {
    for (auto& ring : entry->second.series) ring.fill(kUnknown);
  }
  return entry->second;
}

void DashboardHistory::add(const serve::FrontendStatus& status, Time now) {
  const std::size_t slot = count_ % kSamples;
  const double seconds = count_ == 0 ? 0 : to_seconds(now - times_[(count_ - 1) % kSamples]);
  times_[slot] = now;
  ++count_;
  for (const serve::ModelStatus& status_of : status.models) {
    Model& model = known(status_of.name);
    ModelSample sample{kUnknown, kUnknown, kUnknown, static_cast<float>(status_of.p50_ms),
                       static_cast<float>(status_of.p99_ms)};
    const bool follows = model.seen + 1 == count_ && model.seen > 0 && seconds > 0;
    if (follows) sample = sample_of(status_of, model.counters, seconds);
    model.counters = status_of.counters;
    model.seen = count_;
    model.series[0][slot] = sample.offered;
    model.series[1][slot] = sample.served;
    model.series[2][slot] = sample.violations;
    model.series[3][slot] = sample.p50_ms;
    model.series[4][slot] = sample.p99_ms;
    note_control(model, status_of, slot);
  }
  std::erase_if(models_, [this](const auto& entry) { return entry.second.seen != count_; });
  note_reorganisations(status, now);
}

void DashboardHistory::note_control(Model& model, const serve::ModelStatus& status,
                                    std::size_t slot) {
  if (status.control && model.control.empty()) {
    model.control.resize(kControlSeries);
    for (Ring& ring : model.control) ring.fill(kUnknown);
  }
  if (model.control.empty()) return;
  const ControlSample sample = status.control
                                   ? control_sample(*status.control)
                                   : ControlSample{kUnknown, kUnknown, kUnknown, kUnknown};
  model.control[0][slot] = sample.response_ms;
  model.control[1][slot] = sample.gpu_part;
  model.control[2][slot] = sample.cores_asked;
  model.control[3][slot] = sample.cores_given;
}

void DashboardHistory::note_reorganisations(const serve::FrontendStatus& status, Time now) {
  for (const serve::PlanInForce& plan : status.plans) {
    if (!plan.decision->moves_gpulets() || plan.since + kKept < now) continue;
    const auto known = std::find_if(
        reorganisations_.rbegin(), reorganisations_.rend(),
        [&plan](const auto& other) { return other.decision->number == plan.decision->number; });
    if (known == reorganisations_.rend()) {
      reorganisations_.push_back(plan);
    } else {
      *known = plan;  // another of its stages
    }
  }
  std::size_t gpulets = 0;
  for (const serve::PlanInForce& plan : reorganisations_)
    gpulets += plan.decision->plan.gpulets.size();
  while (!reorganisations_.empty() &&
         (reorganisations_.front().since + kKept < now || gpulets > kMostGpulets ||
          reorganisations_.size() > kMostReorganisations)) {
    gpulets -= reorganisations_.front().decision->plan.gpulets.size();
    reorganisations_.pop_front();
  }
}

ModelSample DashboardHistory::last(const std::string& model) const {
  const auto found = models_.find(model);
  if (found == models_.end()) return {kUnknown, kUnknown, kUnknown, kUnknown, kUnknown};
  const auto& series = found->second.series;
  const std::size_t slot = (count_ - 1) % kSamples;
  return {series[0][slot], series[1][slot], series[2][slot], series[3][slot], series[4][slot]};
}

Bytes DashboardHistory::document(const observe::WallClock& wall) const {
  JsonLine head;
  head.begin('{').key("samples").number(static_cast<double>(samples()));
  head.key("series").begin('[');
  for (const char* const name : {"offered", "served", "violations", "p50_ms", "p99_ms"})
    head.text(name);
  head.end(']').key("models").begin('[');
  std::size_t controlled = 0;
  for (const auto& [name, model] : models_) {
    head.text(name);
    if (!model.control.empty()) ++controlled;
  }
  head.end(']');
  if (controlled > 0) {
    head.key("controlled").begin('[');
    for (const auto& [name, model] : models_) {
      if (!model.control.empty()) head.text(name);
    }
    head.end(']').key("control_series").begin('[');
    for (const char* const name : {"response_ms", "gpu_part", "cores_asked", "cores_given"})
      head.text(name);
    head.end(']');
  }
  head.end('}');
  // What follows is aligned to its own size, so that a reader can look at it in place.
  std::string text = std::move(head).take();
  text.append(sizeof(double) - (text.size() + sizeof(std::uint32_t)) % sizeof(double), ' ');

  std::vector<std::byte> bytes;
  bytes.reserve(sizeof(std::uint32_t) + text.size() + samples() * sizeof(double) +
                (models_.size() * kSeries + controlled * kControlSeries) * samples() *
                    sizeof(float));
  const auto length = static_cast<std::uint32_t>(text.size());
  append(bytes, &length, 1);
  append(bytes, text.data(), text.size());
  const std::size_t oldest = count_ < kSamples ? 0 : count_ % kSamples;
  for (std::size_t i = 0; i < samples(); ++i) {
    const Duration ago = wall.engine - times_[(oldest + i) % kSamples];
    const double unix_seconds = to_seconds(wall.since_epoch - ago);
    append(bytes, &unix_seconds, 1);
  }
  const auto append_rings = [&](const auto& rings) {
    for (const Ring& ring : rings) {
      append(bytes, ring.data() + oldest, samples() - oldest);
      append(bytes, ring.data(), oldest);
    }
  };
  for (const auto& [name, model] : models_) append_rings(model.series);
  for (const auto& [name, model] : models_) append_rings(model.control);
  return Bytes::own(std::move(bytes));
}

}  // namespace gpulet::frontend
