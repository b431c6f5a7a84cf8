#include "proxy/image_stage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "gpulet/base/files.h"
#include "gpulet/executor/simulated_executor.h"
#include "gpulet/image/image.h"
#include "proxy/model_runner.h"
#include "tests/proxy/proxy_peer.h"

namespace gpulet::proxy {
namespace {

constexpr std::size_t kSlotBytes = 4096;
constexpr std::size_t kPixelBytes = std::size_t{4} * 4 * image::kChannels;

std::string file(const std::string& name) {
  const auto bytes =
      read_file(std::string(GPULET_SOURCE_DIR) + "/tests/image/data/" + name).value();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

image::Preprocessing preprocessing() {
  image::Preprocessing made;
  made.width = made.height = 4;
  made.type = DataType::uint8;
  return made;
}

// An image and a number; the outputs are the bytes of the inputs.
ModelToLoad photo_model() {
  return {.name = "photos",
          .file = "",
          .inputs = {{"photo", DataType::bytes, {1}, kSlotBytes, {}, preprocessing()},
                     {"n", DataType::uint8, {1}}},
          .outputs = {{"pixels", DataType::uint8, {kPixelBytes + 1}}},
          .max_batch = 4};
}

std::string slot(const std::string& encoded) {
  std::string bytes;
  append_element(bytes, encoded);
  bytes.resize(kSlotBytes, '\0');
  return bytes;
}

std::string tensor_of(const std::string& encoded) {
  std::string tensor(kPixelBytes, '\0');
  EXPECT_TRUE(image::decode_to_tensor(std::as_bytes(std::span(encoded)), preprocessing(),
                                      std::as_writable_bytes(std::span(tensor)))
                  .ok());
  return tensor;
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Result<DecodedBatch> decode(ImageStage& stage, std::uint32_t count, const std::string& input) {
  return stage.decode("photos", count, std::as_bytes(std::span(input)));
}

TEST(ImageStage, LoadsTheModelAsItsFileIs) {
  ImageStage stage;
  const ModelToLoad inner = stage.load(photo_model());
  EXPECT_EQ(inner.inputs[0].type, DataType::uint8);
  EXPECT_EQ(inner.inputs[0].shape, (std::vector<std::int64_t>{3, 4, 4}));
  EXPECT_EQ(inner.inputs[1], photo_model().inputs[1]);
  EXPECT_TRUE(stage.decodes("photos"));
  ModelToLoad other = photo_model();
  other.name = "other";
  other.inputs.erase(other.inputs.begin());
  EXPECT_EQ(stage.load(other).inputs, other.inputs);
  EXPECT_FALSE(stage.decodes("other"));
}

TEST(ImageStage, DecodesEachRow) {
  ImageStage stage;
  static_cast<void>(stage.load(photo_model()));
  const std::string one = file("baseline.jpg");
  const std::string two = file("palette.png");
  const auto batch = decode(stage, 2, slot(one) + slot(two) + "ab");
  ASSERT_TRUE(batch.ok()) << batch.status().to_string();
  EXPECT_EQ(text_of(batch.value().input), tensor_of(one) + tensor_of(two) + "ab");
  EXPECT_TRUE(batch.value().failed.empty());
}

TEST(ImageStage, ABadImageFailsItsRowAndLeavesNothingOfOthers) {
  ImageStage stage;
  static_cast<void>(stage.load(photo_model()));
  const std::string good = file("baseline.jpg");
  ASSERT_TRUE(decode(stage, 3, slot(good) + slot(good) + slot(good) + "abc").ok());
  const auto batch = decode(stage, 3, slot(file("truncated.jpg")) + slot(good) + slot("") + "abc");
  ASSERT_TRUE(batch.ok()) << batch.status().to_string();
  const std::string black(kPixelBytes, '\0');
  EXPECT_EQ(text_of(batch.value().input), black + tensor_of(good) + black + "abc");
  std::vector<std::uint32_t> rows;
  for (const FailedRow& failed : batch.value().failed) {
    EXPECT_EQ(failed.why.code(), StatusCode::invalid);
    rows.push_back(failed.row);
  }
  std::sort(rows.begin(), rows.end());
  EXPECT_EQ(rows, (std::vector<std::uint32_t>{0, 2}));
}

TEST(ImageStage, DecodesTheSmallestFirstWhereTimeIsShort) {
  ImageStage stage(Duration::zero());
  static_cast<void>(stage.load(photo_model()));
  const std::string small = file("baseline.jpg");
  const std::string large = file("wide.png");
  const auto batch = decode(stage, 3, slot(large) + slot(small) + slot(large) + "abc");
  ASSERT_TRUE(batch.ok()) << batch.status().to_string();
  EXPECT_EQ(text_of(batch.value().input).substr(kPixelBytes, kPixelBytes), tensor_of(small));
  ASSERT_EQ(batch.value().failed.size(), 2U);
  for (const FailedRow& failed : batch.value().failed) {
    EXPECT_NE(failed.row, 1U);
    EXPECT_EQ(failed.why.code(), StatusCode::overloaded);
  }
}

TEST(ImageStage, SlotsThatAreNoStringsFailTheirRows) {
  ImageStage stage;
  static_cast<void>(stage.load(photo_model()));
  const auto batch = decode(stage, 1, std::string(kSlotBytes, '\xff') + "a");
  ASSERT_TRUE(batch.ok()) << batch.status().to_string();
  EXPECT_EQ(batch.value().failed.size(), 1U);
}

TEST(ImageStage, RefusesABatchOfAnotherSize) {
  ImageStage stage;
  static_cast<void>(stage.load(photo_model()));
  EXPECT_EQ(decode(stage, 2, slot("")).status().code(), StatusCode::internal);
}

TEST(ImageStage, ThreadsShareTheImagesOfABatch) {
  ImageStage stage;
  static_cast<void>(stage.load(photo_model()));
  stage.set_threads(3);
  const std::vector<std::string> files{file("baseline.jpg"), file("palette.png"), file("gray.jpg"),
                                       file("truncated.jpg"), file("colour.png")};
  for (int i = 0; i < 20; ++i) {
    std::string input;
    for (const std::string& one : files) input += slot(one);
    const auto batch = decode(stage, 5, input + "abcde");
    ASSERT_TRUE(batch.ok()) << batch.status().to_string();
    for (std::size_t row : {0U, 1U, 2U, 4U})
      EXPECT_EQ(text_of(batch.value().input).substr(row * kPixelBytes, kPixelBytes),
                tensor_of(files[row]));
    ASSERT_EQ(batch.value().failed.size(), 1U);
    EXPECT_EQ(batch.value().failed[0].row, 3U);
  }
}

TEST(ImageStage, KeepsTheBatchesInFlight) {
  ImageStage stage;
  static_cast<void>(stage.load(photo_model()));
  stage.set_depth(2);
  const std::string one = file("baseline.jpg");
  const std::string two = file("palette.png");
  const auto first = decode(stage, 1, slot(one) + "a");
  const auto second = decode(stage, 1, slot(two) + "b");
  EXPECT_EQ(text_of(first.value().input), tensor_of(one) + "a");
  EXPECT_EQ(text_of(second.value().input), tensor_of(two) + "b");
}

TEST(ModelRunner, DecodesTheImagesOfABatch) {
  const std::string good = file("baseline.jpg");
  const std::string input = slot(good) + slot("no image") + "ab";
  ProxyPeer peer(4 * kSlotBytes);
  const ProxyOptions options{.control_fd = -1, .memory_fd = peer.memory_fd()};
  ModelRunner runner(
      options,
      [](const LoadModels&) -> Result<std::unique_ptr<executor::Executor>> {
        return std::unique_ptr<executor::Executor>(std::make_unique<executor::SimulatedExecutor>());
      },
      [] { return false; });
  const ProxyReady ready =
      runner.load({.models = {photo_model()}, .memory_bytes = peer.memory().size()});
  ASSERT_TRUE(ready.status.ok()) << ready.status.to_string();

  peer.write(0, input);
  RunBatch batch;
  batch.id = BatchId{7};
  batch.model = "photos";
  batch.count = 2;
  batch.input_bytes = input.size();
  batch.output_offset = 3 * kSlotBytes;
  batch.output_capacity = 2 * (kPixelBytes + 1);
  batch.start_within = std::chrono::hours(1);
  const BatchRan ran = runner.run(batch, Clock::now());
  ASSERT_TRUE(ran.status.ok()) << ran.status.to_string();
  EXPECT_EQ(peer.read(batch.output_offset, kPixelBytes + 1), tensor_of(good) + "a");
  ASSERT_EQ(ran.failed.size(), 1U);
  EXPECT_EQ(ran.failed[0].row, 1U);
  EXPECT_GT(ran.decoded, Duration::zero());
  EXPECT_LE(ran.decoded, ran.executed);
}

}  // namespace
}  // namespace gpulet::proxy
