// JSON documents, and one as an answer. Pure; any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "gpulet/net/http/message.h"
#include "gpulet/net/kserve/model.h"

namespace gpulet::net::kserve {

// 200. Text that is not UTF-8 is mended rather than refused.
[[nodiscard]] http::HttpResponse document(const nlohmann::ordered_json& json);

[[nodiscard]] nlohmann::ordered_json model_config_document(const Model& model);

}  // namespace gpulet::net::kserve
