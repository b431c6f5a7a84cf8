// Fence: which frontend may command a backend.
//
// Every leader has a term, and no two leaders have the same. A backend executes the commands of the
// frontend whose TakeLeadership had the highest term, as long as they arrive on that frontend's
// connection and carry that term. So it never obeys two frontends, whatever these believe, and no
// clock or lease is involved. A frontend of level 0 knows no terms: it leads while no other does.
//
// A copyable value. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <optional>

#include "gpulet/core/ids.h"

namespace gpulet::node {

class Fence {
 public:
  // The frontend has sent its Welcome.
  void welcomed(FrontendId frontend, std::uint32_t level) {
    if (level > 0 || leader_) return;
    leader_ = frontend;
    leader_has_term_ = false;
  }

  // The frontend leads from now on, unless this returns false: another one has led with that term
  // or a higher one. A leader that reconnects takes its own term again.
  [[nodiscard]] bool take_leadership(FrontendId frontend, Term term) {
    const bool vacant = !leader_ || *leader_ == frontend || !leader_has_term_;
    if (term == Term{} || term < term_ || (term == term_ && !vacant)) return false;
    term_ = term;
    leader_ = frontend;
    leader_has_term_ = true;
    return true;
  }

  void disconnected(FrontendId frontend) {
    if (leader_ == frontend) leader_.reset();
  }

  // Whether to execute a command of that frontend with that term.
  [[nodiscard]] bool admits(FrontendId frontend, Term term) const {
    return leader_ == frontend && (!leader_has_term_ || term == term_);
  }

  // Empty: no frontend that leads is connected.
  [[nodiscard]] std::optional<FrontendId> leader() const { return leader_; }
  // The highest term accepted; 0: none.
  [[nodiscard]] Term term() const { return term_; }

  friend bool operator==(const Fence&, const Fence&) = default;

 private:
  Term term_{};
  std::optional<FrontendId> leader_;
  bool leader_has_term_ = false;
};

}  // namespace gpulet::node
