// One question to a frontend, one answer: for commands that ask and print. Blocking; any thread.
#pragma once

#include <string>
#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/load/target.h"
#include "gpulet/serve/messages.h"

namespace gpulet::load {

inline constexpr Duration kCallTimeout = std::chrono::seconds(5);

// Connects to `target`, sends `question` and returns the first answer. Fails with unavailable
// (nobody listens there, the connection broke), timeout, or malformed (what listens there speaks
// another protocol), naming the target.
[[nodiscard]] Result<serve::FrontendReply> call(const Target& target,
                                                const serve::ClientMessage& question,
                                                Duration timeout = kCallTimeout);

// All models and what is wrong with the files behind them, fetched page by page; `timeout` is for
// one page.
[[nodiscard]] Result<serve::ModelsReply> fetch_model_list(const Target& target,
                                                          Duration timeout = kCallTimeout);
// The models alone.
[[nodiscard]] Result<std::vector<serve::ModelInfo>> fetch_models(const Target& target,
                                                                 Duration timeout = kCallTimeout);

// Asks for models to come or go; returns those that are meant, right after the change. Fails,
// besides, as the frontend says where it refuses.
[[nodiscard]] Result<std::vector<serve::ModelInfo>> change_models(const Target& target,
                                                                  const serve::ModelsChange& change,
                                                                  Duration timeout = kCallTimeout);

// The status document, docs/status.md.
[[nodiscard]] Result<std::string> fetch_status(const Target& target,
                                               Duration timeout = kCallTimeout);

}  // namespace gpulet::load
