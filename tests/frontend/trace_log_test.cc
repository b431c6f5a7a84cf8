#include "frontend/trace_log.h"

#include <gtest/gtest.h>

#include <vector>

namespace gpulet::frontend {
namespace {

void add(TraceLog& log, std::uint64_t first, std::uint64_t last) {
  for (std::uint64_t id = first; id <= last; ++id) {
    observe::RequestTraceRecord record;
    record.id = RequestId{id};
    log.add(std::move(record));
  }
}

std::vector<std::uint64_t> ids(const observe::TraceRecords& records) {
  std::vector<std::uint64_t> all;
  for (const observe::TraceChunk& chunk : records) {
    for (const auto& record : *chunk) all.push_back(record.id.value);
  }
  return all;
}

TEST(TraceLogTest, GivesWhatWasAddedSinceAMark) {
  TraceLog log;
  EXPECT_TRUE(log.since(0).empty());
  add(log, 1, 3);
  const std::uint64_t mark = log.mark();
  add(log, 4, 5);
  EXPECT_EQ(ids(log.since(mark)), (std::vector<std::uint64_t>{4, 5}));
  EXPECT_EQ(ids(log.since(0)), (std::vector<std::uint64_t>{1, 2, 3, 4, 5}));
  EXPECT_TRUE(log.since(log.mark()).empty());
}

TEST(TraceLogTest, WhatItGaveStaysAsItIs) {
  TraceLog log;
  add(log, 1, 2);
  const observe::TraceRecords given = log.since(0);
  add(log, 3, 3);
  EXPECT_EQ(ids(given).size(), 2U);
}

TEST(TraceLogTest, KeepsTheLastOnesAndIsBounded) {
  TraceLog log;
  const std::uint64_t mark = log.mark();
  constexpr std::uint64_t kCount = TraceLog::kMostRecords + 3 * TraceLog::kRecordsOfChunk;
  add(log, 1, kCount);
  const std::vector<std::uint64_t> kept = ids(log.since(mark));
  EXPECT_LE(kept.size(), TraceLog::kMostRecords);
  EXPECT_GT(kept.size(), TraceLog::kMostRecords - 2 * TraceLog::kRecordsOfChunk);
  EXPECT_EQ(kept.back(), kCount);
}

}  // namespace
}  // namespace gpulet::frontend
