// EngineLink: all that crosses between the engine and a connection.
#pragma once

#include "frontend/frames/payload_check.h"
#include "frontend/frames/reply_router.h"
#include "frontend/loop/event_sink.h"

namespace gpulet::frontend {

// The references must outlive every copy.
struct EngineLink {
  EventSink& events;
  ReplyRouter& replies;
  const PayloadCheck& payloads;
};

}  // namespace gpulet::frontend
