// Requests for the test world, and what became of them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

#include "gpulet/base/random.h"
#include "tests/support/serve/world.h"

namespace gpulet::serve::testing {

constexpr Time at_s(double seconds_from_start) {
  return Time(std::chrono::seconds(1)) + from_seconds(seconds_from_start);
}

// Poisson arrivals of one model; the tags count from `first_tag`. Returns the tag after the last.
inline std::uint64_t load(World& world, const std::string& model, double rate, double from_s,
                          double to_s, std::uint64_t first_tag, std::uint64_t seed) {
  Random random(seed);
  std::uint64_t tag = first_tag;
  for (double time = from_s + random.exponential(1 / rate); time < to_s;
       time += random.exponential(1 / rate)) {
    world.request_at(at_s(time), model, tag++);
  }
  return tag;
}

struct Outcome {
  std::size_t good = 0;
  std::map<StatusCode, std::size_t> errors;
};

// Every request has exactly one answer, its own.
inline Outcome outcome(const World& world, std::uint64_t first_tag, std::uint64_t end_tag) {
  Outcome result;
  for (std::uint64_t tag = first_tag; tag < end_tag; ++tag) {
    const auto found = world.replies().find(tag);
    if (found == world.replies().end() || found->second.size() != 1) {
      ADD_FAILURE() << "request " << tag << " has "
                    << (found == world.replies().end() ? 0 : found->second.size()) << " answers";
      continue;
    }
    const InferReply& reply = found->second.front().reply;
    if (reply.status.ok()) {
      ++result.good;
      EXPECT_EQ(std::to_integer<std::uint64_t>(reply.payload.at(0).view()[0]), tag & 0xffU);
    } else {
      ++result.errors[reply.status.code()];
    }
  }
  return result;
}

// Whether the frontend noted something with these words.
inline bool was_told(const World& world, const std::string& words) {
  return std::any_of(world.notes().begin(), world.notes().end(), [&words](const std::string& note) {
    return note.find(words) != std::string::npos;
  });
}

}  // namespace gpulet::serve::testing
