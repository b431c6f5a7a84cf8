#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "gpulet/profile/interference.h"
#include "gpulet/profile/store.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::profile {
namespace {

using testing::HasSubstr;

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

TEST(Import, AnInstanceOfMigStandsForItsShare) {
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

TEST(Import, ErrorsNameFileLineAndMend) {
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
  EXPECT_THAT(message(header + "a,0,20,1\n"), HasSubstr("line 2: batch is \"0\""));
  EXPECT_THAT(message(header + "a,1.5,20,1\n"), HasSubstr("line 2: batch is \"1.5\""));
  EXPECT_THAT(message(header + ",1,20,1\n"), HasSubstr("line 2: model is empty"));
  EXPECT_EQ(
      message(header + "a,1,20,1\nb,1,20,1\na,1,20,2\n"),
      file + ": line 4: line 2 gives other values for the same cell; keep one of the two lines");
  EXPECT_EQ(
      message(header),
      file + ": line 1: no row of measurements follows; measure at least one batch of one model");
  EXPECT_THAT(import_csv("a/b", {}).status().message(), HasSubstr("\"a/b\""));
}

TEST(Import, RefusesUtilizationsAndPairsThatCannotBe) {
  const support::TemporaryFolder folder;
  const auto latency = folder.write("l.csv", "model,batch,partition,latency_ms\na,1,20,1\n");
  const auto utilization =
      folder.write("u.csv", "model,batch,partition,l2_util,dram_util\na,1,20,1.01,0\n");
  EXPECT_THAT(import_csv("gpu", {latency, utilization, {}}).status().message(),
              HasSubstr("l2_util is \"1.01\"; write a number from 0 to 1"));
  const auto pairs = folder.write("i.csv",
                                  "model,batch,partition,other_model,other_batch,other_partition,"
                                  "latency_ms\na,1,60,b,1,60,3\n");
  EXPECT_THAT(import_csv("gpu", {latency, {}, pairs}).status().message(),
              HasSubstr("line 2: the two partitions add up to 120 %; keep them within 100 %"));
}

TEST(Import, ReadsTheReferenceMeasurements) {
  const auto data = std::filesystem::path(GPULET_SOURCE_DIR) / "../shared/data/measured-gpu-a";
  if (!std::filesystem::exists(data))
    GTEST_SKIP() << "the reference measurements are not here: " << data;
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
}  // namespace gpulet::profile
