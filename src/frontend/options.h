// Options of the frontend's parts, from its configuration; core_options() is in
// frontend/setup.h, those of connections in frontend/frames/connection_options.h. Any
// thread.
#pragma once

#include <cstddef>

#include "frontend/setup.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/connection.h"
#include "gpulet/net/kserve/host.h"
#include "gpulet/net/listener.h"
#include "gpulet/observe/trace.h"
#include "gpulet/serve/values/frontend_events.h"

namespace gpulet::frontend {

// The longest gRPC message: max_payload_bytes, or the largest full batch, at least 64 MB.
[[nodiscard]] std::size_t largest_message(const config::FrontendConfig& config,
                                          const serve::Catalogue& catalogue);
[[nodiscard]] net::BufferPoolOptions buffer_options(const Setup& setup);
[[nodiscard]] net::kserve::TraceSampling trace_sampling(const config::FrontendConfig& config);

}  // namespace gpulet::frontend
