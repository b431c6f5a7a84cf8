#include "gpulet/train/replay.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

namespace gpulet::train {
namespace {

template <typename T>
void put_row(std::vector<T>& rows, std::size_t row, std::span<const T> values) {
  const std::size_t from = row * values.size();
  if (rows.size() < from + values.size()) rows.resize(from + values.size());
  std::copy(values.begin(), values.end(), rows.begin() + static_cast<std::ptrdiff_t>(from));
}

}  // namespace

Result<Replay> Replay::restore(Shape shape, Rows rows) {
  const std::size_t size = rows.rewards.size();
  const bool fits = size <= shape.capacity && rows.next < shape.capacity && rows.next <= size &&
                    rows.observations.size() == size * shape.observation &&
                    rows.next_observations.size() == size * shape.observation &&
                    rows.chosen.size() == size * shape.heads &&
                    rows.allowed.size() == size * shape.possibilities;
  if (!fits) {
    return Status(StatusCode::malformed,
                  "the steps remembered do not fit a buffer of " + std::to_string(shape.capacity));
  }
  Replay replay(shape);
  replay.rows_ = std::move(rows);
  return replay;
}

void Replay::add(std::span<const float> observation, const learn::Choices& choices, double reward,
                 std::span<const float> next_observation) {
  const std::size_t row = rows_.next;
  put_row(rows_.observations, row, observation);
  put_row(rows_.next_observations, row, next_observation);
  put_row(rows_.chosen, row, std::span<const std::uint32_t>(choices.chosen));
  put_row(rows_.allowed, row, std::span<const std::uint8_t>(choices.allowed));
  put_row(rows_.rewards, row, std::span<const double>(&reward, 1));
  rows_.next = (row + 1) % shape_.capacity;
}

Replay::Spread Replay::reward_spread() const {
  const auto count = static_cast<double>(size());
  const double mean = std::accumulate(rows_.rewards.begin(), rows_.rewards.end(), 0.0) / count;
  double squares = 0;
  for (const double reward : rows_.rewards) squares += (reward - mean) * (reward - mean);
  return {mean, std::sqrt(squares / count)};
}

}  // namespace gpulet::train
