// What waits for a model's next batches: by deadline alone (RequestQueue), or as the model's queue
// rules say (LevelQueue). The functions mean the same as theirs. Pure value; one thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "gpulet/batching/level_queue.h"
#include "gpulet/batching/request_queue.h"
#include "gpulet/core/queue_rules.h"
#include "gpulet/core/request.h"

namespace gpulet::batching {

class WaitingRequests {
 public:
  // What waits stays, and is sorted by these rules from now on; none: by deadline alone. Returns
  // whether they are others than before.
  bool set_rules(const std::optional<QueueRules>& rules);
  // Null without rules.
  [[nodiscard]] const LevelQueue* levels() const { return levels_.get(); }
  [[nodiscard]] LevelQueue* levels() { return levels_.get(); }

  void push(Request&& request) {
    levels_ ? levels_->push(std::move(request)) : plain_.push(std::move(request));
  }
  [[nodiscard]] std::size_t size() const { return levels_ ? levels_->size() : plain_.size(); }
  [[nodiscard]] bool empty() const { return levels_ ? levels_->empty() : plain_.empty(); }
  [[nodiscard]] Time front_deadline() const {
    return levels_ ? levels_->front_deadline() : plain_.front_deadline();
  }
  [[nodiscard]] std::size_t count_due_from(Time time) const {
    return levels_ ? levels_->count_due_from(time) : plain_.count_due_from(time);
  }
  // The earliest deadline among the first `count` requests that are due at or after `time`.
  // REQUIRES: count > 0, count_due_from(time) > 0.
  [[nodiscard]] Time first_deadline_from(Time time, std::size_t count) const {
    return levels_ ? levels_->first_deadline_from(time, count) : plain_.first_deadline_from(time);
  }
  [[nodiscard]] Duration mean_waited(Time now) const {
    return levels_ ? levels_->mean_waited(now) : plain_.mean_waited(now);
  }
  [[nodiscard]] Request take_last() { return levels_ ? levels_->take_last() : plain_.take_last(); }
  [[nodiscard]] std::vector<Request> take_due_from(Time time, std::size_t count) {
    return levels_ ? levels_->take_due_from(time, count) : plain_.take_due_from(time, count);
  }
  [[nodiscard]] std::vector<Request> take_due_before(Time time) {
    return levels_ ? levels_->take_due_before(time) : plain_.take_due_before(time);
  }
  [[nodiscard]] std::vector<Request> take_all() { return take_due_before(kNever); }
  std::size_t remove_client(ClientId client) {
    return levels_ ? levels_->remove_client(client) : plain_.remove_client(client);
  }
  bool remove(ClientId client, std::uint64_t tag) {
    return levels_ ? levels_->remove(client, tag) : plain_.remove(client, tag);
  }

 private:
  RequestQueue plain_;  // empty while there are levels
  std::unique_ptr<LevelQueue> levels_;
};

}  // namespace gpulet::batching
