#include "gpulet/batching/request_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gpulet::batching {
namespace {

void append(std::vector<Request>& to, std::vector<Request>&& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

// Calls visit(queue) for the queues of all levels in dispatch order until it returns false.
template <typename Levels, typename Visit>
void in_order(Levels& levels, const Visit& visit) {
  for (auto& level : levels) {
    if (!visit(level.in_time) || !visit(level.delayed)) return;
  }
}

}  // namespace

// ---- DeadlineQueue

void DeadlineQueue::push(Request&& request) {
  if (requests_.empty() || requests_.back().deadline <= request.deadline) {
    requests_.push_back(std::move(request));
    return;
  }
  const auto place = std::upper_bound(
      requests_.begin(), requests_.end(), request.deadline,
      [](Time deadline, const Request& waiting) { return deadline < waiting.deadline; });
  requests_.insert(place, std::move(request));
}

DeadlineQueue::Iterator DeadlineQueue::due_from(Time time) const {
  if (requests_.empty() || requests_.front().deadline >= time) return requests_.begin();
  return std::lower_bound(
      requests_.begin(), requests_.end(), time,
      [](const Request& waiting, Time earliest) { return waiting.deadline < earliest; });
}

std::size_t DeadlineQueue::count_due_from(Time time) const {
  return static_cast<std::size_t>(std::distance(due_from(time), requests_.end()));
}

Time DeadlineQueue::first_deadline_from(Time time) const { return due_from(time)->deadline; }

Duration DeadlineQueue::mean_waited(Time now) const {
  const Time since = requests_.front().trace.arrived;
  Duration offsets{};
  for (const Request& request : requests_) offsets += request.trace.arrived - since;
  return now - since - offsets / static_cast<std::int64_t>(requests_.size());
}

Request DeadlineQueue::take_last() {
  Request last = std::move(requests_.back());
  requests_.pop_back();
  return last;
}

std::optional<Request> DeadlineQueue::take(Time deadline, ClientId client, std::uint64_t tag) {
  const std::size_t first = requests_.size() - count_due_from(deadline);
  for (std::size_t i = first; i < requests_.size() && requests_[i].deadline == deadline; ++i) {
    if (requests_[i].client != client || requests_[i].tag != tag) continue;
    std::optional<Request> taken = std::move(requests_[i]);
    requests_.erase(requests_.begin() + static_cast<std::ptrdiff_t>(i));
    return taken;
  }
  return std::nullopt;
}

bool DeadlineQueue::remove(ClientId client, std::uint64_t tag) {
  const auto found = std::find_if(requests_.begin(), requests_.end(), [&](const Request& request) {
    return request.client == client && request.tag == tag;
  });
  if (found == requests_.end()) return false;
  requests_.erase(found);
  return true;
}

std::vector<Request> DeadlineQueue::take(std::size_t first, std::size_t count) {
  const auto begin = requests_.begin() + static_cast<std::ptrdiff_t>(first);
  const auto end = begin + static_cast<std::ptrdiff_t>(std::min(count, requests_.size() - first));
  std::vector<Request> taken(std::make_move_iterator(begin), std::make_move_iterator(end));
  requests_.erase(begin, end);
  return taken;
}

std::vector<Request> DeadlineQueue::take_due_from(Time time, std::size_t count) {
  return take(requests_.size() - count_due_from(time), count);
}

std::vector<Request> DeadlineQueue::take_due_before(Time time) {
  return take(0, requests_.size() - count_due_from(time));
}

std::size_t DeadlineQueue::remove_client(ClientId client) {
  const auto kept = std::remove_if(requests_.begin(), requests_.end(),
                                   [client](const Request& one) { return one.client == client; });
  const auto removed = static_cast<std::size_t>(requests_.end() - kept);
  requests_.erase(kept, requests_.end());
  return removed;
}

// ---- PriorityQueue

PriorityQueue::PriorityQueue(QueueRules rules) : rules_(std::move(rules)) {
  levels_.resize(std::max<std::size_t>(rules_.priority_levels, 1));
  for (std::size_t i = 0; i < levels_.size(); ++i)
    levels_[i].policy = rules_.policy_of(static_cast<std::uint32_t>(i + 1));
}

std::size_t PriorityQueue::index_of(const Request& request) const {
  const std::uint32_t level = rules_.level_of(request.priority);
  return level == 0 ? 0 : level - 1;
}

PriorityQueue::Timeout PriorityQueue::timeout_of(const Request& request,
                                                 const QueuePolicy& policy) {
  Timeout timeout{kNever, request.deadline, request.client, request.tag};
  if (request.trace.dispatched != Time()) return timeout;
  Duration longest = policy.default_timeout;
  const bool overrides = policy.allow_timeout_override && request.queue_timeout > Duration::zero();
  if (overrides && (longest == Duration::zero() || request.queue_timeout < longest))
    longest = request.queue_timeout;
  if (longest > Duration::zero()) timeout.passes = request.trace.arrived + longest;
  return timeout;
}

void PriorityQueue::erase_timeouts(Level& level, std::span<const Request> removed) {
  if (level.timeouts.empty()) return;
  for (const Request& request : removed) {
    const auto found = level.timeouts.find(timeout_of(request, level.policy));
    if (found != level.timeouts.end()) level.timeouts.erase(found);
  }
}

bool PriorityQueue::full_for(const Request& request) const {
  const Level& level = levels_[index_of(request)];
  return level.policy.max_queue_size > 0 && level.size() >= level.policy.max_queue_size;
}

void PriorityQueue::push(Request&& request) {
  Level& level = levels_[index_of(request)];
  const Timeout timeout = timeout_of(request, level.policy);
  if (timeout.passes != kNever) level.timeouts.insert(timeout);
  level.in_time.push(std::move(request));
  ++size_;
}

Time PriorityQueue::next_timeout() const {
  Time next = kNever;
  for (const Level& level : levels_) {
    if (!level.timeouts.empty()) next = std::min(next, level.timeouts.begin()->passes);
  }
  return next;
}

std::vector<Request> PriorityQueue::take_rejected(Time now) {
  std::vector<Request> rejected;
  for (Level& level : levels_) {
    while (!level.timeouts.empty() && level.timeouts.begin()->passes <= now) {
      const Timeout passed = *level.timeouts.begin();
      level.timeouts.erase(level.timeouts.begin());
      Request request = *level.in_time.take(passed.deadline, passed.client, passed.tag);
      if (level.policy.timeout_action == TimeoutAction::delay) {
        level.delayed.push(std::move(request));
      } else {
        rejected.push_back(std::move(request));
        --size_;
      }
    }
  }
  return rejected;
}

Time PriorityQueue::front_deadline() const {
  Time earliest = kNever;
  in_order(levels_, [&earliest](const DeadlineQueue& queue) {
    if (!queue.empty()) earliest = std::min(earliest, queue.front_deadline());
    return true;
  });
  return earliest;
}

std::size_t PriorityQueue::count_due_from(Time time) const {
  std::size_t count = 0;
  in_order(levels_, [&](const DeadlineQueue& queue) {
    count += queue.count_due_from(time);
    return true;
  });
  return count;
}

Time PriorityQueue::first_deadline_from(Time time, std::size_t count) const {
  Time earliest = kNever;
  std::size_t seen = 0;
  in_order(levels_, [&](const DeadlineQueue& queue) {
    const std::size_t due = queue.count_due_from(time);
    if (due > 0) earliest = std::min(earliest, queue.first_deadline_from(time));
    seen += due;
    return seen < count;
  });
  return earliest;
}

std::uint32_t PriorityQueue::largest_batch(Time time, std::span<const Duration> execution,
                                           std::uint32_t limit, Time start) const {
  Time earliest = kNever;
  std::uint32_t largest = 0;
  in_order(levels_, [&](const DeadlineQueue& queue) {
    const std::size_t due = queue.count_due_from(time);
    if (due == 0) return true;
    earliest = std::min(earliest, queue.first_deadline_from(time));
    const auto end = static_cast<std::uint32_t>(std::min<std::size_t>(limit, largest + due));
    while (largest < end && start + execution[largest] <= earliest) ++largest;
    return largest == end && largest < limit;
  });
  return std::max<std::uint32_t>(1, largest);
}

Duration PriorityQueue::mean_waited(Time now) const {
  Duration sum{};
  in_order(levels_, [&](const DeadlineQueue& queue) {
    if (!queue.empty()) sum += queue.mean_waited(now) * static_cast<std::int64_t>(queue.size());
    return true;
  });
  return sum / static_cast<std::int64_t>(size_);
}

Request PriorityQueue::take_last() {
  Level& level = *std::find_if(levels_.rbegin(), levels_.rend(),
                               [](const Level& one) { return one.size() > 0; });
  --size_;
  if (!level.delayed.empty()) return level.delayed.take_last();
  Request last = level.in_time.take_last();
  erase_timeouts(level, {&last, 1});
  return last;
}

std::vector<Request> PriorityQueue::take_due_from(Time time, std::size_t count) {
  std::vector<Request> taken;
  for (Level& level : levels_) {
    std::vector<Request> in_time = level.in_time.take_due_from(time, count - taken.size());
    erase_timeouts(level, in_time);
    append(taken, std::move(in_time));
    append(taken, level.delayed.take_due_from(time, count - taken.size()));
    if (taken.size() == count) break;
  }
  size_ -= taken.size();
  std::stable_sort(taken.begin(), taken.end(),
                   [](const Request& a, const Request& b) { return a.deadline < b.deadline; });
  return taken;
}

std::vector<Request> PriorityQueue::take_due_before(Time time) {
  std::vector<Request> taken;
  for (Level& level : levels_) {
    std::vector<Request> in_time = level.in_time.take_due_before(time);
    erase_timeouts(level, in_time);
    append(taken, std::move(in_time));
    append(taken, level.delayed.take_due_before(time));
  }
  size_ -= taken.size();
  return taken;
}

std::size_t PriorityQueue::remove_client(ClientId client) {
  std::size_t removed = 0;
  for (Level& level : levels_) {
    removed += level.in_time.remove_client(client) + level.delayed.remove_client(client);
    std::erase_if(level.timeouts, [client](const Timeout& one) { return one.client == client; });
  }
  size_ -= removed;
  return removed;
}

bool PriorityQueue::remove(ClientId client, std::uint64_t tag) {
  for (Level& level : levels_) {
    const auto timeout =
        std::find_if(level.timeouts.begin(), level.timeouts.end(),
                     [&](const Timeout& one) { return one.client == client && one.tag == tag; });
    bool removed = false;
    if (timeout != level.timeouts.end()) {
      removed = level.in_time.take(timeout->deadline, client, tag).has_value();
      level.timeouts.erase(timeout);
    } else {
      removed = level.in_time.remove(client, tag) || level.delayed.remove(client, tag);
    }
    if (removed) {
      --size_;
      return true;
    }
  }
  return false;
}

// ---- PendingRequests

bool PendingRequests::set_rules(const std::optional<QueueRules>& rules) {
  const bool same = rules ? levels_ && levels_->rules() == *rules : !levels_;
  if (same) return false;
  std::vector<Request> waiting = take_all();
  levels_ = rules ? std::make_unique<PriorityQueue>(*rules) : nullptr;
  for (Request& request : waiting) push(std::move(request));
  return true;
}

}  // namespace gpulet::batching
