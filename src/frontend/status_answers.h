// StatusAnswers: the status document for clients of gpulet's own protocol. A client that asks again
// before it was answered, or right after, gets a newer document than before, once there is one: so
// it cannot have the same megabytes written as often as it likes. Single-strand type, on the
// io_context's thread, which must not run any more when this goes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "gpulet/core/ids.h"
#include "gpulet/net/codec/frame.h"
#include "status_document.h"

namespace gpulet::frontend {

class StatusAnswers {
 public:
  using Send = std::function<void(ClientId, const net::OutgoingFrame&)>;

  StatusAnswers(net::asio::io_context& io, StatusSnapshots& snapshots, Background& background,
                Send send);

  // Sends it once for each time that it is asked.
  void ask(ClientId client);
  void forget(ClientId client) { askers_.erase(client); }

 private:
  struct Asker {
    std::uint64_t open = 0;  // not answered yet
    std::uint64_t had = 0;   // the number of the last snapshot that it was told of
  };
  void fetch(ClientId client, std::uint64_t newer_than);

  StatusDocument<net::OutgoingFrame> document_;
  Send send_;
  std::map<ClientId, Asker> askers_;
};

}  // namespace gpulet::frontend
