// How the frontend follows changes of its files.
#include "frontend/catalogue/catalogue.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>
#include <span>

#include "frontend/loop/file_watch.h"
#include "gpulet/base/sha256.h"
#include "gpulet/profile/store.h"
#include "tests/support/names.h"
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

class FileWatchTest : public FolderTest, private Reloadable {
 protected:
  FileWatchTest() { EXPECT_TRUE(watch_.watch({{folder_, {"models.json", "a.pt"}}}).ok()); }

  bool reports() {
    const int before = reports_;
    const auto deadline = std::chrono::steady_clock::now() + seconds(5);
    while (reports_ == before && std::chrono::steady_clock::now() < deadline)
      io_.run_one_for(milliseconds(100));
    return reports_ > before;
  }

  net::asio::io_context io_{1};
  int reports_ = 0;
  FileWatch watch_{io_, *this};

 private:
  void reload() override { ++reports_; }
};

TEST_F(FileWatchTest, ReportsAFileThatIsWrittenReplacedOrRemoved) {
  write("models.json", "{}");
  EXPECT_TRUE(reports());
  write("other", "{}");
  std::filesystem::rename(folder_ / "other", folder_ / "models.json");
  EXPECT_TRUE(reports());
  std::filesystem::remove(folder_ / "models.json");
  EXPECT_TRUE(reports());
}

TEST_F(FileWatchTest, ReportsManyChangesOnceAndIgnoresOtherFiles) {
  for (int i = 0; i < 20; ++i) write("unrelated", std::to_string(i));
  for (int i = 0; i < 20; ++i) write("a.pt", std::to_string(i));
  EXPECT_TRUE(reports());
  EXPECT_EQ(reports_, 1);
}

class CatalogueLoaderTest : public FolderTest {
 protected:
  CatalogueLoaderTest() {
    write_profile({{"a", 4}, {"b", 4}});
    write("a.pt", "a");
    write("b.pt", "b");
    write("models.json", text({"a", "b"}));
    config_.models = folder_ / "models.json";
    config_.profiles = folder_ / "profiles";
    config_.model_format = config::ModelFormat::any;  // the files hold plain text
  }

  void write_profile(const std::map<std::string, double>& base_ms) const {
    const auto profile = serve::testing::card_profile(base_ms);
    EXPECT_TRUE(profile::write_profile(profile, folder_ / "profiles").ok());
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
  static ModelsChange unload(const std::string& name) {
    return {ModelsChange::Kind::unload, name, {}, {}};
  }
  static ModelsChange load(const std::string& name) {
    return {ModelsChange::Kind::load, name, {}, {}};
  }
  [[nodiscard]] ModelsChange load_file(const std::string& contents) const {
    const auto bytes = std::as_bytes(std::span(contents));
    return {ModelsChange::Kind::load, "", (folder_ / "more.json").string(),
            Bytes::own({bytes.begin(), bytes.end()})};
  }

  config::FrontendConfig config_;
};

TEST_F(CatalogueLoaderTest, ConfiguredMemoryOverridesMeasuredMemory) {
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

TEST_F(CatalogueLoaderTest, ClientChangesAddToTheModelsFile) {
  using Names = std::set<std::string>;
  CatalogueLoader loader(config_);
  EXPECT_EQ(names(loader.load()), (Names{"a", "b"}));
  EXPECT_EQ(names(loader.change(unload("b"))), Names{"a"});
  EXPECT_EQ(names(loader.load()), Names{"a"}) << "a reload does not load it again";
  write("c.pt", "c");
  std::filesystem::permissions(folder_ / "c.pt", std::filesystem::perms(0644));
  EXPECT_EQ(names(loader.change(load_file(text({"c"})))), (Names{"a", "c"}));
  EXPECT_EQ(names(loader.change(load("b"))), (Names{"a", "b", "c"}));
  EXPECT_EQ(names(loader.change(unload("c"))), (Names{"a", "b"}));
}

TEST_F(CatalogueLoaderTest, ListsUnloadedModelsOfTheFile) {
  using Unloaded = std::vector<std::string>;
  CatalogueLoader loader(config_);
  const auto unloaded = [](const Result<LoadedCatalogue>& loaded) {
    EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
    return loaded.ok() ? *loaded.value().catalogue.unloaded : Unloaded{"failed"};
  };
  EXPECT_EQ(unloaded(loader.load()), Unloaded{});
  EXPECT_EQ(unloaded(loader.change(unload("b"))), Unloaded{"b"});
  EXPECT_EQ(unloaded(loader.change(unload("a"))), (Unloaded{"a", "b"}));
  EXPECT_EQ(unloaded(loader.load()), (Unloaded{"a", "b"}));
  EXPECT_EQ(unloaded(loader.change(load("b"))), Unloaded{"a"});
  write("models.json", text({"b"}));
  EXPECT_EQ(unloaded(loader.load()), Unloaded{}) << "the file no longer has it";
}

TEST_F(CatalogueLoaderTest, AClientCannotNameFilesOutsideOfTheModelFolders) {
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
  }
  EXPECT_EQ(names(loader.load()).size(), 2U);
}

TEST_F(CatalogueLoaderTest, AConfigurationAppliesUntilTheModelIsLoadedAgain) {
  CatalogueLoader loader(config_);
  const auto max_batch_of_a = [](const Result<LoadedCatalogue>& loaded) {
    EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
    return loaded.ok() ? loaded.value().catalogue.models[0].max_batch : 0;
  };
  const auto configured = [](const std::string& text) {
    ModelsChange change = load("a");
    change.configuration = text;
    return change;
  };
  EXPECT_EQ(max_batch_of_a(loader.load()), 32U);
  EXPECT_EQ(max_batch_of_a(loader.change(configured(R"({"max_batch_size":7})"))), 7U);
  EXPECT_EQ(max_batch_of_a(loader.load()), 7U) << "a reload does not end it";
  EXPECT_EQ(loader.change(configured(R"({"backend":"other"})")).status().code(),
            StatusCode::invalid);
  EXPECT_EQ(max_batch_of_a(loader.load()), 7U);
  EXPECT_EQ(max_batch_of_a(loader.change(load("a"))), 32U);
  ASSERT_TRUE(loader.change(unload("a")).ok());
  EXPECT_EQ(max_batch_of_a(loader.change(configured(R"({"name":"a","max_batch_size":3})"))), 3U)
      << "a model that is not loaded";
}

TEST_F(CatalogueLoaderTest, AConfigurationMayRepeatTheQueueOfTheModel) {
  std::string models = text({"a"});
  models.insert(models.find("\"slo_ms\""),
                R"("queue":{"priority_levels":3,"default_priority_level":2},)");
  write("models.json", models);
  CatalogueLoader loader(config_);
  ModelsChange change = load("a");
  change.configuration = R"({"dynamic_batching":{"priority_levels":"3"}})";
  const auto same = loader.change(change);
  EXPECT_TRUE(same.ok()) << same.status().to_string();
  change.configuration = R"({"dynamic_batching":{"priority_levels":2}})";
  EXPECT_EQ(loader.change(change).status().code(), StatusCode::invalid);
}

TEST_F(CatalogueLoaderTest, ReadsAndWatchesLabelFiles) {
  const auto with_labels = [](const std::string& file) {
    std::string models = text({"a"});
    return models.insert(models.find("\"slo_ms\""), "\"labels\":{\"y\":\"" + file + "\"},");
  };
  write("models.json", with_labels("l.txt"));
  CatalogueLoader loader(config_);
  EXPECT_EQ(loader.load().status().code(), StatusCode::not_found) << "there is no such file";
  EXPECT_TRUE(loader.watched().at(folder_).contains("l.txt")) << "it may be created later";
  write("l.txt", "zero\n");
  const auto loaded = loader.load();
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const auto description = loaded.value().catalogue.models[0].description;
  ASSERT_NE(description, nullptr);
  EXPECT_EQ(description->file_name, "a.pt");
  EXPECT_EQ(description->labels, (std::vector<serve::OutputLabels>{{"l.txt", {"zero"}}}));
  write("l.txt", "zero\none\n");
  EXPECT_EQ(loader.load().status().code(), StatusCode::invalid) << "the output has one element";
}

// The figures that the catalogue has for a model on that type of device; null: none.
const profile::ModelProfile* figures_of(const LoadedCatalogue& loaded, const std::string& type,
                                        const std::string& model) {
  const auto profile = loaded.catalogue.profiles->find(type);
  return profile == loaded.catalogue.profiles->end() ? nullptr : profile->second.find(model);
}

TEST_F(CatalogueLoaderTest, AnEntryMayBringItsLatenciesAlong) {
  CatalogueLoader loader(config_);
  ASSERT_TRUE(loader.load().ok());
  std::string models = text({"b"});
  models.insert(models.find("\"slo_ms\""), R"("measured":{"new":{"memory_mb":7,"cells":[)"
                                           R"({"batch":2,"partition":50,"latency_ms":11}]}},)");
  std::filesystem::permissions(folder_ / "b.pt", std::filesystem::perms(0644));
  const auto changed = loader.change(load_file(models));
  ASSERT_TRUE(changed.ok()) << changed.status().to_string();
  const profile::ModelProfile* const stated = figures_of(changed.value(), "new", "b");
  ASSERT_NE(stated, nullptr);
  EXPECT_EQ(stated->latency.latency_ms(2, Share{50}), 11);
  EXPECT_EQ(stated->memory_mb, 7);
  const auto again = loader.load();
  EXPECT_EQ(again.value().catalogue.profiles, changed.value().catalogue.profiles)
      << "nothing has changed";

  CatalogueLoader other(config_);
  ASSERT_TRUE(other.load().ok());
  const auto adopted = other.adopt(changed.value().client_changes);
  ASSERT_TRUE(adopted.ok()) << adopted.status().to_string();
  EXPECT_NE(figures_of(adopted.value(), "new", "b"), nullptr);

  const auto unloaded = loader.change(unload("b"));
  ASSERT_TRUE(unloaded.ok()) << unloaded.status().to_string();
  EXPECT_EQ(figures_of(unloaded.value(), "new", "b"), nullptr);
}

TEST_F(CatalogueLoaderTest, ClientsReadTheFormatOfAnImage) {
  write("models.json", R"({"models":[{"name":"a","file":"a.pt","slo_ms":50,)"
                       R"("inputs":[{"name":"x","type":"FP32","shape":[3,8,8],"format":"NCHW"},)"
                       R"({"name":"z","type":"FP32","shape":[3]}],)"
                       R"("outputs":[{"name":"y","type":"FP32","shape":[1]}]}]})");
  const auto loaded = CatalogueLoader(config_).load();
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded.value().catalogue.models[0].description->formats,
            (std::vector{config::ImageFormat::nchw, config::ImageFormat::none}));
}

TEST_F(CatalogueLoaderTest, AClientCannotNameLabelsOutsideOfTheModelFolders) {
  const support::TemporaryFolder elsewhere;
  elsewhere.write("l.txt", "somebody's");
  write("l.txt", "zero\n");
  std::filesystem::permissions(folder_ / "l.txt", std::filesystem::perms(0644));
  std::filesystem::permissions(folder_ / "a.pt", std::filesystem::perms(0644));
  CatalogueLoader loader(config_);
  ASSERT_TRUE(loader.load().ok());
  const auto load_with = [&](const std::string& file) {
    std::string models = text({"a"});
    models.insert(models.find("\"slo_ms\""), "\"labels\":{\"y\":\"" + file + "\"},");
    return loader.change(load_file(models));
  };
  const auto refused = load_with((elsewhere.path() / "l.txt").string());
  EXPECT_EQ(refused.status().code(), StatusCode::invalid) << refused.status().to_string();
  const auto admitted = load_with("l.txt");
  EXPECT_TRUE(admitted.ok()) << admitted.status().to_string();
  std::filesystem::permissions(folder_ / "l.txt", std::filesystem::perms(0600));
  EXPECT_EQ(load_with("l.txt").status().code(), StatusCode::invalid) << "it may be a secret";
}

// Two frontends of a cluster. The second one has no file of the models that clients load.
class FilesOfOthersTest : public CatalogueLoaderTest {
 protected:
  FilesOfOthersTest() {
    write("models.json", text({"a"}));
    config_.model_root = folder_;
    elsewhere_ = config_;
    elsewhere_.model_root = folder_ / "elsewhere";
  }
  [[nodiscard]] CatalogueLoader second() const {
    auto store = store::ModelStore::open(folder_ / "store");
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    return CatalogueLoader(elsewhere_, std::move(store).value());
  }
  // The SHA-256 of each model.
  static std::map<std::string, std::string> contents(const Result<LoadedCatalogue>& loaded) {
    std::map<std::string, std::string> found;
    EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
    if (!loaded.ok()) return found;
    for (const auto& model : loaded.value().catalogue.models) found[model.name] = model.sha256;
    return found;
  }
  static Result<bool> give(CatalogueLoader& loader, const std::string& content) {
    const auto bytes = std::as_bytes(std::span(content));
    return loader.store(
        {sha256_of(content), 0, content.size(), Bytes::own({bytes.begin(), bytes.end()}), false});
  }

  config::FrontendConfig elsewhere_;
};

TEST_F(FilesOfOthersTest, AreKnownByTheirContent) {
  CatalogueLoader first(config_);
  const auto changed = first.change(load_file(text({"b"})));
  ASSERT_TRUE(changed.ok()) << changed.status().to_string();
  CatalogueLoader loader = second();
  const auto missing = loader.adopt(changed.value().client_changes, Missing::report);
  ASSERT_TRUE(missing.ok()) << missing.status().to_string();
  EXPECT_EQ(missing.value().missing, std::vector{sha256_of("b")});
  EXPECT_EQ(names(loader.load()), std::set<std::string>{"a"}) << "nothing was changed";
  EXPECT_FALSE(loader.adopt(changed.value().client_changes).ok());
  ASSERT_TRUE(give(loader, "b").ok());
  const auto adopted = loader.adopt(changed.value().client_changes, Missing::report);
  EXPECT_EQ(contents(adopted), contents(changed));
  EXPECT_EQ(adopted.value().catalogue.models.back().description->file_name, "b.pt");
  EXPECT_EQ(contents(loader.load()), contents(changed));
  EXPECT_EQ(contents(second().adopt(changed.value().client_changes)), contents(changed))
      << "the store keeps files over a restart";
}

TEST_F(FilesOfOthersTest, AreNotFetchedWhereTheSameContentIsHere) {
  CatalogueLoader first(config_);
  const auto changed = first.change(load_file(text({"b"})));
  ASSERT_TRUE(changed.ok());
  elsewhere_ = config_;
  EXPECT_EQ(contents(second().adopt(changed.value().client_changes, Missing::report)),
            contents(changed));
  write("b.pt", "an older version");
  EXPECT_EQ(second().adopt(changed.value().client_changes, Missing::report).value().missing,
            std::vector{sha256_of("b")});
  EXPECT_EQ(contents(second().adopt(changed.value().client_changes)).at("b"),
            sha256_of("an older version"))
      << "where nobody can give the content";
}

TEST_F(FilesOfOthersTest, AreKeptWhereAReloadFails) {
  CatalogueLoader first(config_);
  const auto changed = first.change(load_file(text({"b"})));
  ASSERT_TRUE(changed.ok());
  CatalogueLoader loader = second();
  ASSERT_TRUE(give(loader, "b").ok());
  ASSERT_TRUE(loader.adopt(changed.value().client_changes).ok());
  std::filesystem::remove(folder_ / "a.pt");
  EXPECT_EQ(loader.load().status().code(), StatusCode::not_found);
  write("a.pt", "a");
  EXPECT_EQ(contents(loader.load()), contents(changed));
}

TEST_F(FilesOfOthersTest, AreNamedWithAChangeForTheLeader) {
  CatalogueLoader first(config_);
  const ModelsChange change = load_file(text({"b", "absent"}));
  const CatalogueLoader::OwnFiles own = first.files_of(change);
  EXPECT_EQ(own.names, (std::vector<NamedFile>{{(folder_ / "b.pt").string(), sha256_of("b")}}));
  ASSERT_TRUE(own.files.contains(sha256_of("b")));
  EXPECT_EQ(own.files.at(sha256_of("b")).path, folder_ / "b.pt");
  EXPECT_TRUE(first.files_of(unload("a")).names.empty());
  EXPECT_TRUE(first.files_of(load_file("no models file")).names.empty());

  CatalogueLoader leader = second();
  const ModelsChange only_b = load_file(text({"b"}));
  const auto missing = leader.change(only_b, own.names, Missing::report);
  ASSERT_TRUE(missing.ok()) << missing.status().to_string();
  EXPECT_EQ(missing.value().missing, std::vector{sha256_of("b")});
  ASSERT_TRUE(give(leader, "b").ok());
  EXPECT_EQ(contents(leader.change(only_b, own.names, Missing::report)).at("b"), sha256_of("b"));
  EXPECT_FALSE(second().change(only_b).ok()) << "without the names of the files";
}

TEST_F(FilesOfOthersTest, IncludeLabels) {
  write("labels.txt", "yes\n");
  std::string with_labels = text({"b"});
  with_labels.insert(with_labels.find("\"slo_ms\""), R"("labels":{"y":"labels.txt"},)");
  CatalogueLoader first(config_);
  const auto changed = first.change(load_file(with_labels));
  ASSERT_TRUE(changed.ok()) << changed.status().to_string();
  CatalogueLoader loader = second();
  EXPECT_EQ(loader.adopt(changed.value().client_changes, Missing::report).value().missing.size(),
            2U);
  ASSERT_TRUE(give(loader, "b").ok());
  ASSERT_TRUE(give(loader, "yes\n").ok());
  const auto adopted = loader.adopt(changed.value().client_changes, Missing::report);
  ASSERT_TRUE(adopted.ok()) << adopted.status().to_string();
  ASSERT_FALSE(adopted.value().catalogue.models.empty());
  const auto& labels = adopted.value().catalogue.models.back().description->labels.at(0);
  EXPECT_EQ(labels.labels, std::vector<std::string>{"yes"});
  EXPECT_EQ(labels.file_name, "labels.txt");
}

TEST_F(CatalogueLoaderTest, AFailedChangeNamesTheFileAndHasNoEffect) {
  CatalogueLoader loader(config_);
  ASSERT_TRUE(loader.load().ok());
  const auto missing = loader.change(load_file(text({"nowhere"})));
  EXPECT_TRUE(support::names(missing.status(), "nowhere.pt"));
  const auto broken = loader.change(load_file("{"));
  EXPECT_TRUE(support::names(broken.status(), "more.json"));
  EXPECT_EQ(loader.change(unload("c")).status().code(), StatusCode::not_found);
  EXPECT_EQ(names(loader.load()).size(), 2U);
}

TEST_F(CatalogueLoaderTest, AModelLostByItsProfileKeepsItsFigures) {
  CatalogueLoader loader(config_);
  const auto before = loader.load();
  ASSERT_TRUE(before.ok()) << before.status().to_string();
  EXPECT_TRUE(before.value().catalogue.kept_profiles.empty());
  const auto samples = [](const Result<LoadedCatalogue>& loaded, const std::string& name) {
    EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
    const auto& profiles = *loaded.value().catalogue.profiles;
    const auto card = profiles.find("card");
    const auto* const model = card == profiles.end() ? nullptr : card->second.find(name);
    return model == nullptr ? std::vector<profile::LatencySample>() : model->latency.samples();
  };
  const auto kept = samples(before, "b");
  ASSERT_FALSE(kept.empty());
  using Kept = std::map<std::string, std::string>;

  write_profile({{"a", 9}});
  const auto lost = loader.load();
  EXPECT_EQ(samples(lost, "b"), kept);
  EXPECT_NE(samples(lost, "a"), samples(before, "a")) << "new measurements apply";
  EXPECT_EQ(lost.value().catalogue.kept_profiles, (Kept{{"b", "card"}}));
  const auto again = loader.load();
  EXPECT_EQ(again.value().catalogue.profiles, lost.value().catalogue.profiles)
      << "nothing has changed";
  EXPECT_EQ(again.value().catalogue.interference, lost.value().catalogue.interference);

  std::filesystem::remove_all(folder_ / "profiles" / "card");
  const auto all_lost = loader.load();
  EXPECT_EQ(samples(all_lost, "b"), kept);
  EXPECT_EQ(samples(all_lost, "a"), samples(lost, "a"));

  write("models.json", text({"a"}));
  EXPECT_TRUE(samples(loader.load(), "b").empty()) << "it left the models file";
  write_profile({{"a", 9}});
  write("models.json", text({"a", "b"}));
  const auto back = loader.load();
  EXPECT_TRUE(samples(back, "b").empty());
  EXPECT_TRUE(back.value().catalogue.kept_profiles.empty());
}

TEST_F(CatalogueLoaderTest, AnUnloadedModelKeepsItsFigures) {
  CatalogueLoader loader(config_);
  ASSERT_TRUE(loader.load().ok());
  write_profile({{"a", 9}});
  ASSERT_TRUE(loader.change(unload("b")).ok());
  const auto back = loader.change(load("b"));
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_NE(back.value().catalogue.profiles->at("card").find("b"), nullptr);
}

TEST_F(CatalogueLoaderTest, AnUnreadableProfileKeepsItsContent) {
  CatalogueLoader loader(config_);
  const auto before = loader.load();
  ASSERT_TRUE(before.ok());
  const std::filesystem::path table = folder_ / "profiles" / "card" / "latency.csv";
  std::filesystem::rename(table, folder_ / "table");
  write("profiles/card/latency.csv", "model,batch\n");
  write("c.pt", "c");
  write("models.json", text({"a", "b", "c"}));
  const auto broken = loader.load();
  EXPECT_EQ(names(broken), (std::set<std::string>{"a", "b", "c"})) << "other changes apply";
  EXPECT_NE(broken.value().catalogue.profiles->at("card").find("b"), nullptr);
  ASSERT_EQ(broken.value().catalogue.faults.size(), 1U);
  EXPECT_NE(broken.value().catalogue.faults[0].find("latency.csv"), std::string::npos);
  std::filesystem::rename(folder_ / "table", table);
  EXPECT_TRUE(loader.load().value().catalogue.faults.empty());

  std::filesystem::rename(folder_ / "profiles", folder_ / "gone");
  const auto gone = loader.load();
  EXPECT_EQ(names(gone).size(), 3U);
  EXPECT_EQ(gone.value().catalogue.faults.size(), 1U);
  EXPECT_NE(gone.value().catalogue.profiles->at("card").find("b"), nullptr);
}

TEST_F(CatalogueLoaderTest, ChangedContentIsANewVersion) {
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
