#include "frontend/connection_threads.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace gpulet::frontend {
namespace {

// Whether the model is published as `view` has it.
bool is_same(const PublishedModel& known, const serve::ModelView& view) {
  const serve::ServedModel& model = known.model;
  return known.number == view.number && known.application == view.application &&
         model.max_batch == view.model.max_batch && model.input_bytes == view.model.input_bytes &&
         model.inputs == view.model.inputs && model.outputs == view.model.outputs &&
         model.description == view.model.description && model.bucket == view.model.bucket &&
         model.queue == view.model.queue;
}

}  // namespace

std::size_t io_threads(const config::FrontendConfig& config) {
  // With fewer, engine and backend need them all, and what crosses between threads costs more than
  // it gains (bench/serve/path).
  constexpr unsigned kLeastCores = 4;
  constexpr unsigned kMostByDefault = 8;
  if (config.io_threads) return *config.io_threads;
  const unsigned cores = std::thread::hardware_concurrency();
  return cores < kLeastCores ? 0 : std::min(cores / 2, kMostByDefault);
}

ConnectionThreads::ConnectionThreads(net::asio::io_context& io, std::size_t threads,
                                     EventSink& engine)
    : io_(io), threads_(threads), inbox_(io, engine), patience_(io) {}

std::vector<ConnectionPlace> ConnectionThreads::places(const EngineLink& engine,
                                                       ClientRequests& requests) {
  if (size() == 0) return {{io_, engine, requests}};
  std::vector<ConnectionPlace> places;
  std::vector<ReplyOutbox*> outboxes;
  for (std::size_t i = 0; i < size(); ++i) {
    RemoteEngine& remote = *remotes_.emplace_back(
        std::make_unique<RemoteEngine>(EngineThread{io_, inbox_, models_, requests}, threads_.io(i),
                                       ThreadOfConnections{i + 1, size() + 1}));
    outboxes.push_back(&remote.outbox());
    places.push_back({remote.io(), remote.link(), remote.requests(), &remote});
  }
  engine.replies.connect(std::move(outboxes));
  return places;
}

void ConnectionThreads::publish(const serve::FrontendCore& core, const DeviceTime& device_time) {
  if (size() == 0) return;
  const std::uint64_t revision = core.models_revision();
  if (published_ == revision && epoch_ == core.epoch()) return;
  // A large catalogue takes many turns, and each list has all models.
  if (published_ && core.takes_in_catalogue()) return;
  const PublishedModelsPointer before = models_.current();
  std::vector<PublishedModels::Entry> entries;
  entries.reserve(before->entries().size());
  core.each_model([&](const serve::ModelView& view) {
    const PublishedModels::Entry* const known = before->find(view.model.name);
    PublishedModelPointer model = known != nullptr && is_same(*known->model, view)
                                      ? known->model
                                      : std::make_shared<const PublishedModel>(PublishedModel{
                                            view.model, view.number, view.application});
    entries.push_back({std::move(model), device_time(view.model.name)});
  });
  models_.publish(std::make_shared<const PublishedModels>(std::move(entries)));
  published_ = revision;
  epoch_ = core.epoch();
}

void ConnectionThreads::finish(Duration patience, Done done) {
  patience_.set_after(patience, [this] { halt(); });
  // The work keeps the engine's io_context running until the threads have ended.
  threads_.finish([this, done = std::move(done), work = net::asio::make_work_guard(io_)] {
    net::asio::post(io_, [this, done] {
      patience_.cancel();
      done();
    });
  });
}

void ConnectionThreads::halt() {
  inbox_.close();
  threads_.halt();
}

void ConnectionThreads::join() {
  inbox_.close();
  threads_.join();
}

}  // namespace gpulet::frontend
