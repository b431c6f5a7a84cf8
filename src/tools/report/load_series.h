// The series of a load run: what the clients saw in each period, and what served them. The columns
// have the names of those of a simulation's series (run_report.h), so that a run and its simulation
// can be laid side by side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/load/client.h"

namespace gpulet::tools {

// The gpulets that are ready.
struct Deployment {
  std::size_t devices = 0;   // with a gpulet
  double share_percent = 0;  // the sum over all gpulets

  friend bool operator==(const Deployment&, const Deployment&) = default;
};
// Reads it from a frontend's status document (docs/status.md). Fails with malformed.
[[nodiscard]] Result<Deployment> deployment_of(std::string_view document);

// add() and deployed() may run at the same time, each on one thread; the others only after both.
class LoadSeries {
 public:
  struct Model {
    std::string name;
    Duration slo{};
  };
  // `models` in the order of the load. The last period may be shorter. REQUIRES: period > 0.
  LoadSeries(std::vector<Model> models, Duration period, Duration length);

  // A request counts in the period in which it was due, its response where it arrived.
  void add(const load::RequestRecord& record);
  void deployed(const Deployment& deployment, Duration elapsed);

  // time_s,devices,share_percent,offered,violations, then columns per model. Devices and shares are
  // empty where no deployment is known.
  [[nodiscard]] std::string csv() const;
  // [{"time_s","devices","share_percent","offered","violations","models":[{"name","offered",
  // "violations","batch_run","response_ms"}]}]; null for what is not known.
  [[nodiscard]] nlohmann::ordered_json json() const;
  // How many periods have more violations than tolerated, and a table of the first of these.
  [[nodiscard]] std::string text() const;

  [[nodiscard]] double period_s() const { return to_seconds(period_); }

 private:
  struct Counts {
    std::uint64_t offered = 0;
    std::uint64_t violations = 0;
    std::uint64_t responses = 0;
    double response_ms = 0;  // the sum
    double batches = 0;      // of the responses: each is a part of its batch

    [[nodiscard]] std::optional<double> mean_ms() const;
    [[nodiscard]] std::optional<double> mean_batch() const;
  };
  struct Deployed {
    std::size_t samples = 0;
    double devices = 0;  // the sums
    double share_percent = 0;
  };
  // A row of the series; empty where no deployment is known.
  struct Row {
    double start_s = 0;
    std::optional<double> devices;
    std::optional<double> share_percent;
    std::uint64_t offered = 0;
    std::uint64_t violations = 0;

    [[nodiscard]] double violation() const;
  };
  [[nodiscard]] std::size_t row_at(Duration elapsed) const;
  [[nodiscard]] Row row(std::size_t index) const;

  std::vector<Model> models_;
  Duration period_;
  std::vector<std::vector<Counts>> counts_;  // by row, then by model
  std::vector<Deployed> deployed_;           // by row
};

}  // namespace gpulet::tools
