// The interface of the research library, in programs with it and without it.
#include "gpulet/research/research.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string_view>

#include "tests/support/names.h"

namespace gpulet::research {
namespace {

using ::testing::Contains;
using ::testing::IsSupersetOf;

constexpr std::array<std::string_view, 10> kNames{"elastic-batch-search",
                                                  "elastic-preprint-published",
                                                  "elastic-published",
                                                  "elastic-shipped",
                                                  "ideal-published",
                                                  "igniter",
                                                  "mig-7x1",
                                                  "mig-mix",
                                                  "mig-whole",
                                                  "sbp-shipped"};

TEST(Research, AddsItsPoliciesToThoseOfThePlanner) {
  EXPECT_THAT(policies().names(), IsSupersetOf(schedule::policy_names()));
  for (const std::string_view name : kNames) {
    const auto made = policies().make(name);
    EXPECT_EQ(made.ok(), included()) << name;
    if (included()) {
      EXPECT_EQ(made.value()->name(), name);
      EXPECT_THAT(policies().names(), Contains(name));
    } else {
      EXPECT_EQ(made.status().code(), StatusCode::not_found);
      EXPECT_TRUE(support::names(made.status(), "GPULET_WITH_RESEARCH"));
    }
  }
}

TEST(Research, AsksForTheFileOfALearnedPolicy) {
  EXPECT_EQ(policies().make("inss").status().code(),
            included() ? StatusCode::invalid : StatusCode::not_found);
  EXPECT_EQ(policies().make("inss:/nowhere/some.policy").status().code(), StatusCode::not_found);
}

TEST(Research, TakesNoArgumentForAnotherPolicy) {
  EXPECT_EQ(policies().make("cover:file").status().code(), StatusCode::not_found);
}

TEST(Research, FitsItsModelWhereItIsIncluded) {
  EXPECT_EQ(fit_pair_model() != nullptr, included());
  if (included()) return;
  EXPECT_EQ(inss_report({}, 1).status().code(), StatusCode::not_found);
}

}  // namespace
}  // namespace gpulet::research
