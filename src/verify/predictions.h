// Predictions of plans for one input. Gpulets that did not change cost a look-up. Pure; one thread
// at a time.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gpulet/schedule/explanation.h"
#include "gpulet/schedule/policy.h"
#include "verify/queue_prediction.h"
#include "verify/shared_queues.h"

namespace gpulet::verify {

struct Prediction {
  schedule::PredictedViolations violations;
  std::map<std::string_view, LatePart> simulated;  // by model; the names are the plan's
};

class Predictions {
 public:
  // `input` outlives the object. With a limit, simulations end where it is clear on which side of
  // it their results are. `effort`: as Verifier.
  Predictions(const schedule::PlanInput& input, const std::optional<double>& limit,
              double effort = 1);

  // The chain (schedule/explanation.h) knows each gpulet by itself, and is off by several times
  // where a request may hardly wait: what it doubts is simulated.
  [[nodiscard]] Prediction of(const schedule::Plan& plan);

  // How long all that took, reckoned from the work and a fixed speed.
  [[nodiscard]] double spent_ms() const { return spent_ms_; }

 private:
  // Where a model is late most often by the chain.
  struct Doubt {
    std::size_t gpulet = 0;
    double late = 0;
  };
  using Doubts = std::map<std::string_view, Doubt>;  // by model
  // Gpulets that models have around them, and these models.
  struct Scene {
    std::vector<const schedule::PlannedGpulet*> around;
    std::vector<AskedModel> models;
  };

  // Each device by itself, and each only once.
  [[nodiscard]] schedule::PredictedViolations by_chain(const schedule::Plan& plan);
  [[nodiscard]] Doubts doubtful(const schedule::Plan& plan,
                                const schedule::PredictedViolations& predicted) const;
  // By their content.
  [[nodiscard]] static std::map<std::string, Scene> scenes_of(const schedule::Plan& plan,
                                                              const Doubts& doubts);
  // Those of the models that can be simulated.
  [[nodiscard]] std::map<std::string_view, LatePart> simulate(const schedule::Plan& plan,
                                                              const Doubts& doubts);

  const schedule::PlanInput& input_;
  const std::optional<double> limit_;
  const double effort_;
  const double doubtful_;
  double spent_ms_ = 0;
  // By what they depend on, as text.
  std::unordered_map<std::string, schedule::PredictedViolations> chains_;
  std::unordered_map<std::string, std::map<std::string, std::optional<LatePart>, std::less<>>>
      simulated_;  // then by model
};

}  // namespace gpulet::verify
