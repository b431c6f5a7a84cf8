// SharedCatalogue: the changes of models that clients made, the same on all frontends of a cluster.
//
// The frontend that leads makes every change and tells the others all changes so far, with a stamp
// that grows: its term, and a number. A frontend adopts what has a higher stamp than its own, from
// whichever frontend it hears it, and tells it on. So frontends agree once they can reach each
// other, and one that restarts has the changes as soon as it is connected. A change counts as made
// when every connected frontend has it, or has not answered within kPatience. Single-strand.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/protocol/messages.h"

namespace gpulet::frontend {

class SharedCatalogue {
 public:
  static constexpr Duration kPatience = std::chrono::seconds(2);

  struct Owner {
    std::function<void(const CatalogueState&)> tell;  // all frontends that are connected
    std::function<std::set<ClientId>()> listeners;    // these frontends
    // Reads and applies the changes; calls back when that is done or has failed.
    std::function<void(Bytes text, std::function<void()> done)> adopt;
  };

  SharedCatalogue(net::asio::io_context& io, Owner owner);

  [[nodiscard]] const CatalogueState& state() const { return state_; }

  // This frontend, which leads in `term`, has made a change; `text`: all changes. Calls `done` when
  // the others have it.
  void changed(Term term, std::string text, std::function<void()> done);
  // Another frontend tells what it knows. Calls `adopted` once this one has it, too; not if it
  // knows later changes.
  void on_state(CatalogueState state, std::function<void(CatalogueStamp)> adopted);
  void on_adopted(ClientId listener, const CatalogueStamp& stamp);
  void on_gone(ClientId listener);
  // Calls every pending `done`.
  void stop();

 private:
  struct Pending {
    CatalogueStamp stamp;
    std::set<ClientId> missing;
    Time until{};
    std::function<void()> done;
  };
  void finish_pending();

  Owner owner_;
  CatalogueState state_;
  bool adopting_ = false;                                     // state_
  std::vector<std::function<void(CatalogueStamp)>> waiting_;  // for the end of that
  std::vector<Pending> pending_;
  net::Alarm patience_;
};

}  // namespace gpulet::frontend
