#include <array>
#include <utility>
#include <vector>

#include "metric_families.h"

namespace gpulet::frontend {
namespace {

struct Client {
  const std::string* token;
  const net::ClientCounters* counters;
};

constexpr std::array kOfClients{
    Measure<Client>{"gpulet_client_requests_total",
                    "Requests of the token that were let through; empty: without a token.",
                    MetricType::Counter,
                    [](const Client& one) { return number(one.counters->requests); }},
    Measure<Client>{"gpulet_client_device_seconds_total",
                    "Time of whole devices that these were planned to take.", MetricType::Counter,
                    [](const Client& one) { return one.counters->device_s; }},
    Measure<Client>{"gpulet_client_denied_total",
                    "Calls for inferences without the right to make them.", MetricType::Counter,
                    [](const Client& one) { return number(one.counters->denied); }},
};

}  // namespace

void add_client_families(Families& families, const net::CountersByClient& clients) {
  std::vector<Client> rows;
  for (const auto& [token, counters] : clients) rows.push_back({&token, &counters});
  add_measures(families, kOfClients, rows, [](const Client& one) {
    return Labels{{"token", *one.token}};
  });
  prometheus::MetricFamily limited{"gpulet_client_limited_total",
                                   "Calls that were refused for a limit of the token or address.",
                                   MetricType::Counter,
                                   {}};
  for (const Client& one : rows) {
    const std::array<std::pair<const char*, std::uint64_t>, 3> by_limit{
        {{"requests_per_s", one.counters->limited_requests},
         {"device_ms_per_s", one.counters->limited_device_time},
         {"max_requests", one.counters->limited_under_way}}};
    for (const auto& [limit, count] : by_limit) {
      limited.metric.push_back(
          metric_of(MetricType::Counter, number(count), {{"token", *one.token}, {"limit", limit}}));
    }
  }
  families.push_back(std::move(limited));
}

}  // namespace gpulet::frontend
