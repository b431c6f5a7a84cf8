#include <gtest/gtest.h>

#include <string>

#include "gpulet/config/cluster_config.h"
#include "tests/config/error_case.h"

namespace gpulet::config {
namespace {

std::string model(const std::string& members) {
  return R"({"models":[{"name":"a","slo_ms":5,)" + members + "}]}";
}

TEST(WorkloadConfig, ReadsTheThreeKindsOfArrivals) {
  const auto workload = parse_workload(
      R"({"models":[{"name":"a","rate":100,"slo_ms":50,"input":{"file":"x.f32","labels":"/x.labels"}},
                    {"name":"b","rate":5,"slo_ms":400,"arrivals":"uniform"},
                    {"name":"c","slo_ms":400,"arrivals":"closed","concurrency":4}]})",
      "/conf/w.json");
  ASSERT_TRUE(workload.ok()) << workload.status().to_string();
  const auto& models = workload.value();
  ASSERT_EQ(models.size(), 3U);
  EXPECT_EQ(models[0].arrivals, Arrivals::poisson);
  EXPECT_EQ(models[0].rate, 100);
  ASSERT_TRUE(models[0].input.has_value());
  EXPECT_EQ(models[0].input->file, "/conf/x.f32");
  EXPECT_EQ(models[0].input->labels, "/x.labels");
  EXPECT_EQ(models[1].arrivals, Arrivals::uniform);
  EXPECT_EQ(models[2].arrivals, Arrivals::closed);
  EXPECT_EQ(models[2].concurrency, 4U);
}

TEST(WorkloadConfig, ErrorsNamePlaceAndValue) {
  expect_errors(
      {
          {model(R"("arrivals":"poisson")"), "/models/0/rate: "},
          {model(R"("rate":1,"arrivals":"poison")"), "/models/0/arrivals: ", R"("poison")"},
          {model(R"("rate":1,"concurrency":2)"), "/models/0/concurrency: ", R"("arrivals")"},
          {model(R"("rate":1,"arrivals":"closed")"), "/models/0/rate: ", R"("arrivals")"},
          {model(R"("rate":1,"input":{"labels":"l"})"), "/models/0/input/file: "},
      },
      parse_workload);
}

}  // namespace
}  // namespace gpulet::config
