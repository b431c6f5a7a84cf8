// Rows (row.h) of a model whose gpulet has neighbours on its device.
//
// The slowdown reckoned with at a batch is the worst that any batch of any of a neighbour's models
// could cause, up to the largest that the neighbour's SLO allows, and over several neighbours the
// excesses add up (profile::add_neighbour). So it does not depend on which batches the neighbours
// end up with, and a plan keeps its rules when they run partial ones. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "gpulet/profile/interference.h"
#include "schedule/row.h"

namespace gpulet::schedule {

class Problem;

// Another gpulet on the same device.
struct Neighbour {
  std::uint32_t size = 0;             // index in the class's sizes
  std::vector<std::uint32_t> models;  // ascending indices in Problem::models

  friend auto operator<=>(const Neighbour&, const Neighbour&) = default;
};

class RowsBeside {
 public:
  // Remembered: the same question gives the same object, which never moves.
  const Row& row(const Problem& problem, std::size_t model, std::size_t device_class,
                 std::size_t size, std::span<const Neighbour> neighbours);

 private:
  struct Entry {
    Row row;
    std::vector<double> latencies_ms;
    std::vector<double> slowdowns;
  };
  // A model at a size of a class, by index.
  struct Place {
    std::size_t device_class = 0;
    std::size_t model = 0;
    std::size_t size = 0;

    friend auto operator<=>(const Place&, const Place&) = default;
  };
  struct Knot {
    std::uint32_t batch = 0;
    profile::BatchTraits traits;
  };
  using Slowdowns = std::vector<double>;  // [batch - 1], up to the largest of the row alone

  [[nodiscard]] Slowdowns beside(const Problem& problem, const Place& self,
                                 std::span<const Neighbour> neighbours);
  // By one model of one neighbour.
  const Slowdowns& by_one(const Problem& problem, const Place& self, const Place& other);
  // At the measured batches up to the first that is no smaller than the largest of the row alone:
  // between two of them a slowdown is linear.
  const std::vector<Knot>& knots(const Problem& problem, const Place& place);

  // By class, model, size and neighbours, as numbers.
  struct Hash {
    std::size_t operator()(const std::vector<std::uint32_t>& key) const;
  };
  std::unordered_map<std::vector<std::uint32_t>, Entry, Hash> entries_;
  std::vector<std::uint32_t> key_;  // of the question at hand
  std::map<std::pair<Place, Place>, Slowdowns> by_one_;
  std::map<Place, std::vector<Knot>> knots_;
};

}  // namespace gpulet::schedule
