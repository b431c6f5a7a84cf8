#include <array>
#include <string>

#include "gpulet/schedule/policy.h"
#include "schedule/cover/cover.h"
#include "schedule/elastic.h"
#include "schedule/elastic_batch_search.h"
#include "schedule/elastic_preprint.h"
#include "schedule/greedy_best_fit.h"
#include "schedule/guided_self_tuning.h"
#include "schedule/headroom.h"
#include "schedule/ideal.h"
#include "schedule/igniter.h"
#include "schedule/mig/mig_policy.h"
#include "schedule/roma.h"
#include "schedule/sbp.h"
#include "schedule/sbp_split.h"

namespace gpulet::schedule {
namespace {

struct Maker {
  std::string_view name;
  std::unique_ptr<Policy> (*make)();
};

template <typename Made>
std::unique_ptr<Policy> make() {
  return std::make_unique<Made>();
}

// By name.
constexpr std::array kMakers{Maker{"cover", make<CoverPolicy>},
                             Maker{"elastic", make<ElasticPartitioning>},
                             Maker{"elastic-batch-search", make<ElasticBatchSearch>},
                             Maker{"elastic-preprint", make<ElasticPreprint>},
                             Maker{"greedy-best-fit", make<GreedyBestFit>},
                             Maker{"guided-self-tuning", make<GuidedSelfTuning>},
                             Maker{"ideal", make<Ideal>},
                             Maker{"igniter", make<Igniter>},
                             Maker{"mig-7x1", make<MigSmall>},
                             Maker{"mig-greedy", make<MigGreedy>},
                             Maker{"mig-mix", make<MigMix>},
                             Maker{"mig-two-phase", make<MigTwoPhase>},
                             Maker{"mig-whole", make<MigWhole>},
                             Maker{"roma", make<Roma>},
                             Maker{"sbp", make<SquishyBinPacking>},
                             Maker{"sbp-split", make<SplitSquishyBinPacking>}};

}  // namespace

Result<std::unique_ptr<Policy>> make_policy(std::string_view name) {
  // Worked out once in the life of the program: here, so that the first plan takes no longer.
  static_cast<void>(headroom_table(Headroom::poisson));
  std::string known;
  for (const Maker& maker : kMakers) {
    if (maker.name == name) return maker.make();
    known += (known.empty() ? "" : ", ") + std::string(maker.name);
  }
  return Status(StatusCode::not_found,
                "there is no policy '" + std::string(name) + "': choose one of " + known);
}

std::vector<std::string_view> policy_names() {
  std::vector<std::string_view> names;
  names.reserve(kMakers.size());
  for (const Maker& maker : kMakers) names.push_back(maker.name);
  return names;
}

}  // namespace gpulet::schedule
