#include "gpulet/config/workload_config.h"

#include <gtest/gtest.h>

#include <string>

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

TEST(WorkloadConfig, ErrorsNamePlaceValueAndMend) {
  expect_errors(
      {
          {model(R"("arrivals":"poisson")"),
           "/models/0/rate: is missing; write a number of at least 0"},
          {model(R"("rate":1,"arrivals":"poison")"),
           R"(/models/0/arrivals: "poison" is not known here; write "poisson" )"
           "(known here: poisson, uniform, closed)"},
          {model(R"("rate":1,"concurrency":2)"),
           "/models/0/concurrency: an open loop does not bound its concurrency; "
           R"(take it out, or write "arrivals":"closed")"},
          {model(R"("rate":1,"arrivals":"closed")"),
           "/models/0/rate: a closed loop has no rate: it sends when an answer came; "
           R"(take it out, or write "arrivals":"poisson")"},
          {model(R"("rate":1,"input":{"labels":"l"})"),
           "/models/0/input/file: is missing; write the path of a file of raw inputs"},
      },
      parse_workload);
}

}  // namespace
}  // namespace gpulet::config
