#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "backend/proxy_link.h"

namespace gpulet::backend {
namespace {

Result<std::shared_ptr<SlotMemory>> create(std::uint32_t slots, std::size_t input,
                                           std::size_t output) {
  return SlotMemory::create(SlotMemory::make_file().value(), slots, input, output);
}

std::shared_ptr<SlotMemory> make(std::uint32_t slots, std::size_t input = 100,
                                 std::size_t output = 10) {
  auto made = create(slots, input, output);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return std::move(made).value();
}

TEST(SlotMemory, GivesEachSlotOnceUntilReleased) {
  const auto memory = make(2);
  auto first = memory->take(100);
  auto second = memory->take(100);
  ASSERT_TRUE(first && second);
  EXPECT_NE(first->view().data(), second->view().data());
  EXPECT_FALSE(memory->take(1));
  first.reset();
  EXPECT_TRUE(memory->take(1));
}

TEST(SlotMemory, RemembersTheZerosThatAreStillThere) {
  const auto memory = make(1);
  const auto zeros = [&](std::size_t bytes) { return memory->take_zeros(bytes)->freeze(); };
  EXPECT_FALSE(memory->has_zeros(zeros(10)));
  memory->set_zeros(zeros(10));
  EXPECT_TRUE(memory->has_zeros(zeros(10)));
  EXPECT_TRUE(memory->has_zeros(zeros(3)));
  EXPECT_FALSE(memory->has_zeros(zeros(11)));
  memory->set_zeros(zeros(3));
  EXPECT_TRUE(memory->has_zeros(zeros(10)));
  EXPECT_TRUE(memory->take(1));
  EXPECT_FALSE(memory->has_zeros(zeros(1))) << "somebody may have written there";
  const auto taken = memory->take(1);
  EXPECT_FALSE(memory->take_zeros(1)) << "none is free";
}

TEST(SlotMemory, KeepsASlotWhileItsOutputsExist) {
  const auto memory = make(1);
  Bytes part;
  {
    const auto input = memory->take(100)->freeze();
    const auto outputs = memory->outputs_beside(input, 10);
    part = outputs.slice(2, 3);
  }
  EXPECT_FALSE(memory->take(1));
  part = {};
  EXPECT_TRUE(memory->take(1));
}

TEST(SlotMemory, OutlivesItsOwnerWhileSlotsExist) {
  auto memory = make(1);
  auto input = memory->take(100);
  ASSERT_TRUE(input);
  memory.reset();
  input->view()[99] = std::byte{1};
  EXPECT_EQ(input->freeze().view()[99], std::byte{1});
}

TEST(SlotMemory, AreasAreDisjointAndInsideTheMemory) {
  const auto memory = make(3, 5000, 3);
  std::set<std::uint64_t> offsets;
  std::vector<Bytes> held;
  while (auto input = memory->take(5000)) {
    held.push_back(input->freeze());
    const auto slot = memory->slot_of(held.back());
    ASSERT_TRUE(slot);
    EXPECT_GE(slot->output_offset, slot->input_offset + 5000);
    EXPECT_GE(slot->output_capacity, 3U);
    EXPECT_LE(slot->output_offset + slot->output_capacity, memory->size());
    EXPECT_TRUE(offsets.insert(slot->input_offset).second);
  }
  EXPECT_EQ(held.size(), 3U);
}

TEST(SlotMemory, DetectsBytesThatAreNotItsOwn) {
  const auto memory = make(1);
  const auto other = make(1)->take(10)->freeze();
  EXPECT_FALSE(memory->slot_of(other));
  EXPECT_FALSE(memory->slot_of(Bytes::own(std::vector<std::byte>(10))));
  EXPECT_FALSE(memory->slot_of(Bytes()));
  EXPECT_FALSE(memory->slot_of(memory->take(10)->freeze().slice(1, 2)))
      << "not the beginning of a slot";
}

TEST(SlotMemory, RejectsInvalidSizes) {
  EXPECT_EQ(create(0, 1, 1).status().code(), StatusCode::invalid);
  EXPECT_EQ(create(65, 1, 1).status().code(), StatusCode::invalid);
  EXPECT_EQ(create(4, std::numeric_limits<std::size_t>::max(), 1).status().code(),
            StatusCode::invalid);
  EXPECT_FALSE(make(1, 100)->take(1U << 20U));
}

TEST(SlotMemory, SlotsMayBeReleasedOnAnotherThread) {
  const auto memory = make(4);
  for (int round = 0; round < 200; ++round) {
    auto input = memory->take(100);
    while (!input) input = memory->take(100);
    std::jthread([given = std::move(*input)]() mutable { given = {}; });
  }
}

}  // namespace
}  // namespace gpulet::backend
