#include "serve/cluster/forwarder.h"

#include <gtest/gtest.h>

#include "serve/deploy/response_writer.h"
#include "tests/support/serve/frontend_parts.h"

namespace gpulet::serve::forwarder_test {
namespace {

using testing::at_ms;
using testing::byte_model;
using testing::FrontendParts;
using testing::only;

FrontendOptions clustered() {
  FrontendOptions options;
  options.clustered = true;
  return options;
}

// A frontend that does not lead, with model a, and members f1 and f2.
struct Follower {
  Follower() {
    parts.models.add(byte_model("a", 100, 10), at_ms(0));
    for (const char* const member : {"f1", "f2"})
      parts.forwarder.on_connected(member, kProtocolLevel, at_ms(0), effects);
  }

  void request(std::uint64_t tag, Time now, Duration timeout = {}) {
    InferRequest request;
    request.tag = tag;
    request.model = "a";
    request.inputs = byte_model("a", 100, 10).inputs;
    request.payload = Bytes::own({std::byte{7}});
    request.timeout = timeout;
    parts.intake.on_request({kClient, std::move(request)}, now, effects);
  }
  // The Forwards since the last call, with their receivers.
  std::vector<std::pair<std::string, Forward>> sent() {
    std::vector<std::pair<std::string, Forward>> found;
    for (const SendToPeer& one : only<SendToPeer>(effects)) {
      if (const auto* const forward = std::get_if<Forward>(&one.message))
        found.emplace_back(one.member, *forward);
    }
    effects.clear();
    return found;
  }
  std::vector<InferReply> replies() {
    std::vector<InferReply> found;
    for (const ReplyToClient& one : only<ReplyToClient>(effects)) {
      EXPECT_EQ(one.client, kClient);
      found.push_back(one.reply);
    }
    effects.clear();
    return found;
  }
  void reply(const std::string& member, std::uint64_t tag, bool elsewhere, Time now) {
    ForwardReply reply;
    reply.reply.tag = tag;
    reply.reply.batch_size = 3;
    if (!elsewhere) {
      reply.reply.outputs = byte_model("a", 100, 10).outputs;
      reply.reply.payload = {Bytes::own({std::byte{9}})};
    }
    reply.elsewhere = elsewhere;
    parts.forwarder.on_reply(member, std::move(reply), now, effects);
  }

  static constexpr ClientId kClient{5};
  FrontendParts parts{clustered()};
  FrontendEffects effects;
};

TEST(Forwarder, SendsARequestAsItCameAndPassesTheReplyOn) {
  Follower follower;
  follower.parts.forwarder.set_leader("f1", at_ms(0), follower.effects);
  follower.request(42, at_ms(10), std::chrono::milliseconds(80));
  const auto sent = follower.sent();
  ASSERT_EQ(sent.size(), 1U);
  const auto& [member, forward] = sent[0];
  EXPECT_EQ(member, "f1");
  EXPECT_EQ(forward.request.model, "a");
  EXPECT_EQ(forward.request.timeout, std::chrono::milliseconds(80));
  EXPECT_EQ(forward.request.payload.view()[0], std::byte{7});
  EXPECT_EQ(forward.age, Duration::zero());
  EXPECT_FALSE(forward.delayed);
  follower.reply("f1", forward.request.tag, false, at_ms(20));
  const auto replies = follower.replies();
  ASSERT_EQ(replies.size(), 1U);
  EXPECT_EQ(replies[0].tag, 42U);
  EXPECT_EQ(replies[0].batch_size, 3U);
  // A second reply, or one from a frontend that was not asked, is nothing.
  follower.reply("f1", forward.request.tag, false, at_ms(21));
  EXPECT_TRUE(follower.replies().empty());
  EXPECT_TRUE(follower.parts.forwarder.idle());
}

TEST(Forwarder, OnlyTheReceiverMayReply) {
  Follower follower;
  follower.parts.forwarder.set_leader("f1", at_ms(0), follower.effects);
  follower.request(1, at_ms(10));
  const std::uint64_t tag = follower.sent().at(0).second.request.tag;
  follower.reply("f2", tag, false, at_ms(11));
  EXPECT_TRUE(follower.replies().empty());
  EXPECT_FALSE(follower.parts.forwarder.idle());
}

// The other frontend may have another models file, or be at fault: nothing of its reply is read.
TEST(Forwarder, AReplyThatTheModelCannotGiveIsAFailureOfItsRequest) {
  const auto failure_of = [](InferReply forged) {
    Follower follower;
    follower.parts.forwarder.set_leader("f1", at_ms(0), follower.effects);
    follower.request(42, at_ms(10));
    ForwardReply reply;
    reply.reply = std::move(forged);
    reply.reply.tag = follower.sent().at(0).second.request.tag;
    follower.parts.forwarder.on_reply("f1", std::move(reply), at_ms(20), follower.effects);
    const auto replies = follower.replies();
    EXPECT_EQ(replies.size(), 1U);
    EXPECT_EQ(replies.at(0).tag, 42U);
    EXPECT_TRUE(replies.at(0).outputs.empty());
    EXPECT_TRUE(replies.at(0).payload.empty());
    return replies.at(0).status.code();
  };
  InferReply right;
  right.outputs = byte_model("a", 100, 10).outputs;
  right.payload = {Bytes::own({std::byte{9}})};
  std::vector<InferReply> wrong(8, right);
  wrong[0].outputs.clear();
  wrong[0].payload.clear();
  wrong[1].outputs[0].name = "z";
  wrong[2].outputs[0].type = DataType::int8;
  wrong[3].outputs[0].shape = {1, 1};
  wrong[4].outputs[0].shape = {2};
  wrong[4].payload[0] = Bytes::own(std::vector<std::byte>(2));
  wrong[5].payload[0] = Bytes();
  wrong[6].outputs.push_back(right.outputs[0]);
  wrong[6].payload.push_back(right.payload[0]);
  wrong[7].status = {StatusCode::too_late, "with outputs"};
  for (std::size_t i = 0; i < wrong.size(); ++i)
    EXPECT_EQ(failure_of(wrong[i]), StatusCode::internal) << i;
}

TEST(Forwarder, AForwardedReplyWithStringsHasTheirElementsAndNothingElse) {
  TensorSpec words{"words", DataType::bytes, {2}};
  words.max_bytes = 16;
  const auto check = [&](std::vector<std::byte> bytes) {
    InferReply reply;
    reply.outputs = {words};
    reply.outputs[0].max_bytes = bytes.size();
    reply.payload = {Bytes::own(std::move(bytes))};
    return check_forwarded(reply, {words}).code();
  };
  const std::byte zero{};
  EXPECT_EQ(check(std::vector<std::byte>(8)), StatusCode::ok) << "two empty elements";
  EXPECT_EQ(check({std::byte{1}, zero, zero, zero, std::byte{'a'}, zero, zero, zero, zero}),
            StatusCode::ok);
  EXPECT_EQ(check(std::vector<std::byte>(4)), StatusCode::internal) << "one element";
  EXPECT_EQ(check(std::vector<std::byte>(12)), StatusCode::internal) << "a rest";
  EXPECT_EQ(check({std::byte{200}, zero, zero, zero, zero, zero, zero, zero}), StatusCode::internal)
      << "an element beyond the end";
  std::vector<std::byte> longer(20);
  longer[0] = std::byte{12};
  EXPECT_EQ(check(longer), StatusCode::internal) << "above max_bytes";
}

TEST(Forwarder, SendsAgainToTheNextOneWithTheTimeThatHasPassed) {
  Follower follower;
  follower.parts.forwarder.set_leader("f1", at_ms(0), follower.effects);
  follower.request(1, at_ms(10));
  static_cast<void>(follower.sent());
  follower.parts.forwarder.on_disconnected("f1", at_ms(30), follower.effects);
  EXPECT_TRUE(follower.sent().empty());
  EXPECT_EQ(follower.parts.forwarder.status().waiting, 1U);
  follower.parts.forwarder.set_leader("f2", at_ms(60), follower.effects);
  const auto sent = follower.sent();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].first, "f2");
  EXPECT_EQ(sent[0].second.age, std::chrono::milliseconds(50));
  EXPECT_TRUE(sent[0].second.delayed);
}

TEST(Forwarder, GivesUpARequestUnderWhichThreeConnectionsEnded) {
  Follower follower;
  follower.parts.forwarder.set_leader("f1", at_ms(0), follower.effects);
  follower.request(1, at_ms(0));
  for (int lost = 1; lost < 3; ++lost) {
    follower.parts.forwarder.on_disconnected("f1", at_ms(lost), follower.effects);
    EXPECT_TRUE(follower.replies().empty());
    follower.parts.forwarder.on_connected("f1", kProtocolLevel, at_ms(lost), follower.effects);
    EXPECT_EQ(follower.sent().size(), 1U);
  }
  follower.parts.forwarder.on_disconnected("f1", at_ms(3), follower.effects);
  const auto replies = follower.replies();
  ASSERT_EQ(replies.size(), 1U);
  EXPECT_EQ(replies[0].status.code(), StatusCode::unavailable);
}

// Neither of the two frontends believes that it leads: no loop without a pause.
TEST(Forwarder, WaitsBeforeItAsksTheSameFrontendAgain) {
  Follower follower;
  follower.parts.forwarder.set_leader("f1", at_ms(0), follower.effects);
  follower.request(1, at_ms(0));
  const std::uint64_t tag = follower.sent().at(0).second.request.tag;
  follower.reply("f1", tag, true, at_ms(1));
  EXPECT_TRUE(follower.sent().empty());
  EXPECT_EQ(follower.parts.forwarder.next_wake(), at_ms(1) + kRerouteAfter);
  follower.parts.forwarder.settle(at_ms(1) + kRerouteAfter, follower.effects);
  EXPECT_EQ(follower.sent().size(), 1U);
  // With another route there is no reason to wait.
  follower.reply("f1", tag, true, at_ms(30));
  follower.parts.forwarder.set_leader("f2", at_ms(31), follower.effects);
  EXPECT_EQ(follower.sent().size(), 1U);
}

TEST(Forwarder, TheRequestsOfAClientThatLeavesAreCancelled) {
  Follower follower;
  follower.parts.forwarder.set_leader("f1", at_ms(0), follower.effects);
  follower.request(1, at_ms(0));
  const std::uint64_t tag = follower.sent().at(0).second.request.tag;
  follower.parts.forwarder.client_gone(ClientId{6}, follower.effects);
  EXPECT_FALSE(follower.parts.forwarder.idle());
  follower.parts.forwarder.client_gone(Follower::kClient, follower.effects);
  const auto told = only<SendToPeer>(follower.effects);
  ASSERT_EQ(told.size(), 1U);
  ASSERT_TRUE(std::holds_alternative<CancelForward>(told[0].message));
  EXPECT_EQ(std::get<CancelForward>(told[0].message).tag, tag);
  EXPECT_TRUE(follower.parts.forwarder.idle());
}

TEST(Forwarder, WithoutAnAnswerARequestEndsAtItsOwnTimeout) {
  Follower follower;
  follower.parts.forwarder.set_leader("f1", at_ms(0), follower.effects);
  follower.request(1, at_ms(0), std::chrono::milliseconds(50));
  follower.request(2, at_ms(0));
  EXPECT_EQ(follower.sent().size(), 2U);
  follower.parts.forwarder.settle(at_ms(51), follower.effects);
  const auto replies = follower.replies();
  ASSERT_EQ(replies.size(), 1U);
  EXPECT_EQ(replies[0].tag, 1U);
  EXPECT_EQ(replies[0].status.code(), StatusCode::too_late);
}

// Without a timeout of its own, it waits for a frontend as for a sleeping model; a frontend that
// has it may need longer, for a model with instances only.
TEST(Forwarder, ARequestWaitsForAFrontendForALimitedTime) {
  Follower follower;
  follower.request(1, at_ms(0));
  follower.parts.forwarder.set_leader("f1", at_ms(100), follower.effects);
  EXPECT_EQ(follower.sent().size(), 1U);
  follower.request(2, at_ms(100));
  EXPECT_EQ(follower.sent().size(), 1U);
  follower.parts.forwarder.on_disconnected("f1", at_ms(200), follower.effects);
  follower.parts.forwarder.on_disconnected("f2", at_ms(200), follower.effects);
  const auto limit = std::chrono::seconds(12);
  follower.parts.forwarder.settle(at_ms(200) + limit, follower.effects);
  EXPECT_EQ(follower.replies().size(), 2U);

  follower.parts.forwarder.on_connected("f1", kProtocolLevel, at_ms(300) + limit, follower.effects);
  follower.request(3, at_ms(300) + limit);
  EXPECT_EQ(follower.sent().size(), 1U);
  follower.parts.forwarder.settle(at_ms(300) + 3 * limit, follower.effects);
  EXPECT_TRUE(follower.replies().empty());
  follower.parts.forwarder.settle(at_ms(300) + 7 * limit, follower.effects);
  EXPECT_EQ(follower.replies().size(), 1U);
}

TEST(Forwarder, WhatWaitsReturnsWhenThisFrontendServes) {
  Follower follower;
  follower.request(1, at_ms(0));  // nobody is known to lead
  EXPECT_TRUE(follower.sent().empty());
  follower.parts.forwarder.lead(at_ms(1), follower.effects);
  const auto local = follower.parts.forwarder.take_local();
  ASSERT_EQ(local.size(), 1U);
  EXPECT_EQ(local[0].model, "a");
  EXPECT_EQ(local[0].request.tag, 1U);
  EXPECT_TRUE(follower.parts.forwarder.idle());
}

// A frontend that does not lead takes no request of another one, and forwards it to nobody.
TEST(Forwarder, NobodyForwardsWhatWasForwarded) {
  Follower follower;
  follower.parts.forwarder.set_leader("f1", at_ms(0), follower.effects);
  InferRequest request;
  request.tag = 9;
  request.model = "a";
  request.inputs = byte_model("a", 100, 10).inputs;
  request.payload = Bytes::own({std::byte{7}});
  RequestReceived forwarded{ClientId{77}, std::move(request), {}, true, false};
  follower.parts.intake.on_request(std::move(forwarded), at_ms(1), follower.effects);
  const auto elsewhere = only<ReplyElsewhere>(follower.effects);
  ASSERT_EQ(elsewhere.size(), 1U);
  EXPECT_EQ(elsewhere[0].client, ClientId{77});
  EXPECT_EQ(elsewhere[0].tag, 9U);
  EXPECT_TRUE(follower.sent().empty());
}

}  // namespace
}  // namespace gpulet::serve::forwarder_test
