// What the frontend's core did in the simulator, a core without any world does again from the
// events alone: the simulator adds nothing of its own. tests/integration/replay_test.cc shows the
// same of the daemon.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "gpulet/core/random.h"
#include "gpulet/simulate/world.h"
#include "tests/support/serve/effects.h"
#include "tests/support/serve/world.h"

namespace gpulet::simulate {
namespace {

using serve::testing::byte_model;
using serve::testing::card_profile;
using serve::testing::told;

struct Recorded {
  serve::FrontendEvent event;
  Time time;
  std::vector<std::string> effects;
};

// Random requests of two models, more of them from the tenth second on.
class Growing : public Outside {
 public:
  [[nodiscard]] Time next_request() const override { return next_; }
  serve::InferRequest take_request() override {
    serve::InferRequest request;
    request.tag = ++asked;
    request.model = asked % 3 == 0 ? "b" : "a";
    request.inputs = {{"", DataType::uint8, {1}}};
    request.payload = Bytes::own({std::byte{1}});
    const bool grown = next_ > Time(std::chrono::seconds(10));
    next_ += from_seconds(random_.exponential(grown ? 0.004 : 0.02));
    return request;
  }
  void answered(serve::InferReply /*reply*/, Time /*now*/) override { ++answers; }
  void plan_in_force(const schedule::Plan& /*plan*/, Time /*now*/) override { ++plans; }

  std::uint64_t asked = 0;
  std::uint64_t answers = 0;
  std::uint64_t plans = 0;

 private:
  Random random_{5};
  Time next_{std::chrono::seconds(3)};
};

TEST(Replay, CoreInTheSimulatorAndCoreAloneDoTheSame) {
  const std::vector<serve::ServedModel> models = {byte_model("a", 100, 30),
                                                  byte_model("b", 150, 15)};
  const auto policy = schedule::make_policy("elastic").value();
  Knowledge knowledge;
  knowledge.profiles = std::make_shared<const profile::ProfileSet>(
      profile::ProfileSet{{"card", card_profile({{"a", 3}, {"b", 5}})}});
  knowledge.believed = std::make_shared<const profile::InterferenceSet>();
  knowledge.measured = measured_pairs(*knowledge.profiles);
  knowledge.policy = policy.get();
  Growing clients;
  World world({}, {}, models, knowledge, clients);
  const Time started = world.now();
  std::vector<Recorded> record;
  world.observe([&record](const auto& event, Time time, const auto& effects) {
    record.push_back({event, time, told(effects)});
  });
  schedule::Device device{{"n0", 0}, "card", "mps", {{20}, {40}, {50}, {60}, {80}, {100}}, 2, 0};
  world.add_node("n0", {device});
  device.key.node = "n1";
  world.add_node("n1", {device});
  world.run_until(Time(std::chrono::seconds(20)));
  ASSERT_GT(clients.answers, 2000U);
  ASSERT_GT(clients.plans, 1U) << "the load's growth makes a new plan";

  serve::FrontendCore core({}, {models, knowledge.profiles, knowledge.believed}, started);
  for (std::size_t i = 0; i < record.size(); ++i) {
    serve::FrontendEffects effects;
    core.on(record[i].event, record[i].time, effects);
    ASSERT_EQ(told(effects), record[i].effects) << "at event " << i;
  }
}

}  // namespace
}  // namespace gpulet::simulate
