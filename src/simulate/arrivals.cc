#include "simulate/arrivals.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

namespace gpulet::simulate {
namespace {

constexpr double kNever_s = std::numeric_limits<double>::infinity();

}  // namespace

Arrivals::Arrivals(const std::vector<schedule::ModelDemand>& demands, const Trace* trace,
                   std::uint64_t seed, Time start, double seconds)
    : start_(start), seconds_(seconds) {
  static const std::vector<Arrival> kNone;
  for (const schedule::ModelDemand& demand : demands) {
    Stream& stream = streams_.emplace_back(Stream{Random(stream_seed(seed, demand.name)), {}});
    stream.steps.push_back({0, demand.rate});
    if (trace == nullptr) continue;
    if (const auto found = trace->rates.find(demand.name); found != trace->rates.end()) {
      stream.steps.insert(stream.steps.end(), found->second.begin(), found->second.end());
    }
    if (trace->arrivals.empty()) continue;
    const auto found = trace->arrivals.find(demand.name);
    stream.arrivals = found == trace->arrivals.end() ? &kNone : &found->second;
  }
  for (std::size_t model = 0; model < streams_.size(); ++model) {
    const Time first = advance(streams_[model]);
    if (first != kNever) heap_.push_back({first, model});
  }
  std::make_heap(heap_.begin(), heap_.end(), [](const Next& a, const Next& b) { return b < a; });
}

double Arrivals::next_random_s(Stream& stream) {
  while (true) {
    const double rate = stream.steps[stream.step].rate;
    const bool last = stream.step + 1 == stream.steps.size();
    const double changes_s = last ? kNever_s : stream.steps[stream.step + 1].at_s;
    const double next_s = rate > 0 ? stream.at_s + stream.random.exponential(1 / rate) : kNever_s;
    // Exponential gaps have no memory: at a change they may start anew.
    if (next_s < changes_s || last) return next_s;
    stream.at_s = changes_s;
    ++stream.step;
  }
}

double Arrivals::next_given_s(Stream& stream) {
  const std::vector<Arrival>& arrivals = *stream.arrivals;
  while (stream.position < arrivals.size() && stream.given >= arrivals[stream.position].count) {
    ++stream.position;
    stream.given = 0;
  }
  if (stream.position == arrivals.size()) return kNever_s;
  ++stream.given;
  return arrivals[stream.position].at_s;
}

Time Arrivals::advance(Stream& stream) const {
  stream.at_s = stream.arrivals != nullptr ? next_given_s(stream) : next_random_s(stream);
  return stream.at_s < seconds_ ? start_ + from_seconds(stream.at_s) : kNever;
}

void Arrivals::sift_down() {
  std::size_t at = 0;
  while (true) {
    std::size_t least = at;
    for (std::size_t child = 2 * at + 1; child < std::min(2 * at + 3, heap_.size()); ++child) {
      if (heap_[child] < heap_[least]) least = child;
    }
    if (least == at) return;
    std::swap(heap_[at], heap_[least]);
    at = least;
  }
}

std::size_t Arrivals::take() {
  const std::size_t model = heap_.front().model;
  const Time next = advance(streams_[model]);
  if (next == kNever) {
    heap_.front() = heap_.back();
    heap_.pop_back();
  } else {
    heap_.front().time = next;
  }
  sift_down();
  return model;
}

}  // namespace gpulet::simulate
