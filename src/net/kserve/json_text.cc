#include "json_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace gpulet::net::kserve {
namespace {

bool is_plain(char letter) {
  const auto byte = static_cast<unsigned char>(letter);
  return byte >= 0x20 && byte < 0x7f && letter != '"' && letter != '\\';
}

}  // namespace

void append_text(std::string& json, std::string_view text) {
  if (std::all_of(text.begin(), text.end(), is_plain)) {
    json += '"';
    json += text;
    json += '"';
    return;
  }
  json += nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace gpulet::net::kserve
