// The readers of whole files, for the functions that parse these and for their description
// (description.h). Errors are recorded at the cursor. Any thread.
#pragma once

#include <vector>

#include "gpulet/config/cluster_config.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/config/model_config.h"
#include "gpulet/config/readers.h"

namespace gpulet::config {

[[nodiscard]] FrontendConfig read_frontend(const JsonCursor& root);
[[nodiscard]] BackendConfig read_backend(const JsonCursor& root);
[[nodiscard]] control::Options read_control(const JsonCursor& root);
[[nodiscard]] ServingConfig read_serving(const JsonCursor& root);
[[nodiscard]] std::vector<NodeConfig> read_nodes(const JsonCursor& root);
[[nodiscard]] DemandFile read_demands(const JsonCursor& root);
[[nodiscard]] std::vector<WorkloadModel> read_workload(const JsonCursor& root);

}  // namespace gpulet::config
