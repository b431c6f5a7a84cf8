// ReportedFigures: what other owners report to the leader about the requests and batches that they
// served (OwnerReport). The leader adds them to its own. Pure; one thread at a time.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <unordered_map>

#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/observe/histogram.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/serve/values/frontend_status.h"

namespace gpulet::serve {

class ReportedFigures {
 public:
  struct Model {
    ModelCounters counters;  // since this frontend leads
    RecentOutcomes outcomes;
    observe::RecentHistogram latency{kWindow};
    std::map<std::string, std::uint64_t> queued;  // by member

    [[nodiscard]] std::uint64_t queued_anywhere() const;
  };

  void add(const std::string& member, const ModelFigures& figures, Time now);
  void add(const std::string& member, const GpuletFigures& figures);
  // The member owns nothing any more.
  void forget_member(const std::string& member);
  // Forgets what is not known any more.
  void keep_only(const std::function<bool(const std::string& model)>& model_known,
                 const std::function<bool(GpuletId)>& gpulet_known);
  void clear();

  // Null: no other owner has served the model.
  [[nodiscard]] const Model* find(const std::string& model) const;
  [[nodiscard]] GpuletStatistics statistics(GpuletId id) const;
  [[nodiscard]] std::size_t in_flight(GpuletId id) const;

 private:
  static constexpr Duration kWindow = std::chrono::seconds(10);  // of percentiles, at least
  struct Gpulet {
    std::string member;
    GpuletStatistics before;  // of earlier owners
    GpuletFigures last;
  };

  std::unordered_map<std::string, Model> models_;
  std::unordered_map<GpuletId, Gpulet> gpulets_;
};

}  // namespace gpulet::serve
