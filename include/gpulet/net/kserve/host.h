// ProtocolHost: the server behind the HTTP and gRPC endpoints of the standard inference protocol.
// All calls and callbacks happen on the io_context's thread; no callback is made from within a
// call.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/ids.h"
#include "gpulet/net/kserve/model.h"
#include "gpulet/net/kserve/settings.h"
#include "gpulet/protocol/messages.h"

namespace gpulet::net::kserve {

class ProtocolHost {
 public:
  using OnReplies = std::function<void(std::vector<InferReply>)>;  // in the order of the rows
  using OnChanged = std::function<void(ModelsChanged)>;
  using Models = std::shared_ptr<const std::vector<Model>>;                // never null
  using Statistics = std::shared_ptr<const std::vector<ModelStatistics>>;  // never null
  using OnModels = std::function<void(const Models&)>;
  using OnStatistics = std::function<void(const Statistics&)>;

  virtual ~ProtocolHost() = default;

  // The current state of a model or an application. Null for an unknown name.
  [[nodiscard]] virtual std::shared_ptr<const Model> model(std::string_view name) = 0;
  // True if the model was unloaded and could be loaded again.
  [[nodiscard]] virtual bool is_unloaded(std::string_view name) const = 0;
  // All models by name, without their tensors, including unloaded ones. The list may be slightly
  // old: it may be long, so that requests share it for a while.
  virtual void models(OnModels done) = 0;
  // Of one model; no entry for an unknown name.
  virtual void statistics(std::string_view name, OnStatistics done) = 0;
  // Of all models by name; shared as models().
  virtual void statistics(OnStatistics done) = 0;
  // Runs long work on a background thread, one at a time, then calls done().
  virtual void in_background(std::function<void()> work, std::function<void()> done) = 0;
  // True while requests are accepted: not draining, and a plan is in force.
  [[nodiscard]] virtual bool ready() const = 0;

  // Submits the rows of one call. The id is valid for cancel() until `done`, when all have replies.
  [[nodiscard]] virtual ClientId infer(std::vector<InferRequest> rows, OnReplies done) = 0;
  // Drops the rows that still wait; `done` is not called.
  virtual void cancel(ClientId call) = 0;

  // As `gpulet models load|unload`.
  virtual void change_models(ModelsChange change, OnChanged done) = 0;

  [[nodiscard]] virtual LogLevel log_level() const = 0;
  virtual void set_log_level(LogLevel level) = 0;
  // Applies to all models.
  [[nodiscard]] virtual TraceSampling trace_sampling() const = 0;
  virtual void set_trace_sampling(const TraceSampling& sampling) = 0;
};

}  // namespace gpulet::net::kserve
