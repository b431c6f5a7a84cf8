// The policies of this library: each is a type with its name and its function, and is listed in
// OwnPolicies; nothing else names it. Each one's source file begins with the choices that the paper
// leaves open. The functions leave Plan::policy empty. REQUIRES for all: validate(input) is ok.
// Pure; any thread.
//
// A program without this library has the names, which it refuses, and not the functions. Therefore
// rows are types here: one that is only asked for its name needs no function.
#pragma once

#include <string_view>

#include "gpulet/schedule/policy.h"

namespace gpulet::research {

// InSS's "BDA-Gpulet" (section 6.3): elastic partitioning with the batches of InSS's search.
struct ElasticBatchSearch {
  static constexpr std::string_view kName = "elastic-batch-search";
  static constexpr schedule::PolicyTraits kTraits{};
  [[nodiscard]] static schedule::Plan plan(const schedule::PlanInput& input);
};

// Algorithm 1 of gpulet (ATC 2022, section 4.3) and of its preprint, and the ideal scheduler that
// the authors compare them with (section 5.2), as printed. Their plans have
// PolicyTraits::own_timing.
struct ElasticPublished {
  static constexpr std::string_view kName = "elastic-published";
  static constexpr schedule::PolicyTraits kTraits{.own_timing = true};
  [[nodiscard]] static schedule::Plan plan(const schedule::PlanInput& input);
};
struct ElasticPreprintPublished {
  static constexpr std::string_view kName = "elastic-preprint-published";
  static constexpr schedule::PolicyTraits kTraits{.own_timing = true};
  [[nodiscard]] static schedule::Plan plan(const schedule::PlanInput& input);
};
struct IdealPublished {
  static constexpr std::string_view kName = "ideal-published";
  static constexpr schedule::PolicyTraits kTraits{.scales = false, .own_timing = true};
  [[nodiscard]] static schedule::Plan plan(const schedule::PlanInput& input);
};

// The scheduler that gpulet's authors published as a program, and the same on whole devices, which
// is their temporal baseline. Their plans have PolicyTraits::own_timing.
struct ElasticShipped {
  static constexpr std::string_view kName = "elastic-shipped";
  static constexpr schedule::PolicyTraits kTraits{.own_timing = true};
  [[nodiscard]] static schedule::Plan plan(const schedule::PlanInput& input);
};
struct SbpShipped {
  static constexpr std::string_view kName = "sbp-shipped";
  static constexpr schedule::PolicyTraits kTraits{.own_timing = true};
  [[nodiscard]] static schedule::Plan plan(const schedule::PlanInput& input);
};

// iGniter (Xu et al., IEEE TPDS 2022), as InSS compares itself with it (sections 6.1 and 7): the
// least share for every model, placed where it costs its neighbours the least.
struct Igniter {
  static constexpr std::string_view kName = "igniter";
  static constexpr schedule::PolicyTraits kTraits{};
  [[nodiscard]] static schedule::Plan plan(const schedule::PlanInput& input);
};

// The static partitions of mig_baselines.h: fixed_mix, small_instances and whole_devices.
struct MigMix {
  static constexpr std::string_view kName = "mig-mix";
  static constexpr schedule::PolicyTraits kTraits{};
  [[nodiscard]] static schedule::Plan plan(const schedule::PlanInput& input);
};
struct MigSmall {
  static constexpr std::string_view kName = "mig-7x1";
  static constexpr schedule::PolicyTraits kTraits{};
  [[nodiscard]] static schedule::Plan plan(const schedule::PlanInput& input);
};
struct MigWhole {
  static constexpr std::string_view kName = "mig-whole";
  static constexpr schedule::PolicyTraits kTraits{};
  [[nodiscard]] static schedule::Plan plan(const schedule::PlanInput& input);
};

template <typename... Policies>
struct PolicyRows {
  // Calls row(policy) for each, with an object of its type.
  template <typename Row>
  static void for_each(const Row& row) {
    (row(Policies{}), ...);
  }
};

using OwnPolicies =
    PolicyRows<ElasticBatchSearch, ElasticPreprintPublished, ElasticPublished, ElasticShipped,
               IdealPublished, Igniter, MigMix, MigSmall, MigWhole, SbpShipped>;

// The learned policy (learn/learned_policy.h), which is read from a file.
inline constexpr std::string_view kInss = "inss";

}  // namespace gpulet::research
