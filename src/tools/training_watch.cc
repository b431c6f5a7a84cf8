#include "tools/training_watch.h"

#include <cmath>

#include "tools/table.h"

namespace gpulet::tools {
namespace {

std::string duration_text(double seconds) {
  if (seconds < 120) return fixed(std::ceil(seconds), 0) + " s";
  return fixed(std::ceil(seconds / 60), 0) + " min";
}

}  // namespace

std::string progress_text(const train::EpisodeFigures& figures, std::uint64_t episodes,
                          std::uint64_t resumed_at, std::chrono::duration<double> passed) {
  const auto done = static_cast<double>(figures.episode - resumed_at);
  const auto left = static_cast<double>(episodes - figures.episode);
  return "episode " + std::to_string(figures.episode) + " of " + std::to_string(episodes) +
         ": reward " + shortest(figures.reward, 2) + ", " + fixed(figures.violation * 100, 2) +
         " % violated, " + fixed(figures.throughput, 0) + " requests/s, " +
         duration_text(passed.count() / done * left) + " left; Ctrl-C stops it";
}

bool TrainingWatch::show(const train::EpisodeFigures& figures) {
  line_.show(progress_text(figures, episodes_, resumed_at_, passed()));
  interrupted_ = signals_.take().has_value();
  return !interrupted_;
}

}  // namespace gpulet::tools
