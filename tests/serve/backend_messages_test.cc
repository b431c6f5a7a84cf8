#include "serve/requests/backend_messages.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/support/names.h"
#include "tests/support/serve/dispatched.h"
#include "tests/support/serve/frontend_parts.h"

namespace gpulet::serve::backend_messages_test {
namespace {

using support::holds;
using testing::at_ms;
using testing::byte_model;
using testing::byte_request;
using testing::commands;
using testing::even_route;
using testing::FrontendParts;
using testing::only;

// Gpulet 7 of backend 1 holds model a.
void create_gpulet(FrontendParts& parts) {
  CreateGpulet create;
  create.id = GpuletId{7};
  create.size = Share{50};
  parts.backends.add_gpulet(create, {"n0", 0}, {{"a", 4, parts.models.find("a")->current.id}},
                            at_ms(0));
}

GpuletReport report(GpuletState state) {
  GpuletReport made;
  made.id = GpuletId{7};
  made.state = state;
  return made;
}

TEST(BackendMessageHandler, DisconnectsBackendsThatViolateTheProtocol) {
  struct Case {
    const char* what;
    std::uint64_t from;
    BackendMessage message;
    std::optional<PeerViolation> violation;
  };
  const Hello other_hello{"n1", {FrontendParts::device("n1", 0)}, {}};
  const Hello same_node{"n0", {FrontendParts::device("n0", 0)}, {}};
  BatchResult unknown_batch;
  unknown_batch.id = BatchId{99};
  const std::vector<Case> cases = {
      {"a first Hello", 2, other_hello, std::nullopt},
      {"a heartbeat", 1, Heartbeat{}, std::nullopt},
      {"a report", 1, report(GpuletState::ready), std::nullopt},
      {"a message before the Hello", 2, Heartbeat{}, PeerViolation::before_hello},
      {"a second Hello", 1, same_node, PeerViolation::second_hello},
      {"a Hello of a connected node", 2, same_node, PeerViolation::node_taken},
      {"a Hello without a name", 2, Hello{}, PeerViolation::invalid_hello},
      {"a batch that was never sent", 1, unknown_batch, PeerViolation::foreign_batch},
      {"a device that it does not offer", 1, DeviceReport{5, {}}, PeerViolation::foreign_device},
      {"the file of a model that it does not serve", 1, ModelPieceRequest{"hash-of-b", 0},
       PeerViolation::foreign_model},
      {"the file of a model that it serves", 1, ModelPieceRequest{"hash-of-a", 0}, std::nullopt},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    FrontendParts parts;
    for (const char* const name : {"a", "b"})
      parts.models.add(byte_model(name, 1000, 10), at_ms(0));
    parts.join(1, "n0", at_ms(0));
    create_gpulet(parts);
    const FrontendEffects effects = parts.send(one.from, one.message, at_ms(1));
    const auto disconnected = only<DisconnectBackend>(effects);
    ASSERT_EQ(disconnected.size(), one.violation ? 1U : 0U);
    if (!one.violation) continue;
    EXPECT_EQ(disconnected[0].backend, BackendId{one.from});
    EXPECT_EQ(parts.messages.violations()[static_cast<std::size_t>(*one.violation)], 1U);
    EXPECT_FALSE(parts.backends.backends().contains(BackendId{one.from}));
    const auto notes = only<EventNote>(effects);
    ASSERT_FALSE(notes.empty());
    EXPECT_TRUE(notes[0].warning);
  }
}

TEST(BackendMessageHandler, RequestsPlansForChanges) {
  struct Case {
    const char* what;
    std::function<FrontendEffects(FrontendParts&)> change;
    bool requested;
    bool urgent;
    std::size_t retired;  // gpulets
  };
  const std::vector<Case> cases = {
      {"a heartbeat", [](FrontendParts& parts) { return parts.send(1, Heartbeat{}, at_ms(1)); },
       false, false, 0},
      {"a node joins", [](FrontendParts& parts) { return parts.join(2, "n1", at_ms(1)); }, true,
       false, 0},
      {"a node drains", [](FrontendParts& parts) { return parts.send(1, Draining{}, at_ms(1)); },
       true, true, 0},
      {"a device is lost",
       [](FrontendParts& parts) {
         return parts.send(1, DeviceReport{0, {StatusCode::unavailable, "Xid 79"}}, at_ms(1));
       },
       true, true, 0},
      {"a gpulet is ready",
       [](FrontendParts& parts) { return parts.send(1, report(GpuletState::ready), at_ms(1)); },
       false, false, 0},
      {"a gpulet restarts",
       [](FrontendParts& parts) {
         return parts.send(1, report(GpuletState::restarting), at_ms(1));
       },
       false, false, 0},
      {"a gpulet ends",
       [](FrontendParts& parts) { return parts.send(1, report(GpuletState::gone), at_ms(1)); },
       true, true, 0},
      {"a gpulet fails",
       [](FrontendParts& parts) { return parts.send(1, report(GpuletState::failed), at_ms(1)); },
       true, true, 1},
      {"a backend disconnects",
       [](FrontendParts& parts) {
         FrontendEffects effects;
         parts.messages.on_disconnected(BackendId{1}, {StatusCode::unavailable, "reset"}, at_ms(1),
                                        effects);
         return effects;
       },
       true, true, 0},
      {"a backend is silent",
       [](FrontendParts& parts) {
         FrontendEffects effects;
         parts.messages.tick(at_ms(2001), Duration::zero(), effects);
         return effects;
       },
       true, true, 0},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    FrontendParts parts;
    parts.models.add(byte_model("a", 1000, 10), at_ms(0));
    parts.join(1, "n0", at_ms(0));
    create_gpulet(parts);
    parts.deployment.in_force().adopt(GpuletId{7}, FrontendParts::plan_for("n0", {"a"}).gpulets[0]);
    parts.plan_requests.begin();
    const FrontendEffects effects = one.change(parts);
    EXPECT_EQ(parts.plan_requests.any(), one.requested);
    EXPECT_EQ(parts.plan_requests.urgent(), one.urgent);
    EXPECT_EQ(commands<RetireGpulet>(effects).size(), one.retired);
  }
}

TEST(BackendMessageHandler, SilenceDoesNotCountWhileThisFrontendStoodStill) {
  FrontendParts parts;
  parts.join(1, "n0", at_ms(0));
  FrontendEffects effects;
  const auto joined = [&parts] { return parts.backends.backends().size(); };
  parts.messages.tick(at_ms(61'000), std::chrono::seconds(60), effects);
  EXPECT_EQ(joined(), 1U);
  parts.messages.tick(at_ms(62'000), Duration::zero(), effects);
  EXPECT_EQ(joined(), 1U);
  parts.messages.tick(at_ms(62'001), Duration::zero(), effects);
  EXPECT_EQ(joined(), 0U);
}

TEST(BackendMessageHandler, TheRequestsOfAGpuletThatEndedWaitForAnother) {
  for (const GpuletState state : {GpuletState::gone, GpuletState::failed}) {
    SCOPED_TRACE(static_cast<int>(state));
    FrontendParts parts;
    parts.models.add(byte_model("a", 1000, 10), at_ms(0));
    parts.join(1, "n0", at_ms(0));
    create_gpulet(parts);
    const ModelIndex index = parts.models.find("a")->current.index;
    parts.dispatcher.set_routes({even_route(7, {index})}, at_ms(0));
    DispatchOutput output;
    parts.dispatcher.enqueue(index, byte_request(1, at_ms(1), at_ms(900)), at_ms(1), output);
    parts.dispatcher.versions().flush(index, at_ms(1), output);
    ASSERT_EQ(output.batches.size(), 1U);
    const BatchId batch = output.batches[0].batch.id;
    ASSERT_TRUE(parts.dispatcher.batches().holder_of(batch));

    GpuletReport ended = report(state);
    ended.cause = FailureCause::device;  // so that the model is not refused
    parts.send(1, ended, at_ms(2));
    EXPECT_FALSE(parts.dispatcher.slots().has_slot(index));
    EXPECT_FALSE(parts.dispatcher.batches().holder_of(batch));
    EXPECT_EQ(parts.dispatcher.queues().queued(index), 1U);
  }
}

// A client can cause such failures, so that they must not fill the log.
TEST(BackendMessageHandler, NotesWhatAModelSaysOfAFailureAndTellsTheClientLess) {
  FrontendParts parts;
  parts.models.add(byte_model("a", 1000, 10), at_ms(0));
  parts.join(1, "n0", at_ms(0));
  create_gpulet(parts);
  const ModelIndex index = parts.models.find("a")->current.index;
  parts.dispatcher.set_routes({even_route(7, {index})}, at_ms(0));
  std::size_t notes = 0;
  for (int i = 1; i <= 20; ++i) {
    DispatchOutput output;
    parts.dispatcher.enqueue(index, byte_request(1, at_ms(i), at_ms(900)), at_ms(i), output);
    parts.dispatcher.versions().flush(index, at_ms(i), output);
    ASSERT_EQ(output.batches.size(), 1U);
    BatchResult result;
    result.id = output.batches[0].batch.id;
    result.status = {StatusCode::invalid, "the model cannot compute this input"};
    result.cause = FailureCause::input;
    result.detail = "ValueError: unlucky token 13\n\x1b[2Jforged line";
    const FrontendEffects effects = parts.send(1, result, at_ms(i));
    const auto replies = only<ReplyToClient>(effects);
    ASSERT_EQ(replies.size(), 1U);
    EXPECT_FALSE(holds(replies[0].reply.status, "unlucky"));
    for (const EventNote& note : only<EventNote>(effects)) {
      ++notes;
      EXPECT_TRUE(note.warning);
      EXPECT_NE(note.text.find("unlucky token 13\\n\\x1b[2Jforged line"), std::string::npos)
          << note.text;
    }
  }
  EXPECT_GE(notes, 1U);
  EXPECT_LE(notes, 5U);
  EXPECT_NE(parts.log.events().back().text.find("unlucky token 13"), std::string::npos);
}

TEST(BackendMessageHandler, SendsFilesOnlyToBackendsThatServeTheModel) {
  FrontendParts parts;
  parts.models.add(byte_model("a", 1000, 10), at_ms(0));
  parts.join(1, "n0", at_ms(0));
  create_gpulet(parts);
  const auto sent =
      only<SendModelFile>(parts.send(1, ModelPieceRequest{"hash-of-a", 100}, at_ms(1)));
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].offset, 100U);
  const auto unknown =
      commands<ModelPiece>(parts.send(1, ModelPieceRequest{"no-such", 0}, at_ms(1)));
  ASSERT_EQ(unknown.size(), 1U);
  EXPECT_EQ(unknown[0].total_bytes, 0U);
}

TEST(BackendMessageHandler, RetiresGpuletsThatNoPlanTakesUp) {
  FrontendParts parts;
  GpuletReport running = report(GpuletState::ready);
  running.size = Share{50};
  running.models = {{"gone", 4, "f-1"}};
  parts.send(1, Hello{"n0", {FrontendParts::device("n0", 0)}, {running}}, at_ms(0));
  FrontendEffects effects;
  parts.messages.retire_unclaimed(at_ms(29'999), effects);
  EXPECT_TRUE(effects.empty());
  parts.messages.retire_unclaimed(at_ms(30'000), effects);
  EXPECT_EQ(commands<RetireGpulet>(effects).size(), 1U);
  parts.messages.retire_unclaimed(at_ms(31'000), effects);
  EXPECT_EQ(commands<RetireGpulet>(effects).size(), 1U) << "once";
}

}  // namespace
}  // namespace gpulet::serve::backend_messages_test
