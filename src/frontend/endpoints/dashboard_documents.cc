#include "frontend/endpoints/dashboard_documents.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "gpulet/base/text.h"
#include "gpulet/serve/values/problems.h"

namespace gpulet::frontend {

namespace {

constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();
constexpr Duration kKept = std::chrono::seconds(DashboardHistory::kSamples);
// Limits memory if the configuration makes plans very frequent.
constexpr std::size_t kMaxReorganisations = 200;
constexpr std::size_t kMaxGpulets = 50000;  // in the plans of all kept reorganisations

static_assert(std::endian::native == std::endian::little,
              "the samples are copied without conversion");

template <typename Value>
void append(std::vector<std::byte>& bytes, const Value* values, std::size_t count) {
  const auto* const begin = reinterpret_cast<const std::byte*>(values);
  bytes.insert(bytes.end(), begin, begin + count * sizeof(Value));
}

using ModelPositions = std::unordered_map<std::string_view, std::size_t>;

double unix_seconds(Time time, const observe::WallClock& wall) {
  return to_seconds(wall.since_epoch - (wall.engine - time));
}

struct DeviceView {
  const std::string* node = nullptr;
  const serve::BackendRecord* backend = nullptr;
  const DeviceOffer* offer = nullptr;
  std::vector<const serve::GpuletStatus*> gpulets;
};

// The devices by node and number, as in layout and tick, each with its gpulets by id.
std::vector<DeviceView> devices_of(const serve::FrontendStatus& status) {
  std::vector<DeviceView> devices;
  std::map<std::pair<BackendId, schedule::DeviceKey>, std::vector<const serve::GpuletStatus*>>
      gpulets;
  for (const serve::GpuletStatus& gpulet : status.gpulets)
    gpulets[{gpulet.gpulet.backend, gpulet.gpulet.device}].push_back(&gpulet);
  for (const auto& [id, backend] : status.backends) {
    if (backend.node.empty()) continue;
    for (const DeviceOffer& offer : backend.devices) {
      DeviceView device{&backend.node, &backend, &offer, {}};
      if (const auto found = gpulets.find({id, offer.device.key}); found != gpulets.end())
        device.gpulets = std::move(found->second);
      devices.push_back(std::move(device));
    }
  }
  std::sort(devices.begin(), devices.end(), [](const DeviceView& a, const DeviceView& b) {
    return std::tie(*a.node, a.offer->device.key.device) <
           std::tie(*b.node, b.offer->device.key.device);
  });
  return devices;
}

void write_model(JsonWriter& line, const serve::ModelStatus& model) {
  line.begin('{').key("name").text(model.name);
  line.key("kind").text(model.application ? "application" : "model");
  line.key("state").text(to_string(model.state));
  line.key("version").text(short_version(model.version));
  line.key("slo_ms").number(model.slo_ms, 3);
  line.key("planned").number(model.rate_planned, 1);
  line.key("unserved").number(model.rate_unserved, 1);
  line.key("reason").text(model.reason).key("drift").text(serve::drift_of(model));
  if (model.control) line.key("set_point_ms").number(model.control->set_point_ms, 3);
  line.end('}');
}

// [position of the model, rate, batch, milliseconds of a batch]
void write_occupants(JsonWriter& line, const serve::GpuletStatus& gpulet,
                     const ModelPositions& positions) {
  const auto write = [&line, &positions](const std::string& model, double rate, double batch,
                                         double latency_ms) {
    const auto position = positions.find(model);
    line.begin('[').number(position == positions.end() ? -1
                                                       : static_cast<double>(position->second));
    line.number(rate, 1).number(batch).number(latency_ms, 2).end(']');
  };
  line.begin('[');
  if (gpulet.planned) {
    for (const schedule::Assignment& one : gpulet.planned->assignments)
      write(one.model, one.rate, one.batch, one.latency_ms);
  } else {  // preparing or retiring
    for (const schedule::RunningModel& one : gpulet.gpulet.models) write(one.name, 0, 0, 0);
  }
  line.end(']');
}

void write_gpulet(JsonWriter& line, const serve::GpuletStatus& gpulet,
                  const ModelPositions& positions) {
  line.begin('{').key("id").text(std::to_string(gpulet.id.value));
  line.key("size").number(gpulet.gpulet.size.percent);
  if (gpulet.planned) line.key("policy_size").number(policy_size(*gpulet.planned).percent);
  line.key("instance").text(gpulet.gpulet.instance ? to_string(*gpulet.gpulet.instance) : "");
  line.key("state").text(gpulet.gpulet.retiring ? "retiring" : to_string(gpulet.gpulet.state));
  line.key("status").text(gpulet.gpulet.status.message());
  line.key("in_force").flag(gpulet.planned.has_value());
  line.key("duty_ms").number(gpulet.planned ? gpulet.planned->duty_cycle_ms : 0, 2);
  if (gpulet.planned && gpulet.planned->service != schedule::Service::rounds)
    line.key("service").text(schedule::to_string(gpulet.planned->service));
  line.key("models");
  write_occupants(line, gpulet, positions);
  line.end('}');
}

void write_planned(JsonWriter& line, const schedule::PlannedGpulet& gpulet, bool created,
                   const std::string& why) {
  line.begin('{').key("node").text(gpulet.device.node);
  line.key("device").number(gpulet.device.device).key("size").number(gpulet.size.percent);
  line.key("policy_size").number(policy_size(gpulet).percent);
  line.key("instance").text(gpulet.instance ? to_string(*gpulet.instance) : "");
  line.key("service").text(schedule::to_string(gpulet.service));
  line.key("created").flag(created).key("duty_ms").number(gpulet.duty_cycle_ms, 2);
  line.key("why").text(why).key("models").begin('[');
  for (const schedule::Assignment& one : gpulet.assignments) {
    line.begin('{').key("name").text(one.model).key("rate").number(one.rate, 1);
    line.key("batch").number(one.batch).key("latency_ms").number(one.latency_ms, 2);
    line.key("slo_ms").number(one.slo_ms, 3).end('}');
  }
  line.end(']').end('}');
}

constexpr int kDecimalsOfCores = 2;
constexpr int kDecimalsOfParts = 3;

// [response, part on GPUs, cores requested, granted, periods, violated periods]; null: not
// controlled
void write_control(JsonWriter& line, const serve::ModelStatus& model) {
  if (!model.control) {
    line.number(std::numeric_limits<double>::quiet_NaN());
    return;
  }
  const ControlSample sample = control_sample(*model.control);
  line.begin('[').number(sample.response_ms, 2).number(sample.gpu_part, kDecimalsOfParts);
  line.number(sample.cores_requested, kDecimalsOfCores)
      .number(sample.cores_granted, kDecimalsOfCores);
  line.number(static_cast<double>(model.control->periods));
  line.number(static_cast<double>(model.control->violated_periods)).end(']');
}

// Models and gpulets in the order of the layout. The cores granted to a gpulet are null if it is
// not controlled. Nodes: [name of the CPU, cores, requested, granted, contention].
void write_controlled(JsonWriter& line, const serve::FrontendStatus& status,
                      const std::vector<DeviceView>& devices) {
  line.begin('{').key("models").begin('[');
  for (const serve::ModelStatus& model : status.models) write_control(line, model);
  line.end(']').key("cores").begin('[');
  for (const DeviceView& device : devices) {
    for (const serve::GpuletStatus* gpulet : device.gpulets) {
      line.number(gpulet->cores ? gpulet->cores->granted : std::numeric_limits<double>::quiet_NaN(),
                  kDecimalsOfCores);
    }
  }
  line.end(']').key("nodes").begin('[');
  for (const serve::NodeControlStatus& node : status.controlled_nodes) {
    line.begin('[').text(node.key.node + " / " + std::to_string(node.key.device));
    line.number(node.cores, kDecimalsOfCores);
    line.number(node.cores_requested, kDecimalsOfCores)
        .number(node.cores_granted, kDecimalsOfCores);
    line.number(node.contention, kDecimalsOfParts).end(']');
  }
  line.end(']').end('}');
}

bool is_controlled(const serve::FrontendStatus& status) {
  return !status.controlled_nodes.empty() ||
         std::any_of(status.models.begin(), status.models.end(),
                     [](const serve::ModelStatus& model) { return model.control.has_value(); });
}

}  // namespace

// ---- DashboardHistory

ControlSample control_sample(const serve::ModelControlStatus& control) {
  const bool answered = control.response_ms > 0;
  return {answered ? static_cast<float>(control.response_ms) : kUnknown,
          answered ? static_cast<float>(control.gpu_part) : kUnknown,
          static_cast<float>(control.cores_requested), static_cast<float>(control.cores_granted)};
}

std::size_t DashboardHistory::samples() const {
  return count_ < kSamples ? static_cast<std::size_t>(count_) : kSamples;
}

ModelSample DashboardHistory::sample_of(const serve::ModelStatus& now,
                                        const serve::ModelCounters& before, double seconds) {
  // Counters restart at 0 when another model gets the name.
  const auto rate = [seconds](std::uint64_t later, std::uint64_t earlier) {
    return later < earlier ? kUnknown : static_cast<float>(double(later - earlier) / seconds);
  };
  const serve::ModelCounters counters = sum_of(now.counters, now.elsewhere);
  return {rate(counters.offered, before.offered), rate(counters.served, before.served),
          rate(counters.violations(), before.violations()), static_cast<float>(now.p50_ms),
          static_cast<float>(now.p99_ms)};
}

DashboardHistory::ModelHistory& DashboardHistory::history_of(const std::string& name) {
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
    ModelHistory& model = history_of(status_of.name);
    ModelSample sample{kUnknown, kUnknown, kUnknown, static_cast<float>(status_of.p50_ms),
                       static_cast<float>(status_of.p99_ms)};
    const bool follows = model.seen + 1 == count_ && model.seen > 0 && seconds > 0;
    if (follows) sample = sample_of(status_of, model.counters, seconds);
    model.counters = sum_of(status_of.counters, status_of.elsewhere);
    model.seen = count_;
    model.series[0][slot] = sample.offered;
    model.series[1][slot] = sample.served;
    model.series[2][slot] = sample.violations;
    model.series[3][slot] = sample.p50_ms;
    model.series[4][slot] = sample.p99_ms;
    add_control(model, status_of, slot);
  }
  std::erase_if(models_, [this](const auto& entry) { return entry.second.seen != count_; });
  add_reorganisations(status, now);
}

void DashboardHistory::add_control(ModelHistory& model, const serve::ModelStatus& status,
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
  model.control[2][slot] = sample.cores_requested;
  model.control[3][slot] = sample.cores_granted;
}

void DashboardHistory::add_reorganisations(const serve::FrontendStatus& status, Time now) {
  for (const serve::PlanInForce& plan : status.plans) {
    if (!plan.decision->moves_gpulets() || plan.since + kKept < now) continue;
    const auto known = std::find_if(
        reorganisations_.rbegin(), reorganisations_.rend(),
        [&plan](const auto& other) { return other.decision->number == plan.decision->number; });
    if (known == reorganisations_.rend()) {
      reorganisations_.push_back(plan);
    } else {
      *known = plan;  // a later stage of it
    }
  }
  std::size_t gpulets = 0;
  for (const serve::PlanInForce& plan : reorganisations_)
    gpulets += plan.decision->plan.gpulets.size();
  while (!reorganisations_.empty() &&
         (reorganisations_.front().since + kKept < now || gpulets > kMaxGpulets ||
          reorganisations_.size() > kMaxReorganisations)) {
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
  JsonWriter head;
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
  // Pads the text so that the doubles that follow are aligned.
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

// ---- documents

std::string layout_document(const serve::FrontendStatus& status) {
  ModelPositions positions;
  for (const serve::ModelStatus& model : status.models)
    positions.emplace(model.name, positions.size());
  constexpr std::size_t kTypicalBytes = 160;  // per model, gpulet and device
  JsonWriter line((status.models.size() + status.gpulets.size() + status.devices.size()) *
                  kTypicalBytes);
  line.begin('{').key("policy").text(status.policy);
  const std::uint64_t plan = status.plans.empty() ? 0 : status.plans.back().decision->number;
  line.key("plan").number(static_cast<double>(plan));
  if (!status.leadership.leader.empty()) line.key("leader").text(status.leadership.leader);
  if (status.owners.size() > 1) {
    line.key("owners").begin('[');
    for (const serve::OwnerStatus& owner : status.owners)
      line.begin('[')
          .text(owner.member)
          .number(double(owner.gpulets))
          .number(owner.rate, 1)
          .end(']');
    line.end(']');
  }
  line.key("models").begin('[');
  for (const serve::ModelStatus& model : status.models) write_model(line, model);
  line.end(']').key("devices").begin('[');
  for (const DeviceView& device : devices_of(status)) {
    const schedule::Device& offered = device.offer->device;
    line.begin('{').key("node").text(*device.node).key("device").number(offered.key.device);
    line.key("type").text(offered.type).key("mechanism").text(device.offer->mechanism);
    line.key("leaving").flag(device.backend->leaving);
    line.key("memory_mb").number(offered.memory_mb);
    if (offered.cores > 0) line.key("cores").number(offered.cores, kDecimalsOfCores);
    line.key("gpulets").begin('[');
    for (const serve::GpuletStatus* gpulet : device.gpulets) write_gpulet(line, *gpulet, positions);
    line.end(']').end('}');
  }
  line.end(']').end('}');
  return std::move(line).take();
}

std::string problems_document(const serve::FrontendStatus& status, const StatusContext& context) {
  JsonWriter line;
  line.begin('[');
  for (const serve::Problem& problem : problems_of(status, context)) {
    line.begin('{').key("cause").text(serve::to_string(problem.cause));
    line.key("grave").flag(problem.grave).key("model").text(problem.model);
    line.key("node").text(problem.node);
    if (problem.device) line.key("device").number(*problem.device);
    if (problem.gpulet) line.key("gpulet").text(std::to_string(problem.gpulet->value));
    line.key("text").text(problem.text).key("fix").text(problem.fix).end('}');
  }
  line.end(']');
  return std::move(line).take();
}

std::string events_document(const serve::FrontendStatus& status, const DashboardHistory& history,
                            const observe::WallClock& wall) {
  JsonWriter line;
  line.begin('{').key("log").begin('[');
  const auto& reorganisations = history.reorganisations();
  const auto is_reorganisation = [&reorganisations](std::uint64_t plan) {
    return std::any_of(reorganisations.begin(), reorganisations.end(),
                       [plan](const auto& one) { return one.decision->number == plan; });
  };
  for (const serve::StatusEvent& event : status.events) {
    // Reorganisations have entries of their own below.
    if (event.plan > 0 && is_reorganisation(event.plan)) continue;
    line.begin('[').number(unix_seconds(event.time, wall), 1).text(event.text);
    line.flag(event.warning).number(static_cast<double>(event.count)).end(']');
  }
  line.end(']').key("reorganisations").begin('[');
  for (const serve::PlanInForce& one : reorganisations) {
    line.begin('[').number(unix_seconds(one.since, wall), 1);
    line.number(static_cast<double>(one.epoch.value)).text(one.decision->summary);
    line.number(static_cast<double>(one.decision->number)).number(to_ms(one.took), 0).end(']');
  }
  line.end(']').end('}');
  return std::move(line).take();
}

std::string plan_document(const serve::FrontendStatus& status, const DashboardHistory& history,
                          std::uint64_t number) {
  const serve::PlanInForce* found = nullptr;
  for (const auto* const plans : {&history.reorganisations(), &status.plans}) {
    for (const serve::PlanInForce& one : *plans) {
      if (one.decision->number == number) found = &one;
    }
  }
  if (found == nullptr) return {};
  const serve::PlanDecision& decision = *found->decision;
  JsonWriter line;
  line.begin('{').key("number").number(static_cast<double>(number));
  line.key("epoch").number(static_cast<double>(found->epoch.value));
  line.key("policy").text(decision.plan.policy).key("summary").text(decision.summary);
  line.key("took_ms").number(to_ms(found->took), 0);
  line.key("retired").number(static_cast<double>(decision.retired));
  line.key("notes").begin('[');
  for (const std::string& note : decision.plan.notes) line.text(note);
  line.end(']').key("unserved").begin('[');
  for (const schedule::Unserved& one : decision.plan.unserved) {
    line.begin('{').key("model").text(one.model).key("rate").number(one.rate, 1);
    line.key("reason").text(one.reason).end('}');
  }
  line.end(']').key("gpulets").begin('[');
  const auto& reasons = decision.explanation.gpulets;
  for (std::size_t i = 0; i < decision.plan.gpulets.size(); ++i)
    write_planned(line, decision.plan.gpulets[i], decision.created[i],
                  i < reasons.size() ? reasons[i] : std::string());
  line.end(']').end('}');
  return std::move(line).take();
}

std::string tick_document(const serve::FrontendStatus& status, const DashboardHistory& history,
                          const TickContext& context) {
  constexpr double kPercent = 100;
  JsonWriter line;
  line.begin('{').key("at").number(to_seconds(context.wall.since_epoch), 3);
  line.key("state").text(status.state).key("epoch").number(double(status.epoch.value));
  line.key("reorganising").flag(status.reorganising);
  line.key("schedulable").flag(status.schedulable);
  line.key("uptime_s").number(std::floor(to_seconds(context.uptime)));
  line.key("clients").number(static_cast<double>(context.clients));
  line.key("models").begin('[');  // in the layout's order
  for (const serve::ModelStatus& model : status.models) {
    const ModelSample sample = history.last(model.name);
    line.begin('[').number(sample.offered, 1).number(sample.served, 1);
    line.number(sample.violations, 2).number(sample.p50_ms, 2).number(sample.p99_ms, 2);
    line.number(static_cast<double>(model.queued)).end(']');
  }
  line.end(']').key("busy").begin('[');  // percent, in the layout's order
  const std::vector<DeviceView> devices = devices_of(status);
  for (const DeviceView& device : devices) {
    for (const serve::GpuletStatus* gpulet : device.gpulets)
      line.number(std::round(std::min(1.0, gpulet->busy) * kPercent));
  }
  line.end(']').key("memory_mb").begin('[');  // planned, of each device
  for (const serve::DeviceStatus& device : status.devices)
    line.number(std::round(device.planned_memory_mb));
  line.end(']');
  if (is_controlled(status)) {
    line.key("control");
    write_controlled(line, status, devices);
  }
  line.end('}');
  return std::move(line).take();
}

}  // namespace gpulet::frontend
