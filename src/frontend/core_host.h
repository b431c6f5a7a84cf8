// CoreHost: what the endpoints of the standard protocol ask, put to the core. Each of their calls
// is a client of its own to the core, so that one can be cancelled without the others. One thread:
// the one that runs the io_context, which must not run any more when this goes.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "awaited_loads.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/kserve/host.h"
#include "gpulet/observe/trace.h"
#include "gpulet/serve/frontend_core.h"
#include "gpulet/serve/request_costs.h"
#include "status_document.h"

namespace gpulet::frontend {

class CoreHost final : public net::kserve::ProtocolHost {
 public:
  struct Daemon {
    std::function<void(serve::FrontendEvent)> deliver;
    std::function<ClientId()> new_client;  // one that nobody has or had
    std::function<observe::WallClock()> wall_clock;
    std::function<void(serve::ModelsChange, OnChanged)> change_models;
    net::kserve::TraceSampling tracing{};  // as configured
  };

  CoreHost(net::asio::io_context& io, const serve::FrontendCore& core, StatusSnapshots& snapshots,
           Background& background, Daemon daemon);

  [[nodiscard]] std::shared_ptr<const net::kserve::Model> model(std::string_view name) override;
  [[nodiscard]] bool is_unloaded(std::string_view name) const override;
  void models(OnModels done) override;
  [[nodiscard]] std::vector<net::kserve::ModelStatistics> statistics(
      std::string_view name) override;
  void statistics(OnStatistics done) override;
  void in_background(std::function<void()> work, std::function<void()> done) override;
  [[nodiscard]] bool ready() const override;
  [[nodiscard]] ClientId infer(std::vector<serve::InferRequest> rows, OnReplies done) override;
  void cancel(ClientId id) override;
  void change_models(serve::ModelsChange change, OnChanged done) override;
  [[nodiscard]] net::kserve::LogLevel log_level() const override;
  void set_log_level(net::kserve::LogLevel level) override;
  [[nodiscard]] net::kserve::TraceSampling trace_sampling() const override;
  void set_trace_sampling(const net::kserve::TraceSampling& sampling) override;

  // Of a whole device, for one request of a model or an application, as the plan in force has it;
  // zero: not known.
  [[nodiscard]] Duration device_time(std::string_view model);

  // A reply of the core. Returns whether it was for one of these calls.
  bool answer(ClientId id, serve::InferReply& reply);
  // Answers the calls to load models that are decided by now.
  void settle_loads(Time now);
  // Answers all of them.
  void end_loads(const Status& why) { loads_.end(why); }

 private:
  struct Call {
    std::vector<serve::InferReply> replies;  // by row
    std::size_t missing = 0;
    OnReplies done;
  };
  void finish(ClientId id);

  net::asio::io_context& io_;
  const serve::FrontendCore& core_;
  Background& background_;
  Daemon daemon_;
  StatusDocument<std::vector<net::kserve::Model>> models_;
  StatusDocument<std::vector<net::kserve::ModelStatistics>> statistics_;
  std::map<ClientId, Call> calls_;
  serve::RequestCosts costs_;
  AwaitedLoads loads_;
  // What model() gave last, of each that is served: calls share it until it changes.
  std::map<std::string, std::shared_ptr<const net::kserve::Model>, std::less<>> asked_;
};

}  // namespace gpulet::frontend
