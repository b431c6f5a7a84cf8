#include "dashboard_documents.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gpulet/serve/problems.h"
#include "json_line.h"

namespace gpulet::frontend {
namespace {

using Places = std::unordered_map<std::string_view, std::size_t>;

double unix_seconds(Time time, const observe::WallClock& wall) {
  return to_seconds(wall.since_epoch - (wall.engine - time));
}

// A node's devices by number, nodes by name; the gpulets of a device by id. Both documents follow
// this order.
struct Device {
  const std::string* node = nullptr;
  const serve::FleetBackend* backend = nullptr;
  const serve::DeviceOffer* offer = nullptr;
  std::vector<const serve::GpuletStatus*> gpulets;
};

std::vector<Device> devices_of(const serve::FrontendStatus& status) {
  std::vector<Device> devices;
  std::map<std::pair<BackendId, schedule::DeviceKey>, std::vector<const serve::GpuletStatus*>>
      gpulets;
  for (const serve::GpuletStatus& gpulet : status.gpulets)
    gpulets[{gpulet.gpulet.backend, gpulet.gpulet.device}].push_back(&gpulet);
  for (const auto& [id, backend] : status.backends) {
    if (backend.node.empty()) continue;
    for (const serve::DeviceOffer& offer : backend.devices) {
      Device device{&backend.node, &backend, &offer, {}};
      if (const auto found = gpulets.find({id, offer.device.key}); found != gpulets.end())
        device.gpulets = std::move(found->second);
      devices.push_back(std::move(device));
    }
  }
  std::sort(devices.begin(), devices.end(), [](const Device& a, const Device& b) {
    return std::tie(*a.node, a.offer->device.key.device) <
           std::tie(*b.node, b.offer->device.key.device);
  });
  return devices;
}

void write_model(JsonLine& line, const serve::ModelStatus& model) {
  line.begin('{').key("name").text(model.name);
  line.key("kind").text(model.application ? "application" : "model");
  line.key("state").text(serve::to_string(model.state));
  line.key("version").text(serve::short_version(model.version));
  line.key("slo_ms").number(model.slo_ms, 3);
  line.key("planned").number(model.rate_planned, 1);
  line.key("unserved").number(model.rate_unserved, 1);
  line.key("reason").text(model.reason);
  if (model.control) line.key("set_point_ms").number(model.control->set_point_ms, 3);
  line.end('}');
}

// [place of the model, rate, batch, milliseconds of a batch]
void write_occupants(JsonLine& line, const serve::GpuletStatus& gpulet, const Places& places) {
  const auto write = [&line, &places](const std::string& model, double rate, double batch,
                                      double latency_ms) {
    const auto place = places.find(model);
    line.begin('[').number(place == places.end() ? -1 : static_cast<double>(place->second));
    line.number(rate, 1).number(batch).number(latency_ms, 2).end(']');
  };
  line.begin('[');
  if (gpulet.planned) {
    for (const schedule::Assignment& one : gpulet.planned->assignments)
      write(one.model, one.rate, one.batch, one.latency_ms);
  } else {  // prepared, or on its way out
    for (const schedule::LoadedModel& one : gpulet.gpulet.models) write(one.name, 0, 0, 0);
  }
  line.end(']');
}

void write_gpulet(JsonLine& line, const serve::GpuletStatus& gpulet, const Places& places) {
  line.begin('{').key("id").text(std::to_string(gpulet.id.value));
  line.key("size").number(gpulet.gpulet.size.percent);
  line.key("instance").text(gpulet.gpulet.instance ? to_string(*gpulet.gpulet.instance) : "");
  line.key("state").text(gpulet.gpulet.retiring ? "retiring"
                                                : serve::to_string(gpulet.gpulet.state));
  line.key("status").text(gpulet.gpulet.status.message());
  line.key("in_force").flag(gpulet.planned.has_value());
  line.key("duty_ms").number(gpulet.planned ? gpulet.planned->duty_cycle_ms : 0, 2);
  if (gpulet.planned && gpulet.planned->service != schedule::Service::rounds)
    line.key("service").text(schedule::to_string(gpulet.planned->service));
  line.key("models");
  write_occupants(line, gpulet, places);
  line.end('}');
}

void write_decided(JsonLine& line, const schedule::PlannedGpulet& gpulet, bool created,
                   const std::string& why) {
  line.begin('{').key("node").text(gpulet.device.node);
  line.key("device").number(gpulet.device.device).key("size").number(gpulet.size.percent);
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

// [response, part on GPU, cores asked, given, periods, violated periods]; null: not controlled
void write_control(JsonLine& line, const serve::ModelStatus& model) {
  if (!model.control) {
    line.number(std::numeric_limits<double>::quiet_NaN());
    return;
  }
  const ControlSample sample = control_sample(*model.control);
  line.begin('[').number(sample.response_ms, 2).number(sample.gpu_part, kDecimalsOfParts);
  line.number(sample.cores_asked, kDecimalsOfCores).number(sample.cores_given, kDecimalsOfCores);
  line.number(static_cast<double>(model.control->periods));
  line.number(static_cast<double>(model.control->violated_periods)).end(']');
}

// Models in the layout's order; the cores given to each gpulet, likewise, null where it is not
// controlled; nodes: [name of the CPU, cores, asked, given, contention].
void write_controlled(JsonLine& line, const serve::FrontendStatus& status,
                      const std::vector<Device>& devices) {
  line.begin('{').key("models").begin('[');
  for (const serve::ModelStatus& model : status.models) write_control(line, model);
  line.end(']').key("cores").begin('[');
  for (const Device& device : devices) {
    for (const serve::GpuletStatus* gpulet : device.gpulets) {
      line.number(gpulet->cores ? gpulet->cores->given : std::numeric_limits<double>::quiet_NaN(),
                  kDecimalsOfCores);
    }
  }
  line.end(']').key("nodes").begin('[');
  for (const serve::NodeControlStatus& node : status.controlled_nodes) {
    line.begin('[').text(node.key.node + " / " + std::to_string(node.key.device));
    line.number(node.cores, kDecimalsOfCores);
    line.number(node.asked, kDecimalsOfCores).number(node.given, kDecimalsOfCores);
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

std::string layout_document(const serve::FrontendStatus& status) {
  Places places;
  for (const serve::ModelStatus& model : status.models) places.emplace(model.name, places.size());
  constexpr std::size_t kUsualBytes = 160;  // of a model or a gpulet
  JsonLine line((status.models.size() + status.gpulets.size() + status.devices.size()) *
                kUsualBytes);
  line.begin('{').key("policy").text(status.policy);
  const std::uint64_t plan = status.plans.empty() ? 0 : status.plans.back().decision->number;
  line.key("plan").number(static_cast<double>(plan)).key("models").begin('[');
  for (const serve::ModelStatus& model : status.models) write_model(line, model);
  line.end(']').key("devices").begin('[');
  for (const Device& device : devices_of(status)) {
    const schedule::Device& offered = device.offer->device;
    line.begin('{').key("node").text(*device.node).key("device").number(offered.key.device);
    line.key("type").text(offered.type).key("mechanism").text(device.offer->mechanism);
    line.key("leaving").flag(device.backend->leaving);
    line.key("memory_mb").number(offered.memory_mb);
    if (offered.cores > 0) line.key("cores").number(offered.cores, kDecimalsOfCores);
    line.key("gpulets").begin('[');
    for (const serve::GpuletStatus* gpulet : device.gpulets) write_gpulet(line, *gpulet, places);
    line.end(']').end('}');
  }
  line.end(']').end('}');
  return std::move(line).take();
}

std::string problems_document(const serve::FrontendStatus& status) {
  JsonLine line;
  line.begin('[');
  for (const serve::Problem& problem : serve::find_problems(status)) {
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
  JsonLine line;
  line.begin('{').key("log").begin('[');
  const auto& reorganisations = history.reorganisations();
  const auto is_reorganisation = [&reorganisations](std::uint64_t plan) {
    return std::any_of(reorganisations.begin(), reorganisations.end(),
                       [plan](const auto& one) { return one.decision->number == plan; });
  };
  for (const serve::StatusEvent& event : status.events) {
    // A reorganisation has an entry of its own, which says what its events say.
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
  JsonLine line;
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
    write_decided(line, decision.plan.gpulets[i], decision.created[i],
                  i < reasons.size() ? reasons[i] : std::string());
  line.end(']').end('}');
  return std::move(line).take();
}

std::string tick_document(const serve::FrontendStatus& status, const DashboardHistory& history,
                          const DashboardMoment& moment) {
  constexpr double kPercent = 100;
  JsonLine line;
  line.begin('{').key("at").number(to_seconds(moment.wall.since_epoch), 3);
  line.key("state").text(status.state).key("epoch").number(double(status.epoch.value));
  line.key("reorganising").flag(status.reorganising);
  line.key("schedulable").flag(status.schedulable);
  line.key("uptime_s").number(std::floor(to_seconds(moment.uptime)));
  line.key("clients").number(static_cast<double>(moment.clients));
  line.key("models").begin('[');  // in the layout's order
  for (const serve::ModelStatus& model : status.models) {
    const ModelSample sample = history.last(model.name);
    line.begin('[').number(sample.offered, 1).number(sample.served, 1);
    line.number(sample.violations, 2).number(sample.p50_ms, 2).number(sample.p99_ms, 2);
    line.number(static_cast<double>(model.queued)).end(']');
  }
  line.end(']').key("busy").begin('[');  // percent, in the layout's order
  const std::vector<Device> devices = devices_of(status);
  for (const Device& device : devices) {
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
