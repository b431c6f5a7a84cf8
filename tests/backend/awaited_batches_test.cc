// Batches whose inputs come from several frontends, in the backend's core.
#include "node/awaited_batches.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "node/hosted_gpulet.h"
#include "tests/backend/core_bench.h"

namespace gpulet::node::awaited_batches_test {
namespace {

using std::chrono::milliseconds;

constexpr FrontendId kOwner{1};
constexpr FrontendId kEntry{2};
constexpr FrontendId kOther{3};

// Inputs of so many requests, each with bytes of one value.
Bytes inputs_of(const std::vector<int>& values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.insert(bytes.end(), kInputBytes, std::byte(value));
  return Bytes::own(std::move(bytes));
}

// The value of each request that the process got.
std::vector<int> values_of(const RunOnProxy& run) {
  std::vector<int> values;
  for (const Bytes& piece : run.pieces)
    values.push_back(std::to_integer<int>(piece.view().front()));
  return values;
}

Rows rows(std::uint64_t batch_id, std::vector<std::uint32_t> present,
          const std::vector<int>& values) {
  return {"owner", {batch_id}, std::move(present), {inputs_of(values)}};
}

// The frontends owner, entry and other; the first leads, and owns gpulet 1.
struct Node {
  Node() {
    connect(kOwner, "owner");
    connect(kEntry, "entry");
    connect(kOther, "other");
    from(kOwner, TakeLeadership{{1}});
    CreateGpulet asked = create(1, {"a"});
    asked.term = {1};
    from(kOwner, GpuletRequested{asked, {{"sha-a", "/store/a.pt"}}});
    bench.load(1);
  }
  void connect(FrontendId frontend, const std::string& member) {
    bench.on(FrontendConnected{frontend});
    from(frontend, Welcome{std::chrono::hours(1), kProtocolLevel, member});
  }
  BackendEffects from(FrontendId frontend, FrontendCommand command) {
    return bench.on(CommandReceived{frontend, std::move(command)});
  }
  // A batch of the owner's requests with these values, then those of the entries.
  BackendEffects announce(std::uint64_t id, const std::vector<int>& own,
                          std::vector<EntryRows> entries, FrontendId owner = kOwner) {
    Batch made = batch(id, 1);
    made.term = {1};
    made.count = static_cast<std::uint32_t>(own.size());
    for (const EntryRows& one : entries) made.count += one.count;
    made.inputs = {inputs_of(own)};
    made.entries = std::move(entries);
    return from(owner, BatchArrived{std::move(made), bench.now(), false});
  }
  // As a daemon receives it: without the inputs where they are not wanted.
  BackendEffects send(FrontendId entry, Rows sent) {
    if (!bench.core().takes_rows(entry, sent, sent.inputs.front().size())) sent.inputs = {Bytes()};
    return from(entry, std::move(sent));
  }

  CoreBench bench;
};

using Places = std::vector<std::uint32_t>;

TEST(AwaitedBatch, RunsWhenAllInputsAreHere) {
  Node node;
  EXPECT_TRUE(node.announce(9, {1}, {{"entry", 2}, {"other", 1}}).empty());
  EXPECT_TRUE(node.send(kOther, rows(9, {0}, {4})).empty());
  const auto runs = all<RunOnProxy>(node.send(kEntry, rows(9, {0, 1}, {2, 3})));
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(values_of(runs[0]), (std::vector{1, 2, 3, 4}));
  EXPECT_EQ(runs[0].batch.count, 4U);
  EXPECT_EQ(runs[0].batch.input_bytes, 4 * kInputBytes);
  EXPECT_EQ(runs[0].batch.start_within, milliseconds(50));
  const auto results = sent<BatchResult>(node.bench.ran(1, 9));
  ASSERT_EQ(results.size(), 1U);
  EXPECT_TRUE(results[0].status.ok());
  EXPECT_TRUE(results[0].missing.empty());
  EXPECT_TRUE(results[0].withdrawn.empty());
}

TEST(AwaitedBatch, InputsMayComeBeforeTheBatch) {
  Node node;
  EXPECT_TRUE(node.send(kEntry, rows(9, {0}, {2})).empty());
  const auto runs = all<RunOnProxy>(node.announce(9, {1}, {{"entry", 1}}));
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(values_of(runs[0]), (std::vector{1, 2}));
}

TEST(AwaitedBatch, EarlyInputsAreHeldForAShortTimeAndWithinBounds) {
  Node node;
  node.send(kEntry, rows(9, {0}, {2}));
  node.bench.wake();
  EXPECT_TRUE(all<RunOnProxy>(node.announce(9, {1}, {{"entry", 1}})).empty()) << "too early";

  for (std::uint64_t id = 100; id < 100 + kMostEarlyRows; ++id)
    node.send(kEntry, rows(id, {0}, {2}));
  EXPECT_FALSE(node.bench.core().takes_rows(kEntry, rows(500, {0}, {}), kInputBytes));
  EXPECT_TRUE(node.bench.core().takes_rows(kOther, rows(500, {0}, {}), kInputBytes))
      << "the bound is one for each entry";
  EXPECT_TRUE(node.bench.core().takes_rows(kOther, rows(500, {0}, {}), kMostEarlyBytes));
  EXPECT_FALSE(node.bench.core().takes_rows(kOther, rows(500, {0}, {}), kMostEarlyBytes + 1));
  node.bench.pass(kEarlyFor);
  node.bench.on(TimePassed{});
  EXPECT_TRUE(node.bench.core().takes_rows(kEntry, rows(500, {0}, {}), kInputBytes));
}

TEST(AwaitedBatch, RunsWithoutTheInputsOfAnEntryThatIsGone) {
  Node node;
  node.announce(9, {1}, {{"entry", 2}, {"other", 1}});
  node.send(kOther, rows(9, {0}, {4}));
  const auto runs = all<RunOnProxy>(node.bench.on(FrontendDisconnected{kEntry}));
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(values_of(runs[0]), (std::vector{1, 4}));
  EXPECT_EQ(runs[0].batch.count, 2U);
  const auto results = sent<BatchResult>(node.bench.ran(1, 9));
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].missing, (Places{1, 2}));
}

TEST(AwaitedBatch, DoesNotWaitForAnEntryWithoutAConnection) {
  Node node;
  const auto runs = all<RunOnProxy>(node.announce(9, {1}, {{"", 1}, {"unknown", 1}}));
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(sent<BatchResult>(node.bench.ran(1, 9)).at(0).missing, (Places{1, 2}));
}

TEST(AwaitedBatch, RunsWithoutInputsThatDoNotComeInTime) {
  Node node;
  node.announce(9, {1}, {{"entry", 1}});
  const Time announced = node.bench.now();
  const auto runs = all<RunOnProxy>(node.bench.wake());
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(values_of(runs[0]), std::vector{1});
  EXPECT_EQ(node.bench.now() - announced, milliseconds(50) - kToStart);
  EXPECT_EQ(runs[0].batch.start_within, kToStart);
  EXPECT_EQ(sent<BatchResult>(node.bench.ran(1, 9)).at(0).missing, Places{1});
  // They come too late, and are not even received.
  EXPECT_FALSE(node.bench.core().takes_rows(kEntry, rows(9, {0}, {2}), kInputBytes));
  EXPECT_TRUE(node.send(kEntry, rows(9, {0}, {2})).empty());
}

// A client's long timeout gives an entry that sends nothing no more time.
TEST(AwaitedBatch, WaitsForABoundedTime) {
  Node node;
  Batch made = batch(9, 1);
  made.term = {1};
  made.count = 1;
  made.start_within = std::chrono::minutes(1);
  made.inputs = {Bytes()};
  made.entries = {{"entry", 1}};
  node.from(kOwner, BatchArrived{made, node.bench.now(), false});
  const Time announced = node.bench.now();
  EXPECT_EQ(sent<BatchResult>(node.bench.wake()).size(), 1U);
  EXPECT_LT(node.bench.now() - announced, 2 * kRowsWithin);
}

TEST(AwaitedBatch, WithoutAnyInputItIsAnsweredAndDoesNotRun) {
  Node node;
  node.announce(9, {}, {{"entry", 2}});
  const auto effects = node.bench.on(FrontendDisconnected{kEntry});
  EXPECT_TRUE(all<RunOnProxy>(effects).empty());
  const auto results = sent<BatchResult>(effects);
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].status.code(), StatusCode::unavailable);
  EXPECT_EQ(results[0].missing, (Places{0, 1}));
  EXPECT_FALSE(results[0].elsewhere);
}

TEST(AwaitedBatch, AnEntryMayHaveWithdrawnRequests) {
  Node node;
  node.announce(9, {1}, {{"entry", 3}});
  const auto runs = all<RunOnProxy>(node.send(kEntry, rows(9, {1}, {3})));
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(values_of(runs[0]), (std::vector{1, 3}));
  const auto results = sent<BatchResult>(node.bench.ran(1, 9));
  EXPECT_EQ(results.at(0).withdrawn, (Places{1, 3}));
  EXPECT_TRUE(results.at(0).missing.empty());
}

// The process knows only the requests that run, and so do the rows of its outputs.
TEST(AwaitedBatch, FailedRowsStayThoseOfTheRequestsThatRan) {
  Node node;
  node.announce(9, {1}, {{"entry", 3}});
  node.send(kEntry, rows(9, {1}, {3}));
  BatchRan ran{{9}, {}, 8, Duration(100), Duration(200)};
  ran.decoded = Duration(300);
  ran.failed = {{1, {StatusCode::invalid, "it is corrupt"}}};
  const auto results = sent<BatchResult>(node.bench.on(BatchCompleted{{1}, ran, Bytes()}));
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].withdrawn, (Places{1, 3}));
  EXPECT_EQ(results[0].failed, ran.failed);
  EXPECT_EQ(results[0].decoded, Duration(200)) << "no more than it ran";
}

TEST(AwaitedBatch, InputsOfAnotherSizeOrOrderCountAsMissing) {
  const std::vector<Rows> wrong = {
      rows(9, {0, 1}, {2}),                                  // fewer bytes than announced
      rows(9, {0}, {2, 3}),                                  // more
      rows(9, {1, 0}, {2, 3}),                               // not ascending
      rows(9, {0, 0}, {2, 3}),                               // twice
      rows(9, {0, 2}, {2, 3}),                               // beyond the entry's part
      {"owner", {9}, {0, 1}, {Bytes::own({std::byte{1}})}},  // not a whole request
  };
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    for (const bool early : {false, true}) {
      Node node;
      if (early) node.send(kEntry, wrong[i]);
      const auto announced = node.announce(9, {1}, {{"entry", 2}});
      const auto runs = all<RunOnProxy>(early ? announced : node.send(kEntry, wrong[i]));
      ASSERT_EQ(runs.size(), 1U) << i;
      EXPECT_EQ(values_of(runs[0]), std::vector{1}) << i;
      EXPECT_EQ(sent<BatchResult>(node.bench.ran(1, 9)).at(0).missing, (Places{1, 2})) << i;
    }
  }
}

TEST(AwaitedBatch, TakesInputsOnceAndFromTheNamedEntryOnly) {
  Node node;
  node.announce(9, {1}, {{"entry", 1}, {"other", 1}});
  EXPECT_TRUE(node.send(kEntry, rows(9, {0}, {2})).empty());
  // A second time; for the requests of others; under the name of another owner.
  EXPECT_FALSE(node.bench.core().takes_rows(kEntry, rows(9, {0}, {}), kInputBytes));
  EXPECT_TRUE(node.send(kEntry, rows(9, {0}, {7})).empty());
  EXPECT_FALSE(node.bench.core().takes_rows(kOwner, rows(9, {0}, {}), kInputBytes));
  EXPECT_TRUE(node.send(kOwner, rows(9, {0}, {7})).empty());
  Rows forged = rows(9, {0}, {7});
  forged.owner = "entry";
  EXPECT_TRUE(node.send(kOther, forged).empty());
  forged.owner = "nobody";
  EXPECT_FALSE(node.bench.core().takes_rows(kOther, forged, kInputBytes));
  EXPECT_TRUE(node.send(kOther, forged).empty());
  const auto runs = all<RunOnProxy>(node.send(kOther, rows(9, {0}, {3})));
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(values_of(runs[0]), (std::vector{1, 2, 3}));
}

TEST(AwaitedBatch, AnAnnouncementThatIsWrongIsRefused) {
  Node node;
  const auto code_of = [&](const BackendEffects& effects) {
    const auto results = sent<BatchResult>(effects);
    EXPECT_EQ(results.size(), 1U);
    return results.at(0).status.code();
  };
  Batch made = batch(9, 1);
  made.term = {1};
  made.count = 2;
  made.entries = {{"entry", 3}};
  EXPECT_EQ(code_of(node.from(kOwner, BatchArrived{made, node.bench.now(), false})),
            StatusCode::invalid)
      << "more requests than it has";
  made.entries = {{"entry", 1}};
  made.inputs = {inputs_of({1, 2})};
  EXPECT_EQ(code_of(node.from(kOwner, BatchArrived{made, node.bench.now(), false})),
            StatusCode::invalid)
      << "inputs of the entry, too";
  EXPECT_FALSE(node.bench.core().takes_rows(kEntry, rows(9, {0}, {}), kInputBytes))
      << "nothing is held for it";
  made.count = kMaxBatch + 1;
  EXPECT_EQ(code_of(node.from(kOwner, BatchArrived{made, node.bench.now(), false})),
            StatusCode::invalid)
      << "larger than the model's batches";
  node.announce(10, {1}, {{"entry", 1}});
  EXPECT_EQ(code_of(node.announce(10, {1}, {{"entry", 1}})), StatusCode::invalid);
  for (std::uint64_t id = 11; id < 10 + kMostAwaited; ++id)
    EXPECT_TRUE(node.announce(id, {1}, {{"entry", 1}}).empty());
  EXPECT_EQ(code_of(node.announce(50, {1}, {{"entry", 1}})), StatusCode::overloaded);
}

TEST(AwaitedBatch, OnlyTheOwnerAnnouncesOne) {
  Node node;
  const auto refused = sent<BatchResult>(node.announce(9, {1}, {{"other", 1}}, kEntry));
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_TRUE(refused[0].elsewhere);
  Rows sent_for_it = rows(9, {0}, {2});
  sent_for_it.owner = "entry";
  EXPECT_FALSE(node.bench.core().takes_rows(kOther, sent_for_it, kInputBytes));
}

TEST(AwaitedBatch, AChangeOfTheOwnerLeavesAnnouncedBatchesAlone) {
  Node node;
  node.announce(9, {1}, {{"other", 1}});
  node.from(kOwner, SetOwner{{1}, "entry", {1}});
  const auto refused = sent<BatchResult>(node.announce(10, {1}, {{"other", 1}}));
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_TRUE(refused[0].elsewhere);
  EXPECT_TRUE(node.announce(11, {4}, {{"other", 1}}, kEntry).empty());
  const auto runs = all<RunOnProxy>(node.send(kOther, rows(9, {0}, {2})));
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(values_of(runs[0]), (std::vector{1, 2}));
  Rows for_next = rows(11, {0}, {5});
  for_next.owner = "entry";
  EXPECT_EQ(all<RunOnProxy>(node.send(kOther, for_next)).size(), 1U);
  const auto first = all<SendToFrontend>(node.bench.ran(1, 9));
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].frontend, kOwner);
  const auto second = all<SendToFrontend>(node.bench.ran(1, 11));
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].frontend, kEntry);
}

TEST(AwaitedBatch, IsForgottenWithItsOwner) {
  Node node;
  node.announce(9, {1}, {{"entry", 1}});
  const auto effects = node.bench.on(FrontendDisconnected{kOwner});
  EXPECT_TRUE(all<RunOnProxy>(effects).empty());
  EXPECT_TRUE(all<SendToFrontend>(effects).empty());
  EXPECT_TRUE(node.send(kEntry, rows(9, {0}, {2})).empty());
  node.bench.pass(std::chrono::seconds(5));
  EXPECT_TRUE(node.bench.on(TimePassed{}).empty());
}

TEST(AwaitedBatch, OfAProcessThatEndsIsAnsweredOnce) {
  Node node;
  node.announce(9, {1}, {{"entry", 1}});
  node.bench.end(1);
  const auto results = sent<BatchResult>(node.send(kEntry, rows(9, {0}, {2})));
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].status.code(), StatusCode::unavailable);
  EXPECT_FALSE(results[0].elsewhere);
}

TEST(AwaitedBatch, OfAGpuletThatIsRetiredReturnsToItsOwner) {
  Node node;
  node.announce(9, {1}, {{"entry", 1}});
  node.from(kOwner, RetireGpulet{{1}, {1}});
  const auto results = sent<BatchResult>(node.send(kEntry, rows(9, {0}, {2})));
  ASSERT_EQ(results.size(), 1U);
  EXPECT_TRUE(results[0].elsewhere);
}

TEST(AwaitedBatch, ABackendThatStopsAnswersItFirst) {
  Node node;
  node.announce(9, {1}, {{"entry", 1}});
  node.bench.on(ShutDown{});
  node.from(kOwner, RetireGpulet{{1}, {1}});
  node.bench.end(1, {});
  EXPECT_FALSE(node.bench.core().finished());
  EXPECT_EQ(sent<BatchResult>(node.bench.wake()).size(), 1U);
  EXPECT_TRUE(node.bench.core().finished());
}

// The memory of the process has all inputs in their order: nothing is copied.
TEST(AwaitedBatch, InputsAreReceivedIntoTheirPlaces) {
  for (const bool withdrawn : {false, true}) {
    Node node;
    const auto bytes = std::make_shared<std::vector<std::byte>>(4 * kInputBytes);
    const MutableBytes memory(bytes, *bytes);
    Batch made = batch(9, 1);
    made.term = {1};
    made.count = 4;
    made.entries = {{"entry", 2}, {"other", 1}};
    EXPECT_EQ(node.bench.core().input_bytes(made), 4 * kInputBytes);
    made.inputs = {memory.slice(0, kInputBytes).freeze()};
    node.from(kOwner, BatchArrived{made, node.bench.now(), false, memory});
    const auto receive = [&](FrontendId from, Rows sent) {
      const MutableBytes place = node.bench.core().rows_memory(from, sent);
      if (place.size() == sent.inputs[0].size()) {
        std::copy(sent.inputs[0].view().begin(), sent.inputs[0].view().end(), place.view().begin());
        sent.inputs = {place.freeze()};
      }
      return node.from(from, std::move(sent));
    };
    receive(kOther, rows(9, {0}, {4}));
    const auto runs = all<RunOnProxy>(withdrawn ? receive(kEntry, rows(9, {1}, {3}))
                                                : receive(kEntry, rows(9, {0, 1}, {2, 3})));
    ASSERT_EQ(runs.size(), 1U);
    if (withdrawn) {
      EXPECT_EQ(values_of(runs[0]), (std::vector{0, 3, 4}));
    } else {
      EXPECT_TRUE(runs[0].pieces.empty());
      EXPECT_EQ(runs[0].input.view().data(), bytes->data());
      EXPECT_EQ(runs[0].batch.input_bytes, 4 * kInputBytes);
      EXPECT_EQ(std::to_integer<int>((*bytes)[3 * kInputBytes]), 4);
    }
  }
}

TEST(AwaitedBatch, ABatchThatFindsNoMemoryIsRefused) {
  Node node;
  node.announce(9, {1}, {{"entry", 1}});
  ASSERT_EQ(all<RunOnProxy>(node.send(kEntry, rows(9, {0}, {2}))).size(), 1U);
  const auto results = sent<BatchResult>(
      node.bench.on(BatchCompleted{{1}, {{9}, {StatusCode::overloaded, "no memory"}}, {}}));
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].status.code(), StatusCode::overloaded);
}

TEST(HostedGpulet, WholeRequestsBecomeTheLayoutOfABatch) {
  ModelToServe two{"a",
                   "sha",
                   {{"x", DataType::uint8, {2}}, {"y", DataType::uint8, {1}}},
                   {{"z", DataType::uint8, {1}}},
                   4};
  const auto gpulet = HostedGpulet::create({{1}, 0, {40}, {two}}, Time());
  ASSERT_TRUE(gpulet.ok());
  EXPECT_EQ(gpulet.value().row_bytes("a"), 3U);
  const auto request = [](int first) {
    return Bytes::own({std::byte(first), std::byte(first + 1), std::byte(first + 2)});
  };
  std::vector<int> bytes;
  for (const Bytes& piece : gpulet.value().in_layout("a", {request(10), request(20)})) {
    for (const std::byte one : piece.view()) bytes.push_back(std::to_integer<int>(one));
  }
  EXPECT_EQ(bytes, (std::vector{10, 11, 20, 21, 12, 22}));
}

// For any messages of entries and any disconnects: every batch of an owner that stays has one
// result, and each request ran with its own input or is listed.
RC_GTEST_PROP(AwaitedBatch, HasOneResultWhateverEntriesDo, ()) {
  Node node;
  std::map<std::uint64_t, std::size_t> results;
  std::map<std::uint64_t, std::uint32_t> ran;  // requests of each batch
  std::set<std::uint64_t> running;
  const auto take = [&](const BackendEffects& effects) {
    for (const RunOnProxy& run : all<RunOnProxy>(effects)) {
      running.insert(run.batch.id.value);
      ran[run.batch.id.value] = run.batch.count;
      RC_ASSERT(run.pieces.size() == run.batch.count);
    }
    for (const BatchResult& one : sent<BatchResult>(effects)) {
      ++results[one.id.value];
      const std::size_t lost = one.withdrawn.size() + one.missing.size();
      if (one.status.ok()) RC_ASSERT(ran.at(one.id.value) + lost == 3U);
    }
  };
  std::uint64_t last = 0;
  std::set<FrontendId> connected{kEntry, kOther};
  for (const int step : *rc::gen::container<std::vector<int>>(40, rc::gen::inRange(0, 8))) {
    const FrontendId who = *rc::gen::element(kEntry, kOther);
    const std::uint64_t which = *rc::gen::inRange<std::uint64_t>(1, last + 3);
    if (step <= 1) {
      take(node.announce(++last, {1}, {{"entry", 1}, {"other", 1}}));
    } else if (step <= 4 && connected.contains(who)) {
      const bool right = *rc::gen::inRange(0, 4) > 0;
      take(node.send(who, rows(which, {0}, right ? std::vector{2} : std::vector{2, 3})));
    } else if (step == 5 && !running.empty()) {
      take(node.bench.ran(1, *running.begin()));
      running.erase(running.begin());
    } else if (step == 6) {
      node.bench.pass(milliseconds(10));
      take(node.bench.on(TimePassed{}));
    } else if (step == 7 && connected.contains(who) && *rc::gen::inRange(0, 4) == 0) {
      connected.erase(who);
      take(node.bench.on(FrontendDisconnected{who}));
    }
  }
  node.bench.pass(std::chrono::seconds(1));
  take(node.bench.on(TimePassed{}));
  for (const std::uint64_t id : running) take(node.bench.ran(1, id));
  RC_ASSERT(results.size() == last);
  for (const auto& [id, count] : results) RC_ASSERT(count == 1U);
}

}  // namespace
}  // namespace gpulet::node::awaited_batches_test
