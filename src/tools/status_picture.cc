#include "tools/status_picture.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "tools/clock_text.h"
#include "tools/device_bar.h"
#include "tools/table.h"

namespace gpulet::tools {
namespace {

using nlohmann::json;

constexpr std::size_t kEventsShown = 8;
constexpr std::size_t kProblemsShown = 10;
constexpr std::size_t kShortestName = 12;  // of a model, where there is no room for all of it

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

std::string frontend_line(const json& frontend, const PictureStyle& style) {
  const double started = number(frontend, "started_unix_s");
  const double uptime_s = number(frontend, "uptime_s");
  std::string line =
      "frontend " + text(frontend, "state") + " for " + shortest(uptime_s, 1) + " s" +
      (std::isfinite(started) ? " (" + clock_text(started + uptime_s, started + uptime_s) + ")"
                              : "") +
      ", policy " + text(frontend, "policy") + ", epoch " + whole(frontend, "epoch") +
      ", clients " + whole(frontend, "clients");
  if (flag(frontend, "reorganising")) line += ", reorganising";
  if (frontend.contains("schedulable") && !flag(frontend, "schedulable"))
    line += ", not every rate has a place";
  return wrapped(line, style.columns, 2) + '\n';
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
  return wrapped(title, style.columns, 2) + draw_device(shares, style);
}

// One column of the models' table. Where there is no room for all, those with a higher `spare` are
// left out first; 0: it always stays.
struct ModelColumn {
  const char* title;
  int spare;
  std::string (*cell)(const json& model);
};

// Late, dropped and failed by all, in percent; "-" without any.
std::string violations(double late, double dropped, double failed, double all) {
  return fixed(100 * (late + dropped + failed) / all, 2);
}

std::string violations_since_start(const json& model) {
  return violations(number(model, "late"), number(model, "dropped"), number(model, "failed"),
                    number(model, "offered"));
}

std::string violations_of_minute(const json& model) {
  const json& minute = object(model, "last_minute");
  return violations(number(minute, "late"), number(minute, "dropped"), number(minute, "failed"),
                    number(minute, "answered"));
}

struct ModelColumns {
  const char* name_title;
  std::vector<ModelColumn> others;
};

ModelColumns model_columns() {
  return {"model",
          {{"seen/s", 0, [](const json& model) { return fixed(number(model, "rate_seen"), 1); }},
           {"plan/s", 2, [](const json& model) { return fixed(number(model, "rate_planned"), 1); }},
           {"queue", 1, [](const json& model) { return whole(model, "queued"); }},
           {"offered", 9, [](const json& model) { return whole(model, "offered"); }},
           {"served", 8, [](const json& model) { return whole(model, "served"); }},
           {"dropped", 5, [](const json& model) { return whole(model, "dropped"); }},
           {"late", 6, [](const json& model) { return whole(model, "late"); }},
           {"failed", 7, [](const json& model) { return whole(model, "failed"); }},
           {"p50 ms", 3, [](const json& model) { return percentile(model, "p50_ms"); }},
           {"p99 ms", 0, [](const json& model) { return percentile(model, "p99_ms"); }},
           {"SLO ms", 0, [](const json& model) { return shortest(number(model, "slo_ms"), 1); }},
           {"viol. %", 4, violations_since_start},
           {"1 min %", 0, violations_of_minute}}};
}

// Its beginning and its end, where it is longer than that.
std::string shortened(const std::string& name, std::size_t most) {
  constexpr std::string_view kGap = "..";
  if (most == 0 || display_width(name) <= most) return name;
  const std::size_t tail = (most - kGap.size()) / 2;
  const auto bytes_of = [&name](std::size_t characters) {  // at the beginning
    std::size_t end = 0;
    while (end < name.size() &&
           display_width(std::string_view(name).substr(0, end + 1)) <= characters)
      ++end;
    return end;
  };
  const std::size_t head = bytes_of(most - kGap.size() - tail);
  return name.substr(0, head) + std::string(kGap) +
         name.substr(bytes_of(display_width(name) - tail));
}

// `name_room`: for a model's name; 0: no limit.
std::string draw_models(const std::vector<const json*>& models, const ModelColumns& columns,
                        std::size_t name_room) {
  std::vector<Table::Column> heads = {{columns.name_title, Table::Align::left}};
  for (const ModelColumn& column : columns.others) heads.push_back({column.title});
  Table table(std::move(heads));
  for (const json* const one : models) {
    const json& model = *one;
    std::vector<std::string> cells = {shortened(text(model, "name"), name_room)};
    for (const ModelColumn& column : columns.others) cells.push_back(column.cell(model));
    table.add_row(std::move(cells));
  }
  return table.to_string();
}

std::size_t width_of(const std::string& table) {
  std::size_t widest = 0;
  for (std::string_view rest = table; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    widest = std::max(widest, display_width(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return widest;
}

// With as many of the columns as there is room for.
std::string fitted_table(const std::vector<const json*>& models, ModelColumns columns,
                         const PictureStyle& style) {
  std::string table = draw_models(models, columns, 0);
  std::string left_out;
  while (style.columns > 0 && width_of(table) > style.columns) {
    const auto least = std::max_element(
        columns.others.begin(), columns.others.end(),
        [](const ModelColumn& a, const ModelColumn& b) { return a.spare < b.spare; });
    if (least->spare == 0) {
      const std::size_t too_wide = width_of(table) - style.columns;
      std::size_t longest = 0;
      for (const json* const model : models)
        longest = std::max(longest, display_width(text(*model, "name")));
      const std::size_t room = std::max(kShortestName, longest - std::min(longest, too_wide));
      table = draw_models(models, columns, room);
      break;
    }
    left_out += (left_out.empty() ? "" : ", ") + std::string(least->title);
    columns.others.erase(least);
    table = draw_models(models, columns, 0);
  }
  if (!left_out.empty())
    table += wrapped("(a wider window also shows " + left_out + ')', style.columns, 1);
  return table;
}

std::string models_table(const json& models, const PictureStyle& style) {
  std::vector<const json*> all;
  for (const json& model : models) all.push_back(&model);
  return fitted_table(all, model_columns(), style);
}

std::string control_figure(const json& model, const char* key, int decimals) {
  return fixed(number(object(model, "control"), key), decimals);
}

// Before the first answer there is none.
bool answered(const json& model) { return number(object(model, "control"), "response_ms") > 0; }

ModelColumns control_columns() {
  return {"controlled",
          {{"set point ms", 0,
            [](const json& model) { return control_figure(model, "set_point_ms", 1); }},
           {"response ms", 0,
            [](const json& model) {
              return answered(model) ? control_figure(model, "response_ms", 1) : "-";
            }},
           {"cores given", 0,
            [](const json& model) { return control_figure(model, "cores_given", 2); }},
           {"asked", 1, [](const json& model) { return control_figure(model, "cores_asked", 2); }},
           {"on GPU %", 2,
            [](const json& model) {
              return answered(model) ? fixed(100 * number(object(model, "control"), "gpu_part"), 1)
                                     : "-";
            }},
           {"violated periods", 3,
            [](const json& model) {
              const json& control = object(model, "control");
              return whole(control, "violated_periods") + " of " + whole(control, "periods");
            }},
           {"core-seconds", 4,
            [](const json& model) { return control_figure(model, "core_seconds", 1); }}}};
}

// Models whose executables are controlled, of the last control period; empty where none is.
std::string control_table(const json& models, const PictureStyle& style) {
  std::vector<const json*> controlled;
  for (const json& model : models) {
    if (!object(model, "control").empty()) controlled.push_back(&model);
  }
  return controlled.empty() ? std::string() : fitted_table(controlled, control_columns(), style);
}

std::string controlled_node_lines(const json& nodes, const PictureStyle& style) {
  std::string lines;
  for (const json& node : nodes) {
    const double contention = number(node, "contention");
    std::string line = text(node, "node") + '/' + whole(node, "device") + ": " +
                       fixed(number(node, "given"), 2) + " of " +
                       shortest(number(node, "cores"), 2) + " cores given, " +
                       fixed(number(node, "asked"), 2) + " asked for";
    if (contention > 0) line += ", contention " + fixed(contention, 2);
    if (contention > 0 && contention < 1) line += ": too few";
    lines += wrapped(line, style.columns, 2);
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

std::string sleeper_lines(const json& models, const PictureStyle& style) {
  std::string idle;
  for (const json& model : models) {
    if (text(model, "state") == "idle") idle += (idle.empty() ? "" : ", ") + text(model, "name");
  }
  if (idle.empty()) return {};
  return wrapped("asleep until the next request: " + idle, style.columns, 2);
}

// " (tried again in 8 s)" of an exclusion; else empty.
std::string retry_of(const json& problem, const json& exclusions) {
  if (text(problem, "cause") != "excluded") return {};
  for (const json& one : exclusions) {
    if (text(one, "node") == text(problem, "node") &&
        one.value("device", json()) == problem.value("device", json()))
      return " (tried again in " + fixed(number(one, "retry_in_s"), 0) + " s)";
  }
  return {};
}

std::string problem_lines(const json& document, const PictureStyle& style) {
  const json& problems = list(document, "problems");
  std::string lines;
  std::size_t shown = 0;
  for (const json& problem : problems) {
    if (shown == kProblemsShown && problems.size() > kProblemsShown + 1) {
      lines += wrapped("and " + std::to_string(problems.size() - shown) +
                           " more problems: `gpulet status --json` has them all",
                       style.columns, 2);
      break;
    }
    ++shown;
    const bool grave = flag(problem, "grave");
    std::string told = wrapped((grave ? "PROBLEM " : "note ") + text(problem, "text") +
                                   retry_of(problem, list(document, "exclusions")),
                               style.columns, 2);
    if (style.colour) told.insert(0, grave ? "\033[1;31m" : "\033[33m");
    if (style.colour) told.insert(told.find(' '), "\033[0m");
    lines += told;
    if (const std::string fix = text(problem, "fix"); !fix.empty())
      lines += wrapped("  -> " + fix, style.columns, 5);
  }
  return lines.empty() ? lines : lines + '\n';
}

// With the time of day, or where the frontend does not tell it, seconds since its start.
std::string event_lines(const json& frontend, const json& events, const PictureStyle& style) {
  const double started = number(frontend, "started_unix_s");
  const double now = started + number(frontend, "uptime_s");
  std::string lines;
  const std::size_t first = events.size() > kEventsShown ? events.size() - kEventsShown : 0;
  for (std::size_t i = first; i < events.size(); ++i) {
    const double at_s = number(events[i], "at_s");
    const std::string at =
        std::isfinite(started) ? clock_text(started + at_s, now) : fixed(at_s, 1) + " s";
    const double count = number(events[i], "count");
    lines +=
        wrapped(std::string(12 - std::min<std::size_t>(at.size(), 12), ' ') + at + "  " +
                    text(events[i], "text") + (count > 1 ? " (" + fixed(count, 0) + " times)" : ""),
                style.columns, 14);
  }
  return lines;
}

std::string render(const json& document, const PictureStyle& style) {
  std::string picture = frontend_line(document.at("frontend"), style);
  picture += problem_lines(document, style);
  for (const json& node : list(document, "nodes")) {
    for (const json& device : list(node, "devices"))
      picture += device_text(node, device, cores_of(document, node, device), style);
  }
  if (list(document, "nodes").empty()) picture += "no backend is connected\n";
  const json& models = list(document, "models");
  picture += '\n' + models_table(models, style);
  if (const std::string table = control_table(models, style); !table.empty())
    picture += '\n' + table + controlled_node_lines(list(document, "controlled_nodes"), style);
  if (const std::string lines = sleeper_lines(models, style); !lines.empty())
    picture += '\n' + lines;
  if (const std::string lines =
          event_lines(document.at("frontend"), list(document, "events"), style);
      !lines.empty())
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
