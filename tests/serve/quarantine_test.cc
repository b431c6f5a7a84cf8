#include "gpulet/serve/quarantine.h"

#include <gtest/gtest.h>

namespace gpulet::serve {
namespace {

using std::chrono::seconds;

constexpr Time at_s(int s) { return Time(seconds(1000 + s)); }

QuarantineOptions three_in_a_minute() {
  QuarantineOptions options;
  options.crashes = 3;
  options.window = seconds(60);
  options.first = seconds(10);
  options.longest = seconds(35);
  options.relapse_within = seconds(30);
  options.suspect_for = seconds(100);
  return options;
}

class QuarantineTest : public ::testing::Test {
 protected:
  bool crash(int s) { return quarantine_.crashed("a", "ended by signal 11", at_s(s)); }
  Quarantine quarantine_{three_in_a_minute()};
};

TEST_F(QuarantineTest, BeginsWithSoManyCrashesWithinTheWindow) {
  EXPECT_FALSE(quarantine_.suspects("a"));
  EXPECT_FALSE(crash(0));
  EXPECT_TRUE(quarantine_.suspects("a"));
  EXPECT_FALSE(crash(10));
  EXPECT_FALSE(crash(61)) << "the first was more than a minute ago";
  EXPECT_FALSE(quarantine_.holds("a"));
  EXPECT_TRUE(quarantine_.why("a", at_s(61)).empty());
  EXPECT_TRUE(crash(62));
  EXPECT_TRUE(quarantine_.holds("a"));
  EXPECT_FALSE(quarantine_.why("a", at_s(63)).empty());
  EXPECT_FALSE(quarantine_.holds("b"));
  EXPECT_EQ(quarantine_.crashes("b"), 0U);
}

TEST_F(QuarantineTest, EndsByItselfAndComesBackLonger) {
  EXPECT_FALSE(crash(0));
  EXPECT_FALSE(crash(1));
  EXPECT_TRUE(crash(2));
  EXPECT_EQ(quarantine_.left("a", at_s(2)), seconds(10));
  EXPECT_FALSE(crash(3)) << "a batch that was under way";
  EXPECT_TRUE(quarantine_.tick(at_s(11)).empty());
  EXPECT_EQ(quarantine_.tick(at_s(12)), std::vector<std::string>{"a"});
  EXPECT_FALSE(quarantine_.holds("a"));
  EXPECT_TRUE(quarantine_.suspects("a"));
  EXPECT_TRUE(crash(20)) << "one crash is enough so soon";
  EXPECT_EQ(quarantine_.left("a", at_s(20)), seconds(20));
  EXPECT_EQ(quarantine_.tick(at_s(40)).size(), 1U);
  EXPECT_TRUE(crash(41));
  EXPECT_EQ(quarantine_.left("a", at_s(41)), seconds(35)) << "no longer than the longest";
  EXPECT_EQ(quarantine_.tick(at_s(76)).size(), 1U);
  EXPECT_FALSE(crash(107)) << "it ran well for longer than that";
  EXPECT_EQ(quarantine_.crashes("a"), 7U);
}

TEST_F(QuarantineTest, SuspicionPasses) {
  quarantine_.suspect("a", at_s(0));
  EXPECT_TRUE(quarantine_.suspects("a"));
  EXPECT_EQ(quarantine_.crashes("a"), 0U) << "it may have been another's doing";
  EXPECT_TRUE(quarantine_.tick(at_s(99)).empty());
  EXPECT_TRUE(quarantine_.suspects("a"));
  EXPECT_TRUE(quarantine_.tick(at_s(100)).empty());
  EXPECT_FALSE(quarantine_.suspects("a"));
}

TEST_F(QuarantineTest, EndsByHand) {
  EXPECT_FALSE(quarantine_.release("a"));
  EXPECT_FALSE(crash(0));
  EXPECT_FALSE(crash(1));
  EXPECT_TRUE(crash(2));
  EXPECT_TRUE(quarantine_.release("a"));
  EXPECT_FALSE(quarantine_.holds("a"));
  EXPECT_FALSE(quarantine_.suspects("a"));
  EXPECT_TRUE(quarantine_.tick(at_s(20)).empty());
  EXPECT_FALSE(crash(21)) << "it begins anew";
  EXPECT_EQ(quarantine_.crashes("a"), 4U) << "the counter goes on";
  quarantine_.forget("a");
  EXPECT_EQ(quarantine_.crashes("a"), 0U);
}

}  // namespace
}  // namespace gpulet::serve
