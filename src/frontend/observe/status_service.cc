#include "frontend/observe/status_service.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "frontend/observe/status_json.h"
#include "gpulet/net/http/message.h"
#include "gpulet/protocol/codec.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/serve/values/frontend_status.h"

namespace gpulet::frontend {

StatusService::StatusService(net::asio::io_context& io, const serve::FrontendCore& core,
                             LoopWatch& watch, const Facts& facts, const ReplyRouter& replies,
                             bool summaries)
    : core_(core),
      facts_(facts),
      watch_(watch),
      background_(io),
      snapshots_(io, *this, background_, watch_),
      metrics_(io, snapshots_, background_,
               [machine = std::make_shared<MachineWatch>(), summaries](const TimedStatus& timed) {
                 return net::http::bytes_of(
                     metrics_text(timed.status, timed.context, {machine->sample(), summaries}));
               }),
      responder_(io, snapshots_, background_, replies),
      startup_(io, snapshots_) {}

void StatusService::start() {
  watch_.start();
  startup_.start();
}

void StatusService::stop() {
  watch_.stop();
  startup_.stop();
}

void StatusService::metrics(OnPage done) {
  metrics_.get([done = std::move(done)](const auto& made) { done(*made.document); });
}

bool StatusService::take(serve::StatusInSteps& taken, std::size_t parts) {
  return core_.take(taken, parts);
}

StatusContext StatusService::context(const observe::WallClock& wall) const {
  StatusContext context;
  context.now = wall.engine;
  context.unix_seconds = to_seconds(wall.since_epoch);
  context.pauses = watch_.pauses();
  facts_.add_to(context);
  return context;
}

// ---- StatusResponder

StatusResponder::StatusResponder(net::asio::io_context& io, StatusSnapshots& snapshots,
                                 BackgroundThread& background, const ReplyRouter& replies)
    : document_(io, snapshots, background,
                [](const TimedStatus& timed) {
                  return protocol::encode(
                      FrontendReply(StatusReply{status_json(timed.status, timed.context)}));
                }),
      replies_(replies) {}

void StatusResponder::request(ClientId id) {
  Client& client = clients_[id];
  if (++client.pending == 1) fetch(id, client.last_number);
}

void StatusResponder::fetch(ClientId client, std::uint64_t newer_than) {
  document_.get(
      [this, client](const auto& made) {
        const auto found = clients_.find(client);
        if (found == clients_.end()) return;  // disconnected
        found->second.last_number = made.number;
        const bool more = --found->second.pending > 0;
        replies_.send(client, *made.document);
        if (more) fetch(client, made.number);
      },
      newer_than);
}

// ---- StartupReporter

namespace {

using serve::ModelStatus;

constexpr Duration kPollInterval = std::chrono::milliseconds(500);
constexpr std::size_t kMaxNames = 5;

std::vector<const ModelStatus*> models_in(const serve::FrontendStatus& status, ModelState state) {
  std::vector<const ModelStatus*> found;
  for (const ModelStatus& model : status.models) {
    if (model.state == state) found.push_back(&model);
  }
  return found;
}

std::string names_of(const std::vector<const ModelStatus*>& models) {
  std::string names;
  for (std::size_t i = 0; i < models.size() && i < kMaxNames; ++i)
    names += (i == 0 ? "" : ", ") + models[i]->name;
  return models.size() > kMaxNames ? names + ", ..." : names;
}

}  // namespace

std::string startup_wait_reason(const serve::FrontendStatus& status) {
  const bool no_backend =
      std::all_of(status.backends.begin(), status.backends.end(),
                  [](const auto& backend) { return backend.second.node.empty(); });
  if (no_backend) return "a backend: none is connected";
  if (!status.leadership.leads) {
    return status.ready ? std::string() : "a frontend of the cluster to lead and to serve";
  }
  if (status.epoch.value == 0) return "the first plan to come into force";
  const auto loading = models_in(status, ModelState::loading);
  if (loading.empty()) return {};
  return std::to_string(loading.size()) + " of " + std::to_string(status.models.size()) +
         " models to load: " + names_of(loading);
}

std::string serving_summary(const serve::FrontendStatus& status) {
  const auto absent = models_in(status, ModelState::unavailable);
  const std::size_t all = status.models.size();
  std::string text = "serving " + std::to_string(all - absent.size()) + " of " +
                     std::to_string(all) + (all == 1 ? " model" : " models");
  if (absent.empty()) return text;
  return text + "; not serving " + names_of(absent) + " (" + absent.front()->name + ": " +
         absent.front()->reason + ")";
}

void StartupReporter::start() {
  timer_.set_after({}, [this] { poll(); });
}

void StartupReporter::stop() {
  stopped_ = true;
  timer_.cancel();
}

void StartupReporter::poll() {
  snapshots_.snapshot([this](const StatusSnapshot& seen) {
    if (!stopped_) report(*seen);
  });
}

void StartupReporter::report(const TimedStatus& seen) {
  const std::string text = startup_wait_reason(seen.status);
  if (text.empty()) {
    spdlog::info("ready: {}", serving_summary(seen.status));
    return;
  }
  if (text != last_reason_) reminder_.reset();
  last_reason_ = text;
  if (reminder_.due(net::now())) spdlog::info("waiting for {}", text);
  timer_.set_after(kPollInterval, [this] { poll(); });
}

}  // namespace gpulet::frontend
