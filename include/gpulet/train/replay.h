// What a learner remembers: the last so many steps, from which it learns in random order (the
// replay buffer of InSS, section 5.4). Also what was allowed at each of a step's choices, so that
// what is learned of it is right even after the rules have gone. Values; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/learn/choices.h"

namespace gpulet::train {

class Replay {
 public:
  struct Shape {
    std::size_t capacity = 0;       // steps
    std::size_t observation = 0;    // numbers
    std::size_t heads = 0;          // choices of an action
    std::size_t possibilities = 0;  // of all heads

    friend bool operator==(const Shape&, const Shape&) = default;
  };

  // All steps, each in one row of every vector.
  struct Rows {
    std::uint64_t next = 0;  // the row that the next step is written to
    std::vector<float> observations, next_observations;
    std::vector<std::uint32_t> chosen;
    std::vector<std::uint8_t> allowed;
    std::vector<double> rewards;

    friend bool operator==(const Rows&, const Rows&) = default;
  };

  // REQUIRES: capacity > 0.
  explicit Replay(Shape shape) : shape_(shape) {}

  // Rows that another Replay of that shape had. Fails (malformed) where their sizes do not fit it.
  [[nodiscard]] static Result<Replay> restore(Shape shape, Rows rows);

  // The oldest goes where there is no room. REQUIRES: sizes as the shape says.
  void add(std::span<const float> observation, const learn::Choices& choices, double reward,
           std::span<const float> next_observation);

  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] std::size_t size() const { return rows_.rewards.size(); }
  [[nodiscard]] const Rows& rows() const { return rows_; }

  // Mean and standard deviation of the rewards. REQUIRES: size() > 0.
  struct Spread {
    double mean = 0, deviation = 0;
  };
  [[nodiscard]] Spread reward_spread() const;

 private:
  Shape shape_;
  Rows rows_;
};

}  // namespace gpulet::train
