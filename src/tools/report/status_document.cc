#include "tools/report/status_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gpulet/base/text.h"
#include "gpulet/core/bucket.h"

namespace gpulet::tools {
namespace {

using nlohmann::json;

std::string text_of(const json& object, const char* key) {
  return object.value(key, std::string());
}

bool serves(const json& model) {
  const std::string state = text_of(model, "state");
  return state == "ready" || state == "idle";
}

std::string why_not(const json& model) {
  const std::string reason = text_of(model, "reason");
  return fmt::format("model {}, which is {}{}{}", text_of(model, "name"), text_of(model, "state"),
                     reason.empty() ? "" : ": ", reason);
}

Status unknown_model(const std::string& name, const json& models) {
  std::vector<std::string> names;
  for (const json& model : models) names.push_back(text_of(model, "name"));
  const std::string_view meant = similar(name, {names.begin(), names.end()});
  return {StatusCode::not_found,
          "the frontend has no model " + name +
              (meant.empty() ? "; `gpulet models list` shows its models"
                             : "; did you mean " + std::string(meant) + "?")};
}

// The row is that of the model, or of one of its buckets.
bool is_of(const json& row, std::string_view model) {
  const std::string name = text_of(row, "name");
  return name == model || client_name(name) == model;
}

Result<std::string> missing(const json& document, const WaitCondition& condition) {
  const json& models = document.at("models");
  for (const std::string& name : condition.models) {
    const bool known = std::any_of(models.begin(), models.end(),
                                   [&](const json& model) { return is_of(model, name); });
    if (!known) return unknown_model(name, models);
  }
  const json& frontend = document.at("frontend");
  if (!frontend.at("ready").get<bool>()) {
    if (document.at("nodes").empty()) return std::string("a backend: none is connected");
    return "the frontend, which is " + text_of(frontend, "state");
  }
  if (condition.all && frontend.value("reorganising", false))
    return std::string("a new plan to take effect");
  for (const json& model : models) {
    const bool awaited =
        condition.all || std::any_of(condition.models.begin(), condition.models.end(),
                                     [&](const std::string& name) { return is_of(model, name); });
    if (awaited && !serves(model)) return why_not(model);
  }
  return std::string();
}

Status not_a_status(const json::exception& error) {
  return {StatusCode::malformed, std::string("not a status document: ") + error.what()};
}

std::vector<FrontendEvent> events_of(const json& document) {
  const json& frontend = document.at("frontend");
  std::vector<FrontendEvent> events;
  for (const json& event : document.at("events")) {
    FrontendEvent& read = events.emplace_back();
    read.at_s = event.at("at_s").get<double>();
    read.text = text_of(event, "text");
    read.warning = event.value("warning", false);
    if (frontend.contains("started_unix_s"))
      read.unix_s = frontend.at("started_unix_s").get<double>() + read.at_s;
  }
  return events;
}

}  // namespace

Result<std::string> missing_for(std::string_view document, const WaitCondition& condition) {
  try {
    return missing(json::parse(document), condition);
  } catch (const json::exception& error) {
    return not_a_status(error);
  }
}

Result<std::vector<UnavailableModel>> unavailable_models(std::string_view document) {
  try {
    const json parsed = json::parse(document);
    const json& frontend = parsed.at("frontend");
    std::vector<UnavailableModel> found;
    if (!frontend.at("ready").get<bool>() || frontend.value("reorganising", false)) return found;
    for (const json& model : parsed.at("models")) {
      if (text_of(model, "state") == "unavailable")
        found.push_back({text_of(model, "name"), text_of(model, "reason")});
    }
    return found;
  } catch (const json::exception& error) {
    return not_a_status(error);
  }
}

Result<std::vector<FrontendEvent>> EventTail::new_events(std::string_view document) {
  try {
    const json parsed = json::parse(document);
    const double uptime_s = parsed.at("frontend").at("uptime_s").get<double>();
    if (uptime_s < uptime_s_) *this = EventTail();  // the frontend restarted
    uptime_s_ = uptime_s;
    std::vector<FrontendEvent> found;
    std::size_t seen = 0;  // events with the time of the latest event returned
    for (FrontendEvent& event : events_of(parsed)) {
      if (event.at_s < last_at_s_) continue;
      if (event.at_s == last_at_s_ && ++seen <= same_time_) continue;
      found.push_back(std::move(event));
    }
    for (const FrontendEvent& event : found) {
      same_time_ = event.at_s == last_at_s_ ? same_time_ + 1 : 1;
      last_at_s_ = event.at_s;
    }
    return found;
  } catch (const json::exception& error) {
    return not_a_status(error);
  }
}

}  // namespace gpulet::tools
