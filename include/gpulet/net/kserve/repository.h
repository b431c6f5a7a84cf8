// What the repository extension's load and unload ask of the server, over HTTP and gRPC alike.
// Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "gpulet/core/status.h"
#include "gpulet/serve/messages.h"

namespace gpulet::net::kserve {

// `config` is empty: the model's entry of the server's own models file is read again. Or it is a
// models file's text (an object with "models"), which is checked here, or a model configuration
// that is to count in place of the entry's (configuration.h). Fails (invalid) where a models file's
// text is not sound, or speaks of other models than this.
[[nodiscard]] Result<serve::ModelsChange> loading(const std::string& model, std::string config);
// A load knows the parameter "config" alone. Fails (invalid) with what is accepted.
[[nodiscard]] Status check_load_parameter(std::string_view name);
// A load's status with "failed to load 'MODEL'" before its text, as Triton has it: examples of its
// Python client look for these words.
[[nodiscard]] Status load_status(const std::string& model, const Status& status);
[[nodiscard]] serve::ModelsChange unloading(const std::string& model);

}  // namespace gpulet::net::kserve
