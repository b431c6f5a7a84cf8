// EngineLink: all that crosses between the engine and a connection. Belongs to the thread of the
// connection, which may be another than the engine's (frontend/frames/remote_engine.h).
#pragma once

#include <cstddef>
#include <optional>

#include "frontend/frames/reply_router.h"
#include "frontend/loop/event_sink.h"
#include "gpulet/base/status.h"
#include "gpulet/core/ids.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/serve/frontend_core.h"
#include "gpulet/serve/values/frontend_events.h"

namespace gpulet::frontend {

// PayloadCheck: what the engine would say of a message with a large payload, asked before the
// payload gets memory.
class PayloadCheck {
 public:
  // Fails unless the requested model exists and its inputs have `payload_bytes` bytes.
  [[nodiscard]] virtual Status accepts(const InferRequest& request,
                                       std::size_t payload_bytes) const = 0;
  // The violation that a result of this batch would be; empty: none.
  [[nodiscard]] virtual std::optional<serve::PeerBreach> breach_of_result(BackendId from,
                                                                          BatchId batch) const = 0;

 protected:
  ~PayloadCheck() = default;
};

// PayloadCheck::accepts() for a model; null: there is none. Pure; any thread.
[[nodiscard]] Status accepts_payload(const serve::ServedModel* model, const InferRequest& request,
                                     std::size_t payload_bytes);

// Asks the core, which must outlive it. Belongs to the core's thread.
class CorePayloadCheck final : public PayloadCheck {
 public:
  explicit CorePayloadCheck(const serve::FrontendCore& core) : core_(core) {}

  [[nodiscard]] Status accepts(const InferRequest& request,
                               std::size_t payload_bytes) const override;
  [[nodiscard]] std::optional<serve::PeerBreach> breach_of_result(BackendId from,
                                                                  BatchId batch) const override {
    return core_.breach_of_result(from, batch);
  }

 private:
  const serve::FrontendCore& core_;
};

// The references must outlive every copy.
struct EngineLink {
  EventSink& events;
  ReplyRouter& replies;
  const PayloadCheck& payloads;
};

}  // namespace gpulet::frontend
