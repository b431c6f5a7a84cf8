#include "gpulet/train/run.h"

#include "gpulet/learn/files.h"

namespace gpulet::train {

Status run(Training& training, const RunOptions& options) {
  bool stopped = false;
  while (!stopped && training.curve().size() < options.episodes) {
    const EpisodeFigures& figures = training.run_episode();
    stopped = !options.go_on(figures);
    if (figures.episode % options.checkpoint_every != 0) continue;
    if (Status status = learn::write_file(options.checkpoint, training.checkpoint()); !status.ok())
      return status;
  }
  return learn::write_file(options.checkpoint, training.checkpoint());
}

}  // namespace gpulet::train
