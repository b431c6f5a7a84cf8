#include "gpulet/batching/level_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gpulet::batching {
namespace {

void append(std::vector<Request>& to, std::vector<Request>&& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

// Calls visit(queue) for the queues of all levels in the order in which requests leave, until it
// returns false.
template <typename Levels, typename Visit>
void in_order(Levels& levels, const Visit& visit) {
  for (auto& level : levels) {
    if (!visit(level.in_time) || !visit(level.delayed)) return;
  }
}

}  // namespace

LevelQueue::LevelQueue(QueueRules rules) : rules_(std::move(rules)) {
  levels_.resize(std::max<std::size_t>(rules_.priority_levels, 1));
  for (std::size_t i = 0; i < levels_.size(); ++i)
    levels_[i].policy = rules_.policy_of(static_cast<std::uint32_t>(i + 1));
}

std::size_t LevelQueue::index_of(const Request& request) const {
  const std::uint32_t level = rules_.level_of(request.priority);
  return level == 0 ? 0 : level - 1;
}

LevelQueue::Timeout LevelQueue::timeout_of(const Request& request, const QueuePolicy& policy) {
  Timeout timeout{kNever, request.deadline, request.client, request.tag};
  if (request.trace.dispatched != Time()) return timeout;
  Duration longest = policy.default_timeout;
  const bool asked = policy.allow_timeout_override && request.queue_timeout > Duration::zero();
  if (asked && (longest == Duration::zero() || request.queue_timeout < longest))
    longest = request.queue_timeout;
  if (longest > Duration::zero()) timeout.passes = request.trace.arrived + longest;
  return timeout;
}

void LevelQueue::forget_timeouts(Level& level, std::span<const Request> left) {
  if (level.timeouts.empty()) return;
  for (const Request& request : left) {
    const auto found = level.timeouts.find(timeout_of(request, level.policy));
    if (found != level.timeouts.end()) level.timeouts.erase(found);
  }
}

bool LevelQueue::full_for(const Request& request) const {
  const Level& level = levels_[index_of(request)];
  return level.policy.max_queue_size > 0 && level.size() >= level.policy.max_queue_size;
}

void LevelQueue::push(Request&& request) {
  Level& level = levels_[index_of(request)];
  const Timeout timeout = timeout_of(request, level.policy);
  if (timeout.passes != kNever) level.timeouts.insert(timeout);
  level.in_time.push(std::move(request));
  ++size_;
}

Time LevelQueue::next_timeout() const {
  Time next = kNever;
  for (const Level& level : levels_) {
    if (!level.timeouts.empty()) next = std::min(next, level.timeouts.begin()->passes);
  }
  return next;
}

std::vector<Request> LevelQueue::take_rejected(Time now) {
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

Time LevelQueue::front_deadline() const {
  Time earliest = kNever;
  in_order(levels_, [&earliest](const RequestQueue& queue) {
    if (!queue.empty()) earliest = std::min(earliest, queue.front_deadline());
    return true;
  });
  return earliest;
}

std::size_t LevelQueue::count_due_from(Time time) const {
  std::size_t count = 0;
  in_order(levels_, [&](const RequestQueue& queue) {
    count += queue.count_due_from(time);
    return true;
  });
  return count;
}

Time LevelQueue::first_deadline_from(Time time, std::size_t count) const {
  Time earliest = kNever;
  std::size_t seen = 0;
  in_order(levels_, [&](const RequestQueue& queue) {
    const std::size_t due = queue.count_due_from(time);
    if (due > 0) earliest = std::min(earliest, queue.first_deadline_from(time));
    seen += due;
    return seen < count;
  });
  return earliest;
}

std::uint32_t LevelQueue::largest_batch(Time time, std::span<const Duration> execution,
                                        std::uint32_t wanted, Time start) const {
  Time earliest = kNever;
  std::uint32_t largest = 0;
  in_order(levels_, [&](const RequestQueue& queue) {
    const std::size_t due = queue.count_due_from(time);
    if (due == 0) return true;
    earliest = std::min(earliest, queue.first_deadline_from(time));
    const auto end = static_cast<std::uint32_t>(std::min<std::size_t>(wanted, largest + due));
    while (largest < end && start + execution[largest] <= earliest) ++largest;
    return largest == end && largest < wanted;
  });
  return std::max<std::uint32_t>(1, largest);
}

Duration LevelQueue::mean_waited(Time now) const {
  Duration sum{};
  in_order(levels_, [&](const RequestQueue& queue) {
    if (!queue.empty()) sum += queue.mean_waited(now) * static_cast<std::int64_t>(queue.size());
    return true;
  });
  return sum / static_cast<std::int64_t>(size_);
}

Request LevelQueue::take_last() {
  Level& level = *std::find_if(levels_.rbegin(), levels_.rend(),
                               [](const Level& one) { return one.size() > 0; });
  --size_;
  if (!level.delayed.empty()) return level.delayed.take_last();
  Request last = level.in_time.take_last();
  forget_timeouts(level, {&last, 1});
  return last;
}

std::vector<Request> LevelQueue::take_due_from(Time time, std::size_t count) {
  std::vector<Request> taken;
  for (Level& level : levels_) {
    std::vector<Request> in_time = level.in_time.take_due_from(time, count - taken.size());
    forget_timeouts(level, in_time);
    append(taken, std::move(in_time));
    append(taken, level.delayed.take_due_from(time, count - taken.size()));
    if (taken.size() == count) break;
  }
  size_ -= taken.size();
  std::stable_sort(taken.begin(), taken.end(),
                   [](const Request& a, const Request& b) { return a.deadline < b.deadline; });
  return taken;
}

std::vector<Request> LevelQueue::take_due_before(Time time) {
  std::vector<Request> taken;
  for (Level& level : levels_) {
    std::vector<Request> in_time = level.in_time.take_due_before(time);
    forget_timeouts(level, in_time);
    append(taken, std::move(in_time));
    append(taken, level.delayed.take_due_before(time));
  }
  size_ -= taken.size();
  return taken;
}

std::size_t LevelQueue::remove_client(ClientId client) {
  std::size_t removed = 0;
  for (Level& level : levels_) {
    removed += level.in_time.remove_client(client) + level.delayed.remove_client(client);
    std::erase_if(level.timeouts, [client](const Timeout& one) { return one.client == client; });
  }
  size_ -= removed;
  return removed;
}

bool LevelQueue::remove(ClientId client, std::uint64_t tag) {
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

}  // namespace gpulet::batching
