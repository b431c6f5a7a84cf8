#include "trace_log.h"

#include <memory>
#include <utility>

namespace gpulet::frontend {

void TraceLog::add(observe::RequestTraceRecord record) {
  if (open_.empty()) open_.reserve(kRecordsOfChunk);
  open_.push_back(std::move(record));
  if (open_.size() == kRecordsOfChunk) end_chunk();
}

void TraceLog::end_chunk() {
  if (open_.empty()) return;
  kept_ += open_.size();
  added_ += open_.size();
  chunks_.push_back(
      std::make_shared<const std::vector<observe::RequestTraceRecord>>(std::exchange(open_, {})));
  while (kept_ > kMostRecords) {
    kept_ -= chunks_.front()->size();
    chunks_.pop_front();
  }
}

std::uint64_t TraceLog::mark() {
  end_chunk();
  return added_;
}

observe::TraceRecords TraceLog::since(std::uint64_t mark) {
  end_chunk();
  std::uint64_t first = added_ - kept_;  // number of the first record of a chunk
  observe::TraceRecords records;
  for (const observe::TraceChunk& chunk : chunks_) {
    if (first >= mark) records.push_back(chunk);
    first += chunk->size();
  }
  return records;
}

}  // namespace gpulet::frontend
