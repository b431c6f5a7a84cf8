// Forwarded requests whose payloads stay at their entry (docs/cluster.md, "One trip"): what the
// entry and the owner do. tests/backend/awaited_batches_test.cc has the node.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "gpulet/protocol/codec.h"
#include "serve/cluster/peer_events.h"
#include "serve/deploy/entries.h"
#include "tests/support/serve/dispatched.h"
#include "tests/support/serve/frontend_parts.h"

namespace gpulet::serve::kept_payloads_test {
namespace {

using std::chrono::milliseconds;
using testing::at;
using testing::at_ms;
using testing::byte_model;
using testing::byte_request;
using testing::even_route;
using testing::FrontendParts;
using testing::only;

constexpr std::size_t kLarge = 1000;

FrontendOptions options_of(const std::string& member) {
  FrontendOptions options;
  options.clustered = true;
  options.member = member;
  options.least_kept_payload = kLarge;
  return options;
}

// With inputs of so many bytes.
ServedModel model_of(std::size_t bytes) {
  ServedModel model = byte_model("a", 100, 10);
  model.inputs[0].shape = {static_cast<std::int64_t>(bytes)};
  return with_sizes(model).value();
}

Hello hello(std::uint32_t level) { return {"n0", {FrontendParts::device("n0", 0)}, {}, level, {}}; }

// ---- the entry

// Frontend f0, whose requests for model a are those of f1. Node n0 is backend 1.
struct Entry {
  explicit Entry(std::size_t bytes = kLarge, std::uint32_t level = kProtocolLevel,
                 std::uint32_t backend_level = kProtocolLevel)
      : input(bytes) {
    parts.models.add(model_of(bytes), at_ms(0));
    parts.send(1, hello(backend_level), at_ms(0));
    peers.on(PeerConnected{"f1", level}, at_ms(0), effects);
    parts.forwarder.set_leader("f1", at_ms(0), effects);
    effects.clear();
  }
  void request(std::uint64_t tag) {
    InferRequest request;
    request.tag = tag;
    request.model = "a";
    request.inputs = model_of(input.size()).inputs;
    input[0] = std::byte(tag);
    request.payload = Bytes::own(input);
    parts.intake.on_request({ClientId{5}, std::move(request)}, at_ms(1), effects);
  }
  // The Forwards since the last call.
  std::vector<Forward> forwards() {
    std::vector<Forward> found;
    for (const SendToPeer& one : only<SendToPeer>(effects)) {
      if (const auto* const forward = std::get_if<Forward>(&one.message)) found.push_back(*forward);
    }
    effects.clear();
    return found;
  }
  // What f1's wish for these requests makes it send to the node; empty: nothing.
  std::vector<Rows> wanted(std::vector<std::uint64_t> tags, const std::string& node = "n0",
                           const std::string& member = "f1") {
    peers.on(PeerWantsRows{member, {{9}, node, std::move(tags)}}, at_ms(2), effects);
    std::vector<Rows> found;
    for (const SendToBackend& one : only<SendToBackend>(effects)) {
      EXPECT_EQ(one.backend, BackendId{1});
      if (const auto* const rows = std::get_if<Rows>(&one.command)) found.push_back(*rows);
    }
    effects.clear();
    return found;
  }
  void reply(std::uint64_t tag, bool payload_needed, Time now, bool elsewhere = false) {
    ForwardReply reply;
    reply.reply.tag = tag;
    reply.elsewhere = elsewhere;
    reply.payload_needed = payload_needed;
    if (!payload_needed && !elsewhere) {
      reply.reply.outputs = model_of(1).outputs;
      reply.reply.payload = {Bytes::own({std::byte{9}})};
    }
    parts.forwarder.on_reply("f1", std::move(reply), now, effects);
  }

  std::vector<std::byte> input;
  FrontendParts parts{options_of("f0")};
  Ownership ownership{parts.options,    parts.backends, parts.models.table(),
                      parts.deployment, parts.reported, parts.routes};
  OwnerReports reports{parts.demands,  parts.backends, parts.models.table(),
                       parts.failures, parts.feedback, parts.reported};
  PeerEvents peers{parts.forwarder, parts.owned, ownership, reports, parts.backends};
  FrontendEffects effects;
};

TEST(KeptPayload, ALargeOneStaysAndASmallOneGoesWithItsRequest) {
  Entry large;
  large.request(1);
  const auto kept = large.forwards();
  ASSERT_EQ(kept.size(), 1U);
  EXPECT_EQ(kept[0].kept_bytes, kLarge);
  EXPECT_TRUE(kept[0].request.payload.empty());
  EXPECT_LT(protocol::encode(PeerRequest(kept[0])).byte_size(), 200U);

  Entry small(kLarge - 1);
  small.request(1);
  const auto sent = small.forwards();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].kept_bytes, 0U);
  EXPECT_EQ(sent[0].request.payload.size(), kLarge - 1);
}

// A file has any size, and its slot the size on which entry, owner and node agree.
TEST(KeptPayload, OfAnEncodedImageIsItsSlot) {
  ServedModel model = model_of(1);
  model.name = "photos";
  model.inputs = {{"photo", DataType::bytes, {1}, kLarge}};
  model.inputs[0].image = image::Preprocessing{.width = 8, .height = 8};
  model = with_sizes(std::move(model)).value();
  Entry entry;
  entry.parts.models.add(model, at_ms(0));
  const std::string photo = "not looked into here";
  std::string element;
  append_element(element, photo);
  const auto raw = std::as_bytes(std::span(element));
  InferRequest request;
  request.tag = 1;
  request.model = "photos";
  request.inputs = {{"photo", DataType::bytes, {1}}};
  request.payload = Bytes::own({raw.begin(), raw.end()});
  entry.parts.intake.on_request({ClientId{5}, request}, at_ms(1), entry.effects);
  const auto forwards = entry.forwards();
  ASSERT_EQ(forwards.size(), 1U);
  EXPECT_EQ(forwards[0].kept_bytes, kLarge);
  const auto rows = entry.wanted({forwards[0].request.tag});
  ASSERT_EQ(rows.size(), 1U);
  ASSERT_EQ(rows[0].inputs.size(), 1U);
  ASSERT_EQ(rows[0].inputs[0].size(), kLarge);
  const auto elements = elements_in(rows[0].inputs[0].view(), 1);
  ASSERT_TRUE(elements);
  EXPECT_EQ(elements->front(), photo);

  // The owner takes it without its payload.
  InferRequest forwarded = forwards[0].request;
  EXPECT_TRUE(check_request(forwarded, model, kLarge).ok());
  EXPECT_EQ(check_request(forwarded, model, element.size()).code(), StatusCode::invalid);
  forwarded.synthetic = true;  // nothing to decode
  EXPECT_EQ(check_request(forwarded, model).code(), StatusCode::invalid);
}

TEST(KeptPayload, AnOlderOwnerGetsIt) {
  Entry entry(kLarge, kLevelOfKeptPayloads - 1);
  entry.request(1);
  EXPECT_EQ(entry.forwards().at(0).request.payload.size(), kLarge);
}

TEST(KeptPayload, GoesToTheNodeThatTheOwnerNames) {
  Entry entry;
  for (std::uint64_t tag = 1; tag <= 3; ++tag) entry.request(tag);
  const auto forwards = entry.forwards();
  ASSERT_EQ(forwards.size(), 3U);
  const auto rows =
      entry.wanted({forwards[2].request.tag, 777, forwards[0].request.tag});  // 777: nobody's
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].owner, "f1");
  EXPECT_EQ(rows[0].batch, BatchId{9});
  EXPECT_EQ(rows[0].present, (std::vector<std::uint32_t>{0, 2}));
  ASSERT_EQ(rows[0].inputs.size(), 2U);
  EXPECT_EQ(rows[0].inputs[0].view()[0], std::byte{3});
  EXPECT_EQ(rows[0].inputs[1].view()[0], std::byte{1});
  // Again, for a batch that has to be made anew.
  EXPECT_EQ(entry.wanted({forwards[0].request.tag}).at(0).present.size(), 1U);
  EXPECT_TRUE(entry.wanted({forwards[0].request.tag}, "n7").empty()) << "it is not connected";
}

TEST(KeptPayload, IsGivenToTheOwnerOfItsRequestAlone) {
  Entry entry;
  entry.request(1);
  const std::uint64_t tag = entry.forwards().at(0).request.tag;
  EXPECT_TRUE(entry.wanted({tag}, "n0", "f2").at(0).present.empty());
}

// The owner may tell of a batch after its request was answered, cancelled, or sent elsewhere.
TEST(KeptPayload, IsFreedWithItsRequest) {
  for (int end = 0; end < 4; ++end) {
    Entry entry;
    entry.request(1);
    const std::uint64_t tag = entry.forwards().at(0).request.tag;
    switch (end) {
      case 0:
        entry.reply(tag, false, at_ms(3));
        break;
      case 1:
        entry.parts.forwarder.client_gone(ClientId{5}, entry.effects);
        break;
      case 2:
        entry.parts.forwarder.withdraw(ClientId{5}, 1, entry.effects);
        break;
      default:
        entry.parts.forwarder.settle(entry.parts.forwarder.next_wake(), entry.effects);
        break;
    }
    EXPECT_TRUE(entry.parts.forwarder.idle()) << end;
    entry.effects.clear();
    EXPECT_TRUE(entry.wanted({tag}).at(0).present.empty()) << end;
  }
}

TEST(KeptPayload, GoesWithTheRequestOnceTheOwnerNeedsIt) {
  Entry entry;
  entry.request(1);
  const std::uint64_t tag = entry.forwards().at(0).request.tag;
  entry.reply(tag, true, at_ms(5));
  const auto again = entry.forwards();
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].request.tag, tag);
  EXPECT_EQ(again[0].kept_bytes, 0U);
  EXPECT_EQ(again[0].request.payload.size(), kLarge);
  EXPECT_TRUE(entry.wanted({tag}).at(0).present.empty()) << "the owner has it";
  entry.reply(tag, false, at_ms(9));
  EXPECT_EQ(only<ReplyToClient>(entry.effects).size(), 1U);
}

TEST(KeptPayload, AnOwnerThatNeedsManyGetsThemAllForAWhile) {
  Entry entry;
  for (std::uint64_t tag = 1; tag <= kMostNeededPayloads; ++tag) {
    entry.request(tag);
    const Forward sent = entry.forwards().at(0);
    EXPECT_EQ(sent.kept_bytes, kLarge) << tag;
    entry.reply(sent.request.tag, true, at_ms(1));
    EXPECT_EQ(entry.forwards().size(), 1U);
  }
  entry.request(100);
  EXPECT_EQ(entry.forwards().at(0).kept_bytes, 0U);
}

// An owner that asks for what it has makes no loop.
TEST(KeptPayload, IsSentToTheOwnerOnce) {
  Entry entry;
  entry.request(1);
  const std::uint64_t tag = entry.forwards().at(0).request.tag;
  entry.reply(tag, true, at_ms(5));
  EXPECT_EQ(entry.forwards().size(), 1U);
  entry.reply(tag, true, at_ms(6));
  const auto replies = only<ReplyToClient>(entry.effects);
  ASSERT_EQ(replies.size(), 1U);
  EXPECT_FALSE(replies[0].reply.status.ok());
  EXPECT_TRUE(entry.forwards().empty());
}

TEST(KeptPayload, StaysWhenItsRequestGoesToAnotherOwner) {
  Entry entry;
  entry.peers.on(PeerConnected{"f2", kProtocolLevel}, at_ms(0), entry.effects);
  entry.request(1);
  const std::uint64_t tag = entry.forwards().at(0).request.tag;
  entry.parts.forwarder.set_leader("f2", at_ms(2), entry.effects);
  entry.reply(tag, false, at_ms(3), true);
  const auto again = entry.forwards();
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].kept_bytes, kLarge);
  EXPECT_TRUE(entry.wanted({tag}, "n0", "f1").at(0).present.empty());
  EXPECT_EQ(entry.wanted({tag}, "n0", "f2").at(0).present.size(), 1U);
}

// ---- the owner

// Frontend f1, which serves model a. Clients 70 and 71 are the frontends f0 and f2.
struct Owner {
  explicit Owner(std::uint32_t backend_level = kProtocolLevel) {
    parts.models.add(model_of(kLarge), at_ms(0));
    parts.send(1, hello(backend_level), at_ms(0));
    parts.forwarder.lead(at_ms(0), effects);
    effects.clear();
  }
  FrontendEffects forward(std::uint64_t tag, std::uint64_t kept_bytes = kLarge,
                          ClientId client = {70}, Time now = at_ms(1)) {
    RequestReceived event{client, {}, {}, true, false, "f0", kept_bytes};
    event.request.tag = tag;
    event.request.model = "a";
    event.request.inputs = model_of(kLarge).inputs;
    if (kept_bytes == 0) event.request.payload = Bytes::own(std::vector<std::byte>(kLarge));
    FrontendEffects made;
    parts.intake.on_request(std::move(event), now, made);
    return made;
  }

  FrontendParts parts{options_of("f1")};
  FrontendEffects effects;
};

std::vector<std::uint64_t> needed(const FrontendEffects& effects) {
  std::vector<std::uint64_t> tags;
  for (const ReplyElsewhere& one : only<ReplyElsewhere>(effects)) {
    if (one.payload_needed) tags.push_back(one.tag);
  }
  return tags;
}

TEST(KeptPayload, TheOwnerChecksItsSizeAndHoldsNoBytesForIt) {
  Owner owner;
  owner.parts.limiter = InflightLimiter({100, 0});  // no request with a payload
  EXPECT_TRUE(owner.forward(1).empty());
  EXPECT_EQ(owner.parts.dispatcher.queues().queued(0), 1U);
  const auto wrong = only<ReplyToClient>(owner.forward(2, kLarge + 1));
  ASSERT_EQ(wrong.size(), 1U);
  EXPECT_EQ(wrong[0].reply.status.code(), StatusCode::invalid);
}

TEST(KeptPayload, TheOwnerNeedsItForABackendThatDoesNotTakeRows) {
  Owner owner(kLevelOfKeptPayloads - 1);
  EXPECT_EQ(needed(owner.forward(1)), std::vector<std::uint64_t>{1});
  EXPECT_EQ(owner.parts.dispatcher.queues().queued(0), 0U);
}

TEST(KeptPayload, TheOwnerNeedsThoseOfAnEntryThatDidNotSendOne) {
  Owner owner;
  EXPECT_TRUE(owner.forward(1).empty());
  owner.parts.entries.note_missing({70}, at_ms(2));
  EXPECT_EQ(needed(owner.forward(2, kLarge, {70}, at_ms(3))), std::vector<std::uint64_t>{2});
  EXPECT_TRUE(needed(owner.forward(3, 0, {70}, at_ms(3))).empty()) << "it has its payload";
  EXPECT_TRUE(needed(owner.forward(4, kLarge, {71}, at_ms(3))).empty()) << "another entry";
  EXPECT_TRUE(needed(owner.forward(5, kLarge, {70}, at_ms(3) + kWithPayloadsFor)).empty());
}

TEST(KeptPayload, TheBatchNamesItsEntriesAndTheyAreAsked) {
  Owner owner;
  owner.parts.entries.add({70}, "f0");
  owner.parts.entries.add({71}, "f2");
  DispatchOutput output;
  BatchToSend& sent = output.batches.emplace_back();
  sent.backend = BackendId{1};
  sent.batch.id = {9};
  sent.batch.count = 4;
  sent.kept = {{{70}, {5, 6}}, {{71}, {7}}, {{99}, {8}}};  // 99 has disconnected
  owner.parts.responses.write(std::move(output), owner.effects);
  ASSERT_EQ(owner.effects.size(), 4U);
  const auto batches = only<SendToBackend>(owner.effects);
  ASSERT_EQ(batches.size(), 1U);
  const std::vector<EntryRows> entries{{"f0", 2}, {"f2", 1}, {"", 1}};
  EXPECT_EQ(std::get<Batch>(batches[0].command).entries, entries);
  const auto asked = only<AskForRows>(owner.effects);
  ASSERT_EQ(asked.size(), 3U);
  EXPECT_EQ(asked[0].client, ClientId{70});
  EXPECT_EQ(asked[0].wanted.batch, BatchId{9});
  EXPECT_EQ(asked[0].wanted.node, "n0");
  EXPECT_EQ(asked[0].wanted.tags, (std::vector<std::uint64_t>{5, 6}));
}

// ---- the queues and batches of the owner

Request kept_request(std::uint64_t tag, std::uint64_t client) {
  Request request = byte_request(tag, at(0), at(200));
  request.client = ClientId{client};
  request.forwarded = true;
  request.kept = true;
  request.input = Bytes();
  return request;
}

// Requests 1 to 4 in one batch: 2 has its payload here, 1 and 4 are those of client 70, 3 of 71.
struct Dispatched {
  Dispatched() {
    dispatcher.set_routes({even_route(1, {0})}, at(0));
    dispatcher.set_ready(GpuletId{1}, false, at(0));
    const std::vector<Request> requests{kept_request(1, 70), byte_request(2, at(0), at(200)),
                                        kept_request(3, 71), kept_request(4, 70)};
    for (Request request : requests) dispatcher.enqueue(0, std::move(request), at(0), out);
    dispatcher.set_ready(GpuletId{1}, true, at(0));
    dispatcher.pump(at(0), out);
    sent = std::move(out.batches.at(0));
    out = {};
  }
  void complete(Status status, std::vector<std::uint32_t> withdrawn,
                std::vector<std::uint32_t> missing, std::size_t outputs,
                std::vector<FailedRow> failed = {}) {
    BatchResult result{sent.batch.id,
                       std::move(status),
                       Bytes::own(std::vector<std::byte>(outputs)),
                       {},
                       milliseconds(5)};
    result.received = waited;
    result.withdrawn = std::move(withdrawn);
    result.missing = std::move(missing);
    result.failed = std::move(failed);
    dispatcher.completed(result, at(10), out);
  }
  [[nodiscard]] std::set<std::uint64_t> answered(StatusCode code) const {
    std::set<std::uint64_t> tags;
    for (const Answer& one : out.answers) {
      if (one.status.code() == code) tags.insert(one.request.tag);
    }
    return tags;
  }
  [[nodiscard]] std::map<std::uint64_t, bool> returned() const {  // by tag: it held the batch up
    std::map<std::uint64_t, bool> tags;
    for (const ReturnedRequest& one : out.returned) tags.emplace(one.tag, one.missing);
    return tags;
  }

  Dispatcher dispatcher{{byte_model("a", 200, 0)}, 8, BatchId{1}};
  BatchToSend sent;
  DispatchOutput out;
  Duration waited = milliseconds(50);  // for payloads, at the node
};

using Tags = std::set<std::uint64_t>;

TEST(KeptPayload, ABatchHasThePayloadsThatAreHereFirst) {
  Dispatched one;
  EXPECT_EQ(one.sent.batch.count, 4U);
  ASSERT_EQ(one.sent.batch.inputs.size(), 1U);
  EXPECT_EQ(one.sent.batch.inputs[0].view()[0], std::byte{2});
  ASSERT_EQ(one.sent.kept.size(), 2U);
  EXPECT_EQ(one.sent.kept[0].client, ClientId{70});
  EXPECT_EQ(one.sent.kept[0].tags, (std::vector<std::uint64_t>{1, 4}));
  EXPECT_EQ(one.sent.kept[1].tags, std::vector<std::uint64_t>{3});
  one.complete({}, {}, {}, 4);
  EXPECT_EQ(one.answered(StatusCode::ok), (Tags{1, 2, 3, 4}));
  EXPECT_TRUE(one.dispatcher.idle());
}

TEST(KeptPayload, RequestsThatTheBatchRanWithoutReturnToTheirEntry) {
  Dispatched one;
  one.complete({}, {1}, {3}, 2);  // its order: 2, 1, 4, 3
  EXPECT_EQ(one.answered(StatusCode::ok), (Tags{2, 4}));
  EXPECT_EQ(one.returned(), (std::map<std::uint64_t, bool>{{1, false}, {3, true}}));
  EXPECT_TRUE(one.dispatcher.idle());
  EXPECT_EQ(one.dispatcher.records().counters(0).offered, 2U) << "they will be offered again";
}

TEST(KeptPayload, AnEntryIsBlamedOnlyForABatchThatItHeldUp) {
  Dispatched one;
  one.waited = milliseconds(2);
  one.complete({}, {}, {3}, 3);
  EXPECT_EQ(one.returned(), (std::map<std::uint64_t, bool>{{3, false}}));
}

// A row of the outputs is one of the requests that ran, not a place in the batch as it was sent.
TEST(KeptPayload, AFailedRowCountsTheRequestsThatRan) {
  const FailedRow corrupt{1, {StatusCode::invalid, "it is corrupt"}};
  Dispatched one;
  one.complete({}, {1}, {}, 3, {corrupt});  // its order: 2, 1, 4, 3
  EXPECT_EQ(one.answered(StatusCode::invalid), Tags{4});
  EXPECT_EQ(one.answered(StatusCode::ok), (Tags{2, 3}));
  EXPECT_EQ(one.returned(), (std::map<std::uint64_t, bool>{{1, false}}));
  EXPECT_TRUE(one.dispatcher.idle());
}

TEST(KeptPayload, OfABatchThatDidNotRunTheOthersAreTriedAgain) {
  Dispatched one;
  one.complete({StatusCode::overloaded, "no memory"}, {}, {1, 2}, 0);
  EXPECT_TRUE(one.out.answers.empty());
  EXPECT_EQ(one.returned(), (std::map<std::uint64_t, bool>{{1, true}, {4, true}}));
  one.dispatcher.pump(at(11), one.out);
  ASSERT_EQ(one.out.batches.size(), 1U);
  EXPECT_EQ(one.out.batches[0].batch.count, 2U);
  ASSERT_EQ(one.out.batches[0].kept.size(), 1U) << "the payload is still at its entry";
  EXPECT_EQ(one.out.batches[0].kept[0].tags, std::vector<std::uint64_t>{3});
}

TEST(KeptPayload, ABatchWithoutAnyInputLeavesNothing) {
  Dispatcher dispatcher{{byte_model("a", 200, 0)}, 8, BatchId{1}};
  dispatcher.set_routes({even_route(1, {0})}, at(0));
  DispatchOutput out;
  dispatcher.enqueue(0, kept_request(1, 70), at(0), out);
  dispatcher.pump(at(0), out);
  BatchResult result{out.batches.at(0).batch.id, {StatusCode::unavailable, "no inputs"}, {}};
  result.missing = {0};
  dispatcher.completed(result, at(10), out);
  EXPECT_TRUE(out.answers.empty());
  EXPECT_EQ(out.returned.size(), 1U);
  EXPECT_TRUE(dispatcher.idle());
  // The gpulet is free again.
  dispatcher.enqueue(0, kept_request(2, 70), at(10), out);
  dispatcher.pump(at(11), out);
  EXPECT_EQ(out.batches.size(), 2U);
}

// A node is not trusted: it may list places that are none, or a payload that it got.
TEST(KeptPayload, EachRequestIsAnsweredReturnedOrQueuedOnceWhateverTheNodeLists) {
  Dispatched one;
  one.complete({}, {0, 7, 1'000'000}, {0, 3, 3}, 2);
  EXPECT_EQ(one.answered(StatusCode::ok), (Tags{1, 4}));
  EXPECT_EQ(one.returned(), (std::map<std::uint64_t, bool>{{3, true}}));
  EXPECT_EQ(one.dispatcher.queues().queued(0), 1U);
}

RC_GTEST_PROP(KeptPayload, NoRequestIsLostWithAnyResult, ()) {
  Dispatched one;
  const auto places = [] {
    return *rc::gen::container<std::vector<std::uint32_t>>(rc::gen::inRange<std::uint32_t>(0, 6));
  };
  const Status status = *rc::gen::element(Status(), Status(StatusCode::overloaded, "full"),
                                          Status(StatusCode::unavailable, "ended"),
                                          Status(StatusCode::internal, "failed"));
  std::vector<FailedRow> failed;
  for (const std::uint32_t row : places())
    failed.push_back({row, {StatusCode::invalid, "corrupt"}});
  one.complete(status, places(), places(), *rc::gen::inRange<std::size_t>(0, 5), failed);
  std::multiset<std::uint64_t> ends;
  for (const Answer& answer : one.out.answers) ends.insert(answer.request.tag);
  for (const ReturnedRequest& returned : one.out.returned) ends.insert(returned.tag);
  const auto waiting = one.dispatcher.take_waiting([](ModelIndex) { return true; });
  for (const auto& [model, request] : waiting) ends.insert(request.tag);
  RC_ASSERT(ends == std::multiset<std::uint64_t>({1, 2, 3, 4}));
}

}  // namespace
}  // namespace gpulet::serve::kept_payloads_test
