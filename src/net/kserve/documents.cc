#include "documents.h"

#include <nlohmann/json.hpp>

#include "gpulet/net/kserve/http_api.h"

namespace gpulet::net::kserve {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

http::HttpResponse document(const Json& json) {
  return http::text_response(200, "application/json",
                             json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

http::HttpResponse server_metadata(const std::string& version, bool shared_memory) {
  return document(
      {{"name", kServerName}, {"version", version}, {"extensions", extensions(shared_memory)}});
}

http::HttpResponse log_settings(LogLevel level) {
  const LogSwitches switches = switches_of(level);
  return document({{"log_file", ""},
                   {"log_info", switches.info},
                   {"log_warning", switches.warning},
                   {"log_error", switches.error},
                   {"log_verbose_level", switches.verbose},
                   {"log_format", "default"}});
}

http::HttpResponse trace_settings(const TraceSampling& sampling) {
  Json json = Json::object();
  for (const Setting& setting : settings_of(sampling)) {
    if (setting.name == "trace_level") {
      json[setting.name] = setting.values;
    } else {
      json[setting.name] = setting.values.front();
    }
  }
  return document(json);
}

http::HttpResponse shared_memory_status(std::span<const RegionInfo> regions) {
  Json array = Json::array();
  for (const RegionInfo& region : regions) {
    array.push_back({{"name", region.name},
                     {"key", region.key},
                     {"offset", region.offset},
                     {"byte_size", region.bytes}});
  }
  return document(array);
}

}  // namespace gpulet::net::kserve
