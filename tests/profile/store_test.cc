#include "gpulet/profile/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace gpulet::profile {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

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

TEST(ProfileStore, ReplacingWithABackupKeepsEveryProfileThatWasThere) {
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

TEST(ProfileStore, AReaderBesideAWriterNeverMixesTwoProfiles) {
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

TEST(ProfileStore, OneThatCannotBeReadDoesNotKeepTheOthersFromBeingRead) {
  const support::TemporaryFolder folder;
  ASSERT_TRUE(write_profile(profile_of("cpu", {{1, Share{20}, 1, {}}}), folder.path()).ok());
  folder.write("v100/profile.json", "{");
  const auto read = read_each_profile(folder.path());
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_TRUE(read.value().profiles.contains("cpu"));
  ASSERT_TRUE(read.value().faults.contains("v100"));
  EXPECT_THAT(read.value().faults.at("v100").message(), HasSubstr("v100/profile.json: line 1"));
  EXPECT_FALSE(read_profiles(folder.path()).ok());
}

TEST(ProfileStore, ADoubtThatNobodyKnowsIsAnErrorOfItsLine) {
  const support::TemporaryFolder folder;
  folder.write("cpu/profile.json", R"({"format": 1, "name": "cpu"})");
  folder.write("cpu/latency.csv",
               "model,batch,partition,latency_ms,doubt\na,1,20,1,busy\na,2,20,1,whim\n");
  EXPECT_THAT(read_profile(folder.path() / "cpu").status().message(),
              HasSubstr("line 3: \"whim\""));
}

TEST(ProfileStore, AFailedWriteLeavesWhatWasThere) {
  const support::TemporaryFolder folder;
  ASSERT_TRUE(write_profile(profile_of("cpu", {{1, Share{20}, 1, {}}}), folder.path()).ok());
  Profile nothing;
  nothing.name = "cpu";
  EXPECT_EQ(write_profile(nothing, folder.path()).code(), StatusCode::invalid);
  EXPECT_TRUE(read_profile(folder.path() / "cpu").ok());
  folder.write("file", "");
  const Status status =
      write_profile(profile_of("cpu", {{1, Share{20}, 1, {}}}), folder.path() / "file" / "x");
  EXPECT_THAT(status.message(), HasSubstr("cannot be made"));
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

TEST(ProfileStore, AFolderWithoutProfilesSaysHowToMakeOne) {
  const support::TemporaryFolder folder;
  EXPECT_THAT(read_profiles(folder.path()).status().message(),
              HasSubstr("holds no profile; make one with `gpulet profile run`"));
  const Status missing = read_profiles(folder.path() / "none").status();
  EXPECT_EQ(missing.code(), StatusCode::not_found);
  EXPECT_THAT(missing.message(), HasSubstr("none: cannot be read"));
}

TEST(ProfileStore, MetadataErrorsNamePlaceAndMend) {
  const support::TemporaryFolder folder;
  folder.write("cpu/latency.csv", "model,batch,partition,latency_ms\nlenet,1,20,1\n");
  const auto message = [&folder](const std::string& metadata) {
    folder.write("cpu/profile.json", metadata);
    return read_profile(folder.path() / "cpu" / "").status().message();
  };
  EXPECT_EQ(message(R"({"format":1,"name":"cpu"})"), "");
  EXPECT_THAT(message(R"({"name":"cpu"})"), HasSubstr("profile.json: /format: is missing"));
  EXPECT_THAT(message(R"({"format":2,"name":"cpu"})"),
              HasSubstr("/format: this program reads format 1, not 2"));
  EXPECT_THAT(message(R"({"format":1,"name":"gpu"})"),
              HasSubstr("calls itself \"gpu\" in a folder called \"cpu\""));
  EXPECT_THAT(message(R"({"format":1,"name":"cpu","models":{"vgg":{}}})"),
              HasSubstr("/models/vgg: the model has no row in latency.csv"));
  EXPECT_THAT(message(R"({"format":1,"name":"cpu","models":{"lenet":{"memory_mb":0}}})"),
              HasSubstr("/models/lenet/memory_mb: 0 is not allowed here; write a number above 0"));
  EXPECT_THAT(message(R"({"format":1,"name":"cpu","models":{"lenet":
                         {"controller":{"gain_s_per_core":1,"zero":1}}}})"),
              HasSubstr("/models/lenet/controller/zero: 1 is not below 1; identify it again"));
}

}  // namespace
}  // namespace gpulet::profile
