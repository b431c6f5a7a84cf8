// How a frontend keeps in step with its files.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <span>

#include "frontend/catalogue_loader.h"
#include "frontend/file_watch.h"
#include "gpulet/profile/store.h"
#include "tests/support/serve/world.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::frontend {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class FolderTest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    temporary_.write(name, text);
  }

  const support::TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

class FileWatchTest : public FolderTest {
 protected:
  FileWatchTest() { EXPECT_TRUE(watch_.watch({{folder_, {"models.json", "a.pt"}}}).ok()); }

  bool tells() {
    const int before = told_;
    const auto deadline = std::chrono::steady_clock::now() + seconds(5);
    while (told_ == before && std::chrono::steady_clock::now() < deadline)
      io_.run_one_for(milliseconds(100));
    return told_ > before;
  }

  net::asio::io_context io_{1};
  int told_ = 0;
  FileWatch watch_{io_, [this] { ++told_; }};
};

TEST_F(FileWatchTest, TellsOfAFileThatIsWrittenReplacedOrRemoved) {
  write("models.json", "{}");
  EXPECT_TRUE(tells());
  write("other", "{}");
  std::filesystem::rename(folder_ / "other", folder_ / "models.json");
  EXPECT_TRUE(tells());
  std::filesystem::remove(folder_ / "models.json");
  EXPECT_TRUE(tells());
}

TEST_F(FileWatchTest, TellsOnceOfManyChangesAndNotOfOtherFiles) {
  for (int i = 0; i < 20; ++i) write("unrelated", std::to_string(i));
  for (int i = 0; i < 20; ++i) write("a.pt", std::to_string(i));
  EXPECT_TRUE(tells());
  EXPECT_EQ(told_, 1);
}

class CatalogueLoaderTest : public FolderTest {
 protected:
  CatalogueLoaderTest() {
    const auto profile = serve::testing::card_profile({{"a", 4}, {"b", 4}});
    EXPECT_TRUE(profile::write_profile(profile, folder_ / "profiles").ok());
    write("a.pt", "a");
    write("b.pt", "b");
    write("models.json", text({"a", "b"}));
    config_.models = folder_ / "models.json";
    config_.profiles = folder_ / "profiles";
    config_.model_format = config::ModelFormat::any;  // these are bytes
  }

  static std::string text(const std::vector<std::string>& names) {
    std::string models;
    for (const std::string& name : names) {
      models += (models.empty() ? "" : ",") + std::string(R"({"name":")") + name + R"(","file":")" +
                name + R"(.pt","slo_ms":50,
        "inputs":[{"name":"x","type":"FP32","shape":[1]}],"outputs":[{"name":"y","type":"FP32","shape":[1]}]})";
    }
    return R"({"models":[)" + models + "]}";
  }
  static std::set<std::string> names(const Result<LoadedCatalogue>& loaded) {
    EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
    std::set<std::string> names;
    if (!loaded.ok()) return names;
    for (const auto& model : loaded.value().catalogue.models) names.insert(model.name);
    return names;
  }
  static serve::ModelsChange unload(const std::string& name) {
    return {serve::ModelsChange::Kind::unload, name, {}, {}};
  }
  static serve::ModelsChange load(const std::string& name) {
    return {serve::ModelsChange::Kind::load, name, {}, {}};
  }
  [[nodiscard]] serve::ModelsChange load_file(const std::string& contents) const {
    const auto bytes = std::as_bytes(std::span(contents));
    return {serve::ModelsChange::Kind::load, "", (folder_ / "more.json").string(),
            Bytes::own({bytes.begin(), bytes.end()})};
  }

  config::FrontendConfig config_;
};

TEST_F(CatalogueLoaderTest, TheMemoryThatTheFileGivesAModelCountsBeforeWhatWasMeasured) {
  std::string with_memory = text({"a", "b"});
  with_memory.replace(with_memory.find("\"slo_ms\""), 0, "\"memory_mb\":700,");
  write("models.json", with_memory);
  CatalogueLoader loader(config_);
  const auto loaded = loader.load();
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const auto& profile = loaded.value().catalogue.profiles->begin()->second;
  EXPECT_EQ(profile.find("a")->memory_mb, 700);
  EXPECT_NE(profile.find("b")->memory_mb, 700);
  EXPECT_EQ(loader.load().value().catalogue.profiles, loaded.value().catalogue.profiles)
      << "nothing has changed";
  write("models.json", text({"a", "b"}));
  EXPECT_NE(loader.load().value().catalogue.profiles->begin()->second.find("a")->memory_mb, 700);
}

TEST_F(CatalogueLoaderTest, ChangesByHandStandBesideTheFile) {
  using Names = std::set<std::string>;
  CatalogueLoader loader(config_);
  EXPECT_EQ(names(loader.load()), (Names{"a", "b"}));
  EXPECT_EQ(names(loader.change(unload("b"))), Names{"a"});
  EXPECT_EQ(names(loader.load()), Names{"a"}) << "an edit does not bring it back";
  write("c.pt", "c");
  std::filesystem::permissions(folder_ / "c.pt", std::filesystem::perms(0644));
  EXPECT_EQ(names(loader.change(load_file(text({"c"})))), (Names{"a", "c"}));
  EXPECT_EQ(names(loader.change(load("b"))), (Names{"a", "b", "c"}));
  EXPECT_EQ(names(loader.change(unload("c"))), (Names{"a", "b"}));
}

TEST_F(CatalogueLoaderTest, AChangeByHandNamesNoFileOutsideOfTheModelsFolders) {
  const support::TemporaryFolder elsewhere;
  elsewhere.write("a.pt", "somebody's");
  std::filesystem::create_symlink(elsewhere.path(), folder_ / "link");
  CatalogueLoader loader(config_);
  ASSERT_TRUE(loader.load().ok());
  const auto name = elsewhere.path().filename().string();
  for (const std::string& place : {(elsewhere.path() / "a").string(), "../" + name + "/a",
                                   std::string("link/a"), "./x/../../" + name + "/a"}) {
    const std::string entry = text({place});
    const std::string named = R"({"name":"evil")" + entry.substr(entry.find(R"(,"file")"));
    const auto refused = loader.change(load_file(R"({"models":[)" + named));
    EXPECT_EQ(refused.status().code(), StatusCode::invalid) << place;
    EXPECT_NE(refused.status().message().find("lies outside"), std::string::npos)
        << refused.status().message();
  }
  EXPECT_EQ(names(loader.load()).size(), 2U);
}

TEST_F(CatalogueLoaderTest, AWrongChangeSaysWhatIsWrongAndDoesNotCount) {
  CatalogueLoader loader(config_);
  ASSERT_TRUE(loader.load().ok());
  const auto missing = loader.change(load_file(text({"nowhere"})));
  EXPECT_NE(missing.status().message().find("nowhere.pt"), std::string::npos)
      << missing.status().message();
  const auto broken = loader.change(load_file("{"));
  EXPECT_NE(broken.status().message().find("more.json"), std::string::npos)
      << broken.status().message();
  EXPECT_EQ(loader.change(unload("c")).status().code(), StatusCode::not_found);
  EXPECT_EQ(names(loader.load()).size(), 2U);
}

TEST_F(CatalogueLoaderTest, AFileWithOtherContentIsAnotherVersion) {
  CatalogueLoader loader(config_);
  const auto before = loader.load();
  const auto again = loader.load();
  write("a.pt", "another");
  const auto after = loader.load();
  ASSERT_TRUE(before.ok() && again.ok() && after.ok());
  const auto version = [](const Result<LoadedCatalogue>& loaded) {
    return serve::version_of(loaded.value().catalogue.models[0]);
  };
  EXPECT_EQ(version(before), version(again));
  EXPECT_NE(version(before), version(after));
  EXPECT_EQ(before.value().catalogue.profiles, again.value().catalogue.profiles);
}

}  // namespace
}  // namespace gpulet::frontend
