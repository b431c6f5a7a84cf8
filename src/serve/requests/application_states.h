// The state of an application, which follows from the states of the models that it calls. Pure
// functions.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "gpulet/serve/values/application.h"
#include "serve/models/model_registry.h"

namespace gpulet::serve {

// The models that its graph calls, with the number of calls.
[[nodiscard]] std::map<std::string, std::size_t> calls_of(const Application& application);
// Why the application is not served, for its clients. Empty: it is served or may be soon.
[[nodiscard]] std::string why_unserved(const Application& application, const ModelRegistry& models);
// That of the model that is furthest from serving.
[[nodiscard]] ModelState state_of(const Application& application, const ModelRegistry& models);

}  // namespace gpulet::serve
