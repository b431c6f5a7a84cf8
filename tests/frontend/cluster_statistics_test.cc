#include "frontend/cluster/cluster_statistics.h"

#include <gtest/gtest.h>

#include <utility>

namespace gpulet::frontend {
namespace {

InferenceStatistics counted(const std::string& name, std::uint64_t requests,
                            std::vector<BatchCount> batches = {}) {
  InferenceStatistics one;
  one.name = name;
  one.version = "1";
  one.inference_count = requests;
  one.execution_count = requests / 2;
  one.last_inference_ms = 1000 + requests;
  one.success = {requests, 10 * requests};
  one.fail = {1, 5};
  one.batches = std::move(batches);
  return one;
}

TEST(AddStatistics, AddsCountsByModelAndBatchSize) {
  std::vector<InferenceStatistics> sum{counted("a", 4, {{2, {1, 10}, {1, 20}, {1, 30}}}),
                                       counted("b", 0)};
  add_statistics(sum, {counted("a", 6, {{1, {1, 1}, {1, 1}, {1, 1}}, {2, {2, 1}, {2, 2}, {2, 3}}}),
                       counted("only there", 9)});
  ASSERT_EQ(sum.size(), 2U);
  EXPECT_EQ(sum[0].inference_count, 10U);
  EXPECT_EQ(sum[0].execution_count, 5U);
  EXPECT_EQ(sum[0].last_inference_ms, 1006U);
  EXPECT_EQ(sum[0].success, (DurationCount{10, 100}));
  EXPECT_EQ(sum[0].fail, (DurationCount{2, 10}));
  EXPECT_EQ(sum[0].batches,
            (std::vector<BatchCount>{{1, {1, 1}, {1, 1}, {1, 1}}, {2, {3, 11}, {3, 22}, {3, 33}}}));
  EXPECT_EQ(sum[1], counted("b", 0));
}

class ClusterStatisticsTest : public ::testing::Test {
 protected:
  using Others = ClusterStatistics::Others;

  static ClusterStatistics::Statistics all_of(std::vector<InferenceStatistics> models) {
    return std::make_shared<const std::vector<InferenceStatistics>>(std::move(models));
  }

  std::vector<std::pair<std::string, std::function<void(Others)>>> asked_;
  ClusterStatistics statistics_{[this](const std::string& model, std::function<void(Others)> done) {
    asked_.emplace_back(model, std::move(done));
  }};
};

TEST_F(ClusterStatisticsTest, CountAllFrontendsThatAnswer) {
  std::uint64_t requests = 0;
  statistics_.add("a", all_of({counted("a", 1)}),
                  [&](const auto& sum) { requests = sum->at(0).inference_count; });
  ASSERT_EQ(asked_.size(), 1U);
  EXPECT_EQ(asked_[0].first, "a");
  EXPECT_EQ(requests, 0U) << "until the others have answered";
  asked_[0].second({{counted("a", 2)}, {counted("a", 3)}});
  EXPECT_EQ(requests, 6U);
}

TEST_F(ClusterStatisticsTest, AskOnceForTheSameListOfAllModels) {
  const auto own = all_of({counted("a", 1)});
  std::vector<ClusterStatistics::Statistics> sums;
  const auto add = [&](const ClusterStatistics::Statistics& one) {
    statistics_.add("", one, [&](const auto& sum) { sums.push_back(sum); });
  };
  add(own);
  add(own);
  ASSERT_EQ(asked_.size(), 1U);
  asked_[0].second({{counted("a", 2)}});
  add(own);
  ASSERT_EQ(sums.size(), 3U);
  EXPECT_EQ(asked_.size(), 1U);
  EXPECT_EQ(sums[0]->at(0).inference_count, 3U);
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_EQ(sums[0], sums[2]);
  add(all_of({counted("a", 2)}));
  EXPECT_EQ(asked_.size(), 2U);
}

}  // namespace
}  // namespace gpulet::frontend
