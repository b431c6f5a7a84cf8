#include "gpulet/frontend/setup.h"

#include <gtest/gtest.h>

#include <string>

#include "frontend/options.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::frontend {
namespace {

class SetupTest : public ::testing::Test {
 protected:
  SetupTest() {
    config_.models = directory_ / "models.json";
    config_.profiles = directory_ / "profiles";
  }
  [[nodiscard]] std::string error() const {
    const auto setup = make_setup(config_, 1);
    return setup.ok() ? "" : setup.status().message();
  }

  support::TemporaryFolder folder_;
  const std::filesystem::path directory_ = folder_.path();
  config::FrontendConfig config_;
  const std::string models_ = R"({"models":[{"name":"a","file":"a.pt","slo_ms":50,
      "inputs":[{"name":"x","type":"FP32","shape":[1]}],"outputs":[{"name":"y","type":"FP32","shape":[1]}]}]})";
};

TEST_F(SetupTest, NamesAMissingModelsFile) {
  EXPECT_NE(error().find((directory_ / "models.json").string()), std::string::npos) << error();
}

TEST_F(SetupTest, NamesAMissingModelFileAndTheFix) {
  folder_.write("models.json", models_);
  EXPECT_NE(error().find("a.pt"), std::string::npos) << error();
  EXPECT_NE(error().find("export_models.py"), std::string::npos) << error();
}

TEST_F(SetupTest, NamesAMissingProfilesFolderAndTheFix) {
  folder_.write("models.json", models_);
  folder_.write("a.pt", "a model");
  EXPECT_NE(error().find((directory_ / "profiles").string()), std::string::npos) << error();
  EXPECT_NE(error().find("gpulet profile"), std::string::npos) << error();
}

constexpr std::size_t kFloor = 64U << 20U;

serve::Catalogue catalogue_of(std::int64_t elements, std::uint32_t max_batch) {
  serve::ServedModel model;
  model.inputs = {{"x", DataType::fp64, {elements}}};
  model.max_batch = max_batch;
  serve::Catalogue catalogue;
  catalogue.models.push_back(model);
  return catalogue;
}

TEST(PayloadLimitsTest, FollowTheSizeOfAFullBatch) {
  config::FrontendConfig config;
  EXPECT_EQ(largest_message(config, {}), kFloor);
  EXPECT_EQ(largest_message(config, catalogue_of(1000, 32)), kFloor);
  EXPECT_GE(largest_message(config, catalogue_of(1'000'000, 32)), 256'000'000U);
  EXPECT_GE(client_options(config, false).limits.max_payload_bytes, 256'000'000U);
}

TEST(PayloadLimitsTest, FollowTheConfiguration) {
  config::FrontendConfig config;
  config.max_payload_bytes = 1000;
  EXPECT_EQ(largest_message(config, catalogue_of(1'000'000, 32)), 1000U);
  EXPECT_EQ(largest_payload(config), 1000U);
  EXPECT_EQ(client_options(config, false).limits.max_payload_bytes, 1000U);
}

TEST(PayloadLimitsTest, NeverExceedTheBufferLimit) {
  config::FrontendConfig config;
  config.max_buffered_mb = 100;
  EXPECT_EQ(largest_message(config, catalogue_of(1'000'000, 32)), 100U << 20U);
  EXPECT_EQ(largest_payload(config), 100U << 20U);
}

}  // namespace
}  // namespace gpulet::frontend
