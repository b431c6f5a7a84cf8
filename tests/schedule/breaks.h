// Which rule of check() a plan breaks.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "gpulet/schedule/check.h"

namespace gpulet::schedule::testing {

[[nodiscard]] inline bool is_number(double found, double expected) {
  return (std::isnan(found) && std::isnan(expected)) || found == expected ||
         std::abs(found - expected) <= kCheckTolerance * std::abs(expected);
}

// check() finds a violation with the cause, model, instance and numbers of `expected`; its other
// values are free, as are the model and the instance where `expected` has none.
[[nodiscard]] inline ::testing::AssertionResult breaks(const Plan& plan, const PlanInput& input,
                                                       const Violation& expected) {
  const std::vector<Violation> found = check(plan, input);
  const bool has_it = std::any_of(found.begin(), found.end(), [&](const Violation& one) {
    return one.cause == expected.cause && (expected.model.empty() || one.model == expected.model) &&
           (!expected.instance || one.instance == expected.instance) &&
           is_number(one.found, expected.found) && is_number(one.expected, expected.expected);
  });
  if (has_it) return ::testing::AssertionSuccess();
  ::testing::AssertionResult failure = ::testing::AssertionFailure();
  failure << "expected: " << to_string(expected);
  for (const Violation& one : found) failure << "\nfound: " << to_string(one);
  return failure;
}

}  // namespace gpulet::schedule::testing
