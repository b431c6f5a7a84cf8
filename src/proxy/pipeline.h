// Pipeline: the batches that an executor of depth above 1 has under way. The thread that obeys the
// channel begins them; a thread of the pipeline's own waits for each, in their order, and answers.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "gpulet/core/status.h"
#include "proxy/loaded.h"

namespace gpulet::proxy {

// Sends one to the backend. Not called again once it has failed.
using Answer = std::function<Status(const serve::BatchRan& ran)>;

class Pipeline {
 public:
  // At most `depth` under way.
  Pipeline(std::size_t depth, const Loaded& loaded, Answer answer);
  // Waits for what is under way, and answers it.
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Until another batch may begin. Fails as an answer failed; what is under way then goes on.
  [[nodiscard]] Status wait_for_room() { return wait_until_fewer_than(depth_); }
  // REQUIRES: there was room since the last one.
  void put(BegunBatch batch);
  // Until all that was put has been answered. Fails as wait_for_room.
  [[nodiscard]] Status drain() { return wait_until_fewer_than(1); }

 private:
  [[nodiscard]] Status wait_until_fewer_than(std::size_t batches);
  void finish_all();
  [[nodiscard]] serve::BatchRan finish(BegunBatch& batch);

  const std::size_t depth_;
  const Loaded& loaded_;
  const Answer answer_;
  // When the batch before ended; the pipeline's thread alone uses it.
  Clock::time_point device_free_{};
  std::mutex mutex_;  // the two threads meet here, and only here
  std::condition_variable changed_;
  std::deque<BegunBatch> under_way_;  // guarded by mutex_; the first is being finished
  Status failure_;                    // guarded by mutex_; of an answer
  bool closing_ = false;              // guarded by mutex_
  std::thread thread_;                // last: starts when the rest is there
};

}  // namespace gpulet::proxy
