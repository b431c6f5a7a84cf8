// ModelChanges: what clients change about the models, on all frontends of a cluster. The frontend
// that leads makes every change; the others pass those of their clients to it, and adopt what was
// changed. Model files travel between frontends by their content. Single-strand.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "frontend/catalogue/adoption.h"
#include "frontend/catalogue/catalogue.h"
#include "frontend/catalogue/model_fetcher.h"
#include "frontend/catalogue/model_files.h"
#include "frontend/catalogue/shared_catalogue.h"
#include "frontend/cluster/cluster_link.h"
#include "frontend/cluster/peers.h"
#include "frontend/loop/done.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/net/kserve/host.h"
#include "gpulet/serve/frontend_core.h"

namespace gpulet::frontend {

class ModelChanges final : public PeerCatalogue,
                           private SharedCatalogue::Owner,
                           private Adoption::Owner,
                           private ModelFetcher::Owner {
 public:
  // A client's change has an outcome within this time, whatever it waits for.
  static constexpr Duration kLongestChange = std::chrono::minutes(5);
  // How long a change waits for a frontend that leads no more.
  static constexpr Duration kFormerLeaderPatience = std::chrono::seconds(2);

  using OnChanged = net::kserve::ProtocolHost::OnChanged;
  class Host {
   public:
    // Serves what was read, or reports why it could not be. Then calls `applied`.
    virtual void apply_change(Result<LoadedCatalogue> read, Done applied) = 0;
    // Calls `done` once the engine has applied what it was given.
    virtual void when_settled(Done done) = 0;
    // The member `from` asked for a change of that model, with that outcome.
    virtual void on_asked(const std::string& from, const std::string& model,
                          ModelsChange::Kind kind, const Status& outcome) = 0;

   protected:
    ~Host() = default;
  };

  // The references outlive it.
  ModelChanges(net::asio::io_context& io, const serve::FrontendCore& core,
               const ClusterLink& cluster, CatalogueService& catalogue, ServedFiles& files,
               Host& host);
  ModelChanges(const ModelChanges&) = delete;
  ModelChanges& operator=(const ModelChanges&) = delete;

  // The other frontends. Call once, before any change; not if the frontend is alone.
  void share_with(Peers& peers) { peers_ = &peers; }
  // As SharedCatalogue::follow().
  void follow(Term term, const std::string& leader, bool own);
  // A change by a client of this frontend.
  void change(ModelsChange change, OnChanged done);
  void stop();

  void on_change(ClientId client, const std::string& from, ChangeModels asked) override;
  bool on_piece_request(ClientId client, const ModelPieceRequest& request) override;
  void on_catalogue(const std::string& from, CatalogueState state) override;
  void on_adopted(ClientId client, const CatalogueStamp& stamp) override;
  void on_gone(ClientId client) override;
  [[nodiscard]] const CatalogueState& catalogue() const override { return shared_.state(); }

 private:
  struct Asked {
    ModelsChange change;
    std::vector<NamedFile> files;  // that the sender has
    std::string from;              // the member that sent it; empty: a client of this frontend
  };
  struct Pending {
    std::string maker;  // the member that makes it; empty: this one
    Time until{};
    OnChanged done;
  };
  // Calls `done` with the outcome, or once that is overdue: once in all.
  [[nodiscard]] OnChanged answered_in_time(const std::string& maker, OnChanged done);
  void answer_overdue();
  // Passes a change to the leader.
  void pass_on(const std::string& leader, ModelsChange change, CatalogueLoader::OwnFiles own,
               OnChanged done);
  // Makes a change, if this frontend leads.
  void make(Asked asked, OnChanged done);
  void read(Asked asked, Term term, Missing missing, OnChanged done);
  // The same, beginning with `first` if it is one of them.
  [[nodiscard]] std::vector<std::string> members_beginning_with(const std::string& first) const;
  void conclude(Term term, Result<LoadedCatalogue> read, const OnChanged& done);
  void share(Term term, std::string text, Done done);

  // SharedCatalogue::Owner
  void tell(const CatalogueState& state) override;
  [[nodiscard]] std::set<ClientId> listeners() const override;
  void adopt(Bytes text, Done done) override;
  // Adoption::Owner
  void read_changes(Bytes text, Missing missing, CatalogueService::OnRead done) override;
  void apply(Result<LoadedCatalogue> read, Done done) override;
  [[nodiscard]] std::vector<std::string> members_with_files() const override;
  // ModelFetcher::Owner
  void request(const std::string& member, const ModelPieceRequest& piece,
               ModelFetcher::OnPiece done) override;
  void store(ModelPiece piece, ModelFetcher::OnStored done) override;

  const serve::FrontendCore& core_;
  const ClusterLink& cluster_;
  CatalogueService& catalogue_;
  ServedFiles& files_;
  Host& host_;
  Peers* peers_ = nullptr;  // null: the frontend is alone
  ModelFetcher fetcher_;
  Adoption adoption_;
  SharedCatalogue shared_;
  std::uint64_t last_pending_ = 0;
  std::map<std::uint64_t, Pending> pending_;
  net::Alarm overdue_;
};

}  // namespace gpulet::frontend
