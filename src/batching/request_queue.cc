#include "gpulet/batching/request_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gpulet::batching {

void RequestQueue::push(Request&& request) {
  if (requests_.empty() || requests_.back().deadline <= request.deadline) {
    requests_.push_back(std::move(request));
    return;
  }
  const auto place = std::upper_bound(
      requests_.begin(), requests_.end(), request.deadline,
      [](Time deadline, const Request& waiting) { return deadline < waiting.deadline; });
  requests_.insert(place, std::move(request));
}

RequestQueue::Iterator RequestQueue::due_from(Time time) const {
  if (requests_.empty() || requests_.front().deadline >= time) return requests_.begin();
  return std::lower_bound(
      requests_.begin(), requests_.end(), time,
      [](const Request& waiting, Time earliest) { return waiting.deadline < earliest; });
}

std::size_t RequestQueue::count_due_from(Time time) const {
  return static_cast<std::size_t>(std::distance(due_from(time), requests_.end()));
}

Time RequestQueue::first_deadline_from(Time time) const { return due_from(time)->deadline; }

Duration RequestQueue::mean_waited(Time now) const {
  const Time since = requests_.front().trace.arrived;
  Duration later{};  // than that one, added up
  for (const Request& request : requests_) later += request.trace.arrived - since;
  return now - since - later / static_cast<std::int64_t>(requests_.size());
}

Request RequestQueue::take_last() {
  Request last = std::move(requests_.back());
  requests_.pop_back();
  return last;
}

std::optional<Request> RequestQueue::take(Time deadline, ClientId client, std::uint64_t tag) {
  const std::size_t first = requests_.size() - count_due_from(deadline);
  for (std::size_t i = first; i < requests_.size() && requests_[i].deadline == deadline; ++i) {
    if (requests_[i].client != client || requests_[i].tag != tag) continue;
    std::optional<Request> taken = std::move(requests_[i]);
    requests_.erase(requests_.begin() + static_cast<std::ptrdiff_t>(i));
    return taken;
  }
  return std::nullopt;
}

bool RequestQueue::remove(ClientId client, std::uint64_t tag) {
  const auto found = std::find_if(requests_.begin(), requests_.end(), [&](const Request& request) {
    return request.client == client && request.tag == tag;
  });
  if (found == requests_.end()) return false;
  requests_.erase(found);
  return true;
}

std::vector<Request> RequestQueue::take(std::size_t first, std::size_t count) {
  const auto begin = requests_.begin() + static_cast<std::ptrdiff_t>(first);
  const auto end = begin + static_cast<std::ptrdiff_t>(std::min(count, requests_.size() - first));
  std::vector<Request> taken(std::make_move_iterator(begin), std::make_move_iterator(end));
  requests_.erase(begin, end);
  return taken;
}

std::vector<Request> RequestQueue::take_due_from(Time time, std::size_t count) {
  return take(requests_.size() - count_due_from(time), count);
}

std::vector<Request> RequestQueue::take_due_before(Time time) {
  return take(0, requests_.size() - count_due_from(time));
}

std::size_t RequestQueue::remove_client(ClientId client) {
  const auto kept = std::remove_if(requests_.begin(), requests_.end(),
                                   [client](const Request& one) { return one.client == client; });
  const auto removed = static_cast<std::size_t>(requests_.end() - kept);
  requests_.erase(kept, requests_.end());
  return removed;
}

}  // namespace gpulet::batching
