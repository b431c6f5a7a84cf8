#include "tools/status_picture.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "tools/device_bar.h"
#include "tools/table.h"

namespace gpulet::tools {
namespace {

using nlohmann::json;

constexpr std::size_t kEventsShown = 8;

const json& list(const json& object, const char* key) {
  static const json none = json::array();
  const auto found = object.find(key);
  return found != object.end() && found->is_array() ? *found : none;
}

std::string text(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

double number(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>()
                                                     : std::numeric_limits<double>::quiet_NaN();
}

std::string whole(const json& object, const char* key) { return fixed(number(object, key), 0); }

// Before the first answer there is none.
std::string percentile(const json& model, const char* key) {
  return number(model, "served") > 0 ? fixed(number(model, key), 1) : "-";
}

bool flag(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

std::string frontend_line(const json& frontend) {
  std::string line = "frontend " + text(frontend, "state") + " for " +
                     shortest(number(frontend, "uptime_s"), 1) + " s, policy " +
                     text(frontend, "policy") + ", epoch " + whole(frontend, "epoch") +
                     ", clients " + whole(frontend, "clients");
  if (flag(frontend, "reorganising")) line += ", reorganising";
  if (frontend.contains("schedulable") && !flag(frontend, "schedulable"))
    line += ", not every rate has a place";
  return line + "\n\n";
}

// An empty object where there is none.
const json& object(const json& parent, const char* key) {
  static const json none = json::object();
  const auto found = parent.find(key);
  return found != parent.end() && found->is_object() ? *found : none;
}

// Of an executable whose cores are controlled: what it is given now, in place of its nominal size.
void show_cores(const json& gpulet, double device_cores, DeviceShare& share) {
  const double given = number(object(gpulet, "cores"), "given");
  if (!std::isfinite(given)) return;
  if (device_cores > 0)
    share.percent = static_cast<int>(std::lround(std::clamp(given / device_cores, 0.0, 1.0) * 100));
  for (DeviceShare::Model& model : share.models) model.details = fixed(given, 2) + " cores";
}

DeviceShare share_of(const json& gpulet, double device_cores) {
  DeviceShare share;
  const double size = number(gpulet, "size");
  share.percent = std::isfinite(size) ? static_cast<int>(std::clamp(size, 0.0, 100.0)) : 0;
  share.instance = text(gpulet, "instance");
  share.state = text(gpulet, "state");
  share.status = text(gpulet, "status");
  for (const json& model : list(gpulet, "models")) {
    DeviceShare::Model shown{.name = text(model, "name"), .details = {}};
    // A gpulet that is being prepared or retired has no part of the plan in force: batch 0.
    if (number(model, "batch") > 0) {
      shown.details = shortest(number(model, "rate"), 1) + "/s b" + whole(model, "batch");
    }
    share.models.push_back(std::move(shown));
  }
  const std::string service = text(gpulet, "service");
  if (service == "controlled") show_cores(gpulet, device_cores, share);
  if (service == "by_need" && share.models.size() > 1) {
    share.models = {{std::to_string(share.models.size()) + " models, whoever needs it most", {}}};
  }
  return share;
}

std::string device_text(const json& node, const json& device, double device_cores,
                        const PictureStyle& style) {
  std::string title = text(node, "name") + '/' + whole(device, "device") + ' ' +
                      text(device, "type") + ' ' + text(device, "mechanism");
  if (number(device, "memory_mb") > 0) title += ", " + whole(device, "memory_mb") + " MB";
  const auto traits = device.find("traits");
  if (traits != device.end() && number(*traits, "step_percent") > 1)
    title += ", steps of " + shortest(number(*traits, "step_percent"), 1) + " %";
  if (const std::string fault = text(device, "fault"); !fault.empty()) title += ", LOST: " + fault;
  if (!text(device, "excluded").empty()) title += ", TAKES NO NEW GPULETS";
  std::vector<DeviceShare> shares;
  for (const json& gpulet : list(device, "gpulets"))
    shares.push_back(share_of(gpulet, device_cores));
  return title + '\n' + draw_device(shares, style);
}

std::string models_table(const json& models) {
  Table table({{"model", Table::Align::left},
               {"rate seen"},
               {"planned"},
               {"queue"},
               {"offered"},
               {"served"},
               {"dropped"},
               {"late"},
               {"failed"},
               {"p50 ms"},
               {"p99 ms"},
               {"SLO ms"},
               {"viol. %"}});
  for (const json& model : models) {
    const double violations =
        number(model, "late") + number(model, "dropped") + number(model, "failed");
    table.add_row({text(model, "name"), fixed(number(model, "rate_seen"), 1),
                   fixed(number(model, "rate_planned"), 1), whole(model, "queued"),
                   whole(model, "offered"), whole(model, "served"), whole(model, "dropped"),
                   whole(model, "late"), whole(model, "failed"), percentile(model, "p50_ms"),
                   percentile(model, "p99_ms"), shortest(number(model, "slo_ms"), 1),
                   // Without requests there is no ratio: 0/0 prints as "-".
                   fixed(100 * violations / number(model, "offered"), 2)});
  }
  return table.to_string();
}

// Models whose executables are controlled, of the last control period; empty where none is.
std::string control_table(const json& models) {
  Table table({{"controlled", Table::Align::left},
               {"set point ms"},
               {"response ms"},
               {"cores given"},
               {"asked"},
               {"on GPU %"},
               {"violated periods"},
               {"core-seconds"}});
  bool any = false;
  for (const json& model : models) {
    const json& control = object(model, "control");
    if (control.empty()) continue;
    any = true;
    const bool answered = number(control, "response_ms") > 0;
    table.add_row({text(model, "name"), fixed(number(control, "set_point_ms"), 1),
                   answered ? fixed(number(control, "response_ms"), 1) : "-",
                   fixed(number(control, "cores_given"), 2),
                   fixed(number(control, "cores_asked"), 2),
                   answered ? fixed(100 * number(control, "gpu_part"), 1) : "-",
                   whole(control, "violated_periods") + " of " + whole(control, "periods"),
                   fixed(number(control, "core_seconds"), 1)});
  }
  return any ? table.to_string() : std::string();
}

std::string controlled_node_lines(const json& nodes) {
  std::string lines;
  for (const json& node : nodes) {
    const double contention = number(node, "contention");
    lines += text(node, "node") + '/' + whole(node, "device") + ": " +
             fixed(number(node, "given"), 2) + " of " + shortest(number(node, "cores"), 2) +
             " cores given, " + fixed(number(node, "asked"), 2) + " asked for";
    if (contention > 0) lines += ", contention " + fixed(contention, 2);
    if (contention > 0 && contention < 1) lines += ": too few";
    lines += '\n';
  }
  return lines;
}

// Of a device whose cores are controlled; 0 where they are not.
double cores_of(const json& document, const json& node, const json& device) {
  for (const json& one : list(document, "controlled_nodes")) {
    if (text(one, "node") == text(node, "name") &&
        number(one, "device") == number(device, "device"))
      return number(one, "cores");
  }
  return 0;
}

std::string unserved_lines(const json& models) {
  std::string lines;
  for (const json& model : models) {
    const std::string reason = text(model, "reason");
    const bool unserved = number(model, "rate_unserved") > 0;
    if (unserved) {
      lines += text(model, "name") + ": " + shortest(number(model, "rate_unserved"), 1) +
               "/s without a place" + (reason.empty() ? "" : ": " + reason) + '\n';
    } else if (!reason.empty()) {
      lines += text(model, "name") + ": " + reason + '\n';
    }
  }
  std::string idle;
  for (const json& model : models) {
    if (text(model, "state") == "idle") idle += (idle.empty() ? "" : ", ") + text(model, "name");
  }
  if (!idle.empty()) lines += "asleep until the next request: " + idle + '\n';
  return lines;
}

// Nodes and devices that take no new gpulets for a while.
std::string exclusion_lines(const json& exclusions) {
  std::string lines;
  for (const json& one : exclusions) {
    const auto device = one.find("device");
    const bool whole_node = device == one.end() || !device->is_number();
    lines += (whole_node ? "node " + text(one, "node") + " is not ready"
                         : "device " + text(one, "node") + '/' + whole(one, "device") +
                               " takes no new gpulets") +
             " (" + text(one, "cause") + "), tried again in " +
             fixed(number(one, "retry_in_s"), 0) + " s: " + text(one, "error") + '\n';
  }
  return lines;
}

std::string event_lines(const json& events) {
  std::string lines;
  const std::size_t first = events.size() > kEventsShown ? events.size() - kEventsShown : 0;
  for (std::size_t i = first; i < events.size(); ++i) {
    const std::string at = fixed(number(events[i], "at_s"), 1);
    lines += std::string(10 - std::min<std::size_t>(at.size(), 10), ' ') + at + " s  " +
             text(events[i], "text") + '\n';
  }
  return lines;
}

std::string render(const json& document, const PictureStyle& style) {
  std::string picture = frontend_line(document.at("frontend"));
  for (const json& node : list(document, "nodes")) {
    for (const json& device : list(node, "devices"))
      picture += device_text(node, device, cores_of(document, node, device), style);
  }
  if (list(document, "nodes").empty()) picture += "no backend is connected\n";
  picture += exclusion_lines(list(document, "exclusions"));
  const json& models = list(document, "models");
  picture += '\n' + models_table(models);
  if (const std::string table = control_table(models); !table.empty())
    picture += '\n' + table + controlled_node_lines(list(document, "controlled_nodes"));
  if (const std::string lines = unserved_lines(models); !lines.empty()) picture += '\n' + lines;
  if (const std::string lines = event_lines(list(document, "events")); !lines.empty())
    picture += "\nevents\n" + lines;
  return picture;
}

}  // namespace

Result<std::string> render_status(std::string_view document, const PictureStyle& style) {
  try {
    return render(json::parse(document), style);
  } catch (const json::exception& error) {
    return Status(StatusCode::malformed, std::string("not a status document: ") + error.what());
  }
}

}  // namespace gpulet::tools
