// SharedCatalogue: the changes of models that clients made, the same on all frontends of a cluster.
//
// The frontend that leads makes every change and tells the others all changes so far, with a stamp
// that grows: its term, and a number. A frontend adopts what has a higher stamp than its own and
// tells it on. So frontends agree once they can reach each other, and one that restarts has the
// changes as soon as it is connected. A change counts as made when every connected frontend has it,
// or has not answered within kPatience.
//
// The store says who leads in which term. What has the term of the leader counts from the leader
// alone, and what has an earlier one from every member, because the former leader may be gone. What
// has a later one waits until the store says so. Single-strand.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "frontend/loop/done.h"
#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/protocol/messages.h"

namespace gpulet::frontend {

class SharedCatalogue {
 public:
  static constexpr Duration kPatience = std::chrono::seconds(2);
  // Of changes in one term. A stamp above it is no leader's.
  static constexpr std::uint64_t kMostChanges = std::uint64_t{1} << 40U;

  class Owner {
   public:
    virtual void tell(const CatalogueState& state) = 0;              // all connected frontends
    [[nodiscard]] virtual std::set<ClientId> listeners() const = 0;  // these frontends
    // Reads and applies the changes; calls back when that is done or has failed.
    virtual void adopt(Bytes text, Done done) = 0;

   protected:
    ~Owner() = default;
  };

  // `owner` must outlive it.
  SharedCatalogue(net::asio::io_context& io, Owner& owner);

  [[nodiscard]] const CatalogueState& state() const { return state_; }

  // The member leads in that term; empty: nobody does. `own`: it is this frontend.
  void follow(Term term, const std::string& leader, bool own);
  // This frontend, which leads in `term`, has made a change; `text`: all changes. Calls `done` when
  // the others have it.
  void changed(Term term, std::string text, Done done);
  using OnAdopted = std::function<void(CatalogueStamp)>;
  // The member `from` tells what it knows. Calls `adopted` once this one has it, too; not if it
  // knows later changes, or if the member may not say that.
  void on_state(const std::string& from, CatalogueState state, OnAdopted adopted);
  void on_adopted(ClientId listener, const CatalogueStamp& stamp);
  void on_gone(ClientId listener);
  // Calls every pending `done`.
  void stop();

 private:
  struct Pending {
    CatalogueStamp stamp;
    std::set<ClientId> missing;
    Time until{};
    Done done;
  };
  struct Early {
    CatalogueState state;
    OnAdopted adopted;
  };
  void adopt(CatalogueState state, OnAdopted adopted);
  void finish_pending();

  Owner& owner_;
  CatalogueState state_;
  Term term_{};                         // the highest that the store named
  Term own_term_{};                     // the last one in which this frontend led
  std::string leader_;                  // in term_, as the store last said it
  std::map<std::string, Early> early_;  // by member: of a term that the store has not named yet
  bool adopting_ = false;               // state_
  std::vector<OnAdopted> waiting_;      // for the end of that
  std::vector<Pending> pending_;
  net::Alarm patience_;
};

}  // namespace gpulet::frontend
