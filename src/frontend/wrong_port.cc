#include "wrong_port.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "gpulet/net/codec/codec.h"

namespace gpulet::frontend {
namespace {

using net::MessageType;
using For = FramePort::For;

std::string port_text(std::uint16_t number) {
  return number == 0 ? std::string("none: it is off") : std::to_string(number);
}

std::string this_port(const FramePort& here) {
  return here.peers == For::clients
             ? "this is the port for clients (" + std::to_string(here.clients) + ")"
             : "this is the port for backends (" + std::to_string(here.backends) + ")";
}

bool is_from_backend(MessageType type) {
  return type >= MessageType::hello && type <= MessageType::device_report;
}

bool is_from_client(MessageType type) {
  return type == MessageType::infer_request || type == MessageType::models_request ||
         type == MessageType::status_request || type == MessageType::models_change ||
         type == MessageType::authenticate;
}

// A client takes it for the answer to anything that it asked.
net::OutgoingFrame to_client(const Status& why) {
  serve::InferReply reply;
  reply.status = why;
  return net::encode(serve::FrontendReply(std::move(reply)));
}

net::OutgoingFrame to_backend(const Status& why) {
  return net::encode(serve::BackendCommand(serve::Refused{why}));
}

net::OutgoingFrame bad_request(const std::string& why) {
  const std::string body = nlohmann::json({{"error", why}}).dump() + "\n";
  net::OutgoingFrame answer;
  answer.head = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n" + body;
  return answer;
}

}  // namespace

std::optional<Misdirected> misdirected(const FramePort& here, MessageType type) {
  if (here.peers == For::clients && is_from_backend(type)) {
    const std::string why = this_port(here) + "; backends connect to port " +
                            port_text(here.backends) + " (\"frontend\" in the backend's file)";
    return Misdirected{why, to_backend({StatusCode::invalid, why})};
  }
  if (here.peers == For::backends && is_from_client(type)) {
    const std::string why =
        this_port(here) + "; clients connect to port " + port_text(here.clients);
    return Misdirected{why, to_client({StatusCode::invalid, why})};
  }
  return std::nullopt;
}

net::OutgoingFrame farewell(const FramePort& here, const Status& failure, net::Dialect spoken) {
  switch (spoken) {
    case net::Dialect::http:
      return bad_request(this_port(here) + ", which speaks gpulet's frames; HTTP is on port " +
                         port_text(here.http));
    case net::Dialect::http2:
      return bad_request(this_port(here) + ", which speaks gpulet's frames; gRPC is on port " +
                         port_text(here.grpc));
    default:
      return here.peers == For::clients ? to_client(failure) : to_backend(failure);
  }
}

}  // namespace gpulet::frontend
