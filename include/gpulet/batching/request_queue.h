// The queued requests of one model: DeadlineQueue by deadline; PriorityQueue by the model's queue
// rules (core/queue_rules.h); PendingRequests is the one of the two that the model needs. All
// gpulets that serve the model take from one queue, so that none is idle while another has a
// backlog.
//
// Requests of equal deadline keep their order of arrival. Values; one thread at a time.
#pragma once

#include <boost/container/deque.hpp>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/queue_rules.h"
#include "gpulet/core/request.h"

namespace gpulet::batching {

// Pushing in the order of deadlines, the usual case, costs O(1).
class DeadlineQueue {
 public:
  void push(Request&& request);

  [[nodiscard]] std::size_t size() const { return requests_.size(); }
  [[nodiscard]] bool empty() const { return requests_.empty(); }
  // The earliest deadline. REQUIRES: not empty.
  [[nodiscard]] Time front_deadline() const { return requests_.front().deadline; }
  // The number of requests with a deadline at or after `time`.
  [[nodiscard]] std::size_t count_due_from(Time time) const;
  // The earliest deadline at or after `time`. REQUIRES: count_due_from(time) > 0.
  [[nodiscard]] Time first_deadline_from(Time time) const;
  // The mean time since the requests arrived. REQUIRES: not empty.
  [[nodiscard]] Duration mean_waited(Time now) const;

  // Removes and returns the request with the latest deadline. REQUIRES: not empty.
  [[nodiscard]] Request take_last();
  // Removes and returns up to `count` requests with the earliest deadlines at or after `time`.
  [[nodiscard]] std::vector<Request> take_due_from(Time time, std::size_t count);
  // Removes and returns all requests with a deadline before `time`.
  [[nodiscard]] std::vector<Request> take_due_before(Time time);
  // Removes all requests of the client and returns their number.
  std::size_t remove_client(ClientId client);
  // Removes and returns the request with that deadline, client and tag, if it is queued.
  [[nodiscard]] std::optional<Request> take(Time deadline, ClientId client, std::uint64_t tag);
  // Removes the request with that client and tag. Returns false if it is not queued.
  bool remove(ClientId client, std::uint64_t tag);

 private:
  // A block of std::deque holds only two requests, so every other push would allocate. A larger one
  // than this would be much memory for thousands of models, each of which keeps one.
  static constexpr std::size_t kRequestsPerBlock = 16;
  using Requests = boost::container::deque<
      Request, void,
      boost::container::deque_options_t<boost::container::block_size<kRequestsPerBlock>>>;
  using Iterator = Requests::const_iterator;
  [[nodiscard]] Iterator due_from(Time time) const;
  [[nodiscard]] std::vector<Request> take(std::size_t first, std::size_t count);

  Requests requests_;  // by deadline
};

// Requests of a higher level leave first. Within a level, requests whose queue timeout has not
// passed leave first, then the delayed ones, both by deadline. A request that was part of an
// earlier batch has no queue timeout. Pushing and taking cost O(log n) plus the number of levels.
// Functions without a comment have the contract of DeadlineQueue in this order.
class PriorityQueue {
 public:
  explicit PriorityQueue(QueueRules rules);

  [[nodiscard]] const QueueRules& rules() const { return rules_; }

  // True if the request's level holds the most requests that its policy allows.
  [[nodiscard]] bool full_for(const Request& request) const;
  // Does not check full_for().
  void push(Request&& request);

  // When the next queue timeout passes, or kNever.
  [[nodiscard]] Time next_timeout() const;
  // Applies the timeout action of each level to the requests whose queue timeout has passed: delays
  // them, or removes and returns them.
  [[nodiscard]] std::vector<Request> take_rejected(Time now);

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] Time front_deadline() const;
  [[nodiscard]] std::size_t count_due_from(Time time) const;
  // The earliest deadline among the first `count` requests due at or after `time`. REQUIRES:
  // count > 0, count_due_from(time) > 0.
  [[nodiscard]] Time first_deadline_from(Time time, std::size_t count) const;
  // The size of the largest batch of the first requests due at or after `time`, up to `limit`, that
  // meets all of their deadlines when it starts at `start`; at least 1. execution[n-1]: duration of
  // a batch of n requests.
  [[nodiscard]] std::uint32_t largest_batch(Time time, std::span<const Duration> execution,
                                            std::uint32_t limit, Time start) const;
  [[nodiscard]] Duration mean_waited(Time now) const;

  [[nodiscard]] Request take_last();
  // Returns the requests by deadline.
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
    DeadlineQueue in_time;
    DeadlineQueue delayed;
    std::multiset<Timeout> timeouts;  // of requests in `in_time`

    [[nodiscard]] std::size_t size() const { return in_time.size() + delayed.size(); }
  };

  [[nodiscard]] static Timeout timeout_of(const Request& request, const QueuePolicy& policy);
  // The index of the request's level in levels_.
  [[nodiscard]] std::size_t index_of(const Request& request) const;
  // REQUIRES: `removed` were in level.in_time.
  static void erase_timeouts(Level& level, std::span<const Request> removed);

  QueueRules rules_;
  std::vector<Level> levels_;  // the highest first
  std::size_t size_ = 0;
};

// Functions without a comment have the contract of DeadlineQueue or PriorityQueue.
class PendingRequests {
 public:
  // Sorts the queued requests, and all later ones, by these rules; by deadline where `rules` is
  // empty. Returns whether the rules changed.
  bool set_rules(const std::optional<QueueRules>& rules);
  // Null without rules.
  [[nodiscard]] const PriorityQueue* levels() const { return levels_.get(); }
  [[nodiscard]] PriorityQueue* levels() { return levels_.get(); }

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
  // The earliest deadline among the first `count` requests due at or after `time`. REQUIRES:
  // count > 0, count_due_from(time) > 0.
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
  DeadlineQueue plain_;  // empty while levels_ is set
  std::unique_ptr<PriorityQueue> levels_;
};

// ---- batch tensors
//
// Builds the input of a batch from the inputs of its requests, and splits the output of a batch
// into the outputs of its requests, without copying bytes. core/request.h describes the layout.
// Pure; any thread.

// The slices of a batch's input in their order. `input_sizes` holds the bytes of each input tensor
// of one request. Synthetic requests have zeros. REQUIRES: the input of every other request has the
// sum of `input_sizes` as its size.
[[nodiscard]] std::vector<Bytes> gather_inputs(std::span<const Request> requests,
                                               std::span<const std::size_t> input_sizes);

// Fails with internal unless `outputs` has `count` times the sum of `output_sizes` bytes, where
// `output_sizes` holds the bytes of each output tensor of one request.
[[nodiscard]] Status check_outputs(const Bytes& outputs, std::size_t count,
                                   std::span<const std::size_t> output_sizes);
// The outputs of request `index` in a batch of `count`: one slice for each output tensor.
// REQUIRES: check_outputs() passed, index < count.
[[nodiscard]] std::vector<Bytes> scatter_outputs(const Bytes& outputs, std::size_t count,
                                                 std::size_t index,
                                                 std::span<const std::size_t> output_sizes);

}  // namespace gpulet::batching
