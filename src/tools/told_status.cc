#include "tools/told_status.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gpulet/core/similar.h"

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
  return "model " + text_of(model, "name") + ", which is " + text_of(model, "state") +
         (reason.empty() ? "" : ": " + reason);
}

Status unknown(const std::string& name, const json& models) {
  std::vector<std::string> names;
  for (const json& model : models) names.push_back(text_of(model, "name"));
  const std::string_view meant = similar(name, {names.begin(), names.end()});
  return {StatusCode::not_found,
          "the frontend has no model " + name +
              (meant.empty() ? "; `gpulet models list` shows those that it has"
                             : "; did you mean " + std::string(meant) + "?")};
}

Result<std::string> missing(const json& document, const Wanted& wanted) {
  const json& models = document.at("models");
  for (const std::string& name : wanted.models) {
    const bool known = std::any_of(models.begin(), models.end(), [&](const json& model) {
      return text_of(model, "name") == name;
    });
    if (!known) return unknown(name, models);
  }
  const json& frontend = document.at("frontend");
  if (!frontend.at("ready").get<bool>()) {
    if (document.at("nodes").empty()) return std::string("a backend: none is connected");
    return "the frontend, which is " + text_of(frontend, "state");
  }
  if (wanted.all && frontend.value("reorganising", false))
    return std::string("a plan to come into force");
  for (const json& model : models) {
    const std::string name = text_of(model, "name");
    const bool asked = wanted.all || std::find(wanted.models.begin(), wanted.models.end(), name) !=
                                         wanted.models.end();
    if (asked && !serves(model)) return why_not(model);
  }
  return std::string();
}

Status no_document(const json::exception& error) {
  return {StatusCode::malformed, std::string("not a status document: ") + error.what()};
}

std::vector<ToldEvent> events_of(const json& document) {
  const json& frontend = document.at("frontend");
  std::vector<ToldEvent> events;
  for (const json& event : document.at("events")) {
    ToldEvent told{
        event.at("at_s").get<double>(), {}, text_of(event, "text"), event.value("warning", false)};
    if (frontend.contains("started_unix_s"))
      told.unix_s = frontend.at("started_unix_s").get<double>() + told.at_s;
    events.push_back(std::move(told));
  }
  return events;
}

}  // namespace

Result<std::string> waits_for(std::string_view document, const Wanted& wanted) {
  try {
    return missing(json::parse(document), wanted);
  } catch (const json::exception& error) {
    return no_document(error);
  }
}

Result<std::vector<ToldEvent>> EventTail::fresh(std::string_view document) {
  try {
    const json parsed = json::parse(document);
    const double uptime_s = parsed.at("frontend").at("uptime_s").get<double>();
    if (uptime_s < uptime_s_) *this = EventTail();  // another start
    uptime_s_ = uptime_s;
    std::vector<ToldEvent> found;
    std::size_t seen = 0;  // of those with the time of the last that was told
    for (ToldEvent& event : events_of(parsed)) {
      if (event.at_s < last_at_s_) continue;
      if (event.at_s == last_at_s_ && ++seen <= same_time_) continue;
      found.push_back(std::move(event));
    }
    for (const ToldEvent& event : found) {
      same_time_ = event.at_s == last_at_s_ ? same_time_ + 1 : 1;
      last_at_s_ = event.at_s;
    }
    return found;
  } catch (const json::exception& error) {
    return no_document(error);
  }
}

}  // namespace gpulet::tools
