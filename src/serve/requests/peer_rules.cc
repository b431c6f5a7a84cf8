#include "serve/requests/peer_rules.h"

#include <fmt/format.h>

#include <cstddef>

namespace gpulet::serve {
namespace {

// Bounds the log entries that a misbehaving peer can cause. Every violation is counted.
constexpr Duration kBetweenNotes = std::chrono::seconds(1);

}  // namespace

std::optional<PeerBreach> PeerRules::check(const BackendMessageReceived& event, Time now) {
  auto breach = breach_of(event.backend, event.message, backends_, batches_);
  if (!breach) backends_.on_message(event.backend, now);
  return breach;
}

bool PeerRules::end_connection(BackendId backend, const PeerBreach& breach, Time now,
                               FrontendEffects& effects) {
  const auto kind = static_cast<std::size_t>(breach.kind);
  ++violations_[kind];
  effects.emplace_back(DisconnectBackend{backend, breach.why});
  if (backends_.backends().contains(backend)) return true;
  if (noted_[kind] != Time() && now - noted_[kind] < kBetweenNotes) return false;
  noted_[kind] = now;
  journal_.note(
      true, fmt::format("refused a backend ({}): {}", to_string(breach.kind), breach.why.message()),
      now, effects);
  return false;
}

}  // namespace gpulet::serve
