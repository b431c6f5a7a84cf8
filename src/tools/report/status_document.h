// Reads a frontend's status document (docs/status.md): whether the frontend is ready, and its
// events. Pure; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/base/status.h"

namespace gpulet::tools {

// What a caller waits for. By default: until the frontend takes requests.
struct WaitCondition {
  std::vector<std::string> models{};  // until these models serve
  bool all = false;                   // until every model serves and no new plan is pending
};

// What is still missing, in words; empty once the condition holds. An idle model counts as serving,
// because its next request wakes it. Fails with malformed for another document, and with not_found
// if the frontend does not have one of the models.
[[nodiscard]] Result<std::string> missing_for(std::string_view document,
                                              const WaitCondition& condition);

// A model or a bucket that no gpulet serves, and that none will serve without a change.
struct UnavailableModel {
  std::string name;
  std::string reason;
};
// None while the frontend is not ready or a new plan is pending. Fails with malformed.
[[nodiscard]] Result<std::vector<UnavailableModel>> unavailable_models(std::string_view document);

struct FrontendEvent {
  double at_s = 0;                 // since the frontend started
  std::optional<double> unix_s{};  // since 1970; older frontends do not report it
  std::string text;
  bool warning = false;

  friend bool operator==(const FrontendEvent&, const FrontendEvent&) = default;
};

// Returns each event of a series of documents once, even if the frontend restarts in between. A
// document holds only the latest events, so events can be missed between two documents.
class EventTail {
 public:
  // The events that no earlier document held. Fails with malformed.
  [[nodiscard]] Result<std::vector<FrontendEvent>> new_events(std::string_view document);

 private:
  double uptime_s_ = -1;       // of the latest document
  double last_at_s_ = -1;      // time of the latest event returned
  std::size_t same_time_ = 0;  // events returned with that time
};

}  // namespace gpulet::tools
