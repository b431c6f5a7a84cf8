// FakeHost: a server behind the standard protocol's endpoints that gives back what it is given, as
// soon as it may, and remembers what it was asked. One thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/net/asio.h"
#include "gpulet/net/kserve/host.h"

namespace gpulet::testing {

class FakeHost final : public net::kserve::ProtocolHost {
 public:
  // "echo": one FP32[2] to its like, up to four rows. "idle": the same, and asleep. "gone": one
  // that cannot be loaded.
  explicit FakeHost(net::asio::io_context& io) : io_(io) {
    const TensorSpec in{"x", DataType::fp32, {2}};
    const TensorSpec out{"y", DataType::fp32, {2}};
    for (const auto& [name, state] : {std::pair("echo", serve::ModelState::ready),
                                      std::pair("gone", serve::ModelState::unavailable),
                                      std::pair("idle", serve::ModelState::idle)}) {
      net::kserve::Model model;
      model.name = name;
      model.version = "3";
      model.inputs = {in};
      model.outputs = {out};
      model.max_batch = 4;
      model.state = state;
      if (state == serve::ModelState::unavailable) model.reason = "its file cannot be loaded";
      models_.push_back(std::move(model));
    }
    list_ = std::make_shared<const std::vector<net::kserve::Model>>(models_);
  }

  bool is_ready = true;
  bool holding = false;            // calls wait for release()
  std::optional<Status> refuse{};  // every call gets this
  std::vector<serve::ModelsChange> changes{};
  std::size_t cancelled = 0;
  std::vector<Duration> timeouts{};  // of the calls
  std::size_t listed = 0;            // models() was called

  void release() {
    holding = false;
    for (auto& [id, call] : std::exchange(held_, {})) answer(id, std::move(call));
  }
  [[nodiscard]] std::size_t held() const { return held_.size(); }
  // How often something was done in the background.
  [[nodiscard]] std::size_t in_background() const { return in_background_; }

  std::shared_ptr<const net::kserve::Model> model(std::string_view name) override {
    for (const net::kserve::Model& one : models_) {
      if (one.name == name) return std::make_shared<const net::kserve::Model>(one);
    }
    return nullptr;
  }
  void models(OnModels done) override {
    ++listed;
    net::asio::post(io_, [done = std::move(done), models = list_] { done(models); });
  }
  void statistics(OnStatistics done) override {
    const auto all = std::make_shared<const std::vector<net::kserve::ModelStatistics>>(
        statistics(std::string_view()));
    net::asio::post(io_, [done = std::move(done), all] { done(all); });
  }
  void in_background(std::function<void()> work, std::function<void()> done) override {
    ++in_background_;
    net::asio::post(io_, [work = std::move(work), done = std::move(done)] {
      work();
      done();
    });
  }
  std::vector<net::kserve::ModelStatistics> statistics(std::string_view name) override {
    std::vector<net::kserve::ModelStatistics> all;
    for (const net::kserve::Model& one : models_) {
      if (!name.empty() && one.name != name) continue;
      net::kserve::ModelStatistics statistics;
      statistics.name = one.name;
      statistics.version = one.version;
      statistics.inference_count = 7;
      statistics.execution_count = 2;
      statistics.success = {7, 700};
      statistics.queue = {7, 70};
      statistics.batches = {{.batch_size = 4, .compute_infer = {2, 20}}};
      all.push_back(std::move(statistics));
    }
    return all;
  }
  bool ready() const override { return is_ready; }

  ClientId infer(std::vector<serve::InferRequest> rows, OnReplies done) override {
    const ClientId id{++last_};
    timeouts.push_back(rows.front().timeout);
    Call call{std::move(rows), std::move(done)};
    if (holding) {
      held_.emplace(id, std::move(call));
    } else {
      answer(id, std::move(call));
    }
    return id;
  }
  void cancel(ClientId call) override {
    if (held_.erase(call) > 0) ++cancelled;
  }
  void change_models(serve::ModelsChange change, OnChanged done) override {
    serve::ModelsChanged changed;
    if (change.name == "broken") changed.status = {StatusCode::invalid, "its file is broken"};
    changes.push_back(std::move(change));
    net::asio::post(io_, [done = std::move(done), changed] { done(changed); });
  }

 private:
  struct Call {
    std::vector<serve::InferRequest> rows;
    OnReplies done;
  };

  void answer(ClientId /*id*/, Call call) {
    std::vector<serve::InferReply> replies;
    for (const serve::InferRequest& row : call.rows) {
      serve::InferReply reply;
      reply.tag = row.tag;
      if (refuse) {
        reply.status = *refuse;
      } else {
        reply.outputs = {{"y", DataType::fp32, {2}}};
        reply.payload = {row.payload};
      }
      replies.push_back(std::move(reply));
    }
    net::asio::post(io_, [done = std::move(call.done), replies = std::move(replies)]() mutable {
      done(std::move(replies));
    });
  }

  net::asio::io_context& io_;
  std::vector<net::kserve::Model> models_;
  Models list_;
  std::size_t in_background_ = 0;
  std::map<ClientId, Call> held_;
  std::uint64_t last_ = 0;
};

}  // namespace gpulet::testing
