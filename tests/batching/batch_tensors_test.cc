#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

#include "gpulet/batching/request_queue.h"

namespace gpulet::batching {
namespace {

std::vector<std::byte> flatten(const std::vector<Bytes>& slices) {
  std::vector<std::byte> all;
  for (const Bytes& slice : slices) all.insert(all.end(), slice.view().begin(), slice.view().end());
  return all;
}

std::vector<std::byte> numbered(std::size_t size, unsigned first) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>((first + i) & 0xffU);
  return bytes;
}

TEST(BatchTensorsTest, GroupsTheInputsByTensor) {
  std::vector<Request> requests(2);
  requests[0].input = Bytes::own(numbered(5, 0));  // first input 2 bytes, second 3
  requests[1].input = Bytes::own(numbered(5, 10));
  const std::vector<std::size_t> sizes{2, 3};
  const std::vector<std::byte> batch = flatten(gather_inputs(requests, sizes));
  const std::vector<unsigned> expected{0, 1, 10, 11, 2, 3, 4, 12, 13, 14};
  ASSERT_EQ(batch.size(), expected.size());
  for (std::size_t i = 0; i < batch.size(); ++i) {
    EXPECT_EQ(std::to_integer<unsigned>(batch[i]), expected[i]) << i;
  }
}

TEST(BatchTensorsTest, ASyntheticRequestAmongOthersHasZeros) {
  std::vector<Request> requests(2);
  requests[0].synthetic = true;
  requests[1].input = Bytes::own(numbered(5, 10));
  const std::vector<std::size_t> sizes{2, 3};
  const std::vector<std::byte> batch = flatten(gather_inputs(requests, sizes));
  const std::vector<unsigned> expected{0, 0, 10, 11, 0, 0, 0, 12, 13, 14};
  ASSERT_EQ(batch.size(), expected.size());
  for (std::size_t i = 0; i < batch.size(); ++i)
    EXPECT_EQ(std::to_integer<unsigned>(batch[i]), expected[i]) << i;
}

TEST(BatchTensorsTest, RefusesOutputsOfTheWrongSize) {
  const std::vector<std::size_t> sizes{4};
  EXPECT_EQ(check_outputs(Bytes::own(numbered(9, 0)), 2, sizes).code(), StatusCode::internal);
  EXPECT_TRUE(check_outputs(Bytes::own(numbered(8, 0)), 2, sizes).ok());
}

// An executor that returns its inputs: each request must get its own input back.
RC_GTEST_PROP(BatchTensorsProperty, ScatterUndoesGather, ()) {
  const auto count = *rc::gen::inRange<std::size_t>(1, 9);
  const auto sizes = *rc::gen::container<std::vector<std::size_t>>(
      *rc::gen::inRange<std::size_t>(1, 4), rc::gen::inRange<std::size_t>(1, 7));
  std::size_t total = 0;
  for (const std::size_t size : sizes) total += size;
  std::vector<Request> requests(count);
  for (std::size_t i = 0; i < count; ++i) {
    requests[i].input = Bytes::own(numbered(total, static_cast<unsigned>(17 * i)));
  }
  const Bytes outputs = Bytes::own(flatten(gather_inputs(requests, sizes)));
  RC_ASSERT(check_outputs(outputs, count, sizes).ok());
  for (std::size_t i = 0; i < count; ++i) {
    RC_ASSERT(flatten(scatter_outputs(outputs, count, i, sizes)) ==
              numbered(total, static_cast<unsigned>(17 * i)));
  }
}

}  // namespace
}  // namespace gpulet::batching
