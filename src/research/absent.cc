// What a program without the research library has.
#include <fmt/format.h>

#include "gpulet/research/research.h"
#include "research/policies.h"

namespace gpulet::research {
namespace {

Status absent(std::string_view what) {
  return {StatusCode::not_found,
          fmt::format("{} is part of the research library, which this program was built without: "
                      "build it with -DGPULET_WITH_RESEARCH=ON",
                      what)};
}

}  // namespace

bool included() { return false; }

schedule::PolicyTable policies() {
  schedule::PolicyTable table = schedule::own_policies();
  const auto refuse = [&table](std::string_view name) {
    table.refuse(name, absent(fmt::format("the policy {}", name)));
  };
  OwnPolicies::for_each([&refuse](auto policy) { refuse(policy.kName); });
  refuse(kInss);
  return table;
}

profile::FitPairModel fit_pair_model() { return nullptr; }

Result<InssReport> inss_report(const profile::Profile& /*profile*/, std::uint64_t /*seed*/) {
  return absent("the interference model inss");
}

}  // namespace gpulet::research
