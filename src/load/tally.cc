#include "gpulet/load/tally.h"

#include <utility>

namespace gpulet::load {

double violation_of(std::uint64_t late, std::uint64_t dropped, std::uint64_t errors,
                    std::uint64_t offered) {
  if (offered == 0) return 0;
  return static_cast<double>(late + dropped + errors) / static_cast<double>(offered);
}

Tally::Tally(std::string name, Duration slo, bool labelled) : slo_(slo), labelled_(labelled) {
  counts_.name = std::move(name);
  counts_.slo_ms = to_ms(slo);
}

void Tally::add(const RequestRecord& record) {
  ++counts_.offered;
  if (record.status.ok()) {
    ++counts_.served;
    latencies_ms_.add(to_ms(record.latency()));
    if (record.latency() > slo_) ++counts_.late;
    if (record.correct.value_or(false)) ++correct_;
    return;
  }
  const StatusCode code = record.status.code();
  ModelRow::Reason& reason = counts_.reasons[code];
  if (reason.count++ == 0) reason.first_message = record.status.message();
  const bool dropped =
      record.refused_by_server && (code == StatusCode::too_late || code == StatusCode::overloaded);
  ++(dropped ? counts_.dropped : counts_.errors);
  if (!record.sent) ++counts_.unsent;
}

ModelRow Tally::row() const {
  ModelRow row = counts_;
  row.p50_ms = latencies_ms_.percentile(50);
  row.p99_ms = latencies_ms_.percentile(99);
  row.violation = violation_of(row.late, row.dropped, row.errors, row.offered);
  if (labelled_ && row.served > 0)
    row.accuracy = static_cast<double>(correct_) / static_cast<double>(row.served);
  return row;
}

}  // namespace gpulet::load
