#include "tools/plan_json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpulet/config/json.h"

namespace gpulet::tools {
namespace {

using Json = nlohmann::ordered_json;
using config::JsonCursor;

constexpr std::uint32_t kMost = 1'000'000;  // of any number of devices, slices or requests

Json gpulet_json(const schedule::PlannedGpulet& gpulet) {
  Json assignments = Json::array();
  for (const schedule::Assignment& one : gpulet.assignments) {
    assignments.push_back({{"model", one.model},
                           {"rate", one.rate},
                           {"batch", one.batch},
                           {"latency_ms", one.latency_ms},
                           {"slowdown", one.slowdown},
                           {"slo_ms", one.slo_ms}});
  }
  Json json{{"node", gpulet.device.node},
            {"device", gpulet.device.device},
            {"size", gpulet.size.percent}};
  if (gpulet.instance) {
    json["profile"] = partition::mig_profile_name(gpulet.instance->slices);
    json["start"] = gpulet.instance->start;
  }
  if (gpulet.service != schedule::Service::rounds)
    json["service"] = schedule::to_string(gpulet.service);
  json["duty_cycle_ms"] = gpulet.duty_cycle_ms;
  json["assignments"] = std::move(assignments);
  return json;
}

double read_amount(const JsonCursor& cursor) { return cursor.number(config::at_least(0)); }

schedule::Assignment read_assignment(const JsonCursor& cursor) {
  schedule::Assignment one;
  one.model = cursor.required("model").text("a model's name");
  one.rate = read_amount(cursor.required("rate"));
  one.batch = cursor.required("batch").count(1, kMost);
  one.latency_ms = read_amount(cursor.required("latency_ms"));
  one.slowdown = read_amount(cursor.required("slowdown"));
  one.slo_ms = read_amount(cursor.required("slo_ms"));
  return one;
}

std::optional<partition::MigInstance> read_instance(const JsonCursor& cursor) {
  const auto profile = cursor.find("profile");
  if (!profile) return std::nullopt;
  const auto slices = partition::parse_mig_profile(profile->text("a MIG profile"));
  if (!slices) {
    profile->fail("is no MIG profile", "write it as \"3g\"");
    return std::nullopt;
  }
  return partition::MigInstance{*slices, cursor.required("start").count(0, kMost)};
}

schedule::Service read_service(const JsonCursor& cursor) {
  constexpr std::array kServices = {schedule::Service::rounds, schedule::Service::by_need,
                                    schedule::Service::controlled};
  const auto service = cursor.find("service");
  if (!service) return schedule::Service::rounds;
  std::vector<std::string_view> names(kServices.size());
  std::transform(kServices.begin(), kServices.end(), names.begin(),
                 [](schedule::Service one) { return to_string(one); });
  return kServices.at(service->choice(names));
}

schedule::PlannedGpulet read_gpulet(const JsonCursor& cursor) {
  schedule::PlannedGpulet gpulet;
  gpulet.device = {cursor.required("node").text("a node's name"),
                   cursor.required("device").count(0, kMost)};
  gpulet.size = Share{static_cast<int>(cursor.required("size").count(1, 100))};
  gpulet.instance = read_instance(cursor);
  gpulet.service = read_service(cursor);
  gpulet.duty_cycle_ms = read_amount(cursor.required("duty_cycle_ms"));
  for (const JsonCursor& one : cursor.required("assignments").elements("a list of assignments"))
    gpulet.assignments.push_back(read_assignment(one));
  return gpulet;
}

}  // namespace

Json to_json(const schedule::Plan& plan, double plan_time_us) {
  Json gpulets = Json::array();
  for (const schedule::PlannedGpulet& gpulet : plan.gpulets) gpulets.push_back(gpulet_json(gpulet));
  Json unserved = Json::array();
  for (const schedule::Unserved& one : plan.unserved)
    unserved.push_back({{"model", one.model}, {"rate", one.rate}});
  Json json{{"policy", plan.policy},
            {"schedulable", plan.schedulable()},
            {"devices_used", plan.devices_used()},
            {"plan_time_us", std::llround(plan_time_us)},
            {"gpulets", std::move(gpulets)},
            {"unserved", std::move(unserved)}};
  if (plan.lower_bound) json["lower_bound"] = *plan.lower_bound;
  return json;
}

Result<schedule::Plan> read_plan(const std::filesystem::path& file) {
  const auto document = JsonCursor::read_file(file);
  if (!document.ok()) return document.status();
  const JsonCursor& root = document.value();
  schedule::Plan plan;
  plan.policy = root.required("policy").text("a policy's name");
  for (const JsonCursor& one : root.required("gpulets").elements("a list of gpulets"))
    plan.gpulets.push_back(read_gpulet(one));
  for (const JsonCursor& one : root.required("unserved").elements("a list of unserved models")) {
    plan.unserved.push_back(
        {one.required("model").text("a model's name"), read_amount(one.required("rate")), {}});
  }
  if (Status status = root.status(); !status.ok()) return status;
  return plan;
}

}  // namespace gpulet::tools
