// What the repository extension's load and unload ask of the server, over HTTP and gRPC alike.
// Pure; any thread.
#pragma once

#include <string>

#include "gpulet/core/status.h"
#include "gpulet/serve/messages.h"

namespace gpulet::net::kserve {

// `config` is a models file's text, or empty: then the model's entry of the server's own models
// file is read again. Fails (invalid) where the text is not sound, or speaks of other models than
// this.
[[nodiscard]] Result<serve::ModelsChange> loading(const std::string& model, std::string config);
[[nodiscard]] serve::ModelsChange unloading(const std::string& model);

}  // namespace gpulet::net::kserve
