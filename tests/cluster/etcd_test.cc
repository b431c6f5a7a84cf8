// Members of a cluster on the real etcd, which the tests start, stop, restart and wipe.
#include <grpc/grpc.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/cluster/etcd/membership.h"
#include "tests/support/certificates/certificates.h"
#include "tests/support/names.h"
#include "tests/support/process/process.h"

namespace gpulet::cluster::etcd_test {
namespace {

using gpulet::testing::Etcd;
using std::chrono::milliseconds;
using std::chrono::seconds;
using support::names;

constexpr Duration kLease = seconds(2);

// gRPC closes connections in the background. To LeakSanitizer, one that is still in its handshake
// when the process exits is a leak.
class GrpcShutdown : public ::testing::Environment {
 public:
  void SetUp() override { grpc_init(); }
  void TearDown() override { grpc_shutdown_blocking(); }
};
const ::testing::Environment* const kGrpcShutdown =
    ::testing::AddGlobalTestEnvironment(new GrpcShutdown);  // GoogleTest owns it

std::string text_of(const std::filesystem::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

EtcdOptions options_for(const std::string& name, const std::vector<std::string>& endpoints) {
  EtcdOptions options;
  options.endpoints = endpoints;
  options.prefix = "/gpulet/test/";
  options.cluster = "test";
  options.self = {name, name + ":7000"};
  options.lease = kLease;
  return options;
}

// A member and what it was told.
struct Told {
  Told(net::asio::io_context& io, EtcdOptions options)
      : membership(make_etcd_membership(io, std::move(options))) {
    membership->start([this](const MembershipEvent& event) { take(event); });
  }
  void take(const MembershipEvent& event) {
    if (const auto* const won = std::get_if<Won>(&event)) leads = won->term;
    if (const auto* const lost = std::get_if<Lost>(&event)) {
      leads.reset();
      leader = lost->leader;
    }
    if (const auto* const changed = std::get_if<StoreChanged>(&event)) {
      store = changed->state;
      why = changed->why;
    }
    if (const auto* const known = std::get_if<MembersChanged>(&event)) members = known->members;
    if (const auto* const doubt = std::get_if<Doubtful>(&event)) doubtful = doubt->doubtful;
  }

  std::unique_ptr<Membership> membership;
  std::optional<Term> leads;
  Member leader;
  StoreState store = StoreState::connecting;
  Status why;
  std::vector<Member> members;
  bool doubtful = false;
};

struct Loop {
  bool run_until(const std::function<bool()>& done, milliseconds patience = seconds(20)) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (!done() && std::chrono::steady_clock::now() < deadline) {
      io.restart();
      io.run_one_for(milliseconds(20));
    }
    return done();
  }

  net::asio::io_context io;
};

TEST(EtcdMembership, ElectsALeaderAndReplacesItWhenItEnds) {
  Etcd etcd;
  Loop loop;
  auto first = std::make_unique<Told>(loop.io, options_for("a", {etcd.endpoint()}));
  ASSERT_TRUE(loop.run_until([&] { return first->leads.has_value(); }));
  auto second = std::make_unique<Told>(loop.io, options_for("b", {etcd.endpoint()}));
  ASSERT_TRUE(loop.run_until([&] { return second->leader.name == "a"; }));
  EXPECT_EQ(second->leader.address, "a:7000");
  ASSERT_TRUE(loop.run_until([&] { return first->members.size() == 2; }));

  const Term term = *first->leads;
  const auto killed = std::chrono::steady_clock::now();
  first.reset();  // as if its process were killed: the keys stay until the lease ends
  ASSERT_TRUE(loop.run_until([&] { return second->leads.has_value(); }));
  EXPECT_GT(*second->leads, term);
  EXPECT_LT(std::chrono::steady_clock::now() - killed, kLease + seconds(1));

  bool left = false;
  Told third(loop.io, options_for("c", {etcd.endpoint()}));
  ASSERT_TRUE(loop.run_until([&] { return third.leader.name == "b"; }));
  second->membership->leave([&] { left = true; });
  ASSERT_TRUE(loop.run_until([&] { return left && third.leads.has_value(); }, milliseconds(1500)))
      << "nobody waits for the lease of a member that leaves";
}

TEST(EtcdMembership, OutlivesEtcd) {
  Etcd etcd;
  Loop loop;
  Told first(loop.io, options_for("a", {etcd.endpoint()}));
  ASSERT_TRUE(loop.run_until([&] { return first.leads.has_value(); }));
  Told second(loop.io, options_for("b", {etcd.endpoint()}));
  ASSERT_TRUE(loop.run_until([&] { return second.store == StoreState::here; }));
  const Term term = *first.leads;

  etcd.stop();  // longer than the lease
  ASSERT_TRUE(loop.run_until([&] { return first.doubtful; }));
  EXPECT_EQ(first.leads, term);
  etcd.resume();
  ASSERT_TRUE(loop.run_until([&] {
    return first.leads.has_value() != second.leads.has_value() && !first.doubtful &&
           !second.doubtful;
  }));

  etcd.restart();
  ASSERT_TRUE(loop.run_until([&] {
    return first.store == StoreState::here && second.store == StoreState::here &&
           first.leads.has_value() != second.leads.has_value();
  }));

  const Term before = std::max(first.leads.value_or(Term{}), second.leads.value_or(Term{}));
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(etcd.control({"put", "noise", "x"}));
  etcd.wipe();
  ASSERT_TRUE(loop.run_until([&] {
    return std::max(first.leads.value_or(Term{}), second.leads.value_or(Term{})) > before;
  })) << "terms grow although revisions began anew";
}

TEST(EtcdMembership, MovesToAnotherEndpoint) {
  Etcd etcd;
  Loop loop;
  const std::string nobody = "127.0.0.1:" + std::to_string(gpulet::testing::free_port());
  Told member(loop.io, options_for("a", {nobody, etcd.endpoint()}));
  EXPECT_TRUE(loop.run_until([&] { return member.leads.has_value(); }));
}

TEST(EtcdMembership, TellsOfAnEndpointThatIsNotThere) {
  Loop loop;
  const std::string nobody = "127.0.0.1:" + std::to_string(gpulet::testing::free_port());
  Told member(loop.io, options_for("a", {nobody}));
  ASSERT_TRUE(loop.run_until([&] { return member.store == StoreState::away; }));
  EXPECT_TRUE(names(member.why, nobody));
  EXPECT_FALSE(member.leads);
}

TEST(EtcdMembership, TellsOfAPrefixOfAnotherClusterAndANameInUse) {
  Etcd etcd;
  Loop loop;
  Told first(loop.io, options_for("a", {etcd.endpoint()}));
  ASSERT_TRUE(loop.run_until([&] { return first.leads.has_value(); }));
  EtcdOptions other = options_for("b", {etcd.endpoint()});
  other.cluster = "another";
  Told stranger(loop.io, other);
  EtcdOptions namesake_options = options_for("a", {etcd.endpoint()});
  namesake_options.self.address = "elsewhere:7000";
  Told namesake(loop.io, namesake_options);
  ASSERT_TRUE(loop.run_until([&] {
    return stranger.store == StoreState::conflict && namesake.store == StoreState::conflict;
  }));
  EXPECT_TRUE(first.leads);
}

TEST(EtcdMembership, LogsIn) {
  Etcd etcd;
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"user", "add", "root:root"},
           {"user", "grant-role", "root", "root"},
           {"role", "add", "gpulet"},
           {"role", "grant-permission", "gpulet", "--prefix=true", "readwrite", "/gpulet/test/"},
           {"user", "add", "gpulet:secret"},
           {"user", "grant-role", "gpulet", "gpulet"},
           {"auth", "enable"}})
    ASSERT_TRUE(etcd.control(command)) << command[1];
  Loop loop;
  EtcdOptions options = options_for("a", {etcd.endpoint()});
  options.user = "gpulet";
  options.password = "wrong";
  Told wrong(loop.io, options);
  ASSERT_TRUE(loop.run_until([&] { return wrong.store == StoreState::refused; }));
  EXPECT_EQ(wrong.why.code(), StatusCode::unauthenticated);

  options.password = "secret";
  Told right(loop.io, options);
  ASSERT_TRUE(loop.run_until([&] { return right.leads.has_value(); }));

  options.prefix = "/elsewhere/";
  options.self.name = "b";
  Told outside(loop.io, options);
  ASSERT_TRUE(loop.run_until([&] { return outside.store == StoreState::refused; }));
  EXPECT_EQ(outside.why.code(), StatusCode::forbidden);
  etcd.restart();  // tokens are forgotten
  ASSERT_TRUE(loop.run_until([&] { return right.store == StoreState::away; }));
  ASSERT_TRUE(loop.run_until([&] { return right.store == StoreState::here; }));
}

TEST(EtcdMembership, TrustsOnlyItsAuthority) {
  const support::TemporaryFolder folder;
  for (const char* const part : {"ours", "theirs"})
    std::filesystem::create_directories(folder.path() / part);
  gpulet::testing::Authority authority(folder.path() / "ours", "ours");
  gpulet::testing::Authority stranger(folder.path() / "theirs", "theirs");
  const config::TlsFiles server = authority.issue("etcd", {"127.0.0.1"});
  Etcd etcd({"--cert-file", server.certificate, "--key-file", server.key}, "https");
  Loop loop;
  EtcdOptions options = options_for("a", {etcd.endpoint()});
  options.tls = EtcdTls{text_of(stranger.issue("x", {"x"}).authority), {}, {}};
  Told refuses(loop.io, options);
  ASSERT_TRUE(loop.run_until([&] { return refuses.store == StoreState::away; }));
  options.tls->authority = text_of(server.authority);
  options.self.name = "b";
  Told trusts(loop.io, options);
  ASSERT_TRUE(loop.run_until([&] { return trusts.leads.has_value(); }));
  EXPECT_EQ(refuses.store, StoreState::away);
}

}  // namespace
}  // namespace gpulet::cluster::etcd_test
