#include "bench/serve/support/status_view.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "gpulet/load/call.h"

namespace gpulet::bench {
namespace {

using Clock = std::chrono::steady_clock;

void add_device(const std::string& node, const nlohmann::json& device, StatusView& view) {
  bool in_use = false;
  const std::string name = node + "/" + std::to_string(device.at("device").get<int>());
  for (const nlohmann::json& gpulet : device.at("gpulets")) {
    ++view.gpulets;
    view.all_gpulets.push_back({gpulet.at("id"), name, gpulet.at("size"), gpulet.at("state"),
                                gpulet.at("duty_cycle_ms").get<double>() > 0});
    for (const nlohmann::json& model : gpulet.at("models"))
      view.all_gpulets.back().models += model.at("name").get<std::string>() + " ";
    if (gpulet.at("state") == "ready") ++view.gpulets_ready;
    if (gpulet.at("duty_cycle_ms").get<double>() <= 0) continue;  // not of the plan in force
    in_use = true;
    view.share_percent += gpulet.at("size").get<double>();
  }
  if (in_use) ++view.devices_in_use;
}

}  // namespace

StatusView parse_status(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  StatusView view;
  const auto& frontend = json.at("frontend");
  view.state = frontend.at("state");
  view.epoch = frontend.at("epoch");
  view.reorganising = frontend.at("reorganising");
  view.schedulable = frontend.at("schedulable");
  view.last_took_ms = json.at("reorganisations").at("last_took_ms");
  for (const nlohmann::json& node : json.at("nodes")) {
    ++view.nodes;
    for (const nlohmann::json& device : node.at("devices"))
      add_device(node.at("name"), device, view);
  }
  for (const nlohmann::json& model : json.at("models")) {
    view.models[model.at("name")] = {model.at("rate_seen"), model.at("rate_planned"),
                                     model.at("rate_unserved"), model.at("state")};
  }
  for (const nlohmann::json& problem : json.at("problems"))
    view.problems.push_back({problem.at("cause"), problem.at("model")});
  for (const nlohmann::json& event : json.at("events")) view.events.push_back(event.at("text"));
  return view;
}

Result<StatusView> fetch_view(const load::Target& target, Duration timeout) {
  const Result<std::string> text = load::fetch_status(target, timeout);
  if (!text.ok()) return text.status();
  return parse_status(text.value());
}

Watch::Watch(load::Target target, Duration period)
    : target_(std::move(target)),
      period_(period),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

void Watch::run(const std::stop_token& stop) {
  Clock::time_point next = Clock::now();
  while (!stop.stop_requested()) {
    StatusSample sample;
    sample.at = Clock::now();
    const Result<std::string> text = load::fetch_status(target_);
    sample.took = Clock::now() - sample.at;
    if (text.ok()) sample.view = parse_status(text.value());
    samples_.push_back(std::move(sample));
    next = std::max(next + period_, Clock::now());
    std::this_thread::sleep_until(next);
  }
}

std::vector<StatusSample> Watch::finish() {
  thread_.request_stop();
  thread_.join();
  return std::move(samples_);
}

}  // namespace gpulet::bench
