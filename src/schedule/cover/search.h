// Covers demands device by device: a beam search over ways to fill the next, guided by the
// relaxation. One thread at a time.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "schedule/cover/device_choices.h"
#include "schedule/cover/filled_device.h"
#include "schedule/cover/relaxation.h"
#include "schedule/problem.h"

namespace gpulet::schedule {

struct SearchEffort {
  SearchWidth width;
  std::size_t choices = 1;    // for each next device
  std::size_t beam = 1;       // partial covers that are kept
  std::size_t most_work = 0;  // GpuletChooser::work before it gives up; 0: no limit
};

struct Cover {
  std::vector<FilledDevice> devices;
  bool whole = false;  // nothing is left
};

class CoverSearch {
 public:
  // Both outlive it; the relaxation is priced for the problem's demands.
  CoverSearch(Problem& problem, Relaxation& relaxation);

  // With at most so many devices. `only_whole`: gives up on what the relaxation proves cannot
  // become whole, and answers nothing where no cover is found; otherwise as much as it finds is
  // covered.
  [[nodiscard]] std::optional<Cover> run(std::size_t devices, bool only_whole,
                                         const SearchEffort& effort);

 private:
  struct Node {
    std::optional<std::size_t> parent;
    FilledDevice filled;
  };
  struct State {
    std::optional<std::size_t> node;  // in nodes_; none: nothing is filled yet
    Rest rest;
    std::vector<std::size_t> unopened;  // beside the problem's classes
    std::size_t used = 0;
    double bound = 0;  // devices in the end, at least
  };

  [[nodiscard]] State start() const;
  [[nodiscard]] bool servable(std::size_t model) const;
  void expand(const State& state, const SearchEffort& effort, std::vector<State>* next);
  void add(const State& state, DeviceChoice choice, std::vector<State>* next);
  [[nodiscard]] double bound_of(const State& state) const;
  [[nodiscard]] Cover cover_of(const State& state) const;

  Problem* problem_;
  Relaxation* relaxation_;
  DeviceChooser chooser_;
  std::vector<Node> nodes_;
  std::size_t devices_ = 0;
};

}  // namespace gpulet::schedule
