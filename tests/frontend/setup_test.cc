#include "frontend/setup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "frontend/cluster/cluster_link.h"
#include "frontend/frames/connection_options.h"
#include "frontend/options.h"
#include "tests/support/certificates/certificates.h"
#include "tests/support/names.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::frontend {
namespace {

using support::names;

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
  EXPECT_TRUE(names(error(), (directory_ / "models.json").string()));
}

TEST_F(SetupTest, NamesAMissingModelFileAndTheFix) {
  folder_.write("models.json", models_);
  EXPECT_TRUE(names(error(), (directory_ / "a.pt").string()));
}

TEST_F(SetupTest, NamesAMissingProfilesFolderAndTheFix) {
  folder_.write("models.json", models_);
  folder_.write("a.pt", "a model");
  EXPECT_TRUE(names(error(), (directory_ / "profiles").string(), "gpulet profile"));
}

TEST(ConnectionSharesTest, LeaveEveryPortDescriptorsOfItsOwn) {
  for (const std::size_t descriptors : {64U, 256U, 1024U, 4096U, 524288U}) {
    const ConnectionShares shares = connection_shares(descriptors);
    EXPECT_GE(shares.of_client_port, descriptors / 8) << descriptors;
    EXPECT_GE(shares.of_server_port, descriptors / 16) << descriptors;
    const std::size_t all = 3 * shares.of_client_port + 2 * shares.of_server_port;
    EXPECT_LE(all, descriptors - std::min<std::size_t>(descriptors / 8, 256)) << descriptors;
  }
  EXPECT_GE(connection_shares(1024).of_client_port, 192U);
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

// ---- the cluster's store

class ClusterSetupTest : public SetupTest {
 protected:
  ClusterSetupTest() {
    config_.cluster.emplace();
    config_.cluster->etcd = {{"127.0.0.1", 2379}};
    config_.cluster->member = "f0";
  }
  // Why the frontend does not start; empty: it starts.
  [[nodiscard]] std::string refusal() {
    net::asio::io_context io(1);
    const auto membership = make_membership(io, config_);
    return membership.ok() ? "" : membership.status().message();
  }

  testing::Authority authority_{directory_, "authority"};
};

TEST_F(ClusterSetupTest, NeedsNoCertificateOfItsOwn) {
  EXPECT_EQ(refusal(), "");
  config_.cluster->tls = config::TlsFiles{{}, {}, authority_.file()};
  EXPECT_EQ(refusal(), "");
}

TEST_F(ClusterSetupTest, AnExpiredCertificateIsNamed) {
  config_.cluster->tls = authority_.issue("f0", {"f0"}, -48, -24);
  EXPECT_TRUE(names(refusal(), "cluster/tls", "f0.pem"));
  config_.cluster->tls = authority_.issue("f0", {"f0"});
  EXPECT_EQ(refusal(), "");
}

TEST_F(ClusterSetupTest, SoIsAMissingPasswordFile) {
  config_.cluster->user = "gpulet";
  config_.cluster->password_file = directory_ / "etcd.password";
  EXPECT_TRUE(names(refusal(), "etcd.password"));
  testing::write_secret(config_.cluster->password_file, "secret\n");
  EXPECT_EQ(refusal(), "");
}

TEST_F(ClusterSetupTest, FrontendsNeedACertificateThatIsValid) {
  config_.cluster->peer_tls = authority_.issue("f0", {"f0"});
  EXPECT_TRUE(peers_options(config_).ok());
  config_.cluster->peer_tls = authority_.issue("f0", {"f0"}, -48, -24);
  const auto options = peers_options(config_);
  ASSERT_FALSE(options.ok());
  EXPECT_TRUE(names(options.status(), "cluster/peer_tls"));
}

}  // namespace
}  // namespace gpulet::frontend
