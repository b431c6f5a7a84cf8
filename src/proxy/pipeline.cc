#include "proxy/pipeline.h"

#include <algorithm>
#include <string>
#include <utility>

namespace gpulet::proxy {

Pipeline::Pipeline(std::size_t depth, const Loaded& loaded, Answer answer)
    : depth_(depth),
      loaded_(loaded),
      answer_(std::move(answer)),
      thread_([this] { finish_all(); }) {}

Pipeline::~Pipeline() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Pipeline::put(BegunBatch batch) {
  {
    const std::lock_guard lock(mutex_);
    under_way_.push_back(std::move(batch));
  }
  changed_.notify_all();
}

Status Pipeline::wait_until_fewer_than(std::size_t batches) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return under_way_.size() < batches || !failure_.ok(); });
  return failure_;
}

void Pipeline::finish_all() {
  for (;;) {
    BegunBatch* next = nullptr;
    bool answers = true;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return closing_ || !under_way_.empty(); });
      if (under_way_.empty()) return;
      next = &under_way_.front();  // stays where it is while others are put behind it
      answers = failure_.ok();
    }
    const serve::BatchRan ran = finish(*next);
    Status answered = answers ? answer_(ran) : Status();
    {
      const std::lock_guard lock(mutex_);
      under_way_.pop_front();
      if (!answered.ok()) failure_ = std::move(answered);
    }
    changed_.notify_all();
  }
}

serve::BatchRan Pipeline::finish(BegunBatch& batch) {
  serve::BatchRan ran = std::move(batch.ran);
  if (batch.running == nullptr) return ran;
  const Result<std::size_t> written = batch.running->finish();
  const Clock::time_point ended = Clock::now();
  // Until the batch before it was done, this one waited: for the device, if not for its turn.
  const Clock::time_point began = std::max(batch.begun, device_free_);
  device_free_ = ended;
  ran.queued = began - batch.arrived;
  ran.executed = ended - began;
  if (written.ok()) {
    ran.output_bytes = written.value();
  } else {
    loaded_.fail(ran, written.status());
  }
  batch.running.reset();
  return ran;
}

}  // namespace gpulet::proxy
