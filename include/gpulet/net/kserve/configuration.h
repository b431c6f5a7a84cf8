// What a load brings along in its parameter `config`: a model configuration that is to count in
// place of the one that the model has. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "gpulet/core/status.h"
#include "gpulet/net/kserve/model.h"

namespace gpulet::net::kserve {

// The fields that a load can change. Empty: as the models file has it.
struct Configuration {
  std::optional<std::uint32_t> max_batch{};
};

// `text`: JSON as protobuf reads it, with names in either case and integers perhaps in quotes.
// Fields that cannot be changed may be there with the value that the model's configuration shows;
// a default may stand for a field that it does not show. Fails (invalid) with the field and what is
// accepted.
[[nodiscard]] Result<Configuration> read_configuration(const Model& model, std::string_view text);

}  // namespace gpulet::net::kserve
