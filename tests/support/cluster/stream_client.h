// StreamClient: a blocking client of the stream protocol for tests. Everything happens inside its
// calls, on the calling thread; a wait is a condition with a deadline.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/base/random.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/connection.h"
#include "gpulet/protocol/messages.h"

namespace gpulet::testing {

class StreamClient final : public net::ConnectionHandler {
 public:
  // Connects, or throws. `speaks`: sends a first message by itself.
  explicit StreamClient(std::uint16_t port, const std::string& host = "127.0.0.1",
                        bool speaks = true);

  void send(const ClientMessage& message);
  // Bytes as they are, past the protocol.
  void send_raw(const std::vector<std::byte>& bytes);
  // Poisson arrivals of `request` (its tags counted up from `first_tag`) for that long, then waits
  // until every one is answered, at most `patience` more. Returns the tag after the last.
  std::uint64_t load(InferRequest request, double rate, Duration length, std::uint64_t first_tag,
                     std::uint64_t seed, Duration patience);
  // Runs until the condition holds; false where it does not within `patience`.
  bool run_until(const std::function<bool()>& condition, Duration patience);
  // Sends the request and waits for its answer.
  std::optional<InferReply> ask(const InferRequest& request, Duration patience);

  [[nodiscard]] const std::map<std::uint64_t, std::vector<InferReply>>& replies() const {
    return replies_;
  }
  [[nodiscard]] bool closed() const { return closed_; }

 private:
  Result<MutableBytes> payload_memory(const protocol::FrameHeader& header,
                                      std::span<const std::byte> message) override;
  void on_frame(const protocol::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override;
  void on_closed(const Status& reason) override;

  net::asio::io_context io_{1};
  int descriptor_ = -1;
  std::shared_ptr<net::Connection> connection_;
  std::map<std::uint64_t, std::vector<InferReply>> replies_;
  bool closed_ = false;
};

// A request for `model` of one UINT8 tensor of `bytes` elements, all of the tag's low byte.
[[nodiscard]] InferRequest byte_request(const std::string& model, std::uint64_t tag,
                                        std::size_t bytes = 1);

}  // namespace gpulet::testing
