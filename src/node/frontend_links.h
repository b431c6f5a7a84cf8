// FrontendLinks: the connected frontends, which of them leads (node/fence.h), and the messages to
// them. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "node/fence.h"
#include "node/turn.h"

namespace gpulet::node {

class FrontendLinks {
 public:
  // `welcome_timeout`: of a new connection.
  explicit FrontendLinks(Duration welcome_timeout) : welcome_timeout_(welcome_timeout) {}

  // ---- connections

  [[nodiscard]] bool any() const { return !frontends_.empty(); }
  void connect(FrontendId frontend, Time now);
  void disconnect(FrontendId frontend);
  // A command arrived. Returns false if the frontend is not connected.
  bool heard(FrontendId frontend, Time now);
  // What frontends sent while this backend stood still may not have been read yet.
  void excuse_silence(Duration late, Time now);
  // Disconnects silent frontends, and sends `heartbeat()` to those that are due for one.
  template <typename MakeHeartbeat>
  void check(const MakeHeartbeat& heartbeat, Turn turn) {
    for (auto& [id, frontend] : frontends_) {
      if (!is_due(id, frontend, turn)) continue;
      send_to(id, heartbeat(), turn);
      frontend.next_heartbeat = turn.time + *frontend.heartbeat_every;
    }
  }
  // When check() is due.
  [[nodiscard]] Time next_check() const;

  // ---- who commands

  [[nodiscard]] std::optional<FrontendId> leader() const { return fence_.leader(); }
  [[nodiscard]] Term term() const { return fence_.term(); }
  // Takes up the Welcome. Returns whether another frontend leads now.
  bool welcome(FrontendId from, Welcome& command, Turn turn);
  // Whether the frontend leads from now on. If not, answers it with Superseded.
  bool take_leadership(FrontendId from, Term term, Turn turn);
  // Whether the command may be executed. If not, answers it with Superseded.
  bool admits(FrontendId from, Term term, Turn turn);
  // Counts a command that is not executed.
  void count_refusal() { ++commands_refused_; }
  [[nodiscard]] std::uint64_t commands_refused() const { return commands_refused_; }
  // The frontend of that member; empty: it is not connected.
  [[nodiscard]] std::optional<FrontendId> frontend_of(const std::string& member) const;

  // ---- messages

  // Drops a message that the frontend would not understand.
  void send_to(FrontendId frontend, BackendMessage message, Turn turn);
  // To the frontend that leads; to all of them while none does.
  void send(BackendMessage message, Turn turn);
  void send_to_all(const BackendMessage& message, Turn turn);
  // To the frontend that leads and to the gpulet's owner.
  void send_report(GpuletReport report, Turn turn);

 private:
  struct Frontend {
    std::uint32_t level = 0;
    std::string member{};        // of its cluster
    bool disconnecting = false;  // DisconnectFrontend was sent
    Time connected_at{};
    Time last_message{};  // from it
    Time next_heartbeat = kNever;
    std::optional<Duration> heartbeat_every{};  // set by Welcome
  };
  // When it counts as gone without a further message.
  [[nodiscard]] Time silent_at(const Frontend& frontend) const;
  // Disconnects the frontend if it is silent. Returns whether a heartbeat to it is due.
  bool is_due(FrontendId id, Frontend& frontend, Turn turn) const;

  const Duration welcome_timeout_;
  std::map<FrontendId, Frontend> frontends_;  // those that are connected
  Fence fence_;
  std::uint64_t commands_refused_ = 0;
};

}  // namespace gpulet::node
