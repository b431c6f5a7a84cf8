#include "gpulet/profile/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpulet/profile/interference.h"
#include "tests/profile/paired_profile.h"
#include "tests/support/names.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::profile {
namespace {

using support::names;
using ::testing::ElementsAre;

Profile profile_of(const std::string& name, std::vector<LatencySample> samples) {
  Profile profile;
  profile.name = name;
  profile.models.emplace(
      "lenet", ModelProfile{LatencyTable::create(std::move(samples)).value(), {}, std::nullopt});
  return profile;
}

bool same(const Profile& a, const Profile& b) {
  const auto same_model = [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.latency.samples() == y.second.latency.samples() &&
           x.second.utilization == y.second.utilization &&
           x.second.memory_mb == y.second.memory_mb && x.second.kernels == y.second.kernels &&
           x.second.input_bytes == y.second.input_bytes &&
           x.second.output_bytes == y.second.output_bytes &&
           x.second.controller == y.second.controller;
  };
  return a.name == b.name && a.provenance == b.provenance && a.pairs == b.pairs &&
         a.pcie_gbps == b.pcie_gbps &&
         std::equal(a.models.begin(), a.models.end(), b.models.begin(), b.models.end(), same_model);
}

std::vector<std::string> entries(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

rc::Gen<double> any_positive() {
  return rc::gen::map(rc::gen::arbitrary<double>(),
                      [](double x) { return std::isfinite(x) && x != 0 ? std::abs(x) : 0.1; });
}

rc::Gen<std::string> any_name() {
  static const std::string letters = "abcXYZ019-_";
  return rc::gen::nonEmpty(rc::gen::container<std::string>(rc::gen::elementOf(letters)));
}

Profile any_profile() {
  Profile profile;
  profile.name = *any_name();
  if (*rc::gen::arbitrary<bool>()) profile.pcie_gbps = *any_positive();
  profile.provenance =
      *rc::gen::container<Provenance>(rc::gen::cast<std::string>(any_name()), any_name());
  for (const std::string& name :
       *rc::gen::nonEmpty(rc::gen::container<std::set<std::string>>(any_name()))) {
    const auto cell =
        rc::gen::pair(rc::gen::inRange<std::uint32_t>(1, 65), rc::gen::inRange(1, 101));
    const auto cells = *rc::gen::nonEmpty(
        rc::gen::container<std::map<std::pair<std::uint32_t, int>, double>>(cell, any_positive()));
    std::vector<LatencySample> samples;
    std::vector<Utilization> utilization;
    for (const auto& [where, ms] : cells) {
      samples.push_back({where.first, Share{where.second}, ms, {}});
      if (*rc::gen::arbitrary<bool>()) samples.back().p99_ms = *any_positive();
      if (*rc::gen::arbitrary<bool>()) samples.back().cv = *any_positive();
      samples.back().doubt =
          *rc::gen::element(Doubt::none, Doubt::busy, Doubt::unsteady, Doubt::neighbours);
      if (*rc::gen::arbitrary<bool>())
        utilization.push_back({where.first, Share{where.second}, 0.1, 1 / 3.0});
    }
    ModelProfile model{LatencyTable::create(samples).value(), utilization, std::nullopt};
    if (*rc::gen::arbitrary<bool>()) model.memory_mb = *any_positive();
    if (*rc::gen::arbitrary<bool>()) model.kernels = *any_positive();
    if (*rc::gen::arbitrary<bool>()) {
      model.controller = control::Plant{*any_positive(), -*any_positive(), *any_positive()};
    }
    if (*rc::gen::arbitrary<bool>()) model.input_bytes = *any_positive();
    if (*rc::gen::arbitrary<bool>()) model.output_bytes = *any_positive();
    profile.models.emplace(name, model);
    if (*rc::gen::arbitrary<bool>())
      profile.pairs.push_back({name, 1, Share{20}, "b", 2, Share{80}, *any_positive()});
  }
  return profile;
}

RC_GTEST_PROP(ProfileStoreProperty, WhatIsWrittenReadsBackTheSame, ()) {
  const Profile profile = any_profile();
  const support::TemporaryFolder folder;
  const Status written = write_profile(profile, folder.path());
  RC_ASSERT(written.ok());
  const auto read = read_profile(folder.path() / profile.name);
  RC_ASSERT(read.ok());
  RC_ASSERT(same(read.value(), profile));
}

TEST(ProfileStore, ReplacesAProfileAsAWhole) {
  const support::TemporaryFolder folder;
  Profile first = profile_of("cpu", {{1, Share{20}, 1, {}}});
  first.pairs.push_back({"lenet", 1, Share{20}, "vgg", 2, Share{80}, 3});
  ASSERT_TRUE(write_profile(first, folder.path()).ok());
  EXPECT_THAT(entries(folder.path() / "cpu"),
              ElementsAre("interference.csv", "latency.csv", "profile.json"));
  const Profile second = profile_of("cpu", {{1, Share{20}, 2, 2.5}});
  ASSERT_TRUE(write_profile(second, folder.path()).ok());
  EXPECT_THAT(entries(folder.path() / "cpu"), ElementsAre("latency.csv", "profile.json"));
  EXPECT_THAT(entries(folder.path()), ElementsAre("cpu"))
      << "nothing is left of the old one, or of the writing";
  const auto read = read_profile(folder.path() / "cpu");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_TRUE(same(read.value(), second));
}

TEST(ProfileStore, ReplacingKeepsEveryPreviousProfile) {
  const support::TemporaryFolder folder;
  const Profile first = profile_of("cpu", {{1, Share{20}, 1, {}}});
  const Profile second = profile_of("cpu", {{1, Share{20}, 2, {}}});
  const Profile third = profile_of("cpu", {{1, Share{20}, 3, {}}});
  EXPECT_EQ(replace_profile(first, folder.path()).value(), "") << "there was nothing to keep";
  EXPECT_EQ(replace_profile(second, folder.path()).value(), folder.path() / ".cpu.bak");
  EXPECT_EQ(replace_profile(third, folder.path()).value(), folder.path() / ".cpu.bak.2");
  EXPECT_THAT(entries(folder.path()), ElementsAre(".cpu.bak", ".cpu.bak.2", "cpu"));
  const auto read = read_profiles(folder.path());
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  ASSERT_EQ(read.value().size(), 1U) << "backups are no profiles of the folder";
  EXPECT_TRUE(same(read.value().at("cpu"), third));
  std::filesystem::remove_all(folder.path() / "cpu");
  std::filesystem::rename(folder.path() / ".cpu.bak.2", folder.path() / "cpu");
  EXPECT_TRUE(same(read_profile(folder.path() / "cpu").value(), second));
}

TEST(ProfileStore, AConcurrentReaderNeverMixesTwoProfiles) {
  const support::TemporaryFolder folder;
  Profile first = profile_of("cpu", {{1, Share{20}, 1, {}}});
  first.models.begin()->second.memory_mb = 1;
  Profile second = profile_of("cpu", {{1, Share{20}, 2, {}}});
  second.models.begin()->second.memory_mb = 2;
  ASSERT_TRUE(write_profile(first, folder.path()).ok());
  std::atomic<bool> ends = false;
  std::thread writer([&] {
    for (int i = 0; !ends; ++i)
      EXPECT_TRUE(write_profile(i % 2 ? first : second, folder.path()).ok());
  });
  for (int i = 0; i < 300; ++i) {
    const auto read = read_profile(folder.path() / "cpu");
    // A writer that never pauses may outrun the attempts: then it is an error, not a mixture.
    if (!read.ok()) continue;
    EXPECT_TRUE(same(read.value(), first) || same(read.value(), second));
  }
  ends = true;
  writer.join();
}

TEST(ProfileStore, ReadsTheOthersBesideAnUnreadableProfile) {
  const support::TemporaryFolder folder;
  ASSERT_TRUE(write_profile(profile_of("cpu", {{1, Share{20}, 1, {}}}), folder.path()).ok());
  folder.write("v100/profile.json", "{");
  const auto read = read_each_profile(folder.path());
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_TRUE(read.value().profiles.contains("cpu"));
  ASSERT_TRUE(read.value().faults.contains("v100"));
  EXPECT_TRUE(names(read.value().faults.at("v100"), "v100/profile.json: line 1"));
  EXPECT_FALSE(read_profiles(folder.path()).ok());
}

TEST(ProfileStore, AnUnknownDoubtIsAnError) {
  const support::TemporaryFolder folder;
  folder.write("cpu/profile.json", R"({"format": 1, "name": "cpu"})");
  folder.write("cpu/latency.csv",
               "model,batch,partition,latency_ms,doubt\na,1,20,1,busy\na,2,20,1,whim\n");
  EXPECT_TRUE(
      names(read_profile(folder.path() / "cpu").status(), "latency.csv: line 3", "\"whim\""));
}

TEST(ProfileStore, AFailedWriteKeepsThePreviousProfile) {
  const support::TemporaryFolder folder;
  ASSERT_TRUE(write_profile(profile_of("cpu", {{1, Share{20}, 1, {}}}), folder.path()).ok());
  Profile nothing;
  nothing.name = "cpu";
  EXPECT_EQ(write_profile(nothing, folder.path()).code(), StatusCode::invalid);
  EXPECT_TRUE(read_profile(folder.path() / "cpu").ok());
  folder.write("file", "");
  const Status status =
      write_profile(profile_of("cpu", {{1, Share{20}, 1, {}}}), folder.path() / "file" / "x");
  EXPECT_TRUE(names(status, (folder.path() / "file" / "x").string()));
}

TEST(ProfileStore, ReadsEveryProfileOfAFolder) {
  const support::TemporaryFolder folder;
  ASSERT_TRUE(write_profile(profile_of("cpu", {{1, Share{20}, 1, {}}}), folder.path()).ok());
  ASSERT_TRUE(write_profile(profile_of("v100", {{1, Share{20}, 2, {}}}), folder.path()).ok());
  folder.write("README.md", "not a profile");
  folder.write(".cpu.half-written/profile.json", "{");
  std::filesystem::create_directory(folder.path() / "empty");
  const auto profiles = read_profiles(folder.path());
  ASSERT_TRUE(profiles.ok()) << profiles.status().to_string();
  ASSERT_EQ(profiles.value().size(), 2U);
  EXPECT_EQ(profiles.value().at("v100").find("lenet")->latency.latency_ms(1, Share{20}), 2);
}

TEST(ProfileStore, AFolderWithoutProfilesIsAnError) {
  const support::TemporaryFolder folder;
  EXPECT_TRUE(
      names(read_profiles(folder.path()).status(), folder.path().string(), "gpulet profile run"));
  const Status missing = read_profiles(folder.path() / "none").status();
  EXPECT_EQ(missing.code(), StatusCode::not_found);
  EXPECT_TRUE(names(missing, (folder.path() / "none").string()));
}

TEST(ProfileStore, MetadataErrorsNameThePlace) {
  const support::TemporaryFolder folder;
  folder.write("cpu/latency.csv", "model,batch,partition,latency_ms\nlenet,1,20,1\n");
  const auto refusal = [&folder](const std::string& metadata) {
    folder.write("cpu/profile.json", metadata);
    return read_profile(folder.path() / "cpu" / "").status();
  };
  EXPECT_EQ(refusal(R"({"format":1,"name":"cpu"})"), Status());
  EXPECT_TRUE(names(refusal(R"({"name":"cpu"})"), "profile.json: /format"));
  EXPECT_TRUE(names(refusal(R"({"format":2,"name":"cpu"})"), "/format", "1", "2"));
  EXPECT_TRUE(names(refusal(R"({"format":1,"name":"gpu"})"), "/name", "\"gpu\""));
  EXPECT_TRUE(names(refusal(R"({"format":1,"name":"cpu","models":{"vgg":{}}})"), "/models/vgg",
                    "latency.csv"));
  EXPECT_TRUE(names(refusal(R"({"format":1,"name":"cpu","models":{"lenet":{"memory_mb":0}}})"),
                    "/models/lenet/memory_mb: 0"));
  EXPECT_TRUE(names(refusal(R"({"format":1,"name":"cpu","models":{"lenet":
                         {"controller":{"gain_s_per_core":1,"zero":1}}}})"),
                    "/models/lenet/controller/zero: 1"));
}

TEST(Import, FindsColumnsByNameAndIgnoresOthers) {
  const support::TemporaryFolder folder;
  const auto latency =
      folder.write("l.csv", "note,latency_ms,partition,batch,model\nx,1.5,20,4,lenet\n");
  const auto utilization = folder.write(
      "u.csv", "model,batch,partition,l2_util,dram_util\nlenet,4,20,0.25,1\nBERT,1,20,0,0\n");
  const auto pairs = folder.write("i.csv",
                                  "model,batch,partition,other_model,other_batch,other_partition,"
                                  "latency_ms\nlenet,4,20,vgg,8,80,3\n");
  const auto imported = import_csv("gpu", {latency, utilization, pairs});
  ASSERT_TRUE(imported.ok()) << imported.status().to_string();
  const Profile& profile = imported.value();
  EXPECT_EQ(profile.name, "gpu");
  ASSERT_NE(profile.find("lenet"), nullptr);
  EXPECT_EQ(profile.find("lenet")->latency.latency_ms(4, Share{20}), 1.5);
  EXPECT_EQ(profile.find("lenet")->utilization,
            (std::vector<Utilization>{{4, Share{20}, 0.25, 1}}));
  EXPECT_EQ(profile.pairs,
            (std::vector<PairSample>{{"lenet", 4, Share{20}, "vgg", 8, Share{80}, 3}}));
  EXPECT_EQ(profile.find("BERT"), nullptr);
  EXPECT_EQ(profile.provenance.at("left_out"), "utilization without latency: BERT");
}

TEST(Import, ConvertsMigInstancesToShares) {
  const support::TemporaryFolder folder;
  const auto shares = [&folder](const std::string& rows,
                                std::optional<partition::MigGeometry> mig) {
    const auto imported = import_csv(
        "gpu", {.latency = folder.write("l.csv", "model,batch,partition,latency_ms\n" + rows),
                .utilization = {},
                .interference = {},
                .mig = mig});
    std::string text = imported.status().message();
    if (!imported.ok()) return text;
    for (const LatencySample& one : imported.value().find("a")->latency.samples())
      text += std::to_string(one.share.percent) + " ";
    return text;
  };
  const std::string seven = "a,1,1g,9\na,1,2g,8\na,1,3g,7\na,1,4g,6\na,1,7g,5\na,1,50,6.5\n";
  EXPECT_EQ(shares(seven, std::nullopt), "14 28 42 50 57 100 ");
  const auto a30 = partition::MigGeometry::of("a30").value();
  EXPECT_EQ(shares("a,1,1g,9\na,1,2g,8\na,1,4g,7\n", a30), "25 50 100 ");
  EXPECT_EQ(shares("a,1,3g,9\n", a30),
            (folder.path() / "l.csv").string() +
                ": line 2: a device of the geometry a30 has no instance 3g; write one of 1g, 2g, "
                "4g, or a percentage");
}

TEST(Import, ErrorsNameFileAndLine) {
  const support::TemporaryFolder folder;
  const auto message = [&folder](const std::string& csv) {
    return import_csv(
               "gpu",
               {.latency = folder.write("l.csv", csv), .utilization = {}, .interference = {}})
        .status()
        .message();
  };
  const std::string header = "model,batch,partition,latency_ms\n";
  const std::string file = (folder.path() / "l.csv").string();
  EXPECT_EQ(
      message("model,batch,latency_ms\na,1,1\n"),
      file +
          ": line 1: the column \"partition\" is missing; add it to the first line, which names "
          "model, batch, latency_ms");
  EXPECT_EQ(message(header + "a,1,20,1\na,2,20,\n"),
            file + ": line 3: latency_ms is empty; write a number above 0, or take the line out");
  for (const std::string wrong : {"nan", "inf", "-1", "0", "1e999", "fast"}) {
    std::string expected = file;
    expected.append(": line 2: latency_ms is \"").append(wrong);
    expected.append("\"; write a number above 0, or take the line out");
    std::string csv = header;
    csv.append("a,1,20,").append(wrong);
    EXPECT_EQ(message(csv), expected);
  }
  EXPECT_EQ(message(header + "a,1,101,1\n"), file +
                                                 ": line 2: partition is \"101\"; write a whole "
                                                 "number from 1 to 100, or take the line out");
  EXPECT_TRUE(names(message(header + "a,0,20,1\n"), "line 2", "batch", "\"0\""));
  EXPECT_TRUE(names(message(header + "a,1.5,20,1\n"), "line 2", "batch", "\"1.5\""));
  EXPECT_TRUE(names(message(header + ",1,20,1\n"), "line 2", "model"));
  EXPECT_EQ(
      message(header + "a,1,20,1\nb,1,20,1\na,1,20,2\n"),
      file + ": line 4: line 2 has different values for the same cell; keep one of the two lines");
  EXPECT_EQ(
      message(header),
      file + ": line 1: no row of measurements follows; measure at least one batch of one model");
  EXPECT_TRUE(names(import_csv("a/b", {}).status(), "\"a/b\""));
}

TEST(Import, RefusesInvalidUtilizationsAndPairs) {
  const support::TemporaryFolder folder;
  const auto latency = folder.write("l.csv", "model,batch,partition,latency_ms\na,1,20,1\n");
  const auto utilization =
      folder.write("u.csv", "model,batch,partition,l2_util,dram_util\na,1,20,1.01,0\n");
  EXPECT_TRUE(names(import_csv("gpu", {latency, utilization, {}}).status(), "line 2", "l2_util",
                    "\"1.01\""));
  const auto pairs = folder.write("i.csv",
                                  "model,batch,partition,other_model,other_batch,other_partition,"
                                  "latency_ms\na,1,60,b,1,60,3\n");
  EXPECT_TRUE(names(import_csv("gpu", {latency, {}, pairs}).status(), "line 2", "120 %"));
}

TEST(Import, ReadsAndWritesTheLatenciesOfSeveralProcesses) {
  const auto data = std::filesystem::path(GPULET_SOURCE_DIR) / "profiles/reference-a100-mig";
  const auto read = read_profile(data);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_TRUE(read.value().knows_processes());
  const ModelProfile& bert = *read.value().find("bert");
  EXPECT_EQ(bert.latency.latency_ms(1, Share{14}), 13.4394);
  EXPECT_EQ(bert.latency_of(2).latency_ms(1, Share{14}), 19.0767);
  EXPECT_EQ(bert.latency_of(9).latency_ms(1, Share{14}), 13.4394) << "not measured";
  const support::TemporaryFolder folder;
  ASSERT_EQ(write_profile(read.value(), folder.path()), Status());
  const auto again = read_profile(folder.path() / "reference-a100-mig");
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  for (const auto& [name, model] : read.value().models) {
    const ModelProfile& other = *again.value().find(name);
    EXPECT_EQ(model.latency.samples(), other.latency.samples()) << name;
    ASSERT_EQ(model.shared_latency.size(), other.shared_latency.size()) << name;
    for (const auto& [processes, table] : model.shared_latency)
      EXPECT_EQ(table.samples(), other.latency_of(processes).samples()) << name << processes;
  }
}

TEST(Import, RefusesSeveralProcessesWithoutOne) {
  const support::TemporaryFolder folder;
  const auto latency =
      folder.write("l.csv", "model,batch,partition,latency_ms,processes\na,1,20,1,2\n");
  EXPECT_EQ(import_csv("gpu", {latency, {}, {}}).status().code(), StatusCode::invalid);
}

TEST(Import, ReadsTheReferenceMeasurements) {
  const auto data = std::filesystem::path(GPULET_SOURCE_DIR) / "profiles/reference-gpu";
  const auto imported = import_csv(
      "gpu-a", {data / "latency.csv", data / "utilization.csv", data / "interference.csv"});
  ASSERT_TRUE(imported.ok()) << imported.status().to_string();
  const Profile& profile = imported.value();
  EXPECT_EQ(profile.models.size(), 10U);
  EXPECT_EQ(profile.pairs.size(), 3675U);
  for (const auto& [name, model] : profile.models) {
    EXPECT_EQ(model.latency.samples().size(), 42U) << name;
    EXPECT_EQ(model.latency.largest_batch(Share{30}), 64U) << name;
    EXPECT_EQ(model.utilization.size(), 42U) << name;
  }
  // Every measured pair is its own nearest one.
  for (const PairSample& pair : profile.pairs) {
    const double alone =
        profile.find(pair.model)->latency.latency_ms(pair.batch, pair.share).value();
    EXPECT_EQ(measured_slowdown(profile, {pair.model, pair.batch, pair.share},
                                {pair.other_model, pair.other_batch, pair.other_share}),
              std::max(1.0, pair.latency_ms / alone));
  }
}

}  // namespace

// The fit of the interference models on disk (interference.json).

namespace {

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
  // What reading the profile fails with once `from` is `to` in the fit's file.
  [[nodiscard]] Status refusal_with(const std::string& from, const std::string& to) const {
    std::string text = text_;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) text.replace(at, from.size(), to);
    folder_.write("paired/interference.json", text);
    return read_profile(folder_.path() / "paired").status();
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
  EXPECT_EQ(refusal_with("\"format\":1", "\"format\":1"), Status());
  EXPECT_TRUE(names(refusal_with("\"format\":1", "\"format\":2"), "interference.json: /format", "1",
                    "2", "gpulet profile import"));
  EXPECT_TRUE(names(refusal_with("\"seed\":\"", "\"seed\":\"9"), "/seed: "));
  EXPECT_TRUE(names(refusal_with("\"depth\":4", "\"depth\":3"), "/learned/trees/0/features"));
  EXPECT_TRUE(names(refusal_with("\"depth\":4", "\"depth\":40"), "/learned/depth"));
  EXPECT_TRUE(names(refusal_with("\"flatness\"", "\"model\""), "/learned/features: "));
  EXPECT_TRUE(names(refusal_with("{\"features\":[", "{\"features\":[16,"), "/features"));
  EXPECT_TRUE(names(refusal_with("\"leaves\":[", "\"leaves\":[1e999,"), "interference.json"));
  EXPECT_TRUE(names(refusal_with("\"leaves\":[", "\"leaves\":[0,"), "/leaves"));
  EXPECT_TRUE(names(refusal_with("\"constant\":", "\"constant\":1e300,\"x\":"), "/linear"));
  EXPECT_TRUE(
      names(refusal_with("\"model\":\"none\"", "\"model\":\"nothing\""), "/errors/0/model"));
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
      RC_ASSERT(support::names(read.status(), "interference.json"));
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
