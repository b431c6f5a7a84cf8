// Peers: a frontend's connections to the other frontends of its cluster.
//
// It connects to every other member and forwards its clients' requests over that connection. The
// others connect to it in the same way, and each of their connections is a client of the core. Both
// sides check that the other one belongs to the cluster and is the member that it should be: only
// who can read the store of the cluster knows the secret of a member. With TLS, the certificate of
// the one that connects must name its member, and that of the other one the host of its address;
// neither may be that of a node. A connection without a byte for four heartbeats ends.
//
// A stranger is a connection that has not proven who it is. Until then it may send one small
// message, for a few seconds; there are few of them at a time. Single-strand.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "frontend/frames/engine_link.h"
#include "frontend/frames/sessions.h"
#include "gpulet/base/status.h"
#include "gpulet/cluster/membership.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/core/ids.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/connection.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/net/listener.h"
#include "gpulet/net/tls.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/serve/values/frontend_events.h"

namespace gpulet::frontend {

struct PeersOptions {
  std::string cluster;
  std::string member;  // this frontend
  config::Endpoint listen;
  net::ListenerOptions listener;
  net::TlsContextPointer client_tls;  // null: plain
  net::ConnectionOptions connection;
};

// What the other frontends say about changes of models. Their clients' rights were checked where
// they are connected.
class PeerCatalogue {
 public:
  // A frontend asks this one, which should lead, for a change.
  virtual void on_change(ClientId client, const std::string& from, ChangeModels asked) = 0;
  // A frontend requests a piece of a file; the answer comes through reply_piece(). Returns whether
  // it had no other request pending.
  virtual bool on_piece_request(ClientId client, const ModelPieceRequest& request) = 0;
  // A frontend tells what clients changed. `from`: to answer with CatalogueAdopted.
  virtual void on_catalogue(const std::string& from, CatalogueState state) = 0;
  virtual void on_adopted(ClientId client, const CatalogueStamp& stamp) = 0;
  virtual void on_gone(ClientId client) = 0;  // after the engine was told
  // What to tell a frontend that connects.
  [[nodiscard]] virtual const CatalogueState& catalogue() const = 0;

 protected:
  ~PeerCatalogue() = default;
};

// What the other frontends ask about this one.
class PeerQuestions {
 public:
  // The answer goes to the sink of the client.
  virtual void on_status_request(ClientId client) = 0;
  // The answer comes through reply_statistics().
  virtual void on_statistics_request(ClientId client, const StatisticsRequest& request) = 0;

 protected:
  ~PeerQuestions() = default;
};

class Peers {
 public:
  static constexpr Duration kHeartbeat = std::chrono::milliseconds(500);
  static constexpr int kMissedHeartbeats = 4;
  // A stranger has so long for its PeerHello, and then so long for its record to arrive here.
  static constexpr Duration kHelloTimeout = std::chrono::seconds(5);
  static constexpr Duration kRecordTimeout = std::chrono::milliseconds(1500);
  static constexpr std::size_t kMostStrangers = 64;
  static constexpr Duration kStatusTimeout = std::chrono::seconds(1);
  static constexpr Duration kChangeTimeout = std::chrono::seconds(60);  // it hashes model files
  static constexpr Duration kStatisticsTimeout = std::chrono::seconds(1);
  static constexpr Duration kPieceTimeout = std::chrono::seconds(10);

  using OnStatus = std::function<void(StatusReply)>;
  using OnChanged = std::function<void(ModelsChanged)>;
  using OnPiece = std::function<void(Result<ModelPiece>)>;
  // One list for each frontend that answered within kStatisticsTimeout.
  using Statistics = std::vector<std::vector<InferenceStatistics>>;
  using OnStatistics = std::function<void(Statistics)>;

  // The references, those of `engine` among them, outlive it.
  Peers(net::asio::io_context& io, PeersOptions options, net::BufferPool& buffers,
        const EngineLink& engine, PeerCatalogue& catalogue, PeerQuestions& questions);
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  [[nodiscard]] Status listen();
  // The members of the cluster, this one among them: there are no connections to others before.
  // Connections to former members stay until they end.
  void set_members(const std::vector<cluster::Member>& members);
  void close(const Status& reason);

  // Does nothing if the member is not connected.
  void send(const std::string& member, const PeerRequest& message);
  // Asks the member for its status. Fails (unavailable, timeout) within kStatusTimeout.
  void ask_status(const std::string& member, OnStatus done);
  // Asks the member, which leads, for a change. Fails (unavailable, timeout) where the outcome is
  // unknown.
  void change(const std::string& member, ModelsChange change, std::vector<NamedFile> files,
              OnChanged done);
  void reply_change(ClientId client, ChangeResult result);
  // Asks all others for their statistics of a model; an empty name: of all.
  void ask_statistics(const std::string& model, const OnStatistics& done);
  void reply_statistics(ClientId client, StatisticsReply reply);
  // Requests a piece of a model file. Fails (unavailable, timeout) without an answer.
  // REQUIRES: there is no other request to the member without an answer.
  void request(const std::string& member, const ModelPieceRequest& piece, OnPiece done);
  void reply_piece(ClientId client, ModelPiece piece);
  // The connected members that have files for this one.
  [[nodiscard]] std::vector<std::string> members_with_files() const;
  // To all frontends that are connected to this one, and to those that connect later.
  void tell(ServedModels served);
  void tell(const CatalogueState& state);

  // The frontends that are connected to this one.
  [[nodiscard]] std::set<ClientId> listeners() const;

 private:
  class Link;     // to a member
  class Inbound;  // from a member

  void accept(net::Stream stream, net::ConnectionSlotPointer slot);
  void forget_inbound(ClientId client);
  // The record of that member has this secret.
  [[nodiscard]] bool has_secret(const std::string& member, const std::string& secret) const;
  void link_ended(const std::string& member);
  void link_to(const cluster::Member& member);
  void beat();

  net::asio::io_context& io_;
  PeersOptions options_;
  net::BufferPool& buffers_;
  const EngineLink engine_;
  PeerCatalogue& catalogue_;
  PeerQuestions& questions_;
  std::unique_ptr<net::Listener> listener_;
  std::map<std::string, cluster::Member> members_;      // without this one
  std::string secret_;                                  // of this one; empty: not registered yet
  std::map<std::string, std::unique_ptr<Link>> links_;  // by member
  std::map<ClientId, std::unique_ptr<Inbound>> inbound_;
  ServedModels told_;
  net::Alarm heartbeat_;
  bool closed_ = false;
};

}  // namespace gpulet::frontend
