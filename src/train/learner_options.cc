#include "train/learner_options.h"

#include <string>

#include "gpulet/learn/network.h"

namespace gpulet::train {

Status check_options(const LearnerOptions& options) {
  const auto bad = [](const std::string& what) { return Status(StatusCode::invalid, what); };
  for (const std::uint32_t width : options.hidden) {
    if (width == 0 || width > learn::Network::kMostWidth)
      return bad("hidden: a layer's width must be 1 to 65536; was " + std::to_string(width));
  }
  const auto within = [](double value, double least, double most) {
    return value >= least && value <= most;  // false for what is no number
  };
  const auto in_range = [&](double value, double least, double most, const char* name) {
    if (within(value, least, most)) return Status();
    return bad(std::string(name) + ": must be from " + std::to_string(least) + " to " +
               std::to_string(most) + "; was " + std::to_string(value));
  };
  for (const Status& status :
       {in_range(options.learning_rate, 1e-9, 1, "learning_rate"),
        in_range(options.discount, 0, 0.999999, "discount"),
        in_range(options.target_update, 1e-6, 1, "target_update"),
        in_range(options.first_temperature, 1e-6, 1e6, "first_temperature"),
        in_range(options.entropy_fraction, 0, 1, "entropy_fraction"),
        in_range(options.reward_scale, 1e-6, 1e6, "reward_scale"),
        in_range(options.batch, 1, 1e6, "batch"),
        in_range(options.replay_capacity, options.batch, 1e8, "replay_capacity"),
        in_range(options.threads, 1, 2, "threads")}) {
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace gpulet::train
