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
#include "gpulet/serve/messages.h"

namespace gpulet::net::kserve {

class ProtocolHost {
 public:
  // One for each row, in the rows' order.
  using OnReplies = std::function<void(std::vector<serve::InferReply>)>;
  using OnChanged = std::function<void(serve::ModelsChanged)>;

  virtual ~ProtocolHost() = default;

  // A model or an application, as it is now. Null where there is none of that name.
  [[nodiscard]] virtual std::shared_ptr<const Model> model(std::string_view name) = 0;
  [[nodiscard]] virtual std::vector<Model> models() = 0;  // by name
  // Empty: of all, by name.
  [[nodiscard]] virtual std::vector<ModelStatistics> statistics(std::string_view name) = 0;
  // Takes requests: not draining, and a plan is in force.
  [[nodiscard]] virtual bool ready() const = 0;

  // The rows of one call, each answered once; the callback comes when all are. The id is good for
  // cancel() until then.
  [[nodiscard]] virtual ClientId infer(std::vector<serve::InferRequest> rows, OnReplies done) = 0;
  // Drops what still waits; no callback follows.
  virtual void cancel(ClientId call) = 0;

  // As `gpulet models load|unload` asks for it.
  virtual void change_models(serve::ModelsChange change, OnChanged done) = 0;
};

}  // namespace gpulet::net::kserve
