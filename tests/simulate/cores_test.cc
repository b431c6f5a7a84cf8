// Cores that change under a batch, in virtual time.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "gpulet/simulate/world.h"
#include "tests/support/serve/world.h"

namespace gpulet::simulate {
namespace {

using std::chrono::seconds;

constexpr double kCores = 6;
constexpr double kCoreSeconds = 2.4;  // core-seconds of a batch

// A request every two seconds, of work for more than one period of control; keeps the answers.
class Steady : public Outside {
 public:
  struct Answer {
    Time time;
    serve::InferReply reply;
  };

  [[nodiscard]] Time next_request() const override { return next_; }
  serve::InferRequest take_request() override {
    serve::InferRequest request;
    request.tag = ++asked;
    request.model = "a";
    request.inputs = {{"", DataType::uint8, {1}}};
    request.payload = Bytes::own({std::byte{1}});
    next_ += seconds(2);
    return request;
  }
  void answered(serve::InferReply reply, Time now) override {
    answers.push_back({now, std::move(reply)});
  }
  void plan_in_force(const schedule::Plan& /*plan*/, Time /*now*/) override {}

  std::uint64_t asked = 0;
  std::vector<Answer> answers;

 private:
  Time next_{seconds(5)};
};

struct Change {
  Time time;  // when it has come to the backend
  double cores = 0;
};

// Core-seconds that were given between the two.
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

TEST(ControlledCores, WhatIsLeftOfABatchTakesAsLongAsItDoesOnTheNewCores) {
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
  knowledge.measured = measured_pairs(*knowledge.profiles);
  knowledge.policy = policy.get();
  serve::FrontendOptions frontend;
  frontend.policy = "roma";
  Steady clients;
  const WorldOptions options;
  World world(options, frontend, {serve::testing::byte_model("a", 2000, 0.5)}, knowledge, clients);
  std::vector<Change> changes;
  world.observe([&](const auto& /*event*/, Time time, const serve::FrontendEffects& effects) {
    for (const serve::FrontendEffect& effect : effects) {
      const auto* tell = std::get_if<serve::TellBackend>(&effect);
      if (tell == nullptr) continue;
      if (const auto* set = std::get_if<serve::SetCores>(&tell->command))
        changes.push_back({time + options.link, set->cores});
    }
  });
  schedule::Device device{{"n0", 0}, "cpu", "cpu_quota", {{100}}, 10, 0};
  device.cores = kCores;
  world.add_node("n0", {device});
  world.run_until(Time(seconds(60)));

  ASSERT_GT(clients.answers.size(), 20U);
  std::size_t changed_under = 0;
  for (const auto& [time, reply] : clients.answers) {
    ASSERT_TRUE(reply.status.ok()) << reply.status.to_string();
    const Time end = time - options.link;
    const Time begin = end - reply.executed;
    EXPECT_NEAR(work_between(changes, begin, end), kCoreSeconds, 1e-6) << "request " << reply.tag;
    changed_under += static_cast<std::size_t>(std::count_if(
        changes.begin(), changes.end(),
        [&](const Change& change) { return change.time > begin && change.time < end; }));
  }
  EXPECT_GT(changed_under, 10U) << "the controller changed cores under them";
}

}  // namespace
}  // namespace gpulet::simulate
