#include "tools/report/status_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "gpulet/base/text.h"
#include "tools/report/format.h"

namespace gpulet::tools {
namespace {

constexpr int kUsualWidth = 72;  // columns between the brackets
constexpr int kLeastWidth = 16;
constexpr int kMargins = 4;  // columns of the brackets and outside them

struct Glyphs {
  std::string_view used;
  std::string_view free;
  std::string_view separator;
};

Glyphs glyphs_of(const PictureStyle& style) {
  if (style.utf8) return {"\u2593", "\u2591", "\u2502"};
  return {"#", ".", "|"};
}

std::string_view colour_of(const std::string& state) {
  if (state == "ready") return "\033[32m";
  if (state == "failed") return "\033[31m";
  return "\033[33m";  // between the two
}

std::string size_text(const DeviceShare& share) {
  std::string text = fmt::format("{}%", share.percent);
  if (!share.instance.empty()) text += ' ' + share.instance;
  if (share.policy_percent > 0 && share.policy_percent != share.percent)
    text += fmt::format(" (policy {}%)", share.policy_percent);
  return text;
}

std::string model_names(const DeviceShare& share, bool with_details) {
  std::string names;
  for (const DeviceShare::Model& model : share.models) {
    if (!names.empty()) names += " + ";
    names += model.name;
    if (with_details && !model.details.empty()) names += ' ' + model.details;
  }
  return names;
}

std::string full_label(const DeviceShare& share) {
  std::string label = size_text(share) + ' ' + model_names(share, true);
  if (share.state != "ready") label += " (" + share.state + ')';
  return label;
}

// The longest label that fits; empty if none does.
std::string label_for(const DeviceShare& share, int width) {
  const std::string size = size_text(share);
  for (const std::string& label :
       {full_label(share), size + ' ' + model_names(share, false), size}) {
    if (static_cast<int>(display_width(label)) + 2 <= width) return label;
  }
  return {};
}

std::string filled(const std::string& label, std::string_view fill, int width) {
  const int spaces = label.empty() ? 0 : 2;
  const int rest = width - static_cast<int>(display_width(label)) - spaces;
  std::string text;
  for (int i = 0; i < rest / 2; ++i) text += fill;
  if (!label.empty()) text += ' ' + label + ' ';
  for (int i = rest / 2; i < rest; ++i) text += fill;
  return text;
}

int bar_width_of(const PictureStyle& style) {
  if (style.columns == 0) return kUsualWidth;
  return std::max(kLeastWidth, static_cast<int>(style.columns) - kMargins);
}

using nlohmann::json;

constexpr std::size_t kEventsShown = 8;
constexpr std::size_t kProblemsShown = 10;
constexpr std::size_t kShortestName = 12;  // a model's name is not shortened further

// The functions below read one field of an object, or a default if it is missing.

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

// "-" without a response in the last minute.
std::string latency_percentile(const json& model, const char* key) {
  return number(model, key) > 0 ? fixed(number(model, key), 1) : "-";
}

bool flag(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

const json& object(const json& parent, const char* key) {
  static const json none = json::object();
  const auto found = parent.find(key);
  return found != parent.end() && found->is_object() ? *found : none;
}

std::string frontend_line(const json& frontend, const PictureStyle& style) {
  const double started = number(frontend, "started_unix_s");
  const double uptime_s = number(frontend, "uptime_s");
  const double now = started + uptime_s;
  std::string line = fmt::format(
      "frontend {} for {} s{}, policy {}, epoch {}, clients {}", text(frontend, "state"),
      shortest(uptime_s, 1), std::isfinite(started) ? " (" + clock_text(now, now) + ")" : "",
      text(frontend, "policy"), whole(frontend, "epoch"), whole(frontend, "clients"));
  if (flag(frontend, "reorganising")) line += ", reorganising";
  if (frontend.contains("schedulable") && !flag(frontend, "schedulable"))
    line += ", the plan does not cover every rate";
  return wrapped(line, style.columns, 2);
}

// With the empty line after it. Only that: the frontend is alone.
std::string cluster_line(const json& document, const PictureStyle& style) {
  const json& cluster = object(document, "cluster");
  if (cluster.empty()) return "\n";
  const json& forwarding = object(cluster, "forwarding");
  const std::string leader = text(cluster, "leader");
  std::string line = fmt::format("cluster {}: {} ", text(cluster, "name"), text(cluster, "member"));
  if (flag(cluster, "leads")) {
    line += fmt::format("leads, in term {}", whole(cluster, "term"));
    if (flag(cluster, "doubtful")) line += ", in doubt";
  } else {
    line += leader.empty() ? "waits for a leader" : "follows " + leader;
    line += fmt::format("; forwards: {} sent, {} in flight, {} waiting, {} failed",
                        whole(forwarding, "sent"), whole(forwarding, "in_flight"),
                        whole(forwarding, "waiting"), whole(forwarding, "failed"));
  }
  std::map<std::string, std::string> owned;  // by member; only the leader's document has it
  for (const json& owner : list(cluster, "owners"))
    owned[text(owner, "member")] = fmt::format(" ({} gpulets, {}/s)", whole(owner, "gpulets"),
                                               shortest(number(owner, "rate"), 1));
  std::string members;
  for (const json& member : list(cluster, "members")) {
    const std::string name = text(member, "name");
    members += (members.empty() ? "" : ", ") + name + owned[name];
  }
  line += "; members " + (members.empty() ? "unknown" : members);
  const std::string store = text(cluster, "store");
  if (store != "here") line += "; store " + store + ": " + text(cluster, "store_fault");
  return wrapped(line, style.columns, 2) + '\n';
}

int percent_of(const json& gpulet, const char* key) {
  const double size = number(gpulet, key);
  return std::isfinite(size) ? static_cast<int>(std::clamp(size, 0.0, 100.0)) : 0;
}

// Shows the cores that a controlled instance has now instead of its nominal size.
void show_cores(const json& gpulet, double device_cores, DeviceShare& share) {
  const double given = number(object(gpulet, "cores"), "given");
  if (!std::isfinite(given)) return;
  if (device_cores > 0)
    share.percent = static_cast<int>(std::lround(std::clamp(given / device_cores, 0.0, 1.0) * 100));
  for (DeviceShare::Model& model : share.models) model.details = fixed(given, 2) + " cores";
}

// What a process that serves shares with others and still prepares; empty: nothing.
std::string condition_of(const json& gpulet) {
  std::string text;
  if (number(gpulet, "shared_sms") > 0)
    text = fmt::format("shares {} of {} SMs with others", whole(gpulet, "shared_sms"),
                       whole(gpulet, "sms"));
  if (number(gpulet, "sizes_to_capture") > 0)
    text += fmt::format("{}captures {} more batch sizes", text.empty() ? "" : ", ",
                        whole(gpulet, "sizes_to_capture"));
  return text;
}

// "lenet loaded in 1.5 s: read 0.1, copy 0.3, warm 0.8, capture 0.3"; empty if it took less than a
// second.
std::string slow_load_of(const json& gpulet) {
  const json& stages = object(gpulet, "loading_ms");
  double total_ms = 0;
  std::string parts;
  for (const char* const stage : {"read", "copy", "warm", "capture"}) {
    const double took_ms = number(stages, stage);
    if (!std::isfinite(took_ms)) return {};
    total_ms += took_ms;
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", stage, fixed(took_ms / 1000, 1));
  }
  if (total_ms < 1000) return {};
  std::string names;
  for (const json& model : list(gpulet, "models"))
    names += (names.empty() ? "" : ", ") + text(model, "name");
  return fmt::format("{} loaded in {} s: {}", names, fixed(total_ms / 1000, 1), parts);
}

DeviceShare share_of(const json& gpulet, double device_cores) {
  DeviceShare share;
  share.percent = percent_of(gpulet, "size");
  share.instance = text(gpulet, "instance");
  share.state = text(gpulet, "state");
  share.status = text(gpulet, "status");
  if (share.status.empty()) share.status = condition_of(gpulet);
  for (const json& model : list(gpulet, "models")) {
    DeviceShare::Model shown{.name = text(model, "name"), .details = {}};
    // Batch 0: the gpulet is being prepared or retired and has no part in the current plan.
    if (number(model, "batch") > 0) {
      shown.details =
          fmt::format("{}/s b{}", shortest(number(model, "rate"), 1), whole(model, "batch"));
    }
    share.models.push_back(std::move(shown));
  }
  const std::string service = text(gpulet, "service");
  if (service.empty()) share.policy_percent = percent_of(gpulet, "policy_size");
  if (service == "controlled") show_cores(gpulet, device_cores, share);
  if (service == "by_need" && share.models.size() > 1)
    share.models = {{fmt::format("{} models, by need", share.models.size()), {}}};
  return share;
}

std::string device_text(const json& node, const json& device, double device_cores,
                        const PictureStyle& style) {
  std::string title = fmt::format("{}/{} {} {}", text(node, "name"), whole(device, "device"),
                                  text(device, "type"), text(device, "mechanism"));
  if (number(device, "memory_mb") > 0) title += ", " + whole(device, "memory_mb") + " MB";
  const auto traits = device.find("traits");
  if (traits != device.end() && number(*traits, "step_percent") > 1)
    title += ", steps of " + shortest(number(*traits, "step_percent"), 1) + " %";
  if (const std::string fault = text(device, "fault"); !fault.empty()) title += ", LOST: " + fault;
  if (!text(device, "excluded").empty()) title += ", TAKES NO NEW GPULETS";
  std::vector<DeviceShare> shares;
  std::string slow_loads;
  for (const json& gpulet : list(device, "gpulets")) {
    shares.push_back(share_of(gpulet, device_cores));
    const std::string slow_load = slow_load_of(gpulet);
    if (!slow_load.empty()) slow_loads += wrapped("  " + slow_load, style.columns, 4);
  }
  return wrapped(title, style.columns, 2) + draw_device(shares, style) + slow_loads;
}

// A column of the table of models. In a narrow window the highest `spare` goes first; 0 stays.
struct ModelColumn {
  const char* title;
  int spare;
  std::string (*cell)(const json& model);
};

// (late + dropped + failed) / total in percent; "-" if the total is 0.
std::string violations(double late, double dropped, double failed, double total) {
  return fixed(100 * (late + dropped + failed) / total, 2);
}

std::string violations_since_start(const json& model) {
  return violations(number(model, "late"), number(model, "dropped"), number(model, "failed"),
                    number(model, "offered"));
}

// How much longer its batches take than profiled; "!" where some of them block other models.
std::string correction(const json& model) {
  const std::string blocks = text(model, "disturbs").empty() ? "" : "!";
  return fixed(model.value("correction", 1.0), 2) + blocks;
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

// Shown only while some model does not run as profiled.
const ModelColumn kCorrectionColumn = {"x profile", 3, correction};

bool is_corrected(const json& model) {
  return model.value("correction", 1.0) != 1 || !text(model, "disturbs").empty();
}

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
           {"p50 ms", 3, [](const json& model) { return latency_percentile(model, "p50_ms"); }},
           {"p99 ms", 0, [](const json& model) { return latency_percentile(model, "p99_ms"); }},
           {"SLO ms", 0, [](const json& model) { return shortest(number(model, "slo_ms"), 1); }},
           {"viol. %", 4, violations_since_start},
           {"1 min %", 0, violations_of_minute}}};
}

// The beginning and the end of a name that is longer than `width` characters; 0: no limit.
std::string shortened(const std::string& name, std::size_t width) {
  constexpr std::string_view kGap = "..";
  if (width == 0 || display_width(name) <= width) return name;
  const std::size_t tail = (width - kGap.size()) / 2;
  const std::string_view head = first_characters(name, width - kGap.size() - tail);
  const std::string_view before_tail = first_characters(name, display_width(name) - tail);
  return std::string(head) + std::string(kGap) + name.substr(before_tail.size());
}

std::string draw_models(const std::vector<const json*>& models, const ModelColumns& columns,
                        std::size_t name_width) {
  std::vector<std::string> titles;
  for (const ModelColumn& column : columns.others) titles.emplace_back(column.title);
  Table table = Table::of({columns.name_title}, titles);
  for (const json* const one : models) {
    const json& model = *one;
    std::vector<std::string> cells = {shortened(text(model, "name"), name_width)};
    for (const ModelColumn& column : columns.others) cells.push_back(column.cell(model));
    table.add_row(std::move(cells));
  }
  return table.to_string();
}

std::size_t table_width(const std::string& table) {
  std::size_t widest = 0;
  for (std::string_view rest = table; !rest.empty();)
    widest = std::max(widest, display_width(take_line(rest)));
  return widest;
}

// The table with as many columns as fit into the window.
std::string fitted_table(const std::vector<const json*>& models, ModelColumns columns,
                         const PictureStyle& style) {
  std::string table = draw_models(models, columns, 0);
  std::vector<std::string> left_out;
  while (style.columns > 0 && table_width(table) > style.columns) {
    const auto least = std::max_element(
        columns.others.begin(), columns.others.end(),
        [](const ModelColumn& a, const ModelColumn& b) { return a.spare < b.spare; });
    if (least->spare == 0) {
      const std::size_t too_wide = table_width(table) - style.columns;
      std::size_t longest = 0;
      for (const json* const model : models)
        longest = std::max(longest, display_width(text(*model, "name")));
      const std::size_t width = std::max(kShortestName, longest - std::min(longest, too_wide));
      table = draw_models(models, columns, width);
      break;
    }
    left_out.emplace_back(least->title);
    columns.others.erase(least);
    table = draw_models(models, columns, 0);
  }
  if (!left_out.empty())
    table += wrapped("(a wider window also shows " + joined(left_out) + ')', style.columns, 1);
  return table;
}

std::string control_figure(const json& model, const char* key, int decimals) {
  return fixed(number(object(model, "control"), key), decimals);
}

bool has_responded(const json& model) {
  return number(object(model, "control"), "response_ms") > 0;
}

ModelColumns control_columns() {
  return {
      "controlled",
      {{"set point ms", 0,
        [](const json& model) { return control_figure(model, "set_point_ms", 1); }},
       {"response ms", 0,
        [](const json& model) {
          return has_responded(model) ? control_figure(model, "response_ms", 1) : "-";
        }},
       {"cores given", 0,
        [](const json& model) { return control_figure(model, "cores_given", 2); }},
       {"requested", 1, [](const json& model) { return control_figure(model, "cores_asked", 2); }},
       {"on GPU %", 2,
        [](const json& model) {
          return has_responded(model) ? fixed(100 * number(object(model, "control"), "gpu_part"), 1)
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

// The models with controlled instances in the latest control period; empty if there are none.
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
    std::string line =
        fmt::format("{}/{}: {} of {} cores given, {} requested", text(node, "node"),
                    whole(node, "device"), fixed(number(node, "given"), 2),
                    shortest(number(node, "cores"), 2), fixed(number(node, "asked"), 2));
    if (contention > 0) line += ", contention " + fixed(contention, 2);
    if (contention > 0 && contention < 1) line += ": not enough cores";
    lines += wrapped(line, style.columns, 2);
  }
  return lines;
}

// The cores of a device whose cores are controlled; 0 for other devices.
double controlled_cores(const json& document, const json& node, const json& device) {
  for (const json& one : list(document, "controlled_nodes")) {
    if (text(one, "node") == text(node, "name") &&
        number(one, "device") == number(device, "device"))
      return number(one, "cores");
  }
  return 0;
}

std::string idle_models_line(const json& models, const PictureStyle& style) {
  std::vector<std::string> idle;
  for (const json& model : models) {
    if (text(model, "state") == "idle") idle.push_back(text(model, "name"));
  }
  if (idle.empty()) return {};
  return wrapped("idle until the next request: " + joined(idle), style.columns, 2);
}

// The models whose latencies are estimated. Empty: there are none.
std::string estimate_lines(const json& document, const PictureStyle& style) {
  std::string lines;
  for (const json& one : list(document, "estimates")) {
    const std::string place = text(one, "model") + " on " + text(one, "type");
    const std::string nearest = text(one, "nearest");
    const double probes = number(one, "probes");
    const std::string how =
        probes == 0 ? std::string("not probed yet")
                    : fmt::format("from {} measured {}{}", fixed(probes, 0),
                                  probes == 1 ? "batch" : "batches",
                                  nearest.empty() ? "" : " and the profile of " + nearest);
    lines += wrapped(fmt::format("estimated latencies: {}, {}", place, how), style.columns, 2);
  }
  return lines;
}

// " (next attempt in 8 s)" for an exclusion, otherwise empty.
std::string next_attempt(const json& problem, const json& exclusions) {
  if (text(problem, "cause") != "excluded") return {};
  for (const json& one : exclusions) {
    if (text(one, "node") == text(problem, "node") &&
        one.value("device", json()) == problem.value("device", json()))
      return " (next attempt in " + fixed(number(one, "retry_in_s"), 0) + " s)";
  }
  return {};
}

std::string problem_lines(const json& document, const PictureStyle& style) {
  const json& problems = list(document, "problems");
  std::string lines;
  std::size_t shown = 0;
  for (const json& problem : problems) {
    if (shown == kProblemsShown && problems.size() > kProblemsShown + 1) {
      lines += wrapped(fmt::format("and {} more problems; `gpulet status --json` lists all",
                                   problems.size() - shown),
                       style.columns, 2);
      break;
    }
    ++shown;
    const bool grave = flag(problem, "grave");
    std::string line = wrapped((grave ? "PROBLEM " : "note ") + text(problem, "text") +
                                   next_attempt(problem, list(document, "exclusions")),
                               style.columns, 2);
    if (style.colour) line.insert(0, grave ? "\033[1;31m" : "\033[33m");
    if (style.colour) line.insert(line.find(' '), "\033[0m");
    lines += line;
    if (const std::string fix = text(problem, "fix"); !fix.empty())
      lines += wrapped("  -> " + fix, style.columns, 5);
  }
  return lines.empty() ? lines : lines + '\n';
}

// With the time of day, or seconds since the frontend started if it does not report its start time.
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
    lines += wrapped(fmt::format("{:>12}  {}{}", at, text(events[i], "text"),
                                 count > 1 ? " (" + fixed(count, 0) + " times)" : ""),
                     style.columns, 14);
  }
  return lines;
}

std::string render(const json& document, const PictureStyle& style) {
  std::string picture = frontend_line(document.at("frontend"), style);
  picture += cluster_line(document, style);
  picture += problem_lines(document, style);
  for (const json& node : list(document, "nodes")) {
    for (const json& device : list(node, "devices"))
      picture += device_text(node, device, controlled_cores(document, node, device), style);
  }
  if (list(document, "nodes").empty()) picture += "no backend is connected\n";
  const json& models = list(document, "models");
  std::vector<const json*> all;
  for (const json& model : models) all.push_back(&model);
  ModelColumns columns = model_columns();
  if (std::any_of(models.begin(), models.end(), is_corrected))
    columns.others.push_back(kCorrectionColumn);
  picture += '\n' + fitted_table(all, std::move(columns), style);
  if (const std::string table = control_table(models, style); !table.empty())
    picture += '\n' + table + controlled_node_lines(list(document, "controlled_nodes"), style);
  if (const std::string lines = idle_models_line(models, style); !lines.empty())
    picture += '\n' + lines;
  if (const std::string lines = estimate_lines(document, style); !lines.empty())
    picture += '\n' + lines;
  if (const std::string lines =
          event_lines(document.at("frontend"), list(document, "events"), style);
      !lines.empty())
    picture += "\nevents\n" + lines;
  return picture;
}

}  // namespace

std::string draw_device(const std::vector<DeviceShare>& shares, const PictureStyle& style) {
  const Glyphs glyphs = glyphs_of(style);
  int used = 0;
  for (const DeviceShare& share : shares) used += share.percent;
  const int whole = std::max(used, 100);
  const int bar_width = bar_width_of(style);
  // The column at which that part of the device ends, rounded.
  const auto column = [&](int percent) { return (percent * bar_width + whole / 2) / whole; };

  std::string bar = "  [";
  std::string notes;
  int before = 0;
  const auto begin_segment = [&](int percent) {
    const int width = column(before + percent) - column(before);
    if (before > 0) bar += glyphs.separator;
    const int inner = std::max(before > 0 ? width - 1 : width, 0);
    before += percent;
    return inner;
  };
  for (const DeviceShare& share : shares) {
    const int width = begin_segment(share.percent);
    const std::string label = label_for(share, width);
    if (style.colour) bar += colour_of(share.state);
    bar += filled(label, glyphs.used, width);
    if (style.colour) bar += "\033[0m";
    if (label == full_label(share) && share.status.empty()) continue;
    const std::string status = share.status.empty() ? "" : ": " + share.status;
    notes += wrapped("    " + full_label(share) + status, style.columns, 6);
  }
  if (before < 100) {
    const std::string label = fmt::format("{}% free", 100 - before);
    const int width = begin_segment(100 - before);
    bar += filled(static_cast<int>(display_width(label)) + 2 <= width ? label : "", glyphs.free,
                  width);
  }
  return bar + "]\n" + notes;
}

Result<std::string> render_status(std::string_view document, const PictureStyle& style) {
  try {
    return render(json::parse(document), style);
  } catch (const json::exception& error) {
    return Status(StatusCode::malformed, std::string("not a status document: ") + error.what());
  }
}

}  // namespace gpulet::tools
