// EventSink: the way into the engine. Whatever arrives at the frontend becomes an event of
// serve::FrontendCore, and every part of the frontend delivers its events here. Belongs to the
// thread of the io_context.
#pragma once

#include <string_view>

#include "gpulet/serve/values/frontend_events.h"

namespace gpulet::frontend {

class EventSink {
 public:
  // Handles the event and carries out its effects before it returns. An event that an effect causes
  // must be posted.
  virtual void deliver(serve::FrontendEvent event) = 0;
  // The same for an event that the backend at `address` caused: what is logged about it counts
  // against that address.
  virtual void deliver_from(std::string_view address, serve::FrontendEvent event) = 0;

 protected:
  ~EventSink() = default;
};

}  // namespace gpulet::frontend
