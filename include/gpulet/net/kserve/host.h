// ProtocolHost: what the endpoints of the standard inference protocol, HTTP and gRPC, ask of the
// server behind them. Every call and callback happens on the io_context's thread; no callback from
// within a call.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/ids.h"
#include "gpulet/net/kserve/model.h"
#include "gpulet/net/kserve/settings.h"
#include "gpulet/serve/messages.h"

namespace gpulet::net::kserve {

class ProtocolHost {
 public:
  // One for each row, in the rows' order.
  using OnReplies = std::function<void(std::vector<serve::InferReply>)>;
  using OnChanged = std::function<void(serve::ModelsChanged)>;
  using Models = std::shared_ptr<const std::vector<Model>>;                // never null
  using Statistics = std::shared_ptr<const std::vector<ModelStatistics>>;  // never null
  using OnModels = std::function<void(const Models&)>;
  using OnStatistics = std::function<void(const Statistics&)>;

  virtual ~ProtocolHost() = default;

  // A model or an application, as it is now. Null where there is none of that name.
  [[nodiscard]] virtual std::shared_ptr<const Model> model(std::string_view name) = 0;
  // No model of that name is served, but one could be loaded: somebody unloaded it.
  [[nodiscard]] virtual bool is_unloaded(std::string_view name) const = 0;
  // All of them by name, without their tensors, and those that are unloaded. They may be thousands:
  // the list is shared by all who ask within a while, and is as old.
  virtual void models(OnModels done) = 0;
  // Of one; empty where there is none of that name.
  [[nodiscard]] virtual std::vector<ModelStatistics> statistics(std::string_view name) = 0;
  // Of all by name; shared as models().
  virtual void statistics(OnStatistics done) = 0;
  // Calls work() on another thread, which does one thing at a time, then done(). For what would
  // take long here.
  virtual void in_background(std::function<void()> work, std::function<void()> done) = 0;
  // Takes requests: not draining, and a plan is in force.
  [[nodiscard]] virtual bool ready() const = 0;

  // The rows of one call, each answered once; the callback comes when all are. The id is good for
  // cancel() until then.
  [[nodiscard]] virtual ClientId infer(std::vector<serve::InferRequest> rows, OnReplies done) = 0;
  // Drops what still waits; no callback follows.
  virtual void cancel(ClientId call) = 0;

  // As `gpulet models load|unload` asks for it.
  virtual void change_models(serve::ModelsChange change, OnChanged done) = 0;

  // What the daemon's log shows.
  [[nodiscard]] virtual LogLevel log_level() const = 0;
  virtual void set_log_level(LogLevel level) = 0;
  // Which requests are traced from now on, of all models.
  [[nodiscard]] virtual TraceSampling trace_sampling() const = 0;
  virtual void set_trace_sampling(const TraceSampling& sampling) = 0;
};

}  // namespace gpulet::net::kserve
