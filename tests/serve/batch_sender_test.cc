#include "serve/dispatch/batch_sender.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <vector>

#include "tests/support/serve/dispatch_parts.h"
#include "tests/support/serve/world.h"

namespace gpulet::serve::batch_sender_test {
namespace {

using std::chrono::milliseconds;
using testing::at;
using testing::byte_model;
using testing::byte_request;
using testing::DispatchParts;
using testing::even_route;
using testing::tags_of;

// Gpulet 1 takes up to 3 requests of model "a"; a batch of n takes 10 n ms.
struct Sending {
  Sending() {
    GpuletRoute route = even_route(1, {0});
    route.backend = BackendId{8};
    route.slots[0].execution = {milliseconds(10), milliseconds(20), milliseconds(30)};
    parts.gpulets.set_routes({route}, at(0));
  }
  DispatchParts parts{{byte_model("a", 100, 0)}};
  DispatchOutput out;
};

// Only a batch of nothing else is sent without bytes.
TEST(BatchSender, SyntheticRequestsHaveNoBytes) {
  for (const bool others : {false, true}) {
    Sending sending;
    DispatchParts& parts = sending.parts;
    Request synthetic = byte_request(1, at(0), at(90));
    synthetic.input = Bytes();
    synthetic.synthetic = true;
    parts.push(0, synthetic);
    if (others) parts.push(0, byte_request(2, at(0), at(100)));
    parts.sender.send_next(parts.slot(1, 0), 2, at(50), sending.out);
    ASSERT_EQ(sending.out.batches.size(), 1U);
    const Batch& batch = sending.out.batches[0].batch;
    EXPECT_EQ(batch.synthetic, !others);
    ASSERT_EQ(batch.inputs.size(), others ? 2U : 0U);
    if (!others) continue;
    EXPECT_EQ(batch.inputs[0].view()[0], std::byte{0});
    EXPECT_EQ(batch.inputs[1].view()[0], std::byte{2});
  }
}

TEST(BatchSender, ABatchHasItsRequestsAndWhatTheGpuletShouldKnow) {
  Sending sending;
  DispatchParts& parts = sending.parts;
  parts.push(0, byte_request(1, at(0), at(90)));
  parts.push(0, byte_request(2, at(0), at(100)));
  parts.sender.send_next(parts.slot(1, 0), 2, at(50), sending.out);
  ASSERT_EQ(sending.out.batches.size(), 1U);
  EXPECT_EQ(sending.out.batches[0].backend, BackendId{8});
  const Batch& batch = sending.out.batches[0].batch;
  EXPECT_EQ(batch.gpulet, GpuletId{1});
  EXPECT_EQ(batch.model, "a");
  EXPECT_EQ(batch.count, 2U);
  EXPECT_EQ(batch.expected_duration, milliseconds(20));
  EXPECT_EQ(batch.start_within, milliseconds(30)) << "while its last request can be in time";
  const BatchInFlight& held = *parts.batches.find(batch.id);
  EXPECT_EQ(tags_of(held.requests), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(held.backend, BackendId{8});
  EXPECT_EQ(held.expected, milliseconds(20));
  EXPECT_EQ(held.planned, 3U);
  EXPECT_EQ(held.predicted_end, at(70));
  EXPECT_EQ(held.answer_by, at(90));
  for (const Request& request : held.requests) {
    EXPECT_EQ(request.trace.dispatched, at(50));
    EXPECT_EQ(request.trace.gpulet, GpuletId{1});
    EXPECT_EQ(request.trace.batch, batch.id);
    EXPECT_EQ(request.trace.batch_size, 2U);
  }
  EXPECT_EQ(parts.gpulet(1).in_flight, 1U);
  EXPECT_EQ(parts.gpulet(1).busy_until, at(70));
  EXPECT_EQ(parts.queues.queued(0), 0U);
}

TEST(BatchSender, TheNextBatchStartsAfterTheOneInFlight) {
  Sending sending;
  DispatchParts& parts = sending.parts;
  for (std::uint64_t tag = 1; tag <= 2; ++tag) parts.push(0, byte_request(tag, at(0), at(500)));
  const Batch first = parts.send(1, 0, 1, at(0));
  const Batch second = parts.send(1, 0, 1, at(0));
  EXPECT_NE(first.id, second.id);
  EXPECT_EQ(parts.batches.find(second.id)->predicted_end, at(20));
}

TEST(BatchSender, RequestsThatCannotBeServedInTimeStayBehind) {
  Sending sending;
  DispatchParts& parts = sending.parts;
  parts.push(0, byte_request(1, at(0), at(5)));
  parts.push(0, byte_request(2, at(0), at(100)));
  const Batch batch = parts.send(1, 0, 1, at(0));
  EXPECT_EQ(tags_of(parts.batches.find(batch.id)->requests), std::vector<std::uint64_t>{2});
  EXPECT_EQ(tags_of(parts.queues.take_all(0)), std::vector<std::uint64_t>{1});
}

TEST(BatchSender, AGivenRequestMayBeLate) {
  Sending sending;
  std::vector<Request> late;
  late.push_back(byte_request(1, at(0), at(5)));
  sending.parts.sender.send(sending.parts.slot(1, 0), std::move(late), at(50), sending.out);
  ASSERT_EQ(sending.out.batches.size(), 1U);
  EXPECT_EQ(sending.out.batches[0].batch.start_within, Duration::zero());
}

// Each waiting request is in one batch, and each batch has a number of its own.
RC_GTEST_PROP(BatchSenderProperty, EachRequestIsSentOnce, ()) {
  Sending sending;
  DispatchParts& parts = sending.parts;
  const auto count = *rc::gen::inRange<std::uint64_t>(1, 30);
  for (std::uint64_t tag = 1; tag <= count; ++tag)
    parts.push(0, byte_request(tag, at(0), at(*rc::gen::inRange(5000, 9000))));
  while (parts.queues.queued(0) > 0) {
    const auto most = *rc::gen::inRange<std::size_t>(1, 4);
    const std::size_t before = parts.queues.queued(0);
    parts.sender.send_next(parts.slot(1, 0), most, at(0), sending.out);
    RC_ASSERT(before - parts.queues.queued(0) == std::min(before, most));
  }
  std::set<std::uint64_t> tags;
  std::set<BatchId> ids;
  Duration expected{};
  for (const BatchToSend& sent : sending.out.batches) {
    RC_ASSERT(ids.insert(sent.batch.id).second);
    RC_ASSERT(parts.batches.was_sent(sent.batch.id));
    const BatchInFlight& held = *parts.batches.find(sent.batch.id);
    RC_ASSERT(held.requests.size() == sent.batch.count);
    for (const Request& request : held.requests) RC_ASSERT(tags.insert(request.tag).second);
    expected += held.expected;
  }
  RC_ASSERT(tags.size() == count);
  RC_ASSERT(parts.gpulet(1).in_flight == ids.size());
  RC_ASSERT(parts.gpulet(1).busy_until == at(0) + expected);
}

}  // namespace
}  // namespace gpulet::serve::batch_sender_test
