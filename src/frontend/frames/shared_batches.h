// SharedBatches: the batches of one backend whose inputs it reads from shared memory. It keeps the
// inputs until the backend has answered, because until then it may read them. One thread at a time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/request.h"
#include "gpulet/net/buffer_pool.h"

namespace gpulet::frontend {

class SharedBatches {
 public:
  explicit SharedBatches(std::shared_ptr<net::SharedMemory> memory) : memory_(std::move(memory)) {}
  // Without an answer, nobody knows whether the backend still reads: the memory of the inputs is
  // not used again.
  ~SharedBatches();
  SharedBatches(const SharedBatches&) = delete;
  SharedBatches& operator=(const SharedBatches&) = delete;

  // The message for the backend, which names the places of the inputs. Empty: not all of them lie
  // in shared memory, so they have to be sent.
  [[nodiscard]] std::optional<Batch> share(const Batch& batch);
  // Does nothing for a batch that was sent with its inputs.
  void answered(BatchId batch) { unanswered_.erase(batch); }

 private:
  const std::shared_ptr<net::SharedMemory> memory_;
  std::map<BatchId, std::vector<Bytes>> unanswered_;
};

}  // namespace gpulet::frontend
