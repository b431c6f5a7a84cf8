// RemoteRequests: hands the requests of HTTP connections on an I/O thread over to the engine's
// thread. What the engine calls on their exchanges crosses back, in the order of the calls.
#pragma once

#include <memory>

#include "frontend/endpoints/endpoint_router.h"
#include "frontend/frames/remote_engine.h"
#include "gpulet/net/http/message.h"
#include "gpulet/net/http/server.h"

namespace gpulet::frontend {

// Belongs to the thread of `engine`, which must outlive it. Destroyed once that thread has ended
// and before its io_context; what the engine has of its exchanges then does nothing any more.
class RemoteRequests final : public RequestCrossing {
 public:
  explicit RemoteRequests(RemoteEngine& engine);
  ~RemoteRequests();

  // The identity of the peer is copied.
  void hand_over(net::http::HttpRequest request, std::unique_ptr<net::http::Exchange> exchange,
                 EndpointRouter& engine) override;

 private:
  struct Held;
  class Crossing;
  class Stream;
  class Exchange;

  const std::shared_ptr<Held> held_;
};

}  // namespace gpulet::frontend
