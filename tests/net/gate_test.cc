#include "gpulet/net/gate.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/support/temporary_folder.h"

namespace gpulet::net {
namespace {

const std::string kPlain = "plain-0123456789abcdef";
const std::string kBounded = "bounded-0123456789abcdef";

class GateTest : public ::testing::Test {
 protected:
  std::shared_ptr<const Tokens> tokens(const std::string& text) const {
    const std::filesystem::path file = folder_.write("tokens", text);
    std::filesystem::permissions(file, std::filesystem::perms::owner_read);
    return std::make_shared<const Tokens>(Tokens::read({{}, file}).value());
  }
  static PeerIdentity peer(const Gate& gate, const std::string& token,
                           const std::string& address = "10.0.0.1") {
    PeerIdentity one{address};
    one.token_shown = !token.empty();
    one.token = gate.tokens()->find(token);
    return one;
  }
  // As an endpoint does it for a call of so many rows.
  static Admission call(Gate& gate, PeerIdentity& one, std::size_t rows = 1) {
    Admission admission = gate.announce(one, "m");
    return admission.status.ok() ? gate.enter(one, "m", rows) : admission;
  }

  support::TemporaryFolder folder_;
};

TEST_F(GateTest, without_tokens_and_limits_it_guards_nothing) {
  Gate gate;
  EXPECT_FALSE(gate.guards_inference());
  EXPECT_FALSE(gate.limits_addresses());
}

TEST_F(GateTest, the_limits_of_a_token_hold_for_it_alone) {
  Gate gate(tokens("name=b max_requests=2 " + kBounded + "\nname=p " + kPlain));
  EXPECT_TRUE(gate.guards_inference());
  PeerIdentity bounded = peer(gate, kBounded);
  PeerIdentity elsewhere = peer(gate, kBounded, "10.0.0.2");
  PeerIdentity plain = peer(gate, kPlain);
  Admission first = call(gate, bounded, 2);
  ASSERT_TRUE(first.status.ok());
  ASSERT_NE(first.permit, nullptr);
  const Admission second = call(gate, elsewhere);
  EXPECT_EQ(second.status.code(), StatusCode::limited);
  EXPECT_GT(second.retry_after, Duration::zero());
  const Admission other = call(gate, plain, 100);
  EXPECT_TRUE(other.status.ok());
  EXPECT_EQ(other.permit, nullptr);
  first.permit.reset();
  EXPECT_TRUE(call(gate, elsewhere).status.ok());
  EXPECT_EQ(gate.counters().at("b").requests, 3U);
  EXPECT_EQ(gate.counters().at("b").limited_under_way, 1U);
  EXPECT_EQ(gate.counters().at("p").requests, 100U);
}

TEST_F(GateTest, a_row_is_paid_for_once) {
  Gate gate(tokens("name=b requests_per_s=4 " + kBounded));
  PeerIdentity one = peer(gate, kBounded);
  EXPECT_TRUE(call(gate, one, 4).status.ok());
  const Admission more = call(gate, one);
  EXPECT_EQ(more.status.code(), StatusCode::limited);
  EXPECT_GT(more.retry_after, Duration::zero());
  EXPECT_LE(more.retry_after, std::chrono::milliseconds(250));
  EXPECT_EQ(gate.counters().at("b").limited_requests, 1U);
}

TEST_F(GateTest, the_planned_time_of_devices_is_limited) {
  Gate gate(tokens("name=b device_ms_per_s=100 " + kBounded));
  gate.set_device_time([](std::string_view model) {
    return model == "m" ? Duration(std::chrono::milliseconds(30)) : Duration::zero();
  });
  PeerIdentity one = peer(gate, kBounded);
  EXPECT_TRUE(call(gate, one, 3).status.ok());
  EXPECT_EQ(call(gate, one).status.code(), StatusCode::limited);
  EXPECT_EQ(gate.counters().at("b").limited_device_time, 1U);
  EXPECT_DOUBLE_EQ(gate.counters().at("b").device_s, 0.09);
}

TEST_F(GateTest, the_limits_of_an_address_hold_whoever_comes_from_it) {
  Gate gate(std::make_shared<const Tokens>(), {0, 0, 1});
  EXPECT_TRUE(gate.guards_inference());
  PeerIdentity one{"2001:db8::1"};
  PeerIdentity neighbour{"2001:db8::ffff"};
  PeerIdentity other{"2001:db8:0:1::1"};
  const Admission held = call(gate, one);
  EXPECT_TRUE(held.status.ok());
  EXPECT_EQ(call(gate, neighbour).status.code(), StatusCode::limited) << "of one /64 network";
  EXPECT_TRUE(call(gate, other).status.ok());
  PeerIdentity unknown;
  EXPECT_TRUE(call(gate, unknown).status.ok());
}

TEST_F(GateTest, who_may_not_is_refused_before_it_pays) {
  Gate gate(tokens("name=b models=other requests_per_s=1 " + kBounded));
  PeerIdentity bounded = peer(gate, kBounded);
  PeerIdentity stranger = peer(gate, "nobody-0123456789abcdef");
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(gate.announce(bounded, "m").status.code(), StatusCode::forbidden);
    EXPECT_EQ(gate.announce(stranger, "m").status.code(), StatusCode::unauthenticated);
  }
  EXPECT_TRUE(gate.announce(bounded, "other").status.ok());
  EXPECT_EQ(gate.counters().at("b").denied, 5U);
  EXPECT_EQ(gate.counters().at("").denied, 5U);
}

}  // namespace
}  // namespace gpulet::net
