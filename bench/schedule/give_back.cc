// How long a plan takes that gives devices back: a plan for models at their rates is in force, and
// all rates fall. Default settings: headroom for random arrivals, measured and learned
// interference. The reference measurements (profiles/reference-gpu), each of the five models
// several times under different names, SLO = twice the latency of 32 on a whole device.
// Deterministic but for the times.
//
//   bench_give_back [--policy NAME] [--interference KIND] [--rate MOST] [--falls-to FRACTION]
//                   [--copies N]...
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "bench/support/options.h"
#include "gpulet/base/random.h"
#include "gpulet/research/research.h"
#include "gpulet/schedule/check.h"
#include "gpulet/schedule/policy.h"
#include "gpulet/schedule/scaling.h"
#include "tests/schedule/reference_case.h"

namespace {

using namespace gpulet;            // NOLINT(google-build-using-namespace)
using namespace gpulet::schedule;  // NOLINT(google-build-using-namespace)

struct Flags {
  std::string policy = "elastic";
  std::string interference = "combined";
  double rate = 1600;  // of a model at most, per second
  double falls_to = 0.5;
  std::vector<std::uint32_t> copies{15, 60, 240};
};

// The reference case with `copies` of each model, at random rates, and devices to spare.
testing::Worked with_copies(std::uint32_t copies, const Flags& flags) {
  const auto kind = profile::parse_interference_kind(flags.interference).value();
  testing::Worked worked = testing::reference_case(kind);
  worked.input.options = {};
  profile::Profile& profile = worked.profiles->begin()->second;
  const std::vector<ModelDemand> originals = worked.input.demands;
  worked.input.demands.clear();
  Random random(copies);
  for (const ModelDemand& original : originals) {
    for (std::uint32_t copy = 0; copy < copies; ++copy) {
      ModelDemand& demand = worked.input.demands.emplace_back(original);
      demand.name += fmt::format("-{}", copy);
      demand.rate = flags.rate * random.uniform();
      profile.models.emplace(demand.name, *profile.find(original.name));
    }
  }
  if (worked.interference) {
    *worked.interference = profile::interference_of(*worked.profiles, kind).value();
  }
  testing::add_devices(worked, "n1", "gpu-a", 20 * copies);
  return worked;
}

double seconds_since(std::chrono::steady_clock::time_point began) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

void run(const Policy& policy, std::uint32_t copies, const Flags& flags) {
  testing::Worked worked = with_copies(copies, flags);
  auto began = std::chrono::steady_clock::now();
  const ScalingResult before = scale(policy, worked.input);
  const double rise_s = seconds_since(began);
  worked.input.current = &before.plan;
  for (ModelDemand& demand : worked.input.demands) demand.rate *= flags.falls_to;
  began = std::chrono::steady_clock::now();
  const ScalingResult after = scale(policy, worked.input);
  const double fall_s = seconds_since(began);
  worked.input.current = nullptr;
  began = std::chrono::steady_clock::now();
  const Plan anew = policy.plan(worked.input);
  const double anew_s = seconds_since(began);
  fmt::print(
      "{:>7} {:>8} {:>8} {:>10.3f} {:>8} {:>10.3f} {:>8} {:>10.3f}{}\n",
      worked.input.demands.size(), before.plan.gpulets.size(), before.devices, rise_s,
      after.devices, fall_s, anew.devices_used(), anew_s,
      check(after.plan, worked.input).empty() && after.plan.schedulable() ? "" : "  INVALID");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  bench::Options command_line("How long a plan takes that gives devices back");
  command_line.add("--policy", flags.policy);
  command_line.add("--interference", flags.interference);
  command_line.add("--rate", flags.rate, "of a model at most, per second");
  command_line.add("--falls-to", flags.falls_to, "of all rates").in_range(0.0, 1.0);
  command_line.add("--copies", flags.copies, "of each of the five models");
  if (const auto code = command_line.parse(argc, argv)) return *code;
  try {
    const auto policy = research::policies().make(flags.policy);
    if (!policy.ok()) throw std::runtime_error(policy.status().to_string());
    fmt::print("{:>7} {:>8} {:>8} {:>10} {:>8} {:>10} {:>8} {:>10}\n", "models", "gpulets",
               "devices", "seconds", "after", "seconds", "anew", "seconds");
    for (const std::uint32_t copies : flags.copies) run(*policy.value(), copies, flags);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_give_back: {}\n", error.what());
    return 1;
  }
  return 0;
}
