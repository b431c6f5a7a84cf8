#include "serve/deploy/backend_connections.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "tests/support/serve/frontend_parts.h"

namespace gpulet::serve::backend_connections_test {
namespace {

using std::chrono::milliseconds;
using testing::at_ms;
using testing::FrontendParts;

// With a backend that leaves, as BackendRegistry has it.
class Connections : public BackendConnections {
 public:
  using BackendConnections::leave;
  using BackendConnections::record_of;
};

constexpr std::uint32_t kLevel = 2;  // obeys one leader at a time

Hello hello(const std::string& node, std::uint32_t devices, std::uint32_t level = kLevel) {
  Hello made;
  made.node = node;
  made.level = level;
  for (std::uint32_t i = 0; i < devices; ++i)
    made.devices.push_back(FrontendParts::device(node, i));
  return made;
}

const Status kFault(StatusCode::unavailable, "why");

TEST(BackendConnections, AnOldBackendObeysEveryFrontend) {
  Connections connections;
  connections.join(BackendId{1}, hello("n0", 1, 0), at_ms(0));
  connections.join(BackendId{2}, hello("n1", 1), at_ms(0));
  EXPECT_TRUE(connections.commanded(BackendId{1}));
  EXPECT_FALSE(connections.commanded(BackendId{2}));
  EXPECT_FALSE(connections.commanded(BackendId{3}));
  connections.set_commanded(BackendId{2});
  EXPECT_TRUE(connections.commanded(BackendId{2}));
  connections.set_commanded_by_none();
  EXPECT_FALSE(connections.commanded(BackendId{1}) || connections.commanded(BackendId{2}));
}

TEST(BackendConnections, PlansUseTheSoundDevicesOfCommandedBackendsThatStay) {
  Connections connections;
  connections.join(BackendId{1}, hello("n1", 2), at_ms(0));
  connections.join(BackendId{2}, hello("n0", 1), at_ms(0));
  connections.join(BackendId{3}, hello("n2", 1), at_ms(0));
  EXPECT_TRUE(connections.cluster().devices.empty());
  for (const std::uint64_t id : {1U, 2U}) connections.set_commanded(BackendId{id});
  const auto keys = [&] {
    std::vector<schedule::DeviceKey> found;
    for (const schedule::Device& device : connections.cluster().devices)
      found.push_back(device.key);
    return found;
  };
  EXPECT_EQ(keys(), (std::vector<schedule::DeviceKey>{{"n0", 0}, {"n1", 0}, {"n1", 1}}));
  EXPECT_TRUE(connections.takes_gpulets({"n1", 1}));
  EXPECT_FALSE(connections.takes_gpulets({"n2", 0})) << "it is not commanded";
  EXPECT_FALSE(connections.takes_gpulets({"n9", 0}));
  EXPECT_EQ(connections.report_device(BackendId{1}, {1, kFault}), (schedule::DeviceKey{"n1", 1}));
  EXPECT_EQ(keys(), (std::vector<schedule::DeviceKey>{{"n0", 0}, {"n1", 0}}));
  EXPECT_FALSE(connections.takes_gpulets({"n1", 1}));
  connections.start_draining(BackendId{2});
  EXPECT_EQ(keys(), (std::vector<schedule::DeviceKey>{{"n1", 0}}));
  EXPECT_FALSE(connections.takes_gpulets({"n0", 0}));
  EXPECT_TRUE(connections.report_device(BackendId{1}, {1, {}}));
  EXPECT_TRUE(connections.takes_gpulets({"n1", 1}));
}

TEST(BackendConnections, DevicesAreFoundByTheirBackend) {
  Connections connections;
  connections.join(BackendId{1}, hello("n0", 2), at_ms(0));
  EXPECT_TRUE(connections.offers(BackendId{1}, 1));
  EXPECT_FALSE(connections.offers(BackendId{1}, 2));
  EXPECT_FALSE(connections.offers(BackendId{2}, 0));
  EXPECT_EQ(connections.backend_of({"n0", 1}), BackendId{1});
  EXPECT_FALSE(connections.backend_of({"n0", 2}));
  ASSERT_NE(connections.offer_of({"n0", 1}), nullptr);
  EXPECT_EQ(connections.offer_of({"n0", 1})->device.key.node, "n0");
  EXPECT_EQ(connections.offer_of({"n1", 0}), nullptr);
  EXPECT_FALSE(connections.report_device(BackendId{1}, {2, kFault}));
  EXPECT_FALSE(connections.report_device(BackendId{2}, {0, kFault}));
}

TEST(BackendConnections, ABackendLeavesWithItsDevices) {
  Connections connections;
  connections.join(BackendId{1}, hello("n0", 1), at_ms(0));
  EXPECT_FALSE(connections.leave(BackendId{2}));
  EXPECT_EQ(connections.leave(BackendId{1}), "n0");
  EXPECT_FALSE(connections.backend_of({"n0", 0}));
  EXPECT_TRUE(connections.backends().empty());
  EXPECT_EQ(connections.record_of(BackendId{1}), nullptr);
}

TEST(BackendConnections, NothingServesWithoutAUsableDevice) {
  Connections connections;
  EXPECT_FALSE(connections.has_usable_device());
  EXPECT_FALSE(connections.why_nothing_serves().empty());
  connections.join(BackendId{1}, hello("n0", 1), at_ms(0));
  EXPECT_TRUE(connections.has_usable_device());
  EXPECT_TRUE(connections.why_nothing_serves().empty());
  EXPECT_TRUE(connections.report_device(BackendId{1}, {0, kFault}));
  EXPECT_FALSE(connections.has_usable_device());
  EXPECT_FALSE(connections.why_nothing_serves().empty());
}

TEST(BackendConnections, TheHigherTermCountsForABackend) {
  Connections connections;
  connections.join(BackendId{1}, hello("n0", 1), at_ms(0));
  connections.set_term(Term{5});
  EXPECT_EQ(connections.term_for(BackendId{1}), Term{5});
  connections.set_term_for(BackendId{1}, Term{8});
  EXPECT_EQ(connections.term_for(BackendId{1}), Term{8});
  EXPECT_EQ(connections.term_for(BackendId{2}), Term{5});
  EXPECT_EQ(connections.term(), Term{5});
  connections.set_term(Term{9});
  EXPECT_EQ(connections.term_for(BackendId{1}), Term{9});
}

TEST(BackendConnections, PowerIsThatOfTheLastReport) {
  Connections connections;
  connections.join(BackendId{1}, hello("n0", 2), at_ms(0));
  connections.report_power(BackendId{1}, {{0, 100.0}, {1, 150.0}});
  connections.report_power(BackendId{1}, {{1, 200.0}});
  const BackendRecord& record = connections.backends().at(BackendId{1});
  ASSERT_EQ(record.power.size(), 1U);
  EXPECT_EQ(record.power.at(1).usage_w, 200.0);
  connections.set_taken_before(BackendId{1}, GpuletId{7});
  EXPECT_EQ(record.taken_before, GpuletId{7});
}

TEST(BackendConnections, ABackendIsSilentSinceItsLastMessage) {
  Connections connections;
  connections.join(BackendId{1}, hello("n0", 1), at_ms(0));
  connections.join(BackendId{2}, hello("n1", 1), at_ms(0));
  connections.on_message(BackendId{2}, at_ms(50));
  connections.on_message(BackendId{9}, at_ms(50));
  EXPECT_TRUE(connections.silent_since(at_ms(0)).empty());
  EXPECT_EQ(connections.silent_since(at_ms(50)), std::vector{BackendId{1}});
  EXPECT_EQ(connections.silent_since(at_ms(51)).size(), 2U);
}

TEST(BackendConnections, ATimeInWhichNobodyWasHeardDoesNotCount) {
  Connections connections;
  connections.join(BackendId{1}, hello("n0", 1), at_ms(0));
  connections.join(BackendId{2}, hello("n1", 1), at_ms(60));
  connections.excuse_silence(milliseconds(50), at_ms(100));
  EXPECT_TRUE(connections.silent_since(at_ms(50)).empty());
  EXPECT_EQ(connections.silent_since(at_ms(51)), std::vector{BackendId{1}});
  EXPECT_TRUE(connections.silent_since(at_ms(100)) == std::vector{BackendId{1}})
      << "nobody is heard in the future";
  EXPECT_EQ(connections.silent_since(at_ms(101)).size(), 2U);
}

// Every device of a connected backend is offered once, and by that backend.
RC_GTEST_PROP(BackendConnectionsProperty, DevicesAreThoseOfTheConnectedBackends, ()) {
  constexpr std::uint64_t kBackends = 4;
  Connections connections;
  std::map<std::uint64_t, std::uint32_t> connected;  // devices, by backend
  std::set<std::pair<std::uint64_t, std::uint32_t>> faulty;
  const int steps = *rc::gen::inRange(1, 40);
  for (int step = 0; step < steps; ++step) {
    const auto id = *rc::gen::inRange<std::uint64_t>(1, kBackends + 1);
    const std::string node = "n" + std::to_string(id);
    if (!connected.contains(id)) {
      connected[id] = *rc::gen::inRange<std::uint32_t>(0, 4);
      connections.join(BackendId{id}, hello(node, connected[id]), at_ms(step));
      connections.set_commanded(BackendId{id});
    } else if (*rc::gen::inRange(0, 3) == 0) {
      RC_ASSERT(connections.leave(BackendId{id}) == node);
      connected.erase(id);
      std::erase_if(faulty, [id](const auto& one) { return one.first == id; });
    } else {
      const auto device = *rc::gen::inRange<std::uint32_t>(0, 4);
      const bool fault = *rc::gen::arbitrary<bool>();
      const auto reported =
          connections.report_device(BackendId{id}, {device, fault ? kFault : Status()});
      RC_ASSERT(reported.has_value() == (device < connected[id]));
      if (reported) fault ? (void)faulty.emplace(id, device) : (void)faulty.erase({id, device});
    }
    std::size_t sound = 0;
    for (const auto& [one, devices] : connected) {
      for (std::uint32_t device = 0; device < devices; ++device) {
        const schedule::DeviceKey key{"n" + std::to_string(one), device};
        RC_ASSERT(connections.backend_of(key) == BackendId{one});
        RC_ASSERT(connections.offers(BackendId{one}, device));
        const bool is_sound = !faulty.contains({one, device});
        RC_ASSERT(connections.takes_gpulets(key) == is_sound);
        if (is_sound) ++sound;
      }
    }
    RC_ASSERT(connections.cluster().devices.size() == sound);
    RC_ASSERT(connections.has_usable_device() == (sound > 0));
  }
}

}  // namespace
}  // namespace gpulet::serve::backend_connections_test
