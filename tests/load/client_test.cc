#include "gpulet/load/client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gpulet/load/call.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/connection.h"
#include "gpulet/net/listener.h"
#include "gpulet/protocol/codec.h"
#include "tests/support/names.h"

namespace gpulet::load {
namespace {

using config::Arrivals;
using std::chrono::milliseconds;
using support::names;

// The output of the fake model: one FP32[4] whose arg max is the request's first byte.
InferReply answer_to(const InferRequest& request) {
  std::vector<float> logits(4, 0.0F);
  logits.at(static_cast<std::size_t>(request.payload.view()[0])) = 1.0F;
  std::vector<std::byte> bytes(logits.size() * sizeof(float));
  std::memcpy(bytes.data(), logits.data(), bytes.size());
  InferReply reply;
  reply.tag = request.tag;
  reply.outputs = {{"logits", DataType::fp32, {4}}};
  reply.payload = {Bytes::own(std::move(bytes))};
  reply.batch_size = 1;
  reply.executed = milliseconds(1);
  return reply;
}

// A frontend without an engine, in a thread of its own; `on_infer` handles a request.
class FakeFrontend {
 public:
  class Peer : public net::ConnectionHandler {
   public:
    Peer(FakeFrontend& server, net::Stream socket, net::ConnectionSlotPointer slot)
        : server_(server),
          slot_(std::move(slot)),
          connection_(net::Connection::start(std::move(socket), net::ConnectionOptions{}, *this)) {}

    Result<MutableBytes> payload_memory(const protocol::FrameHeader& header,
                                        std::span<const std::byte> /*message*/) override {
      auto memory = std::make_shared<std::vector<std::byte>>(header.payload_bytes);
      const std::span<std::byte> view(*memory);
      return MutableBytes(std::move(memory), view);
    }
    void on_frame(const protocol::FrameHeader& header, std::span<const std::byte> message,
                  MutableBytes payload) override {
      auto asked = protocol::decode<ClientMessage>(header, message, payload.freeze());
      if (!asked.ok()) return connection_->close(asked.status());
      if (const auto* const list = std::get_if<ModelsRequest>(&asked.value())) {
        connection_->send(protocol::encode(FrontendReply(server_.page_after(list->after))));
      } else if (auto* const request = std::get_if<InferRequest>(&asked.value())) {
        server_.on_infer_(*this, std::move(*request));
      }
    }
    void on_closed(const Status& /*reason*/) override { connection_.reset(); }

    void reply(InferReply reply) {
      if (connection_) connection_->send(protocol::encode(FrontendReply(std::move(reply))));
    }
    void close() {
      if (connection_) connection_->close(Status(StatusCode::cancelled, "the test wants it"));
    }

   private:
    FakeFrontend& server_;
    net::ConnectionSlotPointer slot_;
    std::shared_ptr<net::Connection> connection_;
  };

  using OnInfer = std::function<void(Peer&, InferRequest)>;

  explicit FakeFrontend(OnInfer on_infer) : on_infer_(std::move(on_infer)) {
    auto listener = net::Listener::listen(
        context_.get_executor(), "127.0.0.1", 0, net::ListenerOptions{},
        [this](net::Stream socket, net::ConnectionSlotPointer slot) {
          peers_.push_back(std::make_unique<Peer>(*this, std::move(socket), std::move(slot)));
        });
    listener_ = std::move(listener).value();
    thread_ = std::thread([this] { context_.run(); });
  }
  ~FakeFrontend() { stop(); }

  // Afterwards the test may read what on_infer wrote.
  void stop() {
    context_.stop();
    if (thread_.joinable()) thread_.join();
  }

  [[nodiscard]] config::Endpoint endpoint() const { return {"127.0.0.1", listener_->port()}; }

  [[nodiscard]] static ModelInfo model() {
    ModelInfo info;
    info.name = "digits";
    info.inputs = {{"image", DataType::uint8, {1}}};
    info.outputs = {{"logits", DataType::fp32, {4}}};
    info.slo_ms = 50;
    info.max_batch = 8;
    return info;
  }
  // Number of models in the list, one per page: digits, digits+, ..
  // The list starts again instead of ending.
  void list(std::size_t times, bool without_end = false) {
    listed_ = times;
    without_end_ = without_end;
  }
  [[nodiscard]] ModelsReply page_after(const std::string& name) const {
    ModelsReply page{{model()}};
    if (!name.empty() && name.size() < model().name.size() + listed_ - 1)
      page.models[0].name = name + "+";
    page.more = without_end_ || page.models[0].name.size() < model().name.size() + listed_ - 1;
    return page;
  }

 private:
  std::atomic<std::size_t> listed_ = 1;
  std::atomic<bool> without_end_ = false;
  OnInfer on_infer_;
  net::asio::io_context context_{1};
  std::vector<std::unique_ptr<Peer>> peers_;
  std::unique_ptr<net::Listener> listener_;
  std::thread thread_;
};

// The inputs are their own labels: by default the fake model classifies all of them correctly.
PreparedModel labelled_model(Arrivals arrivals, double rate) {
  PreparedModel model;
  model.load = {.name = "digits",
                .arrivals = arrivals,
                .rate = rate,
                .concurrency = 3,
                .slo = milliseconds(50),
                .inputs = 4,
                .labelled = true};
  model.pool.inputs = {FakeFrontend::model().inputs};
  for (int label = 0; label < 4; ++label) {
    model.pool.requests.push_back(Bytes::own({static_cast<std::byte>(label)}));
    model.pool.labels.push_back(label);
  }
  return model;
}

LoadOptions options_for(const FakeFrontend& server, Duration duration) {
  LoadOptions options;
  options.target = server.endpoint();
  options.generator.duration = duration;
  options.connections = 2;
  return options;
}

TEST(Call, FetchesTheModelsOfAFrontend) {
  FakeFrontend server([](FakeFrontend::Peer&, const InferRequest&) {});
  const auto models = fetch_models(server.endpoint());
  ASSERT_TRUE(models.ok()) << models.status().to_string();
  ASSERT_EQ(models.value().size(), 1U);
  EXPECT_EQ(models.value()[0].name, "digits");
}

TEST(Call, FetchesEveryPageOfTheModels) {
  FakeFrontend server([](FakeFrontend::Peer&, const InferRequest&) {});
  server.list(3);
  const auto models = fetch_models(server.endpoint());
  ASSERT_TRUE(models.ok()) << models.status().to_string();
  std::vector<std::string> names;
  for (const ModelInfo& model : models.value()) names.push_back(model.name);
  EXPECT_EQ(names, (std::vector<std::string>{"digits", "digits+", "digits++"}));
}

TEST(Call, RejectsAnEndlessModelList) {
  FakeFrontend server([](FakeFrontend::Peer&, const InferRequest&) {});
  server.list(3, true);
  EXPECT_EQ(fetch_models(server.endpoint()).status().code(), StatusCode::malformed);
}

TEST(Call, ReportsAMissingListener) {
  config::Endpoint nobody;
  {
    FakeFrontend server([](FakeFrontend::Peer&, const InferRequest&) {});
    nobody = server.endpoint();
  }
  const Status status = fetch_models(nobody).status();
  EXPECT_EQ(status.code(), StatusCode::unavailable);
  EXPECT_TRUE(names(status, config::to_string(nobody)));
}

TEST(Call, TimesOut) {
  FakeFrontend server([](FakeFrontend::Peer&, const InferRequest&) {});
  EXPECT_EQ(fetch_status(server.endpoint(), milliseconds(50)).status().code(), StatusCode::timeout);
}

TEST(LoadClient, MeasuresAndJudgesReplies) {
  FakeFrontend server([](FakeFrontend::Peer& peer, const InferRequest& request) {
    peer.reply(answer_to(request));
  });
  std::vector<RequestRecord> records;
  LoadOptions options = options_for(server, milliseconds(500));
  options.on_settled = [&](const RequestRecord& record) { records.push_back(record); };
  const auto report = run_load({labelled_model(Arrivals::uniform, 400)}, options);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  const ModelRow& row = report.value().models.at(0);
  EXPECT_EQ(row.offered, 200U);
  EXPECT_EQ(row.served, 200U);
  EXPECT_EQ(row.accuracy, 1.0);
  EXPECT_EQ(report.value().unexpected_replies, 0U);
  ASSERT_EQ(records.size(), 200U);
  EXPECT_EQ(records[0].batch_size, 1U);
  EXPECT_EQ(records[0].executed, milliseconds(1));
}

TEST(LoadClient, CountsWrongRepliesInTheAccuracy) {
  FakeFrontend server([](FakeFrontend::Peer& peer, InferRequest request) {
    if (request.payload.view()[0] == std::byte{3}) request.payload = Bytes::own({std::byte{0}});
    peer.reply(answer_to(request));
  });
  const auto report =
      run_load({labelled_model(Arrivals::uniform, 400)}, options_for(server, milliseconds(200)));
  EXPECT_EQ(report.value().models.at(0).offered, 80U);
  EXPECT_DOUBLE_EQ(report.value().models.at(0).accuracy.value(), 0.75);
}

TEST(LoadClient, ASlowFrontendDoesNotDelayTheSchedule) {
  // The frontend replies to all requests once it has the last one of the schedule.
  std::vector<std::pair<FakeFrontend::Peer*, InferRequest>> held;
  FakeFrontend server([&](FakeFrontend::Peer& peer, InferRequest request) {
    held.emplace_back(&peer, std::move(request));
    if (held.size() < 100) return;
    for (auto& [asker, question] : held) asker->reply(answer_to(question));
  });
  std::vector<RequestRecord> records;
  LoadOptions options = options_for(server, milliseconds(500));
  options.on_settled = [&](const RequestRecord& record) { records.push_back(record); };
  const auto report = run_load({labelled_model(Arrivals::uniform, 200)}, options);
  const ModelRow& row = report.value().models.at(0);
  EXPECT_EQ(row.offered, 100U);
  EXPECT_EQ(row.served, 100U);
  Time last{};
  for (const RequestRecord& record : records) {
    EXPECT_GE(*record.sent, record.intended);
    EXPECT_EQ(record.latency(), record.settled - record.intended);
    last = std::max(last, record.intended);
  }
  // The first request waited for all others; all but those of the last 50 ms are late.
  EXPECT_GE(*row.p99_ms, to_ms(last - Time(milliseconds(10))));
  EXPECT_GE(row.late, 85U);
  EXPECT_TRUE(report.value().sender_lag.max_ms.has_value());
}

// Holds requests until there are three.
struct AnswersThreeAtOnce {
  void operator()(FakeFrontend::Peer& peer, InferRequest request) {
    held.emplace_back(&peer, std::move(request));
    most_held = std::max(most_held, held.size());
    if (held.size() < 3) return;
    for (auto& [asker, question] : std::exchange(held, {})) asker->reply(answer_to(question));
  }

  std::vector<std::pair<FakeFrontend::Peer*, InferRequest>> held;
  std::size_t most_held = 0;
};

TEST(LoadClient, AClosedLoopNeverExceedsItsConcurrency) {
  AnswersThreeAtOnce answers;
  FakeFrontend server(std::ref(answers));
  LoadOptions options = options_for(server, milliseconds(200));
  options.last_answer_grace = milliseconds(50);  // the fake has not replied to all
  const auto report = run_load({labelled_model(Arrivals::closed, 0)}, options);
  server.stop();
  EXPECT_EQ(answers.most_held, 3U);
  EXPECT_GT(report.value().models.at(0).served, 3U);
}

TEST(LoadClient, SendsShapesAloneOnRequest) {
  std::atomic<std::size_t> wrong = 0;
  FakeFrontend server([&](FakeFrontend::Peer& peer, const InferRequest& request) {
    if (!request.synthetic || request.payload.size() > 0 ||
        request.inputs != FakeFrontend::model().inputs)
      ++wrong;
    InferReply reply;
    reply.tag = request.tag;
    reply.outputs = {{"logits", DataType::fp32, {4}}};
    reply.payload = {Bytes::own(std::vector<std::byte>(16))};
    peer.reply(std::move(reply));
  });
  LoadOptions options = options_for(server, milliseconds(200));
  options.synthetic_inputs = true;
  PreparedModel model = labelled_model(Arrivals::uniform, 100);
  model.load.labelled = false;
  model.pool.labels.clear();
  const auto report = run_load({model}, options);
  server.stop();
  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(report.value().models.at(0).served, 20U);
}

TEST(LoadClient, CountsRefusalsAsDroppedAndReopensLostConnections) {
  int requests = 0;
  FakeFrontend server([&](FakeFrontend::Peer& peer, const InferRequest& request) {
    ++requests;
    if (requests == 20) return peer.close();
    InferReply reply = answer_to(request);
    if (requests % 4 == 0) {
      reply = {};
      reply.tag = request.tag;
      reply.status = Status(StatusCode::too_late, "its deadline cannot be met");
    }
    peer.reply(std::move(reply));
  });
  LoadOptions options = options_for(server, milliseconds(1500));
  options.connections = 1;
  const auto report = run_load({labelled_model(Arrivals::uniform, 100)}, options);
  const ModelRow& row = report.value().models.at(0);
  EXPECT_EQ(report.value().connections_lost, 1U);
  EXPECT_EQ(row.offered, 150U);
  EXPECT_EQ(row.offered, row.served + row.dropped + row.errors);
  EXPECT_GE(row.errors, 1U);
  EXPECT_GT(row.served, 40U);
  EXPECT_GT(row.dropped, 10U);
  EXPECT_GE(row.reasons.at(StatusCode::unavailable).count, 1U);
}

TEST(LoadClient, DetectsASecondReply) {
  FakeFrontend server([](FakeFrontend::Peer& peer, const InferRequest& request) {
    peer.reply(answer_to(request));
    peer.reply(answer_to(request));
  });
  const auto report =
      run_load({labelled_model(Arrivals::uniform, 100)}, options_for(server, milliseconds(200)));
  EXPECT_EQ(report.value().models.at(0).served, 20U);
  EXPECT_GE(report.value().unexpected_replies, 19U);
}

// A frontend that forwards names the one that serves the model.
TEST(LoadClient, SendsToTheFrontendThatServesTheModel) {
  std::atomic<int> served_there = 0;
  FakeFrontend owner([&](FakeFrontend::Peer& peer, const InferRequest& request) {
    ++served_there;
    InferReply reply = answer_to(request);
    reply.leaving = served_there == 50;  // it is about to stop
    peer.reply(std::move(reply));
  });
  std::atomic<int> forwarded = 0;
  FakeFrontend entry([&](FakeFrontend::Peer& peer, const InferRequest& request) {
    ++forwarded;
    InferReply reply = answer_to(request);
    if (served_there < 50) reply.served_by = config::to_string(owner.endpoint());
    peer.reply(std::move(reply));
  });
  for (const bool follow : {false, true}) {
    LoadOptions options = options_for(entry, milliseconds(1000));
    options.follow_owners = follow;
    const auto report = run_load({labelled_model(Arrivals::uniform, 200)}, options);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_EQ(report.value().models.at(0).served, 200U);
    EXPECT_EQ(report.value().models.at(0).accuracy, 1.0);
    EXPECT_EQ(report.value().unexpected_replies, 0U);
  }
  entry.stop();
  owner.stop();
  EXPECT_GE(served_there, 50) << "while it did not stop";
  EXPECT_GE(forwarded, 200);
  EXPECT_EQ(forwarded + served_there, 400);
}

// What a reply names may not exist.
TEST(LoadClient, AnOwnerThatCannotBeReachedChangesNothing) {
  config::Endpoint nobody;
  {
    FakeFrontend server([](FakeFrontend::Peer&, const InferRequest&) {});
    nobody = server.endpoint();
  }
  int requests = 0;
  FakeFrontend entry([&](FakeFrontend::Peer& peer, const InferRequest& request) {
    InferReply reply = answer_to(request);
    reply.served_by = ++requests % 2 == 0 ? config::to_string(nobody) : "not an address";
    peer.reply(std::move(reply));
  });
  const auto report =
      run_load({labelled_model(Arrivals::uniform, 400)}, options_for(entry, milliseconds(300)));
  EXPECT_EQ(report.value().models.at(0).served, 120U);
}

// An owner that takes requests and answers none. Without a limit for each request it would end up
// with the whole concurrency.
TEST(LoadClient, ASilentOwnerIsAvoidedAndItsRequestsAreErrors) {
  FakeFrontend silent([](FakeFrontend::Peer&, const InferRequest&) {});
  FakeFrontend entry([&](FakeFrontend::Peer& peer, const InferRequest& request) {
    InferReply reply = answer_to(request);
    reply.served_by = config::to_string(silent.endpoint());
    peer.reply(std::move(reply));
  });
  LoadOptions options = options_for(entry, milliseconds(1500));
  options.last_answer_grace = milliseconds(50);
  options.on_progress = [&](const Progress&, Duration) { return true; };
  std::vector<RequestRecord> records;
  options.on_settled = [&](const RequestRecord& record) { records.push_back(record); };
  const auto report = run_load({labelled_model(Arrivals::closed, 0)}, options);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  const ModelRow& row = report.value().models.at(0);
  EXPECT_GE(row.reasons.at(StatusCode::timeout).count, 1U);
  EXPECT_LE(row.reasons.at(StatusCode::timeout).count, 3U) << "the concurrency";
  ASSERT_FALSE(records.empty());
  EXPECT_TRUE(records.back().status.ok()) << "it went on without the owner";
}

TEST(LoadClient, SeveralThreadsSendTheLoadOfOne) {
  std::unordered_map<FakeFrontend::Peer*, int> requests_of;
  FakeFrontend server([&](FakeFrontend::Peer& peer, const InferRequest& request) {
    ++requests_of[&peer];
    peer.reply(answer_to(request));
  });
  std::vector<RequestRecord> records;
  LoadOptions options = options_for(server, milliseconds(500));
  options.connections = 5;
  options.threads = 3;
  options.on_settled = [&](const RequestRecord& record) { records.push_back(record); };
  const auto report = run_load({labelled_model(Arrivals::uniform, 400)}, options);
  server.stop();
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  const ModelRow& row = report.value().models.at(0);
  EXPECT_EQ(row.offered, 200U);
  EXPECT_EQ(row.served, 200U);
  EXPECT_EQ(row.accuracy, 1.0);
  EXPECT_EQ(report.value().threads, 3U);
  EXPECT_EQ(report.value().unexpected_replies, 0U);
  EXPECT_EQ(records.size(), 200U);
  EXPECT_EQ(requests_of.size(), 5U) << "connections that were used";
}

TEST(LoadClient, SeveralThreadsShareAClosedLoop) {
  AnswersThreeAtOnce answers;
  FakeFrontend server(std::ref(answers));
  LoadOptions options = options_for(server, milliseconds(200));
  options.threads = 8;                           // there are two connections
  options.last_answer_grace = milliseconds(50);  // the fake has not replied to all
  const auto report = run_load({labelled_model(Arrivals::closed, 0)}, options);
  server.stop();
  EXPECT_EQ(answers.most_held, 3U);
  EXPECT_EQ(report.value().threads, 2U);
  EXPECT_GT(report.value().models.at(0).served, 3U);
}

TEST(LoadClient, EndsInAllThreadsWhenProgressSaysSo) {
  FakeFrontend server([](FakeFrontend::Peer& peer, const InferRequest& request) {
    peer.reply(answer_to(request));
  });
  LoadOptions options = options_for(server, std::chrono::minutes(10));
  options.threads = 2;
  Progress seen;
  options.on_progress = [&](const Progress& progress, Duration elapsed) {
    EXPECT_GE(elapsed, kProgressPeriod);
    seen = progress;
    return false;
  };
  const auto report = run_load({labelled_model(Arrivals::uniform, 400)}, options);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  const ModelRow& row = report.value().models.at(0);
  EXPECT_GT(seen.served, 0U);
  EXPECT_LE(seen.offered, row.offered);
  EXPECT_EQ(row.offered, row.served);
}

TEST(LoadClient, FailsWithoutConnections) {
  config::Endpoint nobody;
  {
    FakeFrontend server([](FakeFrontend::Peer&, const InferRequest&) {});
    nobody = server.endpoint();
  }
  LoadOptions options;
  options.target = nobody;
  options.threads = 2;
  options.generator.duration = milliseconds(100);
  const Status status = run_load({labelled_model(Arrivals::uniform, 100)}, options).status();
  EXPECT_EQ(status.code(), StatusCode::unavailable);
}

}  // namespace
}  // namespace gpulet::load
