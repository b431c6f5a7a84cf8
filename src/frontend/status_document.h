// StatusDocument: something that is made of the status for whoever asks: a page, a frame. It is
// made on the background's thread, one at a time: those who ask meanwhile get that one, and so do
// those who ask as long as the snapshot that it was made of is given out. Single-strand type, on
// the io_context's thread, which must not run any more when this goes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <memory>
#include <utility>

#include "background.h"
#include "gpulet/net/asio.h"
#include "status_snapshots.h"

namespace gpulet::frontend {

template <typename Document>
class StatusDocument {
 public:
  // On the background's thread.
  using Make = std::function<Document(const TimedStatus&)>;
  struct Made {
    std::shared_ptr<const Document> document;  // never null
    std::uint64_t number = 0;                  // of the snapshot
  };
  using OnMade = std::function<void(const Made&)>;

  StatusDocument(net::asio::io_context& io, StatusSnapshots& snapshots, Background& background,
                 Make make)
      : io_(io), snapshots_(snapshots), background_(background), make_(std::move(make)) {}

  // `done` is called later, never from within, with what was made of a snapshot of a higher number.
  void get(OnMade done, std::uint64_t newer_than = 0) {
    if (newer_than >= made_.number && made_.number > 0) {
      later_.push_back(std::move(done));
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
          std::move(later_.begin(), later_.end(), std::back_inserter(waiting_));
          later_.clear();
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
    std::move(waiting_.begin(), waiting_.end(), std::back_inserter(served_));
    waiting_.clear();
    if (!later_.empty()) make(made_.number);
    if (!handing_out_) hand_out();
  }

  // One in a turn: thousands may have asked, and each of them gets megabytes.
  void hand_out() {
    handing_out_ = !served_.empty();
    if (!handing_out_) return;
    net::asio::post(io_, [this] {
      const Made made = made_;
      const OnMade done = std::move(served_.front());
      served_.pop_front();
      done(made);
      hand_out();
    });
  }

  net::asio::io_context& io_;
  StatusSnapshots& snapshots_;
  Background& background_;
  const Make make_;
  Made made_;
  bool making_ = false;
  bool handing_out_ = false;
  std::deque<OnMade> waiting_;  // for what is being made
  std::deque<OnMade> later_;    // for what is newer than made_
  std::deque<OnMade> served_;   // made_ is theirs
};

}  // namespace gpulet::frontend
