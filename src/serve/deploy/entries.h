// Entries: the frontends of the cluster whose clients' requests come here without their payloads.
//
// An entry keeps the payload of a request that it forwards, and sends it to the node that runs the
// request's batch (docs/cluster.md, "One trip"). One whose payload did not come in time sends its
// next requests with their payloads for a while: a lost payload delays the batch of others. Pure;
// one thread at a time.
#pragma once

#include <chrono>
#include <string>
#include <unordered_map>
#include <utility>

#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "serve/deploy/backend_connections.h"

namespace gpulet::serve {

// How long requests come with their payloads after one whose payload did not come. Long beside the
// time that such a payload can hold up a batch (node/awaited_batches.h), so that an entry that
// sends nothing hardly slows others down.
inline constexpr Duration kWithPayloadsFor = std::chrono::seconds(10);

class Entries {
 public:
  // `backends` outlives it.
  explicit Entries(const BackendConnections& backends) : backends_(backends) {}

  // A request of that frontend came over the connection.
  void add(ClientId client, const std::string& member) { entries_.try_emplace(client, member); }
  void remove(ClientId client) { entries_.erase(client); }

  // The frontend's name; empty: the connection has ended.
  [[nodiscard]] const std::string& member_of(ClientId client) const;
  // Whether its requests may come without their payloads.
  [[nodiscard]] bool may_keep(ClientId client, Time now) const;
  // The payload of one of its requests did not come.
  void note_missing(ClientId client, Time now);

 private:
  struct Entry {
    explicit Entry(std::string name) : member(std::move(name)) {}
    std::string member;
    Time with_payloads_until{};
  };

  const BackendConnections& backends_;
  const std::string nobody_;
  std::unordered_map<ClientId, Entry> entries_;
};

}  // namespace gpulet::serve
