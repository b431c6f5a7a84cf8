#include <gtest/gtest.h>

#include <optional>

#include "frontend/endpoints/core_host.h"
#include "tests/support/names.h"
#include "tests/support/serve/traffic.h"

namespace gpulet::frontend {
namespace {

using serve::testing::at_s;
using serve::testing::byte_model;
using serve::testing::card_profile;
using serve::testing::World;

class PendingLoadsTest : public ::testing::Test {
 protected:
  static serve::ServedModel model(const std::string& name, double slo_ms = 100) {
    return byte_model(name, slo_ms, 40);
  }
  // A call that loaded these models.
  void load(const std::vector<std::string>& names) {
    loads_.add(world_.frontend().models(names), world_.now(),
               [this](ModelsChanged changed) { answer_ = std::move(changed.status); });
  }
  // The answer at that time; empty: none yet.
  std::optional<Status> answer_at(double time_s) {
    world_.run_until(at_s(time_s));
    loads_.poll(world_.frontend(), world_.now());
    return answer_;
  }

  World world_{{}, {model("a")}, card_profile({{"a", 4}, {"b", 4}})};
  PendingLoads loads_;
  std::optional<Status> answer_;
};

TEST_F(PendingLoadsTest, AnswersOnceTheModelsServe) {
  world_.add_backend("n0", 2);
  world_.change_models_at(at_s(5), {model("a"), model("b")}, {"b"});
  world_.run_until(at_s(5.0005));
  load({"a", "b"});
  EXPECT_FALSE(answer_at(5.0005).has_value());
  ASSERT_TRUE(answer_at(10).has_value());
  EXPECT_TRUE(answer_->ok()) << answer_->to_string();
}

TEST_F(PendingLoadsTest, FailsWithTheReasonIfAModelCannotServe) {
  world_.add_backend("n0", 2);
  world_.change_models_at(at_s(5), {model("a"), model("b", 1)}, {"b"});
  world_.run_until(at_s(5.0005));
  load({"a", "b"});
  ASSERT_TRUE(answer_at(10).has_value());
  EXPECT_EQ(answer_->code(), StatusCode::unavailable);
  EXPECT_TRUE(support::names(*answer_, "b"));
}

TEST_F(PendingLoadsTest, FailsIfTheModelIsUnloadedMeanwhile) {
  world_.add_backend("n0", 2);
  world_.change_models_at(at_s(5), {model("a"), model("b")}, {"b"});
  world_.run_until(at_s(5.0005));
  load({"b"});
  world_.change_models_at(at_s(5.1), {model("a")});
  ASSERT_TRUE(answer_at(10).has_value());
  EXPECT_EQ(answer_->code(), StatusCode::unavailable);
}

TEST_F(PendingLoadsTest, RefusesCallsBeyondTheLimitAndAnswersAllAtTheEnd) {
  world_.run_until(at_s(1));
  std::size_t answered = 0;
  std::size_t refused = 0;
  for (std::size_t i = 0; i < PendingLoads::kMaxPending + 3; ++i) {
    loads_.add(world_.frontend().models({"a"}), world_.now(), [&](const ModelsChanged& changed) {
      ++answered;
      if (changed.status.code() == StatusCode::overloaded) ++refused;
    });
  }
  EXPECT_EQ(refused, 3U);
  loads_.fail_all({StatusCode::unavailable, "stopping"});
  EXPECT_EQ(answered, PendingLoads::kMaxPending + 3);
}

}  // namespace
}  // namespace gpulet::frontend
