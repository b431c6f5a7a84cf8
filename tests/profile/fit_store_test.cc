// The fit of the interference models on disk (interference.json).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <string>

#include "gpulet/profile/fit.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/store.h"
#include "tests/profile/paired_profile.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::profile {
namespace {

using testing::HasSubstr;

Profile fitted_profile(const FitOptions& options) {
  Profile profile = paired_profile(2, [](const PairedBatch& self, const PairedBatch& other) {
    return self.batch / self.share < 10 ? 1.5 : 1.02 + 0.1 * other.dram;
  });
  profile.interference = fit_interference(profile, options).value();
  return profile;
}

std::string contents(const std::filesystem::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

class FitStore : public testing::Test {
 protected:
  FitStore() : profile_(fitted_profile({.seed = ~std::uint64_t{0}})) {
    if (const Status status = write_profile(profile_, folder_.path()); !status.ok()) {
      throw std::runtime_error(status.to_string());
    }
    text_ = contents(file());
  }

  [[nodiscard]] std::filesystem::path file() const {
    return folder_.path() / "paired" / "interference.json";
  }
  // The message of reading the profile once `from` is `to` in the fit's file.
  [[nodiscard]] std::string message_with(const std::string& from, const std::string& to) const {
    std::string text = text_;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) text.replace(at, from.size(), to);
    folder_.write("paired/interference.json", text);
    return read_profile(folder_.path() / "paired").status().message();
  }

  support::TemporaryFolder folder_;
  Profile profile_;
  std::string text_;
};

TEST_F(FitStore, ReadsBackTheSame) {
  const auto read = read_profile(folder_.path() / "paired");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read.value().interference, profile_.interference);
}

TEST_F(FitStore, AProfileWithoutAFitHasNoSuchFile) {
  profile_.interference.reset();
  ASSERT_TRUE(write_profile(profile_, folder_.path()).ok());
  EXPECT_FALSE(std::filesystem::exists(file()));
  EXPECT_EQ(read_profile(folder_.path() / "paired").value().interference, std::nullopt);
}

TEST_F(FitStore, AFitThatOnlyHasANoteReadsBackTheSame) {
  profile_.pairs.resize(1);
  profile_.interference = fit_interference(profile_, {}).value();
  ASSERT_TRUE(write_profile(profile_, folder_.path()).ok());
  EXPECT_EQ(read_profile(folder_.path() / "paired").value().interference, profile_.interference);
}

TEST_F(FitStore, RefusesWrongFilesAndNamesThePlace) {
  EXPECT_EQ(message_with("\"format\":1", "\"format\":1"), "");
  EXPECT_THAT(message_with("\"format\":1", "\"format\":2"),
              HasSubstr("interference.json: /format: this program reads format 1, not 2; fit it "
                        "again with `gpulet profile import`"));
  EXPECT_THAT(message_with("\"seed\":\"", "\"seed\":\"9"), HasSubstr("/seed: "));
  EXPECT_THAT(message_with("\"depth\":4", "\"depth\":3"), HasSubstr("/learned/trees/0/features"));
  EXPECT_THAT(message_with("\"depth\":4", "\"depth\":40"), HasSubstr("/learned/depth"));
  EXPECT_THAT(message_with("\"flatness\"", "\"model\""),
              HasSubstr("/learned/features: are not the features that this program computes"));
  EXPECT_THAT(message_with("{\"features\":[", "{\"features\":[16,"), HasSubstr("/features"));
  EXPECT_THAT(message_with("\"leaves\":[", "\"leaves\":[1e999,"), HasSubstr("interference.json"));
  EXPECT_THAT(message_with("\"leaves\":[", "\"leaves\":[0,"), HasSubstr("/leaves"));
  EXPECT_THAT(message_with("\"constant\":", "\"constant\":1e300,\"x\":"), HasSubstr("/linear"));
  EXPECT_THAT(message_with("\"model\":\"none\"", "\"model\":\"nothing\""),
              HasSubstr("/errors/0/model"));
}

TEST_F(FitStore, WhateverIsInTheFileReadingFailsClearlyOrPredictsSanely) {
  rc::check([this] {
    std::string text = text_;
    const int changes = *rc::gen::inRange(1, 6);
    for (int i = 0; i < changes; ++i) {
      const auto at = *rc::gen::inRange<std::size_t>(0, text.size());
      switch (*rc::gen::inRange(0, 4)) {
        case 0:
          text[at] = *rc::gen::elementOf(std::string("0123456789-+.eE[]{},:\"nul "));
          break;
        case 1:
          text.erase(at, *rc::gen::inRange<std::size_t>(1, 50));
          break;
        case 2:
          text.insert(at, *rc::gen::element<std::string>("1e999", "-", "9999999999", "null", "[]",
                                                         "{}", "NaN", ",0", "\"\""));
          break;
        default:
          text.resize(at + 1);
      }
    }
    folder_.write("paired/interference.json", text);
    const auto read = read_profile(folder_.path() / "paired");
    if (!read.ok()) {
      RC_ASSERT(read.status().message().find("interference.json") != std::string::npos);
      return;
    }
    const auto model = InterferenceModel::create(read.value(), InterferenceKind::learned);
    if (!model.ok()) return;
    const double slowdown = model.value().slowdown(model.value().traits("m0", 2, Share{35}),
                                                   model.value().traits("m1", 9, Share{65}));
    RC_ASSERT(std::isfinite(slowdown));
    RC_ASSERT(slowdown >= 1);
  });
}

}  // namespace
}  // namespace gpulet::profile
