#include "frontend/endpoints/core_host.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <utility>

#include "frontend/loop/wall_clock.h"
#include "gpulet/core/bucket.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/serve/values/served_model.h"

namespace gpulet::frontend {

namespace {

std::uint64_t milliseconds_since_epoch(const observe::WallClock& wall, Time time) {
  const Duration since = wall.since_epoch + (time - wall.engine);
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(since).count());
}

// Without its tensors.
net::kserve::Model listed_model(const serve::ModelStatus& model) {
  net::kserve::Model listed;
  listed.name = model.name;
  listed.version = std::to_string(model.number);
  listed.state = model.state;
  listed.reason = model.reason;
  return listed;
}

// Unloaded models have no version.
void add_unloaded(const std::vector<std::string>& names, std::vector<net::kserve::Model>& models) {
  std::set<std::string> listed;  // an unloaded model may still be draining
  for (const net::kserve::Model& model : models) listed.insert(model.name);
  for (const std::string& name : names) {
    if (listed.contains(name)) continue;
    net::kserve::Model& unloaded = models.emplace_back();
    unloaded.name = name;
    unloaded.version.clear();
    unloaded.state = ModelState::unavailable;
    unloaded.reason = "unloaded";
  }
}

std::vector<net::kserve::Model> list_of(const TimedStatus& timed) {
  std::vector<net::kserve::Model> models;
  models.reserve(timed.status.models.size());
  std::map<std::string, std::size_t, std::less<>> dynamic;  // by name: index into `models`
  for (const serve::ModelStatus& model : timed.status.models) {
    const std::string_view name = client_name(model.name);
    const auto known = name == model.name ? dynamic.end() : dynamic.find(name);
    if (known != dynamic.end()) {
      net::kserve::Model& listed = models[known->second];
      if (serve::bucket_rank(model.state) >= serve::bucket_rank(listed.state)) continue;
      listed.state = model.state;
      listed.reason = model.reason;
      continue;
    }
    if (name != model.name) dynamic.emplace(name, models.size());
    models.push_back(listed_model(model));
    models.back().name = name;
  }
  for (const std::string& name : timed.status.leaving) {
    net::kserve::Model& leaving = models.emplace_back();
    leaving.name = name;
    leaving.state = ModelState::leaving;
  }
  if (timed.status.unloaded != nullptr && !timed.status.unloaded->empty())
    add_unloaded(*timed.status.unloaded, models);
  return models;
}

// Whether `model`, which has the name of `view`, is still up to date.
bool matches(const net::kserve::Model& model, const serve::ModelView& view) {
  return model.state == view.state && model.max_batch == view.model.max_batch &&
         model.version == std::to_string(view.number) && model.reason == view.reason &&
         model.inputs == view.model.inputs && model.outputs == view.model.outputs &&
         model.description == view.model.description && model.application == view.application &&
         model.queue == view.model.queue &&
         model.longest == (view.model.bucket == nullptr ? 0 : view.model.bucket->length);
}

// For both directions the first match counts: critical is reported as error.
constexpr std::array<std::pair<net::kserve::LogLevel, spdlog::level::level_enum>, 7> kLogLevels{
    {{net::kserve::LogLevel::trace, spdlog::level::trace},
     {net::kserve::LogLevel::debug, spdlog::level::debug},
     {net::kserve::LogLevel::info, spdlog::level::info},
     {net::kserve::LogLevel::warning, spdlog::level::warn},
     {net::kserve::LogLevel::error, spdlog::level::err},
     {net::kserve::LogLevel::error, spdlog::level::critical},
     {net::kserve::LogLevel::off, spdlog::level::off}}};

DurationCount count_of(const observe::DurationSum& sum) { return {sum.count(), sum.nanoseconds()}; }

net::kserve::ModelStatistics to_protocol(const serve::ModelStatus& model,
                                         const observe::WallClock& wall) {
  const serve::ModelStatistics& from = model.statistics;
  net::kserve::ModelStatistics to;
  to.name = model.name;
  to.version = std::to_string(model.number);
  if (from.last_success != Time())
    to.last_inference_ms = milliseconds_since_epoch(wall, from.last_success);
  to.inference_count = from.successes();
  to.execution_count = from.executions;
  to.success = count_of(from.latency.sum());
  to.fail = count_of(from.failed_after);
  to.queue = count_of(from.queued.sum());
  to.compute_input = count_of(from.input);
  to.compute_infer = count_of(from.executed.sum());
  to.compute_output = count_of(from.output);
  for (std::size_t i = 0; i < from.batches.size(); ++i) {
    const auto& batch = from.batches[i];
    if (batch.executed.count() == 0) continue;
    to.batches.push_back({.batch_size = static_cast<std::uint32_t>(i + 1),
                          .compute_input = count_of(batch.input),
                          .compute_infer = count_of(batch.executed),
                          .compute_output = count_of(batch.output)});
  }
  return to;
}

std::vector<net::kserve::ModelStatistics> statistics_of(const TimedStatus& timed) {
  std::vector<net::kserve::ModelStatistics> all;
  all.reserve(timed.status.models.size());
  std::map<std::string, std::size_t, std::less<>> dynamic;  // by name: index into `all`
  for (const serve::ModelStatus& model : timed.status.models) {
    net::kserve::ModelStatistics one = to_protocol(model, timed.wall);
    one.name = client_name(model.name);
    if (one.name != model.name) {
      const auto [known, is_new] = dynamic.emplace(one.name, all.size());
      if (!is_new) {
        add_statistics(all[known->second], one);
        continue;
      }
    }
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace

CoreHost::CoreHost(net::asio::io_context& io, const serve::FrontendCore& core,
                   const EngineLink& engine, StatusService& status, ModelChanges& changes,
                   const net::kserve::TraceSampling& tracing)
    : io_(io),
      core_(core),
      background_(status.background()),
      events_(engine.events),
      changes_(changes),
      tracing_(tracing),
      models_(io, status.snapshots(), background_, list_of),
      statistics_(io, status.snapshots(), background_, statistics_of),
      calls_(io, engine) {}

void CoreHost::share_with(Peers& peers) {
  of_cluster_.emplace([&peers](const std::string& model, Peers::OnStatistics done) {
    peers.ask_statistics(model, done);
  });
}

std::shared_ptr<const net::kserve::Model> CoreHost::model(std::string_view name) {
  const std::optional<serve::ModelView> view = core_.model(name);
  const auto cached = cached_models_.find(name);
  if (!view || !is_for_clients(view->model)) {
    if (cached != cached_models_.end()) cached_models_.erase(cached);
    return nullptr;
  }
  if (cached != cached_models_.end() && matches(*cached->second, *view)) return cached->second;
  auto model = std::make_shared<const net::kserve::Model>(protocol_model(*view));
  cached_models_.insert_or_assign(std::string(name), model);
  return model;
}

bool CoreHost::is_unloaded(std::string_view name) const { return core_.is_unloaded(name); }

void CoreHost::models(OnModels done) {
  models_.get([done = std::move(done)](const auto& made) { done(made.document); });
}

void CoreHost::statistics(std::string_view name, OnStatistics done) {
  if (!of_cluster_) return own_statistics(name, std::move(done));
  own_statistics(name, [this, name = std::string(name), done = std::move(done)](
                           const Statistics& own) { of_cluster_->add(name, own, done); });
}

void CoreHost::statistics(OnStatistics done) { statistics({}, std::move(done)); }

void CoreHost::own_statistics(std::string_view name, OnStatistics done) {
  if (name.empty())
    return statistics_.get([done = std::move(done)](const auto& made) { done(made.document); });
  const observe::WallClock wall = wall_clock();
  std::vector<net::kserve::ModelStatistics> one;
  if (const auto model = core_.model_status(name, wall.engine))
    one.push_back(to_protocol(*model, wall));
  for (const std::string& bucket : core_.buckets_of(name)) {
    const auto status = core_.model_status(bucket, wall.engine);
    if (!status) continue;
    net::kserve::ModelStatistics part = to_protocol(*status, wall);
    if (one.empty()) {
      one.push_back(std::move(part));
      one.back().name = name;
    } else {
      add_statistics(one.back(), part);
    }
  }
  done(std::make_shared<const std::vector<net::kserve::ModelStatistics>>(std::move(one)));
}

void CoreHost::in_background(std::function<void()> work, Done done) {
  background_.run(
      [work = std::move(work)] {
        work();
        return true;
      },
      [done = std::move(done)](bool) { done(); });
}

bool CoreHost::ready() const { return core_.serving(); }

ClientId CoreHost::infer(std::vector<InferRequest> rows, OnReplies done) {
  return calls_.infer(std::move(rows), std::move(done));
}

void CoreHost::cancel(ClientId id) { calls_.cancel(id); }

void CoreHost::change_models(ModelsChange change, OnChanged done) {
  // Posted, because the outcome may become known within another call of the host.
  const auto answer = [this, done = std::move(done)](ModelsChanged changed) {
    net::asio::post(io_, [done, changed = std::move(changed)] { done(changed); });
  };
  if (change.kind == ModelsChange::Kind::unload) return changes_.change(std::move(change), answer);
  changes_.change(std::move(change), [this, answer](ModelsChanged changed) {
    if (!changed.status.ok()) return answer(std::move(changed));
    loads_.add(changed.models, net::now(), answer);
  });
}

net::kserve::LogLevel CoreHost::log_level() const {
  return std::find_if(kLogLevels.begin(), kLogLevels.end(),
                      [](const auto& entry) { return entry.second == spdlog::get_level(); })
      ->first;
}

// Changes the daemon's log only. The audit log cannot be silenced.
void CoreHost::set_log_level(net::kserve::LogLevel level) {
  const auto* const entry = std::find_if(kLogLevels.begin(), kLogLevels.end(),
                                         [level](const auto& one) { return one.first == level; });
  spdlog::default_logger_raw()->set_level(entry->second);
}

net::kserve::TraceSampling CoreHost::trace_sampling() const { return tracing_; }

void CoreHost::set_trace_sampling(const net::kserve::TraceSampling& sampling) {
  tracing_ = sampling;
  events_.deliver(serve::TraceEvery{sampling.on ? sampling.every : 0});
}

Duration CoreHost::device_time(std::string_view model) {
  costs_.follow(core_.epoch(), core_.plan());
  const std::shared_ptr<const serve::Application> application = core_.application(model);
  if (!application) return costs_.of(model);
  Duration all{};
  for (const config::ApplicationNode& node : application->graph.nodes) {
    if (const auto* const call = std::get_if<config::ModelCall>(&node.work))
      all += costs_.of(call->model);
  }
  return all;
}

// ---- PendingLoads

void PendingLoads::add(const std::vector<ModelInfo>& loaded, Time now, OnDecided done) {
  if (loads_.size() >= kMaxPending) {
    done({Status(StatusCode::overloaded,
                 fmt::format("the models are registered, but {} calls already wait for models to "
                             "load; ask for the list of models later",
                             kMaxPending)),
          loaded});
    return;
  }
  Load load{{}, now + kTimeout, std::move(done)};
  for (const ModelInfo& model : loaded)
    load.models.push_back({model.name, serve::wanted_version(model)});
  loads_.push_back(std::move(load));
}

std::optional<Status> PendingLoads::outcome(const Load& load,
                                            const std::vector<ModelInfo>& models) {
  bool all_serve = true;
  for (const Target& target : load.models) {
    const auto model = std::find_if(models.begin(), models.end(), [&target](const ModelInfo& one) {
      return one.name == target.name;
    });
    if (model == models.end())
      return Status(StatusCode::unavailable, "model " + target.name + " was unloaded meanwhile");
    const auto result = serve::outcome_of_load(*model, target.version);
    if (result && !result->serves)
      return Status(StatusCode::unavailable, "model " + target.name + ": " + result->text);
    all_serve = all_serve && result;
  }
  return all_serve ? std::optional(Status()) : std::nullopt;
}

void PendingLoads::poll(const serve::FrontendCore& core, Time now) {
  if (loads_.empty() || now < next_poll_) return;
  next_poll_ = now + kPollInterval;
  std::vector<Load> waiting;
  for (Load& load : std::exchange(loads_, {})) {
    std::vector<std::string> names;
    for (const Target& target : load.models) names.push_back(target.name);
    std::vector<ModelInfo> models = core.models(std::move(names));
    std::optional<Status> decided = outcome(load, models);
    if (!decided && now >= load.deadline) {
      decided = Status(StatusCode::timeout,
                       "the models are still loading; the list of models shows the reason");
    }
    if (decided) {
      load.done({std::move(*decided), std::move(models)});
    } else {
      waiting.push_back(std::move(load));
    }
  }
  loads_.insert(loads_.begin(), std::make_move_iterator(waiting.begin()),
                std::make_move_iterator(waiting.end()));
}

void PendingLoads::fail_all(const Status& why) {
  for (Load& load : std::exchange(loads_, {})) load.done({why, {}});
}

}  // namespace gpulet::frontend
