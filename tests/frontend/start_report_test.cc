// What a frontend that has just started still waits for.
#include "frontend/start_report.h"

#include <gtest/gtest.h>

namespace gpulet::frontend {
namespace {

using serve::ModelState;

serve::ModelStatus model(const std::string& name, ModelState state) {
  serve::ModelStatus made;
  made.name = name;
  made.state = state;
  return made;
}

TEST(StartReport, WaitsForABackendThenForThePlanThenForModelsThatLoad) {
  serve::FrontendStatus status;
  status.models = {model("a", ModelState::loading), model("b", ModelState::unavailable)};
  const std::string backend = waits_for(status);
  EXPECT_NE(backend, "");
  status.backends[BackendId{1}];  // connected, and has not said who it is
  EXPECT_EQ(waits_for(status), backend);
  status.backends[BackendId{1}].node = "n0";
  const std::string plan = waits_for(status);
  EXPECT_NE(plan, "");
  EXPECT_NE(plan, backend);
  status.epoch = Epoch{1};
  const std::string models = waits_for(status);
  EXPECT_NE(models, "");
  EXPECT_NE(models, plan);
  status.models[0].state = ModelState::ready;
  EXPECT_EQ(waits_for(status), "") << "what is unavailable does not come by waiting";
}

TEST(StartReport, NamesTheModelsThatItWaitsForAndThoseThatItDoesNotServe) {
  serve::FrontendStatus status;
  status.backends[BackendId{1}].node = "n0";
  status.epoch = Epoch{1};
  status.models = {model("a", ModelState::loading), model("b", ModelState::unavailable)};
  status.models[1].reason = "no profile";
  EXPECT_NE(waits_for(status).find(": a"), std::string::npos);
  EXPECT_NE(serves_now(status).find("b: no profile"), std::string::npos);
}

}  // namespace
}  // namespace gpulet::frontend
