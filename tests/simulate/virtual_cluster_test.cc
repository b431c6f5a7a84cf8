#include "simulate/virtual_cluster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "gpulet/base/random.h"
#include "tests/support/serve/effects.h"
#include "tests/support/serve/world.h"

namespace gpulet::simulate {
namespace {

using serve::testing::byte_model;
using serve::testing::card_profile;
using serve::testing::told;
using std::chrono::seconds;

// ---- controlled cores

constexpr double kCores = 6;
constexpr double kCoreSeconds = 2.4;  // core-seconds per batch

// One request every two seconds, each with more work than one control period; keeps the responses.
class SteadyClients : public VirtualClients {
 public:
  struct Response {
    Time time;
    InferReply reply;
  };

  [[nodiscard]] Time next_request() const override { return next_; }
  InferRequest take_request() override {
    InferRequest request;
    request.tag = ++requested;
    request.model = "a";
    request.inputs = {{"", DataType::uint8, {1}}};
    request.payload = Bytes::own({std::byte{1}});
    next_ += seconds(2);
    return request;
  }
  void answered(InferReply reply, Time now) override { answers.push_back({now, std::move(reply)}); }
  void plan_in_force(const schedule::Plan& /*plan*/, Time /*now*/) override {}

  std::uint64_t requested = 0;
  std::vector<Response> answers;

 private:
  Time next_{seconds(5)};
};

struct Change {
  Time time;  // of arrival at the backend
  double cores = 0;
};

// Core-seconds assigned between `begin` and `end`.
double work_between(const std::vector<Change>& changes, Time begin, Time end) {
  double work = 0;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const Time until = i + 1 < changes.size() ? changes[i + 1].time : kNever;
    const Time from = std::max(begin, changes[i].time);
    const Time to = std::min(end, until);
    if (to > from) work += changes[i].cores * to_seconds(to - from);
  }
  return work;
}

TEST(VirtualClusterTest, ABatchContinuesAtTheSpeedOfItsNewCores) {
  profile::Profile cpu;
  cpu.name = "cpu";
  cpu.models.emplace(
      "a", profile::ModelProfile{
               profile::LatencyTable::create({{1, {100}, 1000 * kCoreSeconds / kCores}}).value(),
               {},
               {}});
  const auto policy = schedule::make_policy("roma").value();
  Knowledge knowledge;
  knowledge.profiles =
      std::make_shared<const profile::ProfileSet>(profile::ProfileSet{{"cpu", cpu}});
  knowledge.believed = std::make_shared<const profile::InterferenceSet>();
  knowledge.simulated = simulated_interference(*knowledge.profiles);
  knowledge.policy = policy.get();
  serve::FrontendOptions frontend;
  frontend.policy = "roma";
  SteadyClients clients;
  const VirtualTimings timings;
  Mishaps none;
  VirtualCluster cluster(timings, frontend, {{serve::testing::byte_model("a", 2000, 0.5)}, {}},
                         knowledge, clients, none);
  std::vector<Change> changes;
  cluster.observe([&](const auto& /*event*/, Time time, const serve::FrontendEffects& effects) {
    for (const serve::FrontendEffect& effect : effects) {
      const auto* sent = std::get_if<serve::SendToBackend>(&effect);
      if (sent == nullptr) continue;
      if (const auto* set = std::get_if<SetCores>(&sent->command))
        changes.push_back({time + timings.link, set->cores});
    }
  });
  schedule::Device device{{"n0", 0}, "cpu", "cpu_quota", {{100}}, 10, 0};
  device.cores = kCores;
  cluster.add_node("n0", {device});
  cluster.run_until(Time(seconds(60)));

  ASSERT_GT(clients.answers.size(), 20U);
  std::size_t changed_under = 0;
  for (const auto& [time, reply] : clients.answers) {
    ASSERT_TRUE(reply.status.ok()) << reply.status.to_string();
    const Time end = time - timings.link;
    const Time begin = end - reply.executed;
    EXPECT_NEAR(work_between(changes, begin, end), kCoreSeconds, 1e-6) << "request " << reply.tag;
    changed_under += static_cast<std::size_t>(std::count_if(
        changes.begin(), changes.end(),
        [&](const Change& change) { return change.time > begin && change.time < end; }));
  }
  EXPECT_GT(changed_under, 10U) << "the controller changes cores during batches";
}

// ---- replay

struct Recorded {
  serve::FrontendEvent event;
  Time time;
  std::vector<std::string> effects;
};

// Random requests for two models, with a higher rate after ten seconds.
class GrowingClients : public VirtualClients {
 public:
  [[nodiscard]] Time next_request() const override { return next_; }
  InferRequest take_request() override {
    InferRequest request;
    request.tag = ++requested;
    request.model = requested % 3 == 0 ? "b" : "a";
    request.inputs = {{"", DataType::uint8, {1}}};
    request.payload = Bytes::own({std::byte{1}});
    const bool grown = next_ > Time(std::chrono::seconds(10));
    next_ += from_seconds(random_.exponential(grown ? 0.004 : 0.02));
    return request;
  }
  void answered(InferReply /*reply*/, Time /*now*/) override { ++answers; }
  void plan_in_force(const schedule::Plan& /*plan*/, Time /*now*/) override { ++plans; }

  std::uint64_t requested = 0;
  std::uint64_t answers = 0;
  std::uint64_t plans = 0;

 private:
  Random random_{5};
  Time next_{std::chrono::seconds(3)};
};

// A frontend core without a cluster returns the same effects from the recorded events: the
// simulator adds nothing. tests/integration/replay_test.cc shows the same for the daemon.
TEST(VirtualClusterTest, AFrontendCoreReplaysItsEvents) {
  const std::vector<serve::ServedModel> models = {byte_model("a", 100, 30),
                                                  byte_model("b", 150, 15)};
  const auto policy = schedule::make_policy("elastic").value();
  Knowledge knowledge;
  knowledge.profiles = std::make_shared<const profile::ProfileSet>(
      profile::ProfileSet{{"card", card_profile({{"a", 3}, {"b", 5}})}});
  knowledge.believed = std::make_shared<const profile::InterferenceSet>();
  knowledge.simulated = simulated_interference(*knowledge.profiles);
  knowledge.policy = policy.get();
  GrowingClients clients;
  Mishaps none;
  VirtualCluster cluster({}, {}, {models, {}}, knowledge, clients, none);
  const Time started = cluster.now();
  std::vector<Recorded> record;
  cluster.observe([&record](const auto& event, Time time, const auto& effects) {
    record.push_back({event, time, told(effects)});
  });
  schedule::Device device{{"n0", 0}, "card", "mps", {{20}, {40}, {50}, {60}, {80}, {100}}, 2, 0};
  cluster.add_node("n0", {device});
  device.key.node = "n1";
  cluster.add_node("n1", {device});
  cluster.run_until(Time(std::chrono::seconds(20)));
  ASSERT_GT(clients.answers, 2000U);
  ASSERT_GT(clients.plans, 1U) << "the growing load needs a new plan";

  serve::FrontendCore core({}, {models, knowledge.profiles, knowledge.believed}, started);
  for (std::size_t i = 0; i < record.size(); ++i) {
    serve::FrontendEffects effects;
    core.on(record[i].event, record[i].time, effects);
    ASSERT_EQ(told(effects), record[i].effects) << "at event " << i;
  }
}

}  // namespace
}  // namespace gpulet::simulate
