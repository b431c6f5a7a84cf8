#include "serve/cluster/peer_events.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/support/serve/ready_gpulet.h"

namespace gpulet::serve::peer_events_test {
namespace {

using testing::at_ms;
using testing::byte_model;
using testing::FrontendParts;
using testing::only;

FrontendOptions clustered() {
  FrontendOptions options;
  options.clustered = true;
  options.member = "f0";
  return options;
}

// Frontend "f0" of a cluster with model "a", and its peers as the test plays them.
struct Peers {
  Peers() { parts.models.add(byte_model("a", 1000, 10), at_ms(0)); }

  void connect(const std::string& member, std::uint32_t level = kLevelOfOwners) {
    peers.on(PeerConnected{member, level}, at_ms(0), effects);
  }
  void follow(const std::string& leader) { parts.forwarder.set_leader(leader, at_ms(0), effects); }
  // The reports since the last call, with their receivers.
  std::vector<std::pair<std::string, OwnerReport>> reports() {
    std::vector<std::pair<std::string, OwnerReport>> found;
    for (const SendToPeer& one : only<SendToPeer>(effects)) {
      if (const auto* const report = std::get_if<OwnerReport>(&one.message))
        found.emplace_back(one.member, *report);
    }
    effects.clear();
    return found;
  }
  std::vector<Forward> forwards() {
    std::vector<Forward> found;
    for (const SendToPeer& one : only<SendToPeer>(effects)) {
      if (const auto* const forward = std::get_if<Forward>(&one.message)) found.push_back(*forward);
    }
    effects.clear();
    return found;
  }
  void request(std::uint64_t tag) {
    InferRequest request;
    request.tag = tag;
    request.model = "a";
    request.inputs = byte_model("a", 1000, 10).inputs;
    request.payload = Bytes::own({std::byte{7}});
    parts.intake.on_request({ClientId{5}, std::move(request)}, at_ms(1), effects);
  }

  FrontendParts parts{clustered()};
  Ownership ownership{parts.options,    parts.backends, parts.models.table(),
                      parts.deployment, parts.reported, parts.routes};
  OwnerReports reports_in{parts.demands,  parts.backends, parts.models.table(),
                          parts.failures, parts.feedback, parts.reported};
  PeerEvents peers{parts.forwarder, parts.owned, ownership, reports_in, parts.backends};
  FrontendEffects effects;
};

TEST(PeerEvents, AReportGoesToTheLeaderOnceItIsConnected) {
  Peers one;
  one.follow("f1");
  one.peers.report_to_leader(one.effects);
  EXPECT_TRUE(one.reports().empty());
  one.connect("f2");
  EXPECT_TRUE(one.reports().empty()) << "it does not lead";
  one.connect("f1");
  const auto first = one.reports();
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].first, "f1");
  EXPECT_FALSE(first[0].second.draining);
  one.peers.on(PeerDisconnected{"f1"}, at_ms(1), one.effects);
  one.effects.clear();
  one.peers.report_to_leader(one.effects);
  EXPECT_TRUE(one.reports().empty());
}

TEST(PeerEvents, ALeaderThatKnowsNoOwnersGetsNoReport) {
  Peers one;
  one.follow("f1");
  one.connect("f1", kLevelOfOwners - 1);
  EXPECT_TRUE(one.reports().empty());
  one.connect("f1", kLevelOfOwners);
  EXPECT_EQ(one.reports().size(), 1U) << "it was replaced by a newer one";
}

TEST(PeerEvents, AFrontendThatStopsSaysSo) {
  Peers one;
  one.follow("f1");
  one.connect("f1");
  one.effects.clear();
  one.peers.start_draining();
  one.peers.report_to_leader(one.effects);
  const auto reports = one.reports();
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_TRUE(reports[0].second.draining);
}

TEST(PeerEvents, TheLeaderReportsToNobodyAndTakesReportsIn) {
  Peers one;
  one.connect("f1");
  OwnerReported report;
  report.member = "f1";
  ModelFigures& figures = report.report.models.emplace_back();
  figures.model = "a";
  figures.arrived = 40;
  one.peers.on(report, at_ms(1), one.effects);
  one.parts.demands.tick(at_ms(1001));
  const double before = one.parts.demands.rate_seen(one.parts.models.find("a")->demand);
  one.parts.forwarder.lead(at_ms(1001), one.effects);
  one.ownership.on_won(at_ms(1001));
  one.effects.clear();
  one.peers.report_to_leader(one.effects);
  EXPECT_TRUE(one.reports().empty());
  one.peers.on(report, at_ms(1500), one.effects);
  one.parts.demands.tick(at_ms(2001));
  EXPECT_GT(one.parts.demands.rate_seen(one.parts.models.find("a")->demand), before)
      << "only a leader counts what others served";
}

TEST(PeerEvents, RequestsGoToTheLeaderAndItsReplyToTheClient) {
  Peers one;
  one.follow("f1");
  one.request(3);
  EXPECT_TRUE(one.forwards().empty()) << "it is not connected";
  one.connect("f1");
  const std::vector<Forward> forwards = one.forwards();
  ASSERT_EQ(forwards.size(), 1U);
  PeerReplied replied;
  replied.member = "f1";
  replied.reply.reply.tag = forwards[0].request.tag;
  replied.reply.reply.outputs = byte_model("a", 1000, 10).outputs;
  replied.reply.reply.payload = {Bytes::own({std::byte{9}})};
  one.peers.on(std::move(replied), at_ms(5), one.effects);
  const auto replies = only<ReplyToClient>(one.effects);
  ASSERT_EQ(replies.size(), 1U);
  EXPECT_EQ(replies[0].reply.tag, 3U);
  EXPECT_TRUE(replies[0].reply.status.ok());
  EXPECT_TRUE(one.parts.forwarder.idle());
}

TEST(PeerEvents, ARequestIsSentAgainWhenItsPeerReturns) {
  Peers one;
  one.follow("f1");
  one.connect("f1");
  one.request(3);
  EXPECT_EQ(one.forwards().size(), 1U);
  one.peers.on(PeerDisconnected{"f1"}, at_ms(2), one.effects);
  EXPECT_TRUE(one.forwards().empty());
  EXPECT_FALSE(one.parts.forwarder.idle());
  one.connect("f1");
  EXPECT_EQ(one.forwards().size(), 1U);
}

TEST(PeerEvents, WhatAPeerServesIsKnownWhileItLeads) {
  Peers one;
  one.follow("f1");
  one.connect("f1");
  PeerServes serves;
  serves.member = "f1";
  serves.served.models.emplace_back().name = "a";
  one.peers.on(std::move(serves), at_ms(1), one.effects);
  ASSERT_NE(one.parts.forwarder.served(), nullptr);
  EXPECT_EQ(one.parts.forwarder.served()->models.size(), 1U);
  one.follow("f2");
  EXPECT_EQ(one.parts.forwarder.served(), nullptr);
}

TEST(PeerEvents, RoutesCountWhereTheyComeFromTheLeader) {
  Peers one;
  one.follow("f1");
  one.connect("f1");
  one.parts.backends.join(BackendId{1}, {"n0", {FrontendParts::device("n0", 0)}, {}}, at_ms(0));
  testing::add_gpulet(one.parts, 7, "n0", {"a"});
  GpuletReport owned;
  owned.id = GpuletId{7};
  owned.state = GpuletState::ready;
  owned.owner = "f0";
  one.parts.backends.report_gpulet(BackendId{1}, owned);
  one.parts.owned.on_report(BackendId{1}, owned, at_ms(1));
  const auto routes_from = [](const std::string& member) {
    RouteSlot slot;
    slot.model = "a";
    slot.version = version_of(byte_model("a", 1000, 10));
    slot.execution = {std::chrono::milliseconds(10)};
    RoutesReceived received;
    received.member = member;
    received.routes.term = Term{1};
    received.routes.nodes = {{"n0", {{GpuletId{7}, std::chrono::milliseconds(20), {slot}}}}};
    return received;
  };
  one.peers.on(routes_from("f2"), at_ms(2), one.effects);
  EXPECT_FALSE(one.parts.owned.any());
  one.peers.on(routes_from("f1"), at_ms(2), one.effects);
  EXPECT_EQ(one.parts.owned.gpulets(), 1U);
  EXPECT_FALSE(one.parts.owned.take_changed()) << "the requests that wait have followed it";
}

// A report goes out exactly where a leader is connected that takes reports.
RC_GTEST_PROP(PeerEventsProperty, ReportsGoToAConnectedLeaderAlone, ()) {
  Peers one;
  std::set<std::string> connected;
  std::string leader;
  const int steps = *rc::gen::inRange(1, 30);
  for (int step = 0; step < steps; ++step) {
    const std::string member = *rc::gen::element<std::string>("f1", "f2", "f3");
    switch (*rc::gen::inRange(0, 3)) {
      case 0:
        if (connected.insert(member).second) one.connect(member);
        break;
      case 1:
        if (connected.erase(member) > 0)
          one.peers.on(PeerDisconnected{member}, at_ms(step), one.effects);
        break;
      default:
        leader = *rc::gen::element<std::string>("", "f1", "f2", "f3");
        one.follow(leader);
        break;
    }
    one.effects.clear();
    one.peers.report_to_leader(one.effects);
    const auto reports = one.reports();
    RC_ASSERT(reports.size() == (connected.contains(leader) ? 1U : 0U));
    for (const auto& [to, report] : reports) RC_ASSERT(to == leader);
  }
}

}  // namespace
}  // namespace gpulet::serve::peer_events_test
