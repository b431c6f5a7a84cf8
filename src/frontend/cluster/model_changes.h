// ModelChanges: what clients change about the models, on all frontends of a cluster. The frontend
// that leads makes every change; the others pass those of their clients to it, and adopt what was
// changed. Model files travel between frontends by their content. Single-strand.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "frontend/catalogue/adoption.h"
#include "frontend/catalogue/catalogue.h"
#include "frontend/catalogue/model_fetcher.h"
#include "frontend/catalogue/model_files.h"
#include "frontend/catalogue/shared_catalogue.h"
#include "frontend/cluster/cluster_link.h"
#include "frontend/cluster/peers.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/net/kserve/host.h"
#include "gpulet/serve/frontend_core.h"

namespace gpulet::frontend {

class ModelChanges {
 public:
  // A client's change has an outcome within this time, whatever it waits for.
  static constexpr Duration kLongestChange = std::chrono::minutes(5);
  // How long a change waits for a frontend that leads no more.
  static constexpr Duration kFormerLeaderPatience = std::chrono::seconds(2);

  using OnChanged = net::kserve::ProtocolHost::OnChanged;
  // Serves what was read, or reports why it could not be. Then calls `applied`.
  using Apply = std::function<void(Result<LoadedCatalogue>, std::function<void()> applied)>;
  // Calls `done` once the core has applied what it was given.
  using WhenSettled = std::function<void(std::function<void()> done)>;

  // The references outlive it.
  ModelChanges(net::asio::io_context& io, const serve::FrontendCore& core,
               const ClusterLink& cluster, CatalogueService& catalogue, ServedFiles& files,
               Apply apply, WhenSettled when_settled);
  ModelChanges(const ModelChanges&) = delete;
  ModelChanges& operator=(const ModelChanges&) = delete;

  // The other frontends. Call once, before any change; not if the frontend is alone.
  void share_with(Peers& peers) { peers_ = &peers; }
  // The member `from` asked for a change, with that outcome.
  using OnAsked = std::function<void(const std::string& from, const std::string& model,
                                     ModelsChange::Kind, const Status&)>;
  // Adds the calls of other frontends that concern changes. Their clients' rights were checked
  // where they are connected.
  void handle(Peers::Owner& calls, OnAsked on_asked);
  // As SharedCatalogue::follow().
  void follow(Term term, const std::string& leader, bool own);
  // A change by a client of this frontend.
  void change(ModelsChange change, OnChanged done);
  void stop();

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
  // The connected members that have files, beginning with `first` if it is one of them.
  [[nodiscard]] std::vector<std::string> members_with_files(const std::string& first) const;
  void apply(Term term, Result<LoadedCatalogue> read, const OnChanged& done);
  void share(Term term, std::string text, std::function<void()> done);
  [[nodiscard]] SharedCatalogue::Owner owner_of_shared();
  [[nodiscard]] Adoption::Owner owner_of_adoption();
  [[nodiscard]] ModelFetcher::Owner owner_of_fetcher();

  const serve::FrontendCore& core_;
  const ClusterLink& cluster_;
  CatalogueService& catalogue_;
  ServedFiles& files_;
  const Apply apply_;
  const WhenSettled when_settled_;
  Peers* peers_ = nullptr;  // null: the frontend is alone
  ModelFetcher fetcher_;
  Adoption adoption_;
  SharedCatalogue shared_;
  std::uint64_t last_pending_ = 0;
  std::map<std::uint64_t, Pending> pending_;
  net::Alarm overdue_;
};

}  // namespace gpulet::frontend
