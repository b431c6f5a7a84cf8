// The requests of one model that wait, where the model has queue rules (core/queue_rules.h). A
// higher level goes first; within a level, requests in time go by deadline, then those whose queue
// timeout has passed and that were delayed, again by deadline.
//
// A request that was in a batch before has no queue timeout any more. The functions mean the same
// as RequestQueue's, "first" and "last" by this order. Pushing and taking cost O(log n) beside the
// number of levels. Pure value; one thread at a time.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "gpulet/batching/request_queue.h"
#include "gpulet/core/queue_rules.h"
#include "gpulet/core/request.h"

namespace gpulet::batching {

class LevelQueue {
 public:
  explicit LevelQueue(QueueRules rules);

  [[nodiscard]] const QueueRules& rules() const { return rules_; }

  // The request's level holds as many as its policy allows.
  [[nodiscard]] bool full_for(const Request& request) const;
  // Whether the level is full is the caller's to ask.
  void push(Request&& request);

  // When the next queue timeout passes; kNever: none will.
  [[nodiscard]] Time next_timeout() const;
  // Delays the requests whose queue timeout has passed by `now`, or removes and returns them, as
  // the policies of their levels say.
  [[nodiscard]] std::vector<Request> take_rejected(Time now);

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  // The earliest deadline of all. REQUIRES: not empty.
  [[nodiscard]] Time front_deadline() const;
  [[nodiscard]] std::size_t count_due_from(Time time) const;
  // The earliest deadline among the first `count` requests that are due at or after `time`.
  // REQUIRES: count > 0, count_due_from(time) > 0.
  [[nodiscard]] Time first_deadline_from(Time time, std::size_t count) const;
  // The largest batch not above `wanted` of the first requests due at or after `time` that ends by
  // the deadlines of all in it when started at `start`; at least 1. execution[n-1]: of a batch of
  // n.
  [[nodiscard]] std::uint32_t largest_batch(Time time, std::span<const Duration> execution,
                                            std::uint32_t wanted, Time start) const;
  [[nodiscard]] Duration mean_waited(Time now) const;

  [[nodiscard]] Request take_last();
  // In the order of their deadlines.
  [[nodiscard]] std::vector<Request> take_due_from(Time time, std::size_t count);
  [[nodiscard]] std::vector<Request> take_due_before(Time time);
  std::size_t remove_client(ClientId client);
  bool remove(ClientId client, std::uint64_t tag);

 private:
  struct Timeout {
    Time passes{};
    Time deadline{};
    ClientId client;
    std::uint64_t tag = 0;

    friend auto operator<=>(const Timeout&, const Timeout&) = default;
  };
  struct Level {
    QueuePolicy policy;
    RequestQueue in_time;
    RequestQueue delayed;
    std::multiset<Timeout> timeouts;  // each of a request in time

    [[nodiscard]] std::size_t size() const { return in_time.size() + delayed.size(); }
  };

  [[nodiscard]] static Timeout timeout_of(const Request& request, const QueuePolicy& policy);
  // Of its level, in levels_.
  [[nodiscard]] std::size_t index_of(const Request& request) const;
  // They have left the level's requests in time.
  static void forget_timeouts(Level& level, std::span<const Request> left);

  QueueRules rules_;
  std::vector<Level> levels_;  // the highest first
  std::size_t size_ = 0;
};

}  // namespace gpulet::batching
