// Which files a change of models over the network may name.
#include "frontend/model_places.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "gpulet/config/torchscript_file.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/torchscript_archive.h"

namespace gpulet::frontend {
namespace {

using std::filesystem::perms;
using support::archive;
using support::kMembers;

class ModelPlacesTest : public ::testing::Test {
 protected:
  ModelPlacesTest() {
    std::filesystem::create_directories(folder_.path() / "config");
    std::filesystem::create_directories(folder_.path() / "models/below");
    config_.models = folder_.path() / "config/models.json";
    put("models/known.pt", archive(kMembers, true));
    put("models/other.pt", archive(kMembers, false));
    put("config/frontend.key", "-----BEGIN PRIVATE KEY-----");
    known_.emplace_back().file = folder_.path() / "models/known.pt";
  }
  void put(const std::string& name, const std::string& text) const {
    folder_.write(name, text);
    set_mode(name, 0644);
  }
  void set_mode(const std::string& name, unsigned mode) const {
    std::filesystem::permissions(folder_.path() / name, static_cast<perms>(mode));
  }
  [[nodiscard]] StatusCode admitted(const std::string& name) const {
    return ModelPlaces(config_, known_).admit(folder_.path() / name).status().code();
  }

  support::TemporaryFolder folder_;
  config::FrontendConfig config_;
  std::vector<config::ModelConfig> known_;
};

TEST_F(ModelPlacesTest, AModelBesideAKnownOneMayBeNamed) {
  EXPECT_EQ(admitted("models/other.pt"), StatusCode::ok);
  EXPECT_EQ(admitted("config/../models/other.pt"), StatusCode::ok);
  EXPECT_EQ(admitted("models/none.pt"), StatusCode::not_found);
}

TEST_F(ModelPlacesTest, TheFolderOfTheConfigurationIsNoPlaceForModels) {
  put("config/stray.pt", archive(kMembers, true));
  put("models/below/deep.pt", archive(kMembers, true));
  std::filesystem::create_symlink(folder_.path() / "config/stray.pt",
                                  folder_.path() / "models/link.pt");
  EXPECT_EQ(admitted("config/frontend.key"), StatusCode::invalid);
  EXPECT_EQ(admitted("config/stray.pt"), StatusCode::invalid);
  EXPECT_EQ(admitted("models/link.pt"), StatusCode::invalid);
  EXPECT_EQ(admitted("models/below/deep.pt"), StatusCode::invalid);
}

TEST_F(ModelPlacesTest, WhatOnlyItsOwnerMayReadIsNoModel) {
  set_mode("models/other.pt", 0600);
  EXPECT_EQ(admitted("models/other.pt"), StatusCode::invalid);
  set_mode("models/other.pt", 0640);
  EXPECT_EQ(admitted("models/other.pt"), StatusCode::ok);
  // In a folder that is for models alone, it is one all the same.
  set_mode("models/other.pt", 0600);
  config_.model_root = folder_.path() / "models";
  EXPECT_EQ(admitted("models/other.pt"), StatusCode::ok);
}

TEST_F(ModelPlacesTest, AModelRootIsTheOnlyPlace) {
  put("models/below/deep.pt", archive(kMembers, true));
  config_.model_root = folder_.path() / "models/below";
  EXPECT_EQ(admitted("models/below/deep.pt"), StatusCode::ok);
  EXPECT_EQ(admitted("models/other.pt"), StatusCode::invalid);
  EXPECT_EQ(admitted("models/below/../other.pt"), StatusCode::invalid);
  EXPECT_EQ(admitted("models/below"), StatusCode::invalid);
}

TEST_F(ModelPlacesTest, KeysAndTokensAreNeverModels) {
  config_.model_format = config::ModelFormat::any;
  config_.model_root = folder_.path();
  EXPECT_EQ(admitted("config/frontend.key"), StatusCode::ok);
  config_.backend_tls = config::TlsFiles{{}, folder_.path() / "config/frontend.key", {}};
  EXPECT_EQ(admitted("config/frontend.key"), StatusCode::invalid);
  std::filesystem::create_hard_link(folder_.path() / "config/frontend.key",
                                    folder_.path() / "models/hard.pt");
  EXPECT_EQ(admitted("models/hard.pt"), StatusCode::invalid);
  config_.backend_tls.reset();
  for (std::filesystem::path config::TokenFiles::*tokens :
       {&config::TokenFiles::admin, &config::TokenFiles::inference, &config::TokenFiles::observe}) {
    config_.tokens = {};
    EXPECT_EQ(admitted("config/frontend.key"), StatusCode::ok);
    config_.tokens.*tokens = folder_.path() / "config/frontend.key";
    EXPECT_EQ(admitted("config/frontend.key"), StatusCode::invalid);
  }
}

TEST_F(ModelPlacesTest, WhatIsNoArchiveIsNoModel) {
  const std::string good = archive(kMembers, true);
  const std::vector<std::string> wrong{
      "",
      "-----BEGIN PRIVATE KEY-----",
      good.substr(0, good.size() - 1),
      good + "x",
      "x" + good,
      archive({}, true),
      archive({"data.pkl", "code/x.py"}, true),
      archive({"m/data.pkl"}, true),
      archive({"m/code/x.py", "m/constants.pkl"}, false),
      archive({"m/data.pkl", "n/constants.pkl"}, false),
  };
  for (const std::string& text : wrong) {
    put("models/other.pt", text);
    EXPECT_EQ(admitted("models/other.pt"), StatusCode::invalid) << text.size() << " bytes";
  }
  config_.model_format = config::ModelFormat::any;
  EXPECT_EQ(admitted("models/other.pt"), StatusCode::ok);
}

// Whatever the bytes are, they are an answer and no crash.
RC_GTEST_PROP(TorchscriptFileTest, AnyChangeOfAnArchiveIsReadToItsEnd, ()) {
  support::TemporaryFolder folder;
  std::string text = archive(kMembers, *rc::gen::arbitrary<bool>());
  const auto changes = *rc::gen::inRange(0, 6);
  for (int i = 0; i < changes; ++i)
    text[*rc::gen::inRange<std::size_t>(0, text.size())] = *rc::gen::arbitrary<char>();
  text.resize(text.size() - *rc::gen::inRange<std::size_t>(0, 40));
  folder.write("m.pt", text);
  const int descriptor = ::open((folder.path() / "m.pt").c_str(), O_RDONLY | O_CLOEXEC);
  RC_ASSERT(descriptor >= 0);
  const Status status = config::check_torchscript(descriptor);
  ::close(descriptor);
  RC_ASSERT(status.ok() || status.code() == StatusCode::invalid);
  if (changes == 0 && text.size() == archive(kMembers, true).size()) RC_ASSERT(status.ok());
}

}  // namespace
}  // namespace gpulet::frontend
