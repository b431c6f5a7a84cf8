// Which backend may say what, and when. A backend's session has three states:
//
//   greeting  connected; only a Hello may come
//   joined    its Hello was accepted; everything but a Hello may come
//   leaving   it said Leaving; as joined, and it gets no new gpulets
//
// A message must belong to its sender: a result to a batch that it holds, a report to a gpulet or a
// device of its own. Ids are never reused, so an id that nobody holds is a late message, which is
// ignored; an id that another backend holds, or that was never given out, is a breach. Pure; any
// thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "gpulet/core/ids.h"
#include "gpulet/core/status.h"
#include "gpulet/serve/messages.h"

namespace gpulet::serve {

class Dispatcher;
class Fleet;

// What a backend did that none may do. Each ends its connection.
enum class PeerViolation : std::uint8_t {
  before_hello = 0,    // a message other than a Hello came first
  no_hello = 1,        // no Hello came in time
  second_hello = 2,    // a Hello came after the first
  invalid_hello = 3,   // a Hello whose contents cannot be true
  other_node = 4,      // a Hello as a node that its certificate is not for
  node_taken = 5,      // a Hello as a node that is connected already
  foreign_gpulet = 6,  // a claim to, or a report on, a gpulet of another backend
  foreign_batch = 7,   // a result of a batch of another backend, or of none that was ever sent
  foreign_device = 8,  // a report on a device that it does not offer
  foreign_model = 9,   // asked for the file of a model that it was not told to serve
  malformed = 10,      // bytes that are no message of a backend
};
inline constexpr std::size_t kPeerViolations = 11;
// The name as written above, as status and metrics show it.
[[nodiscard]] std::string_view to_string(PeerViolation violation);

// How often each happened, by its number.
using PeerViolations = std::array<std::uint64_t, kPeerViolations>;

struct PeerBreach {
  PeerViolation kind{};
  Status why;  // names what was wrong, for the log of both sides
};

enum class PeerState : std::uint8_t { greeting, joined, leaving };
[[nodiscard]] PeerState state_of(BackendId backend, const Fleet& fleet);

// The breach that the message is; nothing where its sender may say it. What a Hello holds is for
// check_hello() (hello_check.h), and which files a backend may fetch for Fleet::right_to_file().
[[nodiscard]] std::optional<PeerBreach> breach_of(BackendId from, const BackendMessage& message,
                                                  const Fleet& fleet, const Dispatcher& dispatcher);
// The same for a result of which only the id is known, before its payload is received.
[[nodiscard]] std::optional<PeerBreach> breach_of_result(BackendId from, BatchId batch,
                                                         const Fleet& fleet,
                                                         const Dispatcher& dispatcher);

}  // namespace gpulet::serve
