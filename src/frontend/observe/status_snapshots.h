// Snapshots of the frontend's status, and documents made from them, shared by all requesters. All
// types here belong to the thread of the io_context, which must have stopped before they are
// destroyed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "frontend/loop/event_loop.h"
#include "frontend/observe/status_json.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/observe/trace.h"
#include "gpulet/serve/values/frontend_status.h"

namespace gpulet::frontend {

struct TimedStatus {
  serve::FrontendStatus status;
  StatusContext context;
  observe::WallClock wall;
  std::uint64_t number = 0;  // 1, 2, ..
};
using StatusSnapshot = std::shared_ptr<const TimedStatus>;  // never null

class SnapshotSource {
 public:
  using OnSnapshot = std::function<void(const StatusSnapshot&)>;

  // Calls `done` later.
  virtual void snapshot(OnSnapshot done) = 0;

 protected:
  ~SnapshotSource() = default;
};

// Takes snapshots in steps of at most half a millisecond, between which the event loop runs other
// handlers. Requests that arrive while a snapshot is being taken share it. A snapshot is reused for
// fifty times the CPU time that it took, at most one second, so that snapshots cost the event loop
// at most 2 % of its time.
class StatusSnapshots final : public SnapshotSource {
 public:
  class Source {
   public:
    // serve::FrontendCore::take()
    virtual bool take(serve::StatusInSteps& taken, std::size_t parts) = 0;
    [[nodiscard]] virtual StatusContext context(const observe::WallClock& wall) const = 0;

   protected:
    ~Source() = default;
  };

  // The references must outlive this object.
  StatusSnapshots(net::asio::io_context& io, Source& source, BackgroundThread& background,
                  LoopWatch& watch);

  void snapshot(OnSnapshot done) override { get(std::move(done)); }
  // The same with a snapshot whose number exceeds `newer_than`.
  void get(OnSnapshot done, std::uint64_t newer_than = 0);

 private:
  static constexpr Duration kLongestStep = std::chrono::microseconds(500);
  static constexpr std::size_t kParts = 16;  // between two reads of the clock

  void begin();
  void step();
  void finish();
  void hand_out();

  net::asio::io_context& io_;
  Source& source_;
  BackgroundThread& background_;
  LoopWatch& watch_;
  net::Alarm timer_;
  bool scheduled_ = false;  // begin() runs when the timer expires
  std::optional<serve::StatusInSteps> taken_;
  Duration cost_{};  // CPU time of the snapshot in progress
  StatusSnapshot last_;
  Time valid_until_{};
  std::uint64_t number_ = 0;
  std::vector<OnSnapshot> waiting_;  // for the next snapshot
};

// A document made from the status: a page, a frame. It is made on the background thread, one at a
// time. All requests get the same document as long as its snapshot is valid.
template <typename Document>
class StatusDocument {
 public:
  using Make = std::function<Document(const TimedStatus&)>;  // on the background thread
  struct Made {
    std::shared_ptr<const Document> document;  // never null
    std::uint64_t number = 0;                  // number of the snapshot
  };
  using OnMade = std::function<void(const Made&)>;

  StatusDocument(net::asio::io_context& io, StatusSnapshots& snapshots,
                 BackgroundThread& background, Make make)
      : io_(io), snapshots_(snapshots), background_(background), make_(std::move(make)) {}

  // Calls `done` later with the document of a snapshot whose number exceeds `newer_than`.
  void get(OnMade done, std::uint64_t newer_than = 0) {
    if (newer_than >= made_.number && made_.number > 0) {
      waiting_for_newer_.push_back(std::move(done));
      if (!making_) make(newer_than);
      return;
    }
    waiting_.push_back(std::move(done));
    if (!making_) make(0);
  }

 private:
  void make(std::uint64_t newer_than) {
    making_ = true;
    snapshots_.get(
        [this](const StatusSnapshot& snapshot) {
          if (snapshot->number == made_.number) return made();
          std::move(waiting_for_newer_.begin(), waiting_for_newer_.end(),
                    std::back_inserter(waiting_));
          waiting_for_newer_.clear();
          background_.run(
              [snapshot, make = make_, background = &background_] {
                return background->shared(make(*snapshot));
              },
              [this, number = snapshot->number](std::shared_ptr<const Document> document) {
                made_ = {std::move(document), number};
                made();
              });
        },
        newer_than);
  }

  void made() {
    making_ = false;
    std::move(waiting_.begin(), waiting_.end(), std::back_inserter(deliverable_));
    waiting_.clear();
    if (!waiting_for_newer_.empty()) make(made_.number);
    if (!delivering_) deliver_next();
  }

  // One handler each: thousands of requests may be waiting for megabytes each.
  void deliver_next() {
    delivering_ = !deliverable_.empty();
    if (!delivering_) return;
    net::asio::post(io_, [this] {
      const Made made = made_;
      const OnMade done = std::move(deliverable_.front());
      deliverable_.pop_front();
      done(made);
      deliver_next();
    });
  }

  net::asio::io_context& io_;
  StatusSnapshots& snapshots_;
  BackgroundThread& background_;
  const Make make_;
  Made made_;
  bool making_ = false;
  bool delivering_ = false;
  std::deque<OnMade> waiting_;            // for the document in the making
  std::deque<OnMade> waiting_for_newer_;  // for a newer document than made_
  std::deque<OnMade> deliverable_;        // get made_
};

}  // namespace gpulet::frontend
