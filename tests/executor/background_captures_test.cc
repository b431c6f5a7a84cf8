// What is captured before a gpulet serves and what afterwards, on the CPU with a fake capture.
#include "executor/torch/background_captures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <torch/script.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <future>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "executor/torch/batch_sizes.h"
#include "executor/torch/compute_stream.h"
#include "executor/torch/model_file.h"
#include "executor/torch/preparer.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::executor {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

torch::jit::Module doubling() {
  torch::jit::Module module("m");
  module.define("def forward(self, x):\n    return x * 2\n");
  module.eval();
  return module;
}

std::shared_ptr<TorchModel> doubling_model() {
  const TensorSpec tensor{.name = "x", .type = DataType::fp32, .shape = {2}};
  auto made = std::make_shared<TorchModel>();
  made->name = "m";
  made->inputs = {tensor};
  made->outputs = {tensor};
  made->input_sizes = {8};
  made->output_sizes = {8};
  made->network.module = doubling();
  return made;
}

// ---- sizes

TEST(BatchSizes, ThePlannedOnesComeFirst) {
  const std::vector<std::uint32_t> planned{5, 16, 5, 0, 33};
  const BatchSizes sizes = batch_sizes(planned, 32);
  EXPECT_THAT(sizes.first, ElementsAre(5, 16));
  EXPECT_THAT(sizes.later, ElementsAre(1, 2, 3, 4, 6, 8, 12, 24, 32));
}

TEST(BatchSizes, WithoutAPlanAllComeFirst) {
  const BatchSizes sizes = batch_sizes({}, 6);
  EXPECT_THAT(sizes.first, ElementsAre(1, 2, 3, 4, 6));
  EXPECT_THAT(sizes.later, IsEmpty());
}

RC_GTEST_PROP(BatchSizes, EachIsPreparedOnceAndFits, ()) {
  const auto max_batch = *rc::gen::inRange(1U, 1025U);
  const auto planned = *rc::gen::container<std::vector<std::uint32_t>>(rc::gen::inRange(0U, 1100U));
  const BatchSizes sizes = batch_sizes(planned, max_batch);
  std::vector<std::uint32_t> all = sizes.first;
  all.insert(all.end(), sizes.later.begin(), sizes.later.end());
  RC_ASSERT(!sizes.first.empty());
  RC_ASSERT(std::is_sorted(sizes.first.begin(), sizes.first.end()));
  std::sort(all.begin(), all.end());
  RC_ASSERT(std::adjacent_find(all.begin(), all.end()) == all.end());
  RC_ASSERT(all.front() >= 1U && all.back() == max_batch);
  for (const std::uint32_t size : planned) {
    if (size >= 1 && size <= max_batch)
      RC_ASSERT(std::binary_search(sizes.first.begin(), sizes.first.end(), size));
  }
}

// ---- gaps

TEST(CaptureGaps, ACaptureWaitsForAGapButNotForever) {
  const Time start(std::chrono::hours(1));
  CaptureGaps gaps(milliseconds(100));
  gaps.batch_begun();
  EXPECT_FALSE(gaps.start(start));
  gaps.batch_begun();
  gaps.batch_ended();
  EXPECT_FALSE(gaps.start(start + milliseconds(99))) << "a batch is in flight";
  EXPECT_TRUE(gaps.start(start + milliseconds(100)));
  gaps.batch_ended();
  EXPECT_FALSE(gaps.start(start + milliseconds(101))) << "one at a time";
  gaps.capture_ended(start + milliseconds(150));
  EXPECT_TRUE(gaps.start(start + milliseconds(151))) << "a gap";
}

RC_GTEST_PROP(CaptureGaps, WhileBatchesAreInFlightOneStartsPerWaitAtMost, ()) {
  const Duration longest_wait = milliseconds(*rc::gen::inRange(1, 200));
  CaptureGaps gaps(longest_wait);
  Time now(std::chrono::hours(1));
  Time last_end = now;
  std::size_t in_flight = 0;
  bool capturing = false;
  for (int step = *rc::gen::inRange(1, 100); step > 0; --step) {
    now += milliseconds(*rc::gen::inRange(0, 100));
    const int what = *rc::gen::inRange(0, 4);
    if (what == 0) {
      gaps.batch_begun();
      ++in_flight;
    } else if (what == 1 && in_flight > 0) {
      gaps.batch_ended();
      --in_flight;
    } else if (what == 2 && capturing) {
      gaps.capture_ended(now);
      capturing = false;
      last_end = now;
    }
    const bool started = gaps.start(now);
    RC_ASSERT(!(started && capturing));
    if (in_flight == 0 && !capturing) RC_ASSERT(started);
    if (started && in_flight > 0) RC_ASSERT(now - last_end >= longest_wait);
    capturing = capturing || started;
  }
}

// ---- captures on another thread

// Waits until what the preparer has is done, what that posted for later included.
void wait_for(Preparer& preparer) {
  std::promise<void> done;
  preparer.post_later([&done] { done.set_value(); });
  done.get_future().wait();
}
void wait_for(Preparer& preparer, const BackgroundCaptures& captures) {
  while (captures.pending() > 0) wait_for(preparer);
}

class BackgroundCapturesTest : public ::testing::Test {
 protected:
  std::vector<std::uint32_t> made() {
    const std::lock_guard lock(mutex_);
    return made_;
  }
  std::vector<std::uint32_t> taken() {
    std::vector<std::uint32_t> sizes;
    for (const auto& one : captures_->take()) sizes.push_back(one.size);
    return sizes;
  }

  std::mutex mutex_;
  std::vector<std::uint32_t> made_;  // guarded by mutex_
  std::atomic<std::uint32_t> fails_at_ = 0;
  const std::shared_ptr<Preparer> preparer_ = std::make_shared<Preparer>();
  const std::shared_ptr<BackgroundCaptures> captures_ = std::make_shared<BackgroundCaptures>(
      preparer_, [this](const TorchModel&, std::uint32_t size) -> CapturedBatch {
        const std::lock_guard lock(mutex_);
        made_.push_back(size);
        if (size == fails_at_) throw std::runtime_error("cannot be captured");
        return {};
      });
};

TEST_F(BackgroundCapturesTest, NothingIsCapturedBeforeTheStart) {
  captures_->add(doubling_model(), std::vector<std::uint32_t>{1, 2, 3});
  wait_for(*preparer_);
  EXPECT_THAT(made(), IsEmpty());
  EXPECT_EQ(captures_->pending(), 3U);
  captures_->start();
  wait_for(*preparer_, *captures_);
  EXPECT_THAT(taken(), ElementsAre(1, 2, 3));
  EXPECT_THAT(taken(), IsEmpty());
}

TEST_F(BackgroundCapturesTest, ABatchInFlightHoldsThemUp) {
  captures_->batch_begun();
  captures_->start();
  captures_->add(doubling_model(), std::vector<std::uint32_t>{1, 2});
  wait_for(*preparer_);
  EXPECT_THAT(made(), IsEmpty());
  captures_->batch_ended();
  wait_for(*preparer_, *captures_);
  EXPECT_THAT(taken(), ElementsAre(1, 2));
}

TEST_F(BackgroundCapturesTest, AModelThatCannotBeCapturedLosesItsFurtherSizes) {
  fails_at_ = 2;
  captures_->add(doubling_model(), std::vector<std::uint32_t>{1, 2, 3});
  captures_->add(doubling_model(), std::vector<std::uint32_t>{4});
  captures_->start();
  wait_for(*preparer_, *captures_);
  EXPECT_THAT(made(), ElementsAre(1, 2, 4));
  EXPECT_THAT(taken(), ElementsAre(1, 4));
}

TEST_F(BackgroundCapturesTest, AnErasedModelLeavesNothing) {
  const auto leaves = doubling_model();
  captures_->add(leaves, std::vector<std::uint32_t>{1, 2});
  captures_->add(doubling_model(), std::vector<std::uint32_t>{3});
  captures_->start();
  wait_for(*preparer_, *captures_);
  captures_->add(leaves, std::vector<std::uint32_t>{4});
  captures_->erase(*leaves);
  wait_for(*preparer_, *captures_);
  EXPECT_THAT(taken(), ElementsAre(3));
}

TEST_F(BackgroundCapturesTest, NothingIsCapturedAfterTheEnd) {
  captures_->start();
  captures_->batch_begun();
  captures_->add(doubling_model(), std::vector<std::uint32_t>{1});
  captures_->close();
  captures_->batch_ended();
  wait_for(*preparer_);
  EXPECT_THAT(made(), IsEmpty());
  EXPECT_EQ(captures_->pending(), 0U);
}

TEST(PreparerLater, TasksForLaterWaitForTheOthersAndEndWithThePreparer) {
  std::vector<int> order;
  std::promise<void> release;
  std::promise<void> ran;
  {
    Preparer preparer;
    auto busy = preparer.post([&release] { release.get_future().wait(); });
    preparer.post_later([&] {
      order.push_back(3);
      ran.set_value();
    });
    auto first = preparer.post([&order] { order.push_back(1); });
    auto second = preparer.post([&order] { order.push_back(2); });
    release.set_value();
    ran.get_future().wait();
  }
  EXPECT_THAT(order, ElementsAre(1, 2, 3));
}

// ---- on a stream

// Imitates a CUDA graph on the CPU: replay() repeats the work with the same tensors.
class FakeGraph final : public CapturedWork {
 public:
  FakeGraph(std::function<void()> work, std::atomic<int>& replays)
      : work_(std::move(work)), replays_(replays) {
    work_();
  }
  void replay() override {
    ++replays_;
    work_();
  }

 private:
  std::function<void()> work_;
  std::atomic<int>& replays_;
};

class ComputeStreamTest : public ::testing::Test {
 protected:
  [[nodiscard]] CaptureTools tools() {
    return {.make_capture =
                [this] {
                  ++pools_;
                  return [this](const std::function<void()>& work) {
                    return std::make_unique<FakeGraph>(work, replays_);
                  };
                },
            .later = preparer_};
  }
  // Whether a batch of that many rows is computed, and by a replay.
  bool replays(ComputeStream& stream, const TorchModel& model, std::uint32_t count) {
    const int before = replays_;
    const auto rows = static_cast<std::int64_t>(count);
    const at::Tensor input = at::arange(2 * rows, at::kFloat).reshape({rows, 2});
    const auto outputs = stream.run(model, count, {input});
    EXPECT_TRUE(outputs.ok() && outputs.value()[0].equal(input * 2)) << count;
    return replays_ > before;
  }
  void capture_the_rest(ComputeStream& stream) {
    while (stream.sizes_to_capture() > 0) wait_for(*preparer_);
  }

  std::atomic<int> replays_ = 0;
  int pools_ = 0;
  const std::shared_ptr<Preparer> preparer_ = std::make_shared<Preparer>();
};

TEST_F(ComputeStreamTest, IsReadyWithThePlannedSizesAndGetsTheOthersWhileItServes) {
  const auto served = doubling_model();
  served->replayable_sizes = {3};
  ComputeStream stream(c10::kCPU, std::nullopt, tools());
  stream.add(served, {.first = {3}, .later = {1, 2, 6}});
  EXPECT_EQ(stream.sizes_to_capture(), 3U);
  EXPECT_TRUE(replays(stream, *served, 2)) << "as one of three";
  EXPECT_FALSE(replays(stream, *served, 6)) << "larger than what is captured";
  stream.serve();
  capture_the_rest(stream);
  EXPECT_TRUE(replays(stream, *served, 6));
  EXPECT_EQ(pools_, 1);
  stream.erase(*served);
  EXPECT_FALSE(replays(stream, *served, 3));
}

TEST_F(ComputeStreamTest, ChecksPlannedSizesThatTheModelWasNotLoadedFor) {
  const auto served = doubling_model();
  served->replayable_sizes = {8};
  ComputeStream stream(c10::kCPU, std::nullopt, tools());
  stream.add(served, {.first = {4}, .later = {}});
  EXPECT_GT(replays_, 0);
  EXPECT_TRUE(replays(stream, *served, 4));
}

TEST_F(ComputeStreamTest, AModelThatCannotBeCapturedRunsWithoutGraphs) {
  const auto served = doubling_model();
  ComputeStream stream(c10::kCPU, std::nullopt, tools());
  stream.add(served, {.first = {1}, .later = {2}});
  EXPECT_EQ(stream.sizes_to_capture(), 0U);
  EXPECT_FALSE(replays(stream, *served, 1));
}

TEST_F(ComputeStreamTest, CapturesNothingWhileItIsHeldForABatch) {
  const auto served = doubling_model();
  served->replayable_sizes = {1};
  auto stream = std::make_shared<ComputeStream>(c10::kCPU, std::nullopt, tools());
  stream->add(served, {.first = {1}, .later = {2}});
  auto batch = ComputeStream::hold(stream);
  stream->serve();
  wait_for(*preparer_);
  EXPECT_EQ(stream->sizes_to_capture(), 1U);
  std::thread other([&batch] { batch.reset(); });
  other.join();
  capture_the_rest(*stream);
  EXPECT_TRUE(replays(*stream, *served, 2));
}

TEST_F(ComputeStreamTest, ItsEndDropsWhatIsLeftToCapture) {
  const auto served = doubling_model();
  served->replayable_sizes = {1};
  auto stream = std::make_shared<ComputeStream>(c10::kCPU, std::nullopt, tools());
  stream->add(served, {.first = {1}, .later = sizes_to_prepare(1024)});
  stream->serve();
  stream.reset();
  wait_for(*preparer_);
  EXPECT_EQ(served.use_count(), 1);
}

// ---- files

TEST(ModelFile, GivesTheModelOfTheFileAsOftenAsItIsLoaded) {
  const support::TemporaryFolder folder;
  const auto path = folder.path() / "m.pt";
  torch::jit::Module saved = doubling();
  saved.register_parameter("weights", torch::arange(10'000, torch::kFloat), false);
  saved.save(path.string());
  const auto file = ModelFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  torch::jit::Module first = file.value().load(c10::kCPU);
  first.attr("weights").toTensor().zero_();
  torch::jit::Module second = file.value().load(c10::kCPU);
  EXPECT_TRUE(second.attr("weights").toTensor().equal(torch::arange(10'000, torch::kFloat)))
      << "each has weights of its own";
  EXPECT_EQ(second.forward({torch::ones({1})}).toTensor().item<float>(), 2);
}

TEST(ModelFile, OtherFilesAreRejected) {
  const support::TemporaryFolder folder;
  EXPECT_EQ(ModelFile::open(folder.path() / "none").status().code(), StatusCode::internal);
  for (const char* content : {"", "PK", "text that is no archive"}) {
    const auto path = folder.path() / "other";
    std::ofstream(path) << content;
    const auto file = ModelFile::open(path);
    ASSERT_TRUE(file.ok());
    EXPECT_ANY_THROW((void)file.value().load(c10::kCPU)) << content;
  }
}

}  // namespace
}  // namespace gpulet::executor
