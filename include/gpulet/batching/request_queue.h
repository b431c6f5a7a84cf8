// The requests of one model that wait for a place in a batch, by deadline. All gpulets that serve
// the model pull from the one queue, so that none idles while another has a backlog.
//
// Requests of equal deadline keep their order of arrival. Pushing in the order of deadlines, the
// usual case, costs O(1). Pure value; one thread at a time.
#pragma once

#include <boost/container/deque.hpp>
#include <cstddef>
#include <optional>
#include <vector>

#include "gpulet/core/request.h"

namespace gpulet::batching {

class RequestQueue {
 public:
  void push(Request&& request);

  [[nodiscard]] std::size_t size() const { return requests_.size(); }
  [[nodiscard]] bool empty() const { return requests_.empty(); }
  // The earliest deadline. REQUIRES: not empty.
  [[nodiscard]] Time front_deadline() const { return requests_.front().deadline; }

  // How many requests have a deadline at or after `time`.
  [[nodiscard]] std::size_t count_due_from(Time time) const;
  // The earliest deadline at or after `time`. REQUIRES: count_due_from(time) > 0.
  [[nodiscard]] Time first_deadline_from(Time time) const;

  // How long they have waited since they arrived, in the mean. REQUIRES: not empty.
  [[nodiscard]] Duration mean_waited(Time now) const;

  // Removes and returns the request with the latest deadline. REQUIRES: not empty.
  [[nodiscard]] Request take_last();
  // Removes and returns the first `count` requests (or fewer) with a deadline at or after `time`.
  [[nodiscard]] std::vector<Request> take_due_from(Time time, std::size_t count);
  // Removes and returns all requests with a deadline before `time`.
  [[nodiscard]] std::vector<Request> take_due_before(Time time);
  // Removes all requests of that client and returns how many they were.
  std::size_t remove_client(ClientId client);
  // Removes and returns one request of that deadline, client and tag, where there is one.
  [[nodiscard]] std::optional<Request> take(Time deadline, ClientId client, std::uint64_t tag);
  // Removes the request of that client and tag. Returns whether it was here.
  bool remove(ClientId client, std::uint64_t tag);

 private:
  static constexpr std::size_t kRequestsInABlock = 64;
  // A block of std::deque holds two requests, so that every other push would allocate.
  using Requests = boost::container::deque<
      Request, void,
      boost::container::deque_options_t<boost::container::block_size<kRequestsInABlock>>>;
  using Iterator = Requests::const_iterator;
  [[nodiscard]] Iterator due_from(Time time) const;
  [[nodiscard]] std::vector<Request> take(std::size_t first, std::size_t count);

  Requests requests_;  // by deadline
};

}  // namespace gpulet::batching
