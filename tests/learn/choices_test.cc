#include "gpulet/learn/choices.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <stdexcept>
#include <vector>

namespace gpulet::learn {
namespace {

// No head may choose what one before it chose.
class AllDifferent final : public ChoiceRules {
 public:
  explicit AllDifferent(std::vector<std::uint32_t> sizes) : sizes_(std::move(sizes)) {}

  [[nodiscard]] std::span<const std::uint32_t> head_sizes() const override { return sizes_; }
  void allow(std::span<const float> /*observation*/, std::size_t head,
             std::span<const std::uint32_t> chosen_before,
             std::span<std::uint8_t> allowed) const override {
    for (std::uint32_t at = 0; at < sizes_[head]; ++at) {
      allowed[at] =
          std::find(chosen_before.begin(), chosen_before.end(), at) == chosen_before.end() ? 1 : 0;
    }
  }

 private:
  std::vector<std::uint32_t> sizes_;
};

TEST(Choices, BestIsTheLargestThatIsAllowed) {
  const AllDifferent rules({2, 3, 3});
  EXPECT_EQ(count_possibilities(rules), 8);
  const Choices choices =
      choose_best({}, std::vector<float>{0, 2, /**/ 1, 9, 0.5, /**/ 7, 8, -3}, rules);
  EXPECT_EQ(choices.chosen, (std::vector<std::uint32_t>{1, 0, 2}));
  EXPECT_EQ(choices.allowed, (std::vector<std::uint8_t>{1, 1, /**/ 1, 0, 1, /**/ 0, 0, 1}));
}

TEST(Choices, OfEqualsTheFirst) {
  EXPECT_EQ(choose_best({}, std::vector<float>{3, 3, /**/ 1, 1, 1}, AllDifferent({2, 3})).chosen,
            (std::vector<std::uint32_t>{0, 1}));
}

TEST(Choices, AHeadWithoutAnyIsABugOfTheRules) {
  Random random(1);
  const std::vector<float> logits(2);
  EXPECT_THROW((void)choose_best({}, logits, AllDifferent({1, 1})), std::logic_error);
  EXPECT_THROW((void)choose_at_random({}, logits, AllDifferent({1, 1}), random), std::logic_error);
}

TEST(Choices, AreDrawnAsOftenAsTheSoftmaxSays) {
  // Of the second head, after 0 only 1 and 2 are left: e^1 and e^2 of their sum.
  const AllDifferent rules({1, 3});
  const std::vector<float> logits{0, /**/ 100, 1, 2};
  Random random(1);
  constexpr int kDraws = 20'000;
  std::array<int, 3> drawn{};
  for (int draw = 0; draw < kDraws; ++draw)
    ++drawn.at(choose_at_random({}, logits, rules, random).chosen[1]);
  EXPECT_EQ(drawn[0], 0);
  EXPECT_NEAR(drawn[2] / double{kDraws}, 0.7311, 0.01);
}

RC_GTEST_PROP(Choices, KeepToTheRules, (std::uint64_t seed)) {
  Random random(seed);
  const AllDifferent rules({3, 3, 4});
  std::vector<float> logits(count_possibilities(rules));
  for (float& logit : logits) logit = static_cast<float>(200 * random.uniform() - 100);
  for (const Choices& choices :
       {choose_best({}, logits, rules), choose_at_random({}, logits, rules, random)}) {
    std::size_t from = 0;
    for (std::size_t head = 0; head < 3; ++head) {
      std::vector<std::uint8_t> allowed(rules.head_sizes()[head]);
      rules.allow({}, head, std::span(choices.chosen).first(head), allowed);
      RC_ASSERT(allowed[choices.chosen[head]] == 1);
      for (std::size_t at = 0; at < allowed.size(); ++at)
        RC_ASSERT(allowed[at] == choices.allowed[from + at]);
      from += allowed.size();
    }
  }
}

}  // namespace
}  // namespace gpulet::learn
