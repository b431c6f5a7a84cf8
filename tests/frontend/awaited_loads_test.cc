// What calls that load models are answered, and when.
#include "frontend/awaited_loads.h"

#include <gtest/gtest.h>

#include <optional>

#include "tests/support/serve/traffic.h"

namespace gpulet::frontend {
namespace {

using serve::testing::at_s;
using serve::testing::byte_model;
using serve::testing::card_profile;
using serve::testing::World;

class AwaitedLoadsTest : public ::testing::Test {
 protected:
  static serve::ServedModel model(const std::string& name, double slo_ms = 100) {
    return byte_model(name, slo_ms, 40);
  }
  // As after a change that named these models.
  void load(const std::vector<std::string>& names) {
    loads_.add(world_.frontend().models(names), world_.now(),
               [this](serve::ModelsChanged changed) { answer_ = std::move(changed.status); });
  }
  // The answer, once that time has come.
  std::optional<Status> answer_at(double seconds) {
    world_.run_until(at_s(seconds));
    loads_.settle(world_.frontend(), world_.now());
    return answer_;
  }

  World world_{{}, {model("a")}, card_profile({{"a", 4}, {"b", 4}})};
  AwaitedLoads loads_;
  std::optional<Status> answer_;
};

TEST_F(AwaitedLoadsTest, AnswerOnceTheModelsServe) {
  world_.add_backend("n0", 2);
  world_.change_models_at(at_s(5), {model("a"), model("b")}, {"b"});
  world_.run_until(at_s(5.0005));
  load({"a", "b"});
  EXPECT_FALSE(answer_at(5.0005).has_value());
  ASSERT_TRUE(answer_at(10).has_value());
  EXPECT_TRUE(answer_->ok()) << answer_->to_string();
}

TEST_F(AwaitedLoadsTest, FailWithTheReasonOfAModelThatCannotServe) {
  world_.add_backend("n0", 2);
  world_.change_models_at(at_s(5), {model("a"), model("b", 1)}, {"b"});
  world_.run_until(at_s(5.0005));
  load({"a", "b"});
  ASSERT_TRUE(answer_at(10).has_value());
  EXPECT_EQ(answer_->code(), StatusCode::unavailable);
  EXPECT_NE(answer_->message().find("b: "), std::string::npos) << answer_->message();
  EXPECT_NE(answer_->message().find("out of reach"), std::string::npos) << answer_->message();
}

TEST_F(AwaitedLoadsTest, FailWhereTheModelIsUnloadedMeanwhile) {
  world_.add_backend("n0", 2);
  world_.change_models_at(at_s(5), {model("a"), model("b")}, {"b"});
  world_.run_until(at_s(5.0005));
  load({"b"});
  world_.change_models_at(at_s(5.1), {model("a")});
  ASSERT_TRUE(answer_at(10).has_value());
  EXPECT_EQ(answer_->code(), StatusCode::unavailable);
}

TEST_F(AwaitedLoadsTest, AreBoundedAndAllAnsweredAtTheEnd) {
  world_.run_until(at_s(1));
  std::size_t answered = 0;
  std::size_t refused = 0;
  for (std::size_t i = 0; i < AwaitedLoads::kMost + 3; ++i) {
    loads_.add(world_.frontend().models({"a"}), world_.now(),
               [&](const serve::ModelsChanged& changed) {
                 ++answered;
                 if (changed.status.code() == StatusCode::overloaded) ++refused;
               });
  }
  EXPECT_EQ(refused, 3U);
  loads_.end({StatusCode::unavailable, "the frontend stops"});
  EXPECT_EQ(answered, AwaitedLoads::kMost + 3);
}

}  // namespace
}  // namespace gpulet::frontend
