// The limits of clients' messages.
#include "frontend/options.h"

#include <gtest/gtest.h>

namespace gpulet::frontend {
namespace {

constexpr std::size_t kFloor = 64U << 20U;

serve::Catalogue catalogue_of(std::int64_t elements, std::uint32_t max_batch) {
  serve::ServedModel model;
  model.inputs = {{"x", DataType::fp64, {elements}}};
  model.max_batch = max_batch;
  serve::Catalogue catalogue;
  catalogue.models.push_back(model);
  return catalogue;
}

TEST(PayloadLimits, FollowWhatAFullBatchNeeds) {
  config::FrontendConfig config;
  EXPECT_EQ(largest_message(config, {}), kFloor);
  EXPECT_EQ(largest_message(config, catalogue_of(1000, 32)), kFloor);
  EXPECT_GE(largest_message(config, catalogue_of(1'000'000, 32)), 256'000'000U);
  EXPECT_GE(client_options(config, false).limits.max_payload_bytes, 256'000'000U);
}

TEST(PayloadLimits, AreWhatIsConfigured) {
  config::FrontendConfig config;
  config.max_payload_bytes = 1000;
  EXPECT_EQ(largest_message(config, catalogue_of(1'000'000, 32)), 1000U);
  EXPECT_EQ(largest_payload(config), 1000U);
  EXPECT_EQ(client_options(config, false).limits.max_payload_bytes, 1000U);
}

TEST(PayloadLimits, AreNeverMoreThanMayBeBuffered) {
  config::FrontendConfig config;
  config.max_buffered_mb = 100;
  EXPECT_EQ(largest_message(config, catalogue_of(1'000'000, 32)), 100U << 20U);
  EXPECT_EQ(largest_payload(config), 100U << 20U);
}

}  // namespace
}  // namespace gpulet::frontend
