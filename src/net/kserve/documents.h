// A JSON document as an answer. Pure; any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "gpulet/net/http/message.h"

namespace gpulet::net::kserve {

// 200. Text that is not UTF-8 is mended rather than refused.
[[nodiscard]] http::HttpResponse document(const nlohmann::ordered_json& json);

}  // namespace gpulet::net::kserve
