// The way of plans into force in virtual time: what serves keeps the rules at every moment, and no
// gpulet waits for others without a reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gpulet/schedule/check.h"
#include "tests/support/serve/traffic.h"

namespace gpulet::serve::rollout_test {
namespace {

using testing::at_s;
using testing::byte_model;
using testing::card_profile;
using testing::load;
using testing::outcome;
using testing::World;

constexpr Duration kLook = std::chrono::milliseconds(20);
constexpr Duration kMostWait = std::chrono::milliseconds(200);
constexpr double kMemoryMb = 100;

// Models m0, m1, ... whose loads take from 0.2 to 10 s.
std::string name_of(std::size_t model) { return "m" + std::to_string(model); }
constexpr double kLoads_s[] = {0.2, 10, 1.7, 0.5, 5};

struct Seen {
  schedule::DeviceKey device;
  Time created{};
  std::optional<Time> ready;
  std::optional<Time> room;  // since then its device has the share for it
  std::optional<Time> served;
};

// A cluster whose plans change. Looks at it all the time.
class Change {
 public:
  Change(std::size_t models, std::uint32_t devices, double model_mb, double memory_mb)
      : profile_(profile_of(models, model_mb)),
        world_(options(), served(models), profile_),
        memory_mb_(memory_mb) {
    for (std::size_t i = 0; i < models; ++i)
      world_.set_load_time(name_of(i), from_seconds(kLoads_s[i % std::size(kLoads_s)]));
    world_.add_backend("n0", devices, memory_mb);
    input_.profiles = &profiles_;
    schedule::Device device;
    device.type = "card";
    device.memory_mb = memory_mb;
    for (const int percent : {20, 40, 50, 60, 80, 100}) device.sizes.push_back(Share{percent});
    for (std::uint32_t i = 0; i < devices; ++i) {
      device.key = {"n0", i};
      input_.cluster.devices.push_back(device);
    }
    profiles_.emplace("card", profile_);
  }

  World& world() { return world_; }
  const std::map<GpuletId, Seen>& seen() const { return seen_; }
  std::size_t mixtures() const { return mixtures_; }

  void run_until(Time end, const std::function<void(const FrontendStatus&)>& look = {}) {
    while (world_.now() < end) {
      world_.run_until(world_.now() + kLook);
      const FrontendStatus status = world_.status();
      note(status);
      if (look) look(status);
    }
  }

 private:
  static FrontendOptions options() {
    FrontendOptions options;
    options.feedback = false;
    options.use_spare = false;
    return options;
  }
  static profile::Profile profile_of(std::size_t models, double model_mb) {
    std::map<std::string, double> base_ms;
    for (std::size_t i = 0; i < models; ++i) base_ms[name_of(i)] = 2;
    profile::Profile profile = card_profile(base_ms);
    for (auto& [name, model] : profile.models) model.memory_mb = model_mb;
    return profile;
  }
  static std::vector<ServedModel> served(std::size_t models) {
    std::vector<ServedModel> served;
    for (std::size_t i = 0; i < models; ++i) served.push_back(byte_model(name_of(i), 100, 20));
    return served;
  }

  void note(const FrontendStatus& status) {
    std::vector<schedule::PlannedGpulet> mixture;
    std::map<schedule::DeviceKey, double> memory_mb;
    std::map<schedule::DeviceKey, int> percent;
    for (const GpuletStatus& one : status.gpulets) {
      Seen& seen = seen_[one.id];
      if (seen.created == Time{}) seen = {one.gpulet.device, one.gpulet.since, {}, {}, {}};
      if (one.gpulet.state == GpuletState::ready && !seen.ready) seen.ready = world_.now();
      for (const schedule::RunningModel& loaded : one.gpulet.models)
        memory_mb[one.gpulet.device] += *profile_.find(loaded.name)->memory_mb;
      if (!one.planned) continue;
      if (!seen.served) seen.served = world_.now();
      mixture.push_back(*one.planned);
      percent[one.gpulet.device] += one.planned->size.percent;
    }
    for (const GpuletStatus& one : status.gpulets) note_room(one, percent[one.gpulet.device]);
    if (memory_mb_ > 0) {
      for (const auto& [device, mb] : memory_mb) EXPECT_LE(mb, memory_mb_) << device.device;
    }
    std::sort(mixture.begin(), mixture.end(), schedule::in_plan_order);
    if (mixture == mixture_) return;
    mixture_ = mixture;
    ++mixtures_;
    expect_rules();
  }

  void note_room(const GpuletStatus& gpulet, int percent) {
    Seen& seen = seen_.at(gpulet.id);
    if (seen.served && seen.room) return;
    const bool has_room = seen.served || percent + gpulet.gpulet.size.percent <= 100;
    if (!has_room) seen.room.reset();
    if (has_room && !seen.room) seen.room = world_.now();
  }

  void expect_rules() {
    std::map<std::string, double> rates;
    for (const schedule::PlannedGpulet& gpulet : mixture_) {
      for (const schedule::Assignment& one : gpulet.assignments) rates[one.model] += one.rate;
    }
    input_.demands.clear();
    for (const auto& [model, rate] : rates) input_.demands.push_back({model, rate, 100, 16});
    schedule::Plan plan;
    plan.gpulets = mixture_;
    for (const schedule::Violation& fault : schedule::check(plan, input_))
      ADD_FAILURE() << to_string(fault);
  }

  profile::Profile profile_;
  World world_;
  double memory_mb_;
  profile::ProfileSet profiles_;
  schedule::PlanInput input_;
  std::map<GpuletId, Seen> seen_;
  std::vector<schedule::PlannedGpulet> mixture_;
  std::size_t mixtures_ = 0;
};

// Every 20 s another model has most of the load.
std::uint64_t load_in_turn(World& world, std::size_t models, int turns) {
  std::uint64_t tag = 1;
  for (int turn = 0; turn < turns; ++turn) {
    for (std::size_t i = 0; i < models; ++i) {
      const bool much = i == static_cast<std::size_t>(turn) % models;
      tag =
          load(world, name_of(i), much ? 400 : 60, 2 + 20 * turn, 22 + 20 * turn, tag, tag + i + 1);
    }
  }
  return tag;
}

TEST(Rollout, EveryMixtureKeepsTheRulesAndNoGpuletWaitsForThePlan) {
  constexpr std::size_t kModels = 5;
  Change change(kModels, 4, 10, 0);
  load_in_turn(change.world(), kModels, 5);
  change.run_until(at_s(102));
  EXPECT_GT(change.mixtures(), 5U);
  std::size_t served = 0;
  for (const auto& [id, seen] : change.seen()) {
    if (!seen.ready || !seen.served) continue;
    ++served;
    EXPECT_LE(*seen.served - std::max(*seen.ready, *seen.room), kMostWait) << id.value;
  }
  EXPECT_GT(served, 5U);
}

// The way of an outage that began.
struct Dark {
  Time since{};
  GpuletId until;
};

TEST(Rollout, OnlyTheGpuletThatIsReplacedIsDarkForItsLoad) {
  constexpr std::size_t kModels = 3;  // of 30 MB on devices of 100 MB
  Change change(kModels, 2, 30, kMemoryMb);
  load_in_turn(change.world(), kModels, 6);
  std::set<GpuletId> foretold;
  std::map<GpuletId, Dark> dark;  // by the gpulet that ended
  change.run_until(at_s(122), [&](const FrontendStatus& status) {
    std::map<schedule::DeviceKey, std::size_t> at_once;
    for (const PlannedOutage& outage : status.outages) {
      if (outage.begun) ++at_once[outage.device];
      for (const GpuletId id : outage.dark) {
        if (!outage.begun) foretold.insert(id);
        if (outage.begun) dark.try_emplace(id, Dark{change.world().now(), outage.until});
      }
    }
    for (const auto& [device, outages] : at_once) EXPECT_LE(outages, 1U);
  });
  std::size_t ended = 0;
  for (const auto& [id, outage] : dark) {
    const auto until = change.seen().find(outage.until);
    if (until == change.seen().end() || !until->second.served) continue;
    ++ended;
    const Seen& next = until->second;
    EXPECT_LE(next.created - outage.since, kMostWait) << "the old one has left";
    EXPECT_LE(*next.served - std::max(*next.ready, *next.room), kMostWait);
  }
  EXPECT_FALSE(foretold.empty());
  EXPECT_GT(ended, 0U);
}

}  // namespace
}  // namespace gpulet::serve::rollout_test
