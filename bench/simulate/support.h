// What the programs of this folder share.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/support/options.h"
#include "gpulet/simulate/simulation.h"
#include "tests/schedule/worked.h"

namespace gpulet::bench {

// The main function of a program: `declare` adds its options, `run` runs it. Returns the exit code.
// A failure is printed with the program's name.
inline int run_program(int argc, char** argv, const std::string& name,
                       const std::string& description, const std::function<void(Options&)>& declare,
                       const std::function<void()>& run) {
  try {
    Options command_line(description, name);
    declare(command_line);
    if (const auto code = command_line.parse(argc, argv)) return *code;
    run();
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return 1;
  }
}

// Profiles, the interference that plans assume and the one that batches experience. Refers to
// `worked` and its profiles, which outlive it. The policy is left to the caller.
inline simulate::Knowledge knowledge_of(const schedule::testing::Worked& worked) {
  const auto shared = [](auto* part) {
    return std::shared_ptr<const std::remove_pointer_t<decltype(part)>>(part, [](auto*) {});
  };
  simulate::Knowledge knowledge;
  knowledge.profiles = shared(worked.profiles.get());
  knowledge.believed = worked.interference != nullptr
                           ? shared(worked.interference.get())
                           : std::make_shared<const profile::InterferenceSet>();
  knowledge.simulated = simulate::simulated_interference(*worked.profiles);
  return knowledge;
}

// Throws where the run fails.
inline simulate::Outcome simulate_input(const simulate::Knowledge& knowledge,
                                        const schedule::PlanInput& input,
                                        const simulate::SimulationOptions& options) {
  auto outcome =
      simulate::simulate(knowledge, {input.cluster, input.demands, input.options}, options);
  if (!outcome.ok()) throw std::runtime_error(outcome.status().to_string());
  return std::move(outcome).value();
}

// The value that `part` of the values do not exceed. REQUIRES: there are values.
inline double percentile_of(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(
      std::lround(part * static_cast<double>(values.size() - 1)))];
}

}  // namespace gpulet::bench
