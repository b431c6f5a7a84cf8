#include "frontend/frames/client_port.h"

#include <utility>

namespace gpulet::frontend {

ClientPort::ClientPort(const std::vector<ConnectionPlace>& places,
                       const config::FrontendConfig& config,
                       const std::shared_ptr<access::Gate>& gate, net::BufferPool& buffers) {
  for (const ConnectionPlace& place : places) {
    parts_.push_back({place.io, place.remote == nullptr,
                      std::make_unique<ClientSessions>(place.io, config, gate, buffers,
                                                       place.engine, place.requests)});
  }
}

std::vector<net::Listener::Receiver> ClientPort::receivers() {
  std::vector<net::Listener::Receiver> receivers;
  for (const Part& part : parts_) {
    receivers.push_back(
        {part.io.get_executor(),
         [sessions = part.sessions.get()](net::Stream stream, net::ConnectionSlotPointer slot) {
           sessions->accept(std::move(stream), std::move(slot));
         }});
  }
  return receivers;
}

std::size_t ClientPort::size() const {
  std::size_t connections = 0;
  for (const Part& part : parts_) connections += part.sessions->size();
  return connections;
}

template <typename Act>
void ClientPort::each(Act act) {
  for (const Part& part : parts_) {
    ClientSessions& sessions = *part.sessions;
    if (part.is_here) {
      act(sessions);
    } else {
      net::asio::post(part.io, [act, &sessions] { act(sessions); });
    }
  }
}

void ClientPort::open(const FramePort& port) {
  each([port](ClientSessions& sessions) { sessions.open(port); });
}
void ClientPort::start_leaving() {
  each([](ClientSessions& sessions) { sessions.start_leaving(); });
}
void ClientPort::tokens_changed() {
  each([](ClientSessions& sessions) { sessions.tokens_changed(); });
}
void ClientPort::close_after_sending() {
  each([](ClientSessions& sessions) { sessions.close_after_sending(); });
}

}  // namespace gpulet::frontend
