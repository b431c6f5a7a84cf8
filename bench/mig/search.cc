// Compares MIG-serving's genetic algorithm and tree search with random search in the same CPU time,
// on tasks for which greedy needs more devices than the bound.
//
//   bench_mig_search [--tasks few|three-sizes|remainders|many|workloads|measured] [--seconds S]
//   [--seeds N]
//                    [--count N] [--geometry NAME]
//
//   random              each instance of a random layout gets a random service that still needs it
//   random-best-ten     each device is one of the ten best for five random services, at random
//   tree                the tree search for the whole task, from the start, again and again
//   genetic-random      the genetic algorithm, which fills gaps as random-best-ten does
//   genetic             the genetic algorithm, which fills gaps by tree search
//
// The genetic algorithms begin with the greedy deployment. All others forget it. Prints lines
//   task,services,greedy,bound,search,seed,devices,seconds_to_best,cpu_seconds
// where `greedy` is the trimmed deployment and `bound` lower_bound_of_whole_instances(), rounded
// up. A search ends at the bound. Time is that of the thread, so that other programs do not change
// it.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "bench/mig/tasks.h"
#include "bench/support/options.h"
#include "schedule/mig/device_search.h"

namespace {

using namespace gpulet;                 // NOLINT(google-build-using-namespace)
using namespace gpulet::schedule::mig;  // NOLINT(google-build-using-namespace)

constexpr std::size_t kBest = 10;        // the paper's K
constexpr std::size_t kDrawn = 5;        // services of a node
constexpr std::uint32_t kRollouts = 50;  // of one tree search
constexpr std::size_t kParents = 4;      // as in the genetic algorithm
constexpr std::size_t kChildren = 8;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

bool any_unmet(const std::vector<double>& unmet) {
  return std::any_of(unmet.begin(), unmet.end(), [](double need) { return need > 0; });
}

// What all searches of a task share.
struct Scene {
  explicit Scene(const DeploymentTask& task)
      : context(task), prices(best_prices(context)), worth(prices.per_request) {
    // As in the tree search: services whose requests have the price 0 must be served too.
    const Prices by_slices = prices_by_slices(context);
    for (std::size_t service = 0; service < worth.size(); ++service)
      worth[service] = std::max(worth[service], by_slices.per_request[service] / 1000);
    fewest = whole_devices_for(bound_of_whole_instances(context, prices));
    greedy = greedy_mixes(context);
    trim(context, greedy);
  }

  DeploymentContext context;
  Prices prices;
  std::vector<double> worth;
  std::size_t fewest = 0;
  std::vector<InstanceMix> greedy;
};

std::vector<InstanceMix> random_fill(const Scene& scene, std::vector<double> unmet,
                                     Random& random) {
  const DeploymentContext& context = scene.context;
  std::vector<InstanceMix> devices;
  while (any_unmet(unmet)) {
    InstanceMix mix;
    for (const std::uint32_t profile :
         context.shapes()[random.below(context.shapes().size())].profiles) {
      std::vector<std::uint32_t> served;
      for (std::uint32_t service = 0; service < context.services(); ++service) {
        if (unmet[service] > 0 && context.rate(service, profile) > 0) served.push_back(service);
      }
      if (served.empty()) continue;
      const std::uint32_t service = served[random.below(served.size())];
      mix.add({profile, service});
      unmet[service] = context.unmet_after(service, unmet[service], context.rate(service, profile));
    }
    if (mix.size > 0) devices.push_back(mix);
  }
  return devices;
}

std::vector<InstanceMix> random_best_ten_fill(const Scene& scene, std::vector<double> unmet,
                                              Random& random) {
  std::vector<InstanceMix> devices;
  while (any_unmet(unmet)) {
    const std::vector<RatedMix> best =
        candidates(scene.context, unmet, scene.worth, kDrawn, kBest, random);
    devices.push_back(best[random.below(best.size())].mix);
    scene.context.serve(devices.back(), unmet);
  }
  return devices;
}

// Gives the number of devices of the best deployment of one more step.
using Step = std::function<std::size_t()>;

template <typename Fill>
Step from_nothing(const Scene& scene, Random& random, const Fill& fill) {
  return [&scene, &random, fill] {
    std::vector<InstanceMix> devices = fill(scene, scene.context.needs(), random);
    trim(scene.context, devices);
    return devices.size();
  };
}

std::vector<InstanceMix> tree_fill(const Scene& scene, const std::vector<double>& unmet,
                                   Random& random) {
  return search_tree(
      scene.context, scene.prices, unmet,
      {kRollouts, static_cast<std::uint32_t>(kBest), static_cast<std::uint32_t>(kDrawn)}, random);
}

Step genetic(const Scene& scene, std::uint64_t seed) {
  return [&scene, seed, round = std::uint64_t{0},
          best = std::vector<Individual>{make_individual(scene.greedy, scene.prices)}]() mutable {
    best = next_generation(scene.context, scene.prices, std::move(best),
                           stream_seed(seed, std::to_string(round++)), run_sequentially);
    return best.front().devices.size();
  };
}

// The same generations as next_generation(), but for the filling of gaps.
Step genetic_random(const Scene& scene, Random& random) {
  return [&scene, &random,
          best = std::vector<Individual>{make_individual(scene.greedy, scene.prices)}]() mutable {
    const std::size_t parents = best.size();
    for (std::size_t child = 0; child < kChildren; ++child) {
      std::vector<InstanceMix> devices = best[child % parents].devices;
      mutate(devices, random);
      const std::vector<double> unmet = erase_some(scene.context, scene.prices, devices, random);
      const std::vector<InstanceMix> filling = random_best_ten_fill(scene, unmet, random);
      devices.insert(devices.end(), filling.begin(), filling.end());
      trim(scene.context, devices);
      best.push_back(make_individual(std::move(devices), scene.prices));
    }
    std::stable_sort(best.begin(), best.end(), [](const Individual& one, const Individual& other) {
      return one.cost < other.cost;
    });
    best.resize(std::min(best.size(), kParents));
    return best.front().devices.size();
  };
}

struct Found {
  std::size_t devices = std::numeric_limits<std::size_t>::max();
  double seconds_to_best = 0;
  double seconds = 0;
};

Found run(const Step& step, std::size_t fewest, double seconds) {
  Found found;
  const double begin = cpu_seconds();
  do {
    const std::size_t devices = step();
    found.seconds = cpu_seconds() - begin;
    if (devices >= found.devices) continue;
    found.devices = devices;
    found.seconds_to_best = found.seconds;
  } while (found.devices > fewest && found.seconds < seconds);
  return found;
}

void compare(const bench::NamedTask& named, double seconds, std::uint32_t seeds) {
  const Scene scene(named.task);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    Random random(stream_seed(seed, named.name));
    const std::pair<const char*, Step> searches[] = {
        {"random", from_nothing(scene, random, random_fill)},
        {"random-best-ten", from_nothing(scene, random, random_best_ten_fill)},
        {"tree", from_nothing(scene, random, tree_fill)},
        {"genetic-random", genetic_random(scene, random)},
        {"genetic", genetic(scene, seed)}};
    for (const auto& [name, step] : searches) {
      const Found found = run(step, scene.fewest, seconds);
      std::printf("%s,%zu,%zu,%zu,%s,%llu,%zu,%.3f,%.3f\n", named.name.c_str(),
                  named.task.services.size(), scene.greedy.size(), scene.fewest, name,
                  static_cast<unsigned long long>(seed), found.devices, found.seconds_to_best,
                  found.seconds);
      std::fflush(stdout);
    }
  }
}

std::vector<bench::NamedTask> tasks_of(const std::string& family,
                                       const partition::MigGeometry& geometry, std::size_t count,
                                       const std::string& measured) {
  if (family == "few") return bench::few_services(geometry, count);
  if (family == "three-sizes") return bench::three_sizes(geometry, count);
  if (family == "remainders") return bench::small_remainders(geometry, count);
  if (family == "many") return bench::many_services(geometry, count);
  if (family == "workloads") return bench::workloads(geometry);
  return bench::measured_tasks(measured, geometry, {1, 10});
}

}  // namespace

int main(int argc, char** argv) {
  std::string family = "few", geometry = "a100-40-strict", measured = "profiles/reference-a100-mig";
  double seconds = 1;
  std::uint32_t seeds = 5, count = 2;
  bench::Options command_line("Genetic and tree search against random search in the same time");
  command_line.add("--tasks", family)
      .one_of({"few", "three-sizes", "remainders", "many", "workloads", "measured"});
  command_line.add("--seconds", seconds, "of CPU time, each search and seed").positive();
  command_line.add("--seeds", seeds, "1 to this number").positive();
  command_line.add("--count", count, "tasks of the family, except workloads and measured")
      .positive();
  command_line.add("--geometry", geometry, "-strict at the end: no 3g beside a 4g");
  command_line.add("--measured", measured, "folder of the measured models and demands");
  if (const auto code = command_line.parse(argc, argv)) return *code;
  std::printf("task,services,greedy,bound,search,seed,devices,seconds_to_best,cpu_seconds\n");
  for (const bench::NamedTask& task :
       tasks_of(family, bench::geometry_of(geometry), count, measured))
    compare(task, seconds, seeds);
}
