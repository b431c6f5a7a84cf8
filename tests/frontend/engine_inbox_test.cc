// What crosses between I/O threads and the engine's.
#include "frontend/loop/engine_inbox.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "frontend/frames/model_board.h"
#include "frontend/frames/reply_router.h"
#include "gpulet/net/event_loop.h"
#include "tests/net/loop.h"

namespace gpulet::frontend::engine_inbox_test {
namespace {

using namespace std::chrono_literals;
using net::testing::Loop;

serve::RequestReceived request_of(std::uint64_t client, std::uint64_t tag) {
  InferRequest request;
  request.tag = tag;
  return {ClientId{client}, std::move(request)};
}

// Remembers the tags of each client's requests.
class Engine final : public EventSink {
 public:
  void deliver(serve::FrontendEvent event) override {
    const auto& received = std::get<serve::RequestReceived>(event);
    tags[received.client.value].push_back(received.request.tag);
    ++count;
  }
  void deliver_from(std::string_view /*address*/, serve::FrontendEvent /*event*/) override {}

  std::map<std::uint64_t, std::vector<std::uint64_t>> tags;
  std::size_t count = 0;
};

TEST(EngineInbox, KeepsTheOrderOfEachThread) {
  constexpr std::uint64_t kThreads = 4;
  constexpr std::uint64_t kRequests = 5000;  // of each: together more than may wait
  Loop loop;
  Engine engine;
  EngineInbox inbox(loop.context(), engine);
  std::vector<std::jthread> threads;
  for (std::uint64_t thread = 1; thread <= kThreads; ++thread) {
    threads.emplace_back([&inbox, thread] {
      for (std::uint64_t tag = 0; tag < kRequests; ++tag) inbox.deliver(request_of(thread, tag));
    });
  }
  ASSERT_TRUE(loop.run_until([&] { return engine.count == kThreads * kRequests; }));
  for (const auto& [client, tags] : engine.tags) {
    ASSERT_EQ(tags.size(), kRequests);
    for (std::uint64_t tag = 0; tag < kRequests; ++tag) ASSERT_EQ(tags[tag], tag) << client;
  }
}

TEST(EngineInbox, CallsAndEventsKeepTheirOrder) {
  Loop loop;
  Engine engine;
  EngineInbox inbox(loop.context(), engine);
  std::vector<std::size_t> before;
  for (std::uint64_t tag = 0; tag < 100; ++tag) {
    inbox.deliver(request_of(1, tag));
    inbox.call([&] { before.push_back(engine.count); });
  }
  ASSERT_TRUE(loop.run_until([&] { return before.size() == 100; }));
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i], i + 1);
}

TEST(EngineInbox, LetsOtherHandlersRunBetweenItsTurns) {
  Loop loop;
  Engine engine;
  EngineInbox inbox(loop.context(), engine);
  for (std::uint64_t tag = 0; tag < 3 * EngineInbox::kMostInATurn; ++tag)
    inbox.deliver(request_of(1, tag));
  std::optional<std::size_t> seen;
  net::asio::post(loop.context(), [&] { seen = engine.count; });
  ASSERT_TRUE(loop.run_until([&] { return seen.has_value(); }));
  EXPECT_EQ(*seen, EngineInbox::kMostInATurn);
  ASSERT_TRUE(loop.run_until([&] { return engine.count == 3 * EngineInbox::kMostInATurn; }));
}

TEST(EngineInbox, AThreadThatIsAheadWaitsAndGoesOn) {
  Loop loop;
  Engine engine;
  EngineInbox inbox(loop.context(), engine);
  std::atomic<std::size_t> put = 0;
  const std::size_t all = 3 * EngineInbox::kMostWaiting;
  std::jthread thread([&] {
    for (std::uint64_t tag = 0; tag < all; ++tag) {
      inbox.deliver(request_of(1, tag));
      ++put;
    }
  });
  const auto until = std::chrono::steady_clock::now() + 20s;
  while (put < EngineInbox::kMostWaiting && std::chrono::steady_clock::now() < until)
    std::this_thread::yield();
  EXPECT_EQ(put, EngineInbox::kMostWaiting) << "the engine has taken nothing yet";
  ASSERT_TRUE(loop.run_until([&] { return engine.count == all; }));
}

TEST(EngineInbox, ClosingItEndsTheWaitsAndDropsTheRest) {
  Loop loop;
  Engine engine;
  EngineInbox inbox(loop.context(), engine);
  std::promise<void> ended;
  std::jthread thread([&] {
    for (std::uint64_t tag = 0; tag <= 2 * EngineInbox::kMostWaiting; ++tag)
      inbox.deliver(request_of(1, tag));
    ended.set_value();
  });
  inbox.close();
  EXPECT_EQ(ended.get_future().wait_for(20s), std::future_status::ready);
  loop.run_ready();
  EXPECT_EQ(engine.count, 0U);
}

// ---- the way back

class Sink final : public ReplySink {
 public:
  void reply(InferReply reply) override {
    seen.push_back("reply " + std::to_string(reply.tag));
    threads.push_back(std::this_thread::get_id());
  }
  void send(const protocol::OutgoingFrame& answer) override { seen.push_back(answer.head); }

  std::vector<std::string> seen;
  std::vector<std::thread::id> threads;
};

InferReply reply_of(std::uint64_t tag) {
  InferReply reply;
  reply.tag = tag;
  return reply;
}

TEST(ReplyOutbox, BringsRepliesToTheThreadOfTheirClientInOrder) {
  Loop loop;
  net::IoThreads threads(2);
  ReplyRouter engine({0, 3});
  std::vector<std::unique_ptr<ReplyRouter>> there;
  std::vector<std::unique_ptr<ReplyOutbox>> outboxes;
  for (std::size_t i = 0; i < 2; ++i) {
    there.push_back(std::make_unique<ReplyRouter>(ThreadOfConnections{i + 1, 3}));
    outboxes.push_back(std::make_unique<ReplyOutbox>(loop.context(), threads.io(i), *there[i]));
  }
  engine.connect({outboxes[0].get(), outboxes[1].get()});
  Sink own;
  std::vector<Sink> sinks(2);
  const ClientId here = engine.new_client();
  engine.add(here, own);
  std::vector<ClientId> clients;
  for (std::size_t i = 0; i < 2; ++i) {
    clients.push_back(there[i]->new_client());
    there[i]->add(clients[i], sinks[i]);
  }
  const ClientId gone = there[0]->new_client();
  for (std::uint64_t tag = 1; tag <= 3; ++tag) {
    for (const ClientId client : {here, clients[0], gone, clients[1]})
      engine.reply(client, reply_of(tag));
    engine.send(clients[1], {"frame", {}});
  }
  loop.run_ready();
  std::promise<void> ended;
  threads.finish([&] { ended.set_value(); });
  ASSERT_EQ(ended.get_future().wait_for(20s), std::future_status::ready);
  EXPECT_EQ(own.seen, (std::vector<std::string>{"reply 1", "reply 2", "reply 3"}));
  EXPECT_EQ(sinks[0].seen, own.seen);
  EXPECT_EQ(sinks[1].seen,
            (std::vector<std::string>{"reply 1", "frame", "reply 2", "frame", "reply 3", "frame"}));
  EXPECT_NE(sinks[0].threads[0], sinks[1].threads[0]);
  EXPECT_EQ(own.threads[0], std::this_thread::get_id());
}

// ---- the models

PublishedModelsPointer models_of(std::size_t count) {
  std::vector<PublishedModels::Entry> entries;
  for (std::size_t i = count; i-- > 0;) {
    auto model = std::make_shared<PublishedModel>();
    model->model.name = "m" + std::to_string(i);
    model->number = count;
    entries.push_back({std::move(model), std::chrono::milliseconds(i)});
  }
  return std::make_shared<const PublishedModels>(std::move(entries));
}

TEST(ModelBoard, FindsModelsByName) {
  const PublishedModelsPointer models = models_of(12);
  for (std::size_t i = 0; i < 12; ++i) {
    const std::string name = "m" + std::to_string(i);
    const PublishedModels::Entry* const found = models->find(name);
    ASSERT_NE(found, nullptr) << name;
    EXPECT_EQ(found->model->model.name, name);
    EXPECT_EQ(found->device_time, std::chrono::milliseconds(i));
  }
  EXPECT_EQ(models->find("m"), nullptr);
  EXPECT_EQ(models->find("m12"), nullptr);
}

TEST(ModelBoard, ReadersSeeWholeListsAndTheLastOne) {
  constexpr std::size_t kLists = 300;
  ModelBoard board;
  constexpr int kReaders = 3;
  std::vector<std::jthread> readers;
  readers.reserve(kReaders);
  std::atomic<int> done = 0;
  for (int i = 0; i < kReaders; ++i) {
    readers.emplace_back([&] {
      const ModelReader reader(board);
      std::size_t last = 0;
      while (last < kLists) {
        const PublishedModels::Entry* const found = reader.find("m0");
        if (found == nullptr) continue;
        const std::size_t number = found->model->number;
        EXPECT_GE(number, last) << "never back";
        const std::string newest = "m" + std::to_string(number - 1);
        // A newer list has it, too.
        EXPECT_NE(reader.find(newest), nullptr);
        last = number;
      }
      ++done;
    });
  }
  for (std::size_t count = 1; count <= kLists; ++count) board.publish(models_of(count));
  readers.clear();
  EXPECT_EQ(done, kReaders);
}

}  // namespace
}  // namespace gpulet::frontend::engine_inbox_test
