// What commands look for in a frontend's status document (docs/status.md): whether it is ready, and
// its events. Pure; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/status.h"

namespace gpulet::tools {

// What somebody waits for.
struct Wanted {
  std::vector<std::string> models{};  // these serve
  bool all = false;                   // every model does, and no other plan is on its way
};

// Empty: it is there. Otherwise what is still to come. A model that sleeps is there: its next
// request wakes it. Fails with malformed where it is no status document, and with not_found where
// a wanted model is none of the frontend's.
[[nodiscard]] Result<std::string> waits_for(std::string_view document, const Wanted& wanted);

struct ToldEvent {
  double at_s = 0;                 // since the frontend's start
  std::optional<double> unix_s{};  // the same by the clock on the wall; older frontends do not tell
  std::string text;
  bool warning = false;

  friend bool operator==(const ToldEvent&, const ToldEvent&) = default;
};

// The events of document after document, each once, also where the frontend has restarted between
// two. A document has the last events only: more than those between two documents are missed.
class EventTail {
 public:
  // Those that were not in an earlier document. Fails with malformed.
  [[nodiscard]] Result<std::vector<ToldEvent>> fresh(std::string_view document);

 private:
  double uptime_s_ = -1;       // of the last document
  double last_at_s_ = -1;      // of the last event told
  std::size_t same_time_ = 0;  // events told with that time
};

}  // namespace gpulet::tools
