// A gpulet's part of a plan, in the messages that carry one.
#include <cstddef>

#include "gpulet/net/codec/limits.h"
#include "net/codec/wire.h"

namespace gpulet::net {

void to_wire(const serve::PlanPart& part, wire::PlanPart* to) {
  to->set_duty_cycle_ms(part.duty_cycle_ms);
  to->set_service(static_cast<std::uint32_t>(part.service));
  for (const schedule::Assignment& assignment : part.assignments) {
    wire::Assignment* const one = to->add_assignments();
    one->set_model(assignment.model);
    one->set_rate(assignment.rate);
    one->set_batch(assignment.batch);
    one->set_latency_ms(assignment.latency_ms);
    one->set_slowdown(assignment.slowdown);
    one->set_slo_ms(assignment.slo_ms);
  }
}

serve::PlanPart read_part(const wire::PlanPart& message, FieldReader& fields) {
  serve::PlanPart part;
  part.duty_cycle_ms = fields.amount(message.duty_cycle_ms(), "part.duty_cycle_ms");
  part.service = fields.one_of(message.service(), schedule::Service::controlled, "part.service");
  const auto count = static_cast<std::size_t>(message.assignments_size());
  if (!fields.count(count, kMaxModels, "part.assignments")) return part;
  for (const wire::Assignment& one : message.assignments()) {
    part.assignments.push_back({fields.name(one.model(), "part.assignments.model"),
                                fields.amount(one.rate(), "part.assignments.rate"),
                                fields.batch(one.batch(), "part.assignments.batch", 1),
                                fields.amount(one.latency_ms(), "part.assignments.latency_ms"),
                                fields.amount(one.slowdown(), "part.assignments.slowdown"),
                                fields.amount(one.slo_ms(), "part.assignments.slo_ms")});
  }
  return part;
}

}  // namespace gpulet::net
