#include "node/node_files.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "node/hosted_gpulets.h"
#include "tests/backend/core_bench.h"

namespace gpulet::node::node_files_test {
namespace {

constexpr FrontendId kLeader{1};
constexpr std::uint64_t kMost = 8 * kModelPieceBytes;  // of one file in flight

class NodeFilesTest : public ::testing::Test {
 protected:
  static BackendCoreOptions options() {
    BackendCoreOptions options;
    options.devices = {device(0, "cpu_quota"), device(1, "simulated")};
    return options;
  }
  NodeFilesTest() {
    links_.connect(kLeader, now_);
    BackendEffects none;
    Welcome welcome{std::chrono::seconds(1)};
    static_cast<void>(links_.welcome(kLeader, welcome, {now_, none}));
  }
  HostedGpulet& add(std::uint64_t id, const std::vector<std::string>& models,
                    std::uint32_t of_device = 0) {
    return gpulets_.add(HostedGpulet::create(create(id, models, of_device), now_).value());
  }
  // The pieces that `act` requests: digest and offset.
  template <typename Act>
  std::vector<std::pair<std::string, std::uint64_t>> requested(Act act) {
    BackendEffects effects;
    act(Turn{now_, effects});
    std::vector<std::pair<std::string, std::uint64_t>> pieces;
    for (const auto& send : all<SendToFrontend>(effects)) {
      const auto& piece = std::get<ModelPieceRequest>(send.message);
      EXPECT_EQ(send.frontend, kLeader);
      pieces.emplace_back(piece.sha256, piece.offset);
    }
    return pieces;
  }
  auto request(const HostedGpulet& gpulet) {
    return requested([&](Turn turn) { files_.request(gpulet, turn); });
  }

  using Pieces = std::vector<std::pair<std::string, std::uint64_t>>;

  const BackendCoreOptions options_ = options();
  Time now_{std::chrono::hours(1)};
  FrontendLinks links_{std::chrono::seconds(5)};
  NodeDevices devices_{options_};
  HostedGpulets gpulets_{2};
  NodeFiles files_{devices_, gpulets_, links_};
};

TEST_F(NodeFilesTest, KnowsWhichFilesOfAGpuletAreMissing) {
  const HostedGpulet& gpulet = add(1, {"a", "b"});
  EXPECT_TRUE(files_.lacks_any_of(gpulet));
  files_.learn({create(1, {"a", "b"}), {{"sha-a", "/a"}}, {{"sha-a", 10}}});
  EXPECT_TRUE(files_.lacks_any_of(gpulet));
  files_.on_stored({"sha-b", "/b", 5});
  EXPECT_FALSE(files_.lacks_any_of(gpulet));
  EXPECT_EQ(files_.bytes_of(gpulet), 15U);
  const LoadModels load = files_.load_request(gpulet);
  ASSERT_EQ(load.models.size(), 2U);
  EXPECT_EQ(load.models[0].file, "/a");
  EXPECT_EQ(load.models[1].file, "/b");
}

TEST_F(NodeFilesTest, ASimulatedDeviceNeedsNoFiles) {
  EXPECT_FALSE(files_.lacks_any_of(add(1, {"a"}, 1)));
}

TEST_F(NodeFilesTest, ThePresentContentOfTheStoreCounts) {
  const HostedGpulet& gpulet = add(1, {"a"});
  files_.on_stored({"sha-a", "/a", 5});
  files_.learn({create(1, {"a"}), {}, {}});
  EXPECT_TRUE(files_.lacks_any_of(gpulet)) << "the file was deleted since";
}

TEST_F(NodeFilesTest, RequestsAFileOnceForAllItsGpulets) {
  EXPECT_EQ(request(add(1, {"a", "b"})), (Pieces{{"sha-a", 0}, {"sha-b", 0}}));
  EXPECT_EQ(request(add(2, {"b", "c"})), (Pieces{{"sha-c", 0}}));
}

TEST_F(NodeFilesTest, RequestsAFewFilesAtATimeAndTheRestAsTheyAreDone) {
  const HostedGpulet& gpulet = add(1, {"a", "b", "c", "d", "e", "f"});
  EXPECT_EQ(request(gpulet).size(), 4U);
  files_.on_stored({"sha-a", "/a", 1});
  EXPECT_EQ(requested([&](Turn turn) { files_.done("sha-a", turn); }), (Pieces{{"sha-e", 0}}));
}

TEST_F(NodeFilesTest, KeepsABoundedPartOfAFileInFlight) {
  request(add(1, {"a"}));
  const std::uint64_t total = 20 * kModelPieceBytes + 1;
  std::uint64_t next = kModelPieceBytes;
  for (std::uint64_t stored = 0; stored <= total; stored += kModelPieceBytes) {
    for (const auto& [sha256, offset] : requested([&](Turn turn) {
           files_.on_progress({"sha-a", stored, total}, turn);
         })) {
      EXPECT_EQ(sha256, "sha-a");
      EXPECT_EQ(offset, next) << "each piece once, in order";
      EXPECT_LT(offset, stored + kMost);
      next += kModelPieceBytes;
    }
  }
  EXPECT_EQ(next, 21 * kModelPieceBytes);
}

TEST_F(NodeFilesTest, ProgressOfAFileThatIsNotRequestedIsIgnored) {
  EXPECT_TRUE(requested([&](Turn turn) {
                files_.on_progress({"sha-x", 0, 5 * kModelPieceBytes}, turn);
              }).empty());
}

TEST_F(NodeFilesTest, StartsOverWithTheNextLeader) {
  const HostedGpulet& gpulet = add(1, {"a"});
  request(gpulet);
  EXPECT_TRUE(request(gpulet).empty());
  BackendEffects effects;
  files_.start_over({now_, effects});
  EXPECT_EQ(all<DropUnfinishedFiles>(effects).size(), 1U);
  EXPECT_EQ(all<SendToFrontend>(effects).size(), 1U);
  links_.disconnect(kLeader);
  effects.clear();
  files_.start_over({now_, effects});
  EXPECT_TRUE(all<SendToFrontend>(effects).empty()) << "nobody leads";
  EXPECT_TRUE(request(gpulet).empty());
}

TEST_F(NodeFilesTest, RemembersTheVariantOfAVersionOnADeviceType) {
  const HostedGpulet& first = add(1, {"a", "b"});
  files_.remember_variants(first, {3});
  EXPECT_EQ(files_.load_request(first).models[0].variant, 3U);
  EXPECT_EQ(files_.load_request(first).models[1].variant, 0U);
  EXPECT_EQ(files_.load_request(add(2, {"a"})).models[0].variant, 3U);
  files_.remember_variants(first, {4, 5, 6});
  EXPECT_EQ(files_.load_request(first).models[1].variant, 5U);
}

}  // namespace
}  // namespace gpulet::node::node_files_test
