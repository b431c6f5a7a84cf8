// CoreHost: forwards the calls of the HTTP and gRPC endpoints to the core. One thread: the thread
// of the io_context, which must have stopped before this object is destroyed.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/cluster/cluster_statistics.h"
#include "frontend/cluster/model_changes.h"
#include "frontend/cluster/peers.h"
#include "frontend/endpoints/infer_calls.h"
#include "frontend/endpoints/request_costs.h"
#include "frontend/frames/engine_link.h"
#include "frontend/loop/done.h"
#include "frontend/observe/status_service.h"
#include "frontend/observe/status_snapshots.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/kserve/host.h"
#include "gpulet/observe/trace.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/serve/frontend_core.h"

namespace gpulet::frontend {

// Calls that loaded models; each is answered once they serve or one of them cannot. One thread.
class PendingLoads {
 public:
  using OnDecided = std::function<void(ModelsChanged)>;
  static constexpr std::size_t kMaxPending = 256;  // further calls are refused
  static constexpr Duration kTimeout = std::chrono::seconds(120);
  static constexpr Duration kPollInterval = std::chrono::milliseconds(10);

  // `loaded`: the models of the call, right after the change.
  void add(const std::vector<ModelInfo>& loaded, Time now, OnDecided done);
  // Answers the calls whose outcome is known or that timed out; at most every kPollInterval.
  void poll(const serve::FrontendCore& core, Time now);
  void fail_all(const Status& why);

 private:
  struct Target {
    std::string name;
    std::string version;
  };
  struct Load {
    std::vector<Target> models;
    Time deadline{};
    OnDecided done;
  };
  // Empty while the outcome is unknown.
  [[nodiscard]] static std::optional<Status> outcome(const Load& load,
                                                     const std::vector<ModelInfo>& models);

  std::vector<Load> loads_;
  Time next_poll_{};
};

class CoreHost final : public net::kserve::ProtocolHost {
 public:
  // `tracing`: as configured. The references, those of `engine` among them, must outlive this
  // object.
  CoreHost(net::asio::io_context& io, const serve::FrontendCore& core, const EngineLink& engine,
           StatusService& status, ModelChanges& changes, const net::kserve::TraceSampling& tracing);

  // The other frontends, whose statistics count, too. Not if the frontend is alone.
  void share_with(Peers& peers);

  [[nodiscard]] std::shared_ptr<const net::kserve::Model> model(std::string_view name) override;
  [[nodiscard]] bool is_unloaded(std::string_view name) const override;
  void models(OnModels done) override;
  void statistics(std::string_view name, OnStatistics done) override;
  void statistics(OnStatistics done) override;
  // The same of this frontend alone; an empty name: of all models.
  void own_statistics(std::string_view name, OnStatistics done);
  void in_background(std::function<void()> work, Done done) override;
  [[nodiscard]] bool ready() const override;
  [[nodiscard]] ClientId infer(std::vector<InferRequest> rows, OnReplies done) override;
  void cancel(ClientId id) override;
  void change_models(ModelsChange change, OnChanged done) override;
  [[nodiscard]] net::kserve::LogLevel log_level() const override;
  void set_log_level(net::kserve::LogLevel level) override;
  [[nodiscard]] net::kserve::TraceSampling trace_sampling() const override;
  void set_trace_sampling(const net::kserve::TraceSampling& sampling) override;

  // Time of a whole device for a request to the model or application; zero: not in the plan.
  [[nodiscard]] Duration device_time(std::string_view model);

  void poll_loads(Time now) { loads_.poll(core_, now); }
  void fail_loads(const Status& why) { loads_.fail_all(why); }

 private:
  net::asio::io_context& io_;
  const serve::FrontendCore& core_;
  BackgroundThread& background_;
  EventSink& events_;
  ModelChanges& changes_;
  net::kserve::TraceSampling tracing_;
  StatusDocument<std::vector<net::kserve::Model>> models_;
  StatusDocument<std::vector<net::kserve::ModelStatistics>> statistics_;
  std::optional<ClusterStatistics> of_cluster_;  // empty: the frontend is alone
  InferCalls calls_;
  RequestCosts costs_;
  PendingLoads loads_;
  // The last result of model() for each served model, shared by calls until the model changes.
  std::map<std::string, std::shared_ptr<const net::kserve::Model>, std::less<>> cached_models_;
};

}  // namespace gpulet::frontend
