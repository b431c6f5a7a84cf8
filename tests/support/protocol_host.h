// FakeHost: a server behind the standard protocol's endpoints that gives back what it is given, as
// soon as it may, and remembers what it was asked. One thread.
#pragma once

#include <algorithm>
#include <iterator>
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
  // that cannot be loaded. "unloaded": one that could be loaded.
  explicit FakeHost(net::asio::io_context& io) : io_(io) {
    const TensorSpec in{"x", DataType::fp32, {2}};
    const TensorSpec out{"y", DataType::fp32, {2}};
    for (const auto& [name, state] :
         {std::pair("echo", ModelState::ready), std::pair("gone", ModelState::unavailable),
          std::pair("idle", ModelState::idle)}) {
      net::kserve::Model model;
      model.name = name;
      model.version = "3";
      model.inputs = {in};
      model.outputs = {out};
      model.max_batch = 4;
      model.state = state;
      serve::ModelDescription description;
      description.file_name = std::string(name) + ".pt";
      description.labels = {{"pair.txt", {"left", "right"}}};
      model.description = std::make_shared<const serve::ModelDescription>(std::move(description));
      if (state == ModelState::unavailable) model.reason = "its file cannot be loaded";
      models_.push_back(std::move(model));
    }
    std::vector<net::kserve::Model> all = models_;
    net::kserve::Model& unloaded = all.emplace_back();
    unloaded.name = "unloaded";
    unloaded.version.clear();
    unloaded.state = ModelState::unavailable;
    unloaded.reason = "unloaded";
    list_ = std::make_shared<const std::vector<net::kserve::Model>>(std::move(all));
  }

  bool is_ready = true;
  bool holding = false;            // calls wait for release()
  std::optional<Status> refuse{};  // every call gets this
  std::vector<ModelsChange> changes{};
  std::size_t cancelled = 0;
  std::vector<Duration> timeouts{};  // of the calls
  net::kserve::LogLevel level = net::kserve::LogLevel::info;
  net::kserve::TraceSampling sampling{};
  std::size_t listed = 0;  // models() was called

  // For a test to change what there is to say of one. REQUIRES: it is there.
  net::kserve::Model& change(std::string_view name) {
    return *std::find_if(models_.begin(), models_.end(),
                         [name](const net::kserve::Model& one) { return one.name == name; });
  }

  void release() {
    holding = false;
    for (auto& [id, call] : std::exchange(held_, {})) answer(id, std::move(call));
  }
  // The last that came is answered; others wait on.
  void release_last() {
    auto last = held_.extract(std::prev(held_.end()));
    answer(last.key(), std::move(last.mapped()));
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
  bool is_unloaded(std::string_view name) const override { return name == "unloaded"; }
  void models(OnModels done) override {
    ++listed;
    net::asio::post(io_, [done = std::move(done), models = list_] { done(models); });
  }
  void statistics(OnStatistics done) override {
    const auto all = std::make_shared<const std::vector<net::kserve::ModelStatistics>>(
        statistics_of(std::string_view()));
    net::asio::post(io_, [done = std::move(done), all] { done(all); });
  }
  net::kserve::LogLevel log_level() const override { return level; }
  void set_log_level(net::kserve::LogLevel changed) override { level = changed; }
  net::kserve::TraceSampling trace_sampling() const override { return sampling; }
  void set_trace_sampling(const net::kserve::TraceSampling& changed) override {
    sampling = changed;
  }
  void in_background(std::function<void()> work, std::function<void()> done) override {
    ++in_background_;
    net::asio::post(io_, [work = std::move(work), done = std::move(done)] {
      work();
      done();
    });
  }
  void statistics(std::string_view name, OnStatistics done) override {
    done(std::make_shared<const std::vector<net::kserve::ModelStatistics>>(statistics_of(name)));
  }
  std::vector<net::kserve::ModelStatistics> statistics_of(std::string_view name) {
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

  ClientId infer(std::vector<InferRequest> rows, OnReplies done) override {
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
  void change_models(ModelsChange change, OnChanged done) override {
    ModelsChanged changed;
    if (change.name == "broken") changed.status = {StatusCode::invalid, "its file is broken"};
    changes.push_back(std::move(change));
    net::asio::post(io_, [done = std::move(done), changed] { done(changed); });
  }

 private:
  struct Call {
    std::vector<InferRequest> rows;
    OnReplies done;
  };

  void answer(ClientId /*id*/, Call call) {
    std::vector<InferReply> replies;
    for (const InferRequest& row : call.rows) {
      InferReply reply;
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
