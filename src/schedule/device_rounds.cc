#include "schedule/device_rounds.h"

#include <algorithm>
#include <optional>

#include "gpulet/schedule/batch_search.h"

namespace gpulet::schedule {
namespace {

constexpr double kSlackOfSlo = 1 + kRoundingSlack;

double latency_of(const DeviceRounds::Seat& seat, std::uint32_t batch) {
  return seat.turn.row->latency_ms[batch - 1];
}

// Whether a batch holds what a round of that length brings.
bool keeps_up(const DeviceRounds::Seat& seat, std::uint32_t batch, double round_ms) {
  const double mean = seat.turn.rate * round_ms / 1000 / kSlackOfSlo;
  return requests_held(*seat.turn.row, batch, seat.turn.slo_ms, round_ms) >= mean;
}

}  // namespace

DeviceRounds::DeviceRounds(const Problem& problem, SlowdownTables& tables,
                           std::span<const PlacedGpulet> gpulets)
    : interferes_(gpulets.size() > 1 && problem.interferes(gpulets.front().device_class)) {
  std::size_t turns = 0;
  for (const PlacedGpulet& gpulet : gpulets) turns += gpulet.turns.size();
  seats_.reserve(turns);
  first_seat_.reserve(gpulets.size() + 1);
  for (std::uint32_t number = 0; number < gpulets.size(); ++number) {
    first_seat_.push_back(seats_.size());
    for (const PlacedTurn& turn : gpulets[number].turns)
      seat(problem, number, gpulets[number], turn);
  }
  first_seat_.push_back(seats_.size());
  if (interferes_) look_up_slowdowns(tables);
}

void DeviceRounds::seat(const Problem& problem, std::uint32_t number, const PlacedGpulet& gpulet,
                        const PlacedTurn& turn) {
  Seat& seat = seats_.emplace_back();
  seat.gpulet = number;
  seat.wanted = turn.wanted;
  seat.place = {gpulet.device_class, turn.model, gpulet.size};
  seat.alone = &problem.row(turn.model, gpulet.device_class, gpulet.size);
  seat.turn = {seat.alone, 0, problem.models()[turn.model]->slo_ms, turn.model};
}

void DeviceRounds::look_up_slowdowns(SlowdownTables& tables) {
  slowdowns_.resize(seats_.size() * seats_.size());
  for (Seat& seat : seats_) {
    if (seat.alone->largest > 0) seat.knots = tables.knots(seat.place);
  }
  for (std::size_t own = 0; own < seats_.size(); ++own) {
    for (std::size_t other = 0; other < seats_.size(); ++other) {
      if (seats_[own].gpulet == seats_[other].gpulet) continue;
      if (seats_[own].knots.empty() || seats_[other].knots.empty()) continue;
      slowdowns_[own * seats_.size() + other] = &tables.of(seats_[own].place, seats_[other].place);
    }
  }
}

std::span<DeviceRounds::Seat> DeviceRounds::seats_of(std::size_t gpulet) {
  return std::span(seats_).subspan(first_seat_[gpulet],
                                   first_seat_[gpulet + 1] - first_seat_[gpulet]);
}

std::span<const DeviceRounds::Seat> DeviceRounds::seats_of(std::size_t gpulet) const {
  return std::span(seats_).subspan(first_seat_[gpulet],
                                   first_seat_[gpulet + 1] - first_seat_[gpulet]);
}

double DeviceRounds::round_ms(std::size_t gpulet) const {
  double sum_ms = 0;
  for (const Seat& seat : seats_of(gpulet)) {
    if (seat.turn.rate > 0) sum_ms += latency_of(seat, seat.batch);
  }
  return sum_ms;
}

void DeviceRounds::settle() {
  for (Seat& seat : seats_) seat.turn.rate = seat.alone->largest > 0 ? seat.wanted : 0;
  const auto with_turn = [this] {
    return std::count_if(seats_.begin(), seats_.end(),
                         [](const Seat& seat) { return seat.turn.rate > 0; });
  };
  while (true) {
    const auto before = with_turn();
    for (Seat& seat : seats_) {
      seat.felt = 0;
      if (seat.turn.rate > 0) seat.turn.rate = seat.wanted;
    }
    bool risen = true;
    while (risen && with_turn() == before) {
      risen = false;
      for (std::size_t gpulet = 0; gpulet + 1 < first_seat_.size(); ++gpulet) {
        if (interferes_) refresh(gpulet);
        risen = rise(gpulet) || risen;
      }
    }
    // The others have more room without whoever lost its turn.
    if (with_turn() == before) return;
  }
}

void DeviceRounds::refresh(std::size_t gpulet) {
  for (Seat& seat : seats_of(gpulet)) {
    if (seat.turn.rate > 0) refresh(seat);
  }
}

void DeviceRounds::refresh(Seat& seat) {
  const std::size_t own = static_cast<std::size_t>(&seat - seats_.data());
  at_knots_.assign(seat.knots.size(), 1);
  for (std::size_t gpulet = 0; gpulet + 1 < first_seat_.size(); ++gpulet) {
    if (gpulet == seat.gpulet) continue;
    for (std::size_t knot = 0; knot < at_knots_.size(); ++knot) {
      double worst = 1;
      for (std::size_t other = first_seat_[gpulet]; other < first_seat_[gpulet + 1]; ++other) {
        if (seats_[other].turn.rate <= 0) continue;
        worst =
            std::max(worst, slowdowns_[own * seats_.size() + other]->at(knot, seats_[other].felt));
      }
      at_knots_[knot] = profile::add_neighbour(at_knots_[knot], worst);
    }
  }
  const Row& alone = *seat.alone;
  seat.slowdown.resize(alone.largest);
  seat.latency_ms.resize(alone.largest);
  const double limit_ms = longest_useful_ms(seat.turn.slo_ms);
  double longest_ms = 0;
  std::size_t knot = 0;
  std::uint32_t batch = 1;
  for (; batch <= alone.largest; ++batch) {
    while (knot + 1 < seat.knots.size() && seat.knots[knot] < batch) ++knot;
    double slowdown = at_knots_[knot];
    if (knot > 0 && batch < seat.knots[knot]) {
      const double part = static_cast<double>(batch - seat.knots[knot - 1]) /
                          (seat.knots[knot] - seat.knots[knot - 1]);
      slowdown = at_knots_[knot - 1] + part * (slowdown - at_knots_[knot - 1]);
    }
    longest_ms = std::max(longest_ms, alone.latency_ms[batch - 1] * slowdown);
    if (!(longest_ms <= limit_ms)) break;
    seat.slowdown[batch - 1] = slowdown;
    seat.latency_ms[batch - 1] = longest_ms;
  }
  seat.beside = alone;
  seat.beside.latency_ms = seat.latency_ms.data();
  seat.beside.slowdown = seat.slowdown.data();
  seat.beside.largest = batch - 1;
  seat.turn.row = &seat.beside;
}

void DeviceRounds::refresh_others(std::size_t gpulet) {
  for (std::size_t other = 0; other + 1 < first_seat_.size(); ++other) {
    if (other != gpulet) refresh(other);
  }
}

bool DeviceRounds::rise(std::size_t gpulet) {
  const double duty_cycle_ms = hold_what_fits(gpulet);
  bool risen = false;
  for (Seat& seat : seats_of(gpulet)) {
    if (seat.turn.rate <= 0) continue;
    seat.batch = batch_of_round(seat.turn, duty_cycle_ms);
    while (seat.felt + 1 < seat.knots.size() && seat.knots[seat.felt] < seat.batch) {
      ++seat.felt;
      risen = true;
    }
  }
  return risen;
}

// The duty cycle of what has a turn then.
double DeviceRounds::hold_what_fits(std::size_t gpulet) {
  turns_.clear();
  for (const Seat& seat : seats_of(gpulet)) {
    if (seat.turn.rate > 0) turns_.push_back(seat.turn);
  }
  if (const std::optional<double> least_ms = least_duty_cycle_ms(turns_)) return *least_ms;
  turns_.clear();
  double duty_cycle_ms = 0;
  for (Seat& seat : seats_of(gpulet)) {
    if (seat.turn.rate <= 0) continue;
    const double most = most_rate_beside(turns_, *seat.turn.row, seat.turn.slo_ms);
    seat.turn.rate = std::min(seat.turn.rate, most);
    if (seat.turn.rate <= kRoundingSlack * seat.wanted) {
      seat.turn.rate = 0;
      continue;
    }
    turns_.push_back(seat.turn);
    if (const std::optional<double> least_ms = least_duty_cycle_ms(turns_)) {
      duty_cycle_ms = *least_ms;
    } else {
      turns_.pop_back();
      seat.turn.rate = 0;
    }
  }
  return duty_cycle_ms;
}

bool DeviceRounds::holds(std::size_t gpulet) const {
  const std::span<const Seat> seats = seats_of(gpulet);
  for (const Seat& seat : seats) {
    if (seat.turn.rate > 0 && seat.batch > seat.turn.row->largest) return false;
  }
  const double duty_cycle_ms = round_ms(gpulet);
  return std::all_of(seats.begin(), seats.end(), [&](const Seat& seat) {
    return seat.turn.rate <= 0 ||
           (duty_cycle_ms + latency_of(seat, seat.batch) <= seat.turn.slo_ms * kSlackOfSlo &&
            keeps_up(seat, seat.batch, duty_cycle_ms));
  });
}

void DeviceRounds::grow() {
  bool grown = true;
  for (int pass = 0; grown && pass < kMostPasses; ++pass) {
    grown = false;
    for (std::size_t seat = 0; seat < seats_.size(); ++seat) {
      if (seats_[seat].turn.rate > 0) grown = grow(seat) || grown;
    }
  }
}

bool DeviceRounds::grow(std::size_t seat) {
  Seat& grown = seats_[seat];
  std::uint32_t largest = largest_within(grown, grown.turn.row->largest);
  // The neighbours' rounds bear it up to some knot.
  std::size_t knot = grown.felt;
  while (knot + 1 < grown.knots.size() && grown.knots[knot] < largest) ++knot;
  while (knot > grown.felt && !others_bear(seat, knot)) {
    --knot;
    largest = largest_within(grown, grown.knots[knot]);
    while (knot > grown.felt && grown.knots[knot - 1] >= largest) --knot;
  }
  if (largest <= grown.batch) return false;
  grown.batch = largest;
  return true;
}

// The largest batch up to `most` with which the gpulet itself holds; 0 where none does.
std::uint32_t DeviceRounds::largest_within(const Seat& seat, std::uint32_t most) const {
  const std::span<const Seat> seats = seats_of(seat.gpulet);
  const double rest_ms = round_ms(seat.gpulet) - latency_of(seat, seat.batch);
  const auto fits = [&](std::uint32_t batch) {
    const double own_ms = latency_of(seat, batch);
    const double duty_cycle_ms = rest_ms + own_ms;
    const QueuedTask first{1, batch, seat.turn.rate, duty_cycle_ms, own_ms};
    if (task_latency_ms(first) > seat.turn.slo_ms * kSlackOfSlo) return false;
    return std::all_of(seats.begin(), seats.end(), [&](const Seat& other) {
      return &other == &seat || other.turn.rate <= 0 ||
             (duty_cycle_ms + latency_of(other, other.batch) <= other.turn.slo_ms * kSlackOfSlo &&
              keeps_up(other, other.batch, duty_cycle_ms));
    });
  };
  return search_batch(most, fits,
                      [&](std::uint32_t batch) {
                        return keeps_up(seat, batch, rest_ms + latency_of(seat, batch));
                      })
      .value_or(0);
}

// Leaves it felt up to that knot where they do.
bool DeviceRounds::others_bear(std::size_t seat, std::size_t knot) {
  Seat& felt = seats_[seat];
  const std::size_t before = felt.felt;
  felt.felt = knot;
  refresh_others(felt.gpulet);
  bool borne = true;
  for (std::size_t other = 0; borne && other + 1 < first_seat_.size(); ++other) {
    borne = other == felt.gpulet || holds(other);
  }
  if (borne) return true;
  felt.felt = before;
  refresh_others(felt.gpulet);
  return false;
}

}  // namespace gpulet::schedule
