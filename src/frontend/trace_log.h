// TraceLog: the last requests that were traced, in chunks that are handed over without a copy. One
// thread at a time; what since() gave may go to another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "gpulet/observe/trace.h"

namespace gpulet::frontend {

class TraceLog {
 public:
  // About 300 bytes each. Beyond them the oldest chunks go.
  static constexpr std::size_t kMostRecords = 100'000;
  static constexpr std::size_t kRecordsOfChunk = 512;

  void add(observe::RequestTraceRecord record);
  // What is added from now on is what since() gives for this.
  [[nodiscard]] std::uint64_t mark();
  // What was added since that mark and is here still; 0: all that is here.
  [[nodiscard]] observe::TraceRecords since(std::uint64_t mark);

 private:
  void end_chunk();

  std::deque<observe::TraceChunk> chunks_;
  std::vector<observe::RequestTraceRecord> open_;  // the last chunk
  std::size_t kept_ = 0;                           // records in chunks_
  std::uint64_t added_ = 0;                        // to chunks_, ever
};

}  // namespace gpulet::frontend
