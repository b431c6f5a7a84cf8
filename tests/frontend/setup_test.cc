// What a frontend says when it cannot start.
#include "gpulet/frontend/setup.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/temporary_folder.h"

namespace gpulet::frontend {
namespace {

class SetupTest : public ::testing::Test {
 protected:
  SetupTest() {
    config_.models = directory_ / "models.json";
    config_.profiles = directory_ / "profiles";
  }
  [[nodiscard]] std::string complaint() const {
    const auto setup = make_setup(config_, 1);
    return setup.ok() ? "" : setup.status().message();
  }

  support::TemporaryFolder folder_;
  const std::filesystem::path directory_ = folder_.path();
  config::FrontendConfig config_;
  const std::string models_ = R"({"models":[{"name":"a","file":"a.pt","slo_ms":50,
      "inputs":[{"name":"x","type":"FP32","shape":[1]}],"outputs":[{"name":"y","type":"FP32","shape":[1]}]}]})";
};

TEST_F(SetupTest, MissingModelsFileIsNamed) {
  EXPECT_NE(complaint().find((directory_ / "models.json").string()), std::string::npos)
      << complaint();
}

TEST_F(SetupTest, MissingModelIsNamedWithTheMend) {
  folder_.write("models.json", models_);
  EXPECT_NE(complaint().find("a.pt"), std::string::npos) << complaint();
  EXPECT_NE(complaint().find("export_models.py"), std::string::npos) << complaint();
}

TEST_F(SetupTest, MissingProfilesAreNamedWithTheMend) {
  folder_.write("models.json", models_);
  folder_.write("a.pt", "a model");
  EXPECT_NE(complaint().find((directory_ / "profiles").string()), std::string::npos) << complaint();
  EXPECT_NE(complaint().find("gpulet profile"), std::string::npos) << complaint();
}

}  // namespace
}  // namespace gpulet::frontend
