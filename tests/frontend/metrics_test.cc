// The text of the metrics endpoint, and the machine's usage in it.
#include "frontend/observe/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/names.h"
#include "tests/support/serve/traffic.h"
#include "tests/support/source_file.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::frontend {
namespace {

using serve::testing::at_s;
using std::chrono::milliseconds;
using support::has_line;
using support::holds;
using support::source_file;

const StatusContext kContext{
    at_s(0), at_s(12), 1'700'000'012, 3, {std::chrono::milliseconds(7), "a plan", 2}};

// The status of a real core with two models on one device, one of them part of an application.
serve::FrontendStatus served_for_a_while() {
  using serve::testing::byte_model;
  profile::Profile profile = serve::testing::card_profile({{"a", 4}, {"b", 2}});
  profile.models.at("a").memory_mb = 100;
  const std::vector<serve::ServedModel> models = {byte_model("a", 100, 40),
                                                  byte_model("b", 100, 10)};
  serve::testing::World world({}, models, profile);
  config::ApplicationConfig graph;
  graph.name = "whole";
  graph.inputs = {{"x", DataType::uint8, {1}}};
  graph.slo_ms = 100;
  graph.nodes = {{"first", config::ModelCall{"b"}, {{{}, 0, {}}}, {{"y", DataType::uint8, {1}}}}};
  graph.answered = {{0, 0, {}}};
  graph.outputs = {{"y", DataType::uint8, {1}}};
  world.change_models_at(at_s(0.1), models, {}, {graph});
  world.add_backend("n0", 1, 1000);
  const std::uint64_t next = serve::testing::load(world, "a", 40, 2, 10, 1, 7);
  serve::testing::load(world, "whole", 10, 2, 10, next, 8);
  world.request_at(at_s(5), "a", 100'000, milliseconds(1));  // cannot meet its deadline
  world.run_until(at_s(12));
  return world.status();
}

struct Family {
  std::string type;
  std::set<std::string> labels;
  std::map<std::string, double> samples;  // by name and labels
};

// The names of the samples of a family.
std::set<std::string> names_of(const std::string& name, const std::string& type) {
  if (type == "summary") return {name, name + "_sum", name + "_count"};
  if (type != "histogram") return {name};
  return {name + "_bucket", name + "_sum", name + "_count"};
}

// Parses the text format: for each family a HELP line, a TYPE line, and its samples.
std::map<std::string, Family> parse(const std::string& text) {
  static const std::regex kSample(R"(([a-z0-9_]+)(?:\{(.*)\})? (\S+))");
  static const std::regex kLabel(R"re(([a-z_]+)="((?:[^"\\]|\\.)*)")re");
  std::map<std::string, Family> families;
  std::istringstream lines(text);
  std::string line;
  std::string current;
  std::string helped;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string hash;
    std::string kind;
    std::string name;
    words >> hash >> kind >> name;
    if (hash == "#" && kind == "HELP") {
      helped = name;
      continue;
    }
    if (hash == "#") {
      EXPECT_EQ(kind, "TYPE") << line;
      EXPECT_EQ(helped, name) << line;
      EXPECT_FALSE(families.contains(name)) << name << " is repeated";
      current = name;
      words >> families[current].type;
      continue;
    }
    std::smatch match;
    if (!std::regex_match(line, match, kSample)) {
      ADD_FAILURE() << "not a sample: " << line;
      continue;
    }
    Family& family = families[current];
    EXPECT_TRUE(names_of(current, family.type).contains(match[1])) << line;
    const std::string labels = match[2];
    for (std::sregex_iterator one(labels.begin(), labels.end(), kLabel), end; one != end; ++one)
      family.labels.insert((*one)[1]);
    const double value = std::stod(match[3]);
    EXPECT_TRUE(family.samples.emplace(match[1].str() + "{" + labels + "}", value).second) << line;
  }
  return families;
}

double sample(const std::map<std::string, Family>& families, const std::string& family,
              const std::string& name_and_labels) {
  const auto& samples = families.at(family).samples;
  const auto found = samples.find(name_and_labels);
  EXPECT_NE(found, samples.end()) << name_and_labels;
  return found == samples.end() ? -1 : found->second;
}

TEST(MetricsTest, TellHowGpuletsLoadedAndWhatTheyShareAndPrepare) {
  serve::FrontendStatus status = served_for_a_while();
  ASSERT_FALSE(status.gpulets.empty());
  serve::GpuletStatus& gpulet = status.gpulets[0];
  gpulet.gpulet.load_stages.warm = std::chrono::milliseconds(250);
  gpulet.gpulet.condition = {.sms = 16, .shared_sms = 8, .sizes_to_capture = 5};
  const std::string labels = "node=\"" + gpulet.gpulet.device.node + "\",device=\"" +
                             std::to_string(gpulet.gpulet.device.device) + "\",gpulet=\"" +
                             std::to_string(gpulet.id.value) + '"';
  const auto families = parse(metrics_text(status, kContext));
  const auto value = [&](const std::string& name, const std::string& more) {
    return sample(families, name, name + "{" + labels + more + "}");
  };
  EXPECT_EQ(value("gpulet_gpulet_loading_seconds", ",stage=\"warm\""), 0.25);
  EXPECT_EQ(value("gpulet_gpulet_loading_seconds", ",stage=\"read\""), 0);
  EXPECT_EQ(value("gpulet_gpulet_shared_sms", ""), 8);
  EXPECT_EQ(value("gpulet_gpulet_sizes_to_capture", ""), 5);
}

TEST(MetricsTest, DescribeARunningCore) {
  const serve::FrontendStatus status = served_for_a_while();
  const auto families = parse(metrics_text(status, kContext));
  for (const auto& [name, family] : families) {
    const bool ours = name.starts_with("gpulet_");
    EXPECT_TRUE(ours || name.starts_with("nv_")) << name;
    const bool counts = family.type == "counter";
    EXPECT_TRUE(!ours || counts == name.ends_with("_total")) << name;
  }
  for (const serve::ModelStatus& model : status.models) {
    const std::string labels = "model=\"" + model.name + "\",kind=\"" +
                               (model.application ? "application" : "model") + "\"";
    const auto served = static_cast<double>(model.counters.served);
    EXPECT_GT(served, 0);
    EXPECT_EQ(sample(families, "gpulet_requests_succeeded_total",
                     "gpulet_requests_succeeded_total{" + labels + "}"),
              served);
    const std::string latency = "gpulet_request_latency_seconds";
    EXPECT_EQ(sample(families, latency, latency + "_count{" + labels + "}"), served);
    EXPECT_EQ(sample(families, latency, latency + "_bucket{" + labels + ",le=\"+Inf\"}"), served);
    EXPECT_LE(sample(families, latency, latency + "_bucket{" + labels + ",le=\"0.001\"}"), served);
  }
  EXPECT_EQ(sample(families, "gpulet_requests_failed_total",
                   R"(gpulet_requests_failed_total{model="a",kind="model",reason="too_late"})"),
            1);
  EXPECT_EQ(sample(families, "gpulet_device_memory_bytes",
                   R"(gpulet_device_memory_bytes{node="n0",device="0",type="card"})"),
            1000.0 * 1024 * 1024);
  EXPECT_EQ(sample(families, "gpulet_start_time_seconds", "gpulet_start_time_seconds{}"),
            1'700'000'000);
}

TEST(MetricsTest, UseTritonsNamesLabelsAndUnits) {
  serve::FrontendStatus status;
  serve::ModelStatus model;
  model.name = "lenet";
  model.number = 2;
  model.queued = 4;
  model.counters.served = 2;
  model.statistics.add_batch(2,
                             {milliseconds(1), milliseconds(1), milliseconds(3), milliseconds(2)});
  for (int i = 0; i < 2; ++i) {
    model.statistics.add_success(
        {milliseconds(10), milliseconds(4), milliseconds(1), milliseconds(3), milliseconds(2)},
        at_s(1));
  }
  model.statistics.add_failure(StatusCode::too_late, {});
  model.statistics.add_failure(StatusCode::overloaded, {});
  model.statistics.add_failure(StatusCode::internal, {});
  model.statistics.add_failure(StatusCode::invalid, {});
  model.statistics.add_cancelled(3);
  status.models.push_back(model);
  const std::string text = metrics_text(status, kContext);
  const std::string of_model = R"({model="lenet",version="2"} )";
  for (const char* const line :
       {"nv_inference_request_success@2", "nv_inference_count@2", "nv_inference_exec_count@1",
        "nv_inference_pending_request_count@4", "nv_inference_request_duration_us@20000",
        "nv_inference_queue_duration_us@8000", "nv_inference_compute_input_duration_us@2000",
        "nv_inference_compute_infer_duration_us@6000",
        "nv_inference_compute_output_duration_us@4000",
        "nv_inference_first_response_histogram_ms_sum@20"}) {
    std::string expected = line;
    expected.replace(expected.find('@'), 1, of_model);
    EXPECT_TRUE(has_line(text, expected));
  }
  const std::string failure = R"(nv_inference_request_failure{model="lenet",version="2",reason=)";
  EXPECT_TRUE(has_line(text, failure + "\"REJECTED\"} 2"));
  EXPECT_TRUE(has_line(text, failure + "\"CANCELED\"} 3"));
  EXPECT_TRUE(has_line(text, failure + "\"BACKEND\"} 1"));
  EXPECT_TRUE(has_line(text, failure + "\"OTHER\"} 1"));
  EXPECT_TRUE(has_line(text, R"(gpulet_batch_size_bucket{model="lenet",kind="model",le="1"} 0)"));
  EXPECT_TRUE(has_line(text, R"(gpulet_batch_size_bucket{model="lenet",kind="model",le="2"} 1)"));
  EXPECT_TRUE(has_line(text, R"(gpulet_batch_size_sum{model="lenet",kind="model"} 2)"));
}

TEST(MetricsTest, IncludeSummariesOfLatenciesOnRequest) {
  serve::FrontendStatus status;
  serve::ModelStatus model;
  model.name = "lenet";
  for (int i = 0; i < 100; ++i) {
    const auto latency = i < 90 ? milliseconds(3) : milliseconds(30);
    model.statistics.add_success(
        {latency, milliseconds(1), milliseconds(1), milliseconds(1), milliseconds(0)}, at_s(1));
  }
  status.models.push_back(model);
  EXPECT_FALSE(holds(metrics_text(status, kContext), "_summary_us"));
  const auto families = parse(metrics_text(status, kContext, {.summaries = true}));
  const std::string name = "nv_inference_request_summary_us";
  const std::string labels = R"(model="lenet",version="1")";
  EXPECT_EQ(families.at(name).type, "summary");
  EXPECT_EQ(sample(families, name, name + "_count{" + labels + "}"), 100);
  EXPECT_EQ(sample(families, name, name + "_sum{" + labels + "}"), 570'000);
  double before = 0;
  for (const char* const quantile : {"0.5", "0.9", "0.95", "0.99", "0.999"}) {
    const double value =
        sample(families, name, name + "{" + labels + ",quantile=\"" + quantile + "\"}");
    EXPECT_GT(value, before);
    before = value;
    const bool low = std::string(quantile) <= "0.9";
    EXPECT_GT(value, low ? 2000 : 16000);  // the bucket's bounds
    EXPECT_LE(value, low ? 4000 : 32000);
  }
  for (const char* const part : {"queue", "compute_input", "compute_infer", "compute_output"}) {
    const std::string of_part = "nv_inference_" + std::string(part) + "_summary_us";
    EXPECT_EQ(sample(families, of_part, of_part + "_count{" + labels + "}"), 100);
  }
}

TEST(MetricsTest, IncludePowerOfDevicesThatReportIt) {
  serve::FrontendStatus status;
  status.devices.resize(2);
  status.devices[0].key = {"n0", 0};
  status.devices[0].power = {0, 312.5, 700, 5e6};
  status.devices[1].key = {"n0", 1};
  const auto families = parse(metrics_text(status, kContext));
  const auto exported = [&families](const std::string& name) {
    EXPECT_EQ(families.at(name).samples.size(), 1U) << name;
    return sample(families, name, name + R"({gpu_uuid="n0/0"})");
  };
  EXPECT_EQ(exported("nv_gpu_power_usage"), 312.5);
  EXPECT_EQ(exported("nv_gpu_power_limit"), 700);
  EXPECT_EQ(exported("nv_energy_consumption"), 5e6);
}

TEST(MetricsTest, CompareModelsWithTheirProfiles) {
  serve::FrontendStatus status;
  status.models.resize(1);
  status.models[0].name = "a";
  status.models[0].disturbs = "some of its batches take 300 ms instead of 1.0 ms";
  status.models[0].extra_headroom = 1.25;
  status.corrections = {{"a", "card", Share{40}, {"n0", 0}, 1.5, 30, 1000, 1.25}};
  const auto families = parse(metrics_text(status, kContext));
  const std::string labels = R"({model="a",device_type="card",size="40"})";
  for (const auto& [part, value] : std::map<std::string, double>{
           {"correction", 1.5}, {"correction_planned", 1.25}, {"correction_tail", 30}}) {
    const std::string name = "gpulet_model_" + part + "_ratio";
    EXPECT_EQ(sample(families, name, name + labels), value);
  }
  const std::string model = R"({model="a",kind="model"})";
  EXPECT_EQ(sample(families, "gpulet_model_disturbs", "gpulet_model_disturbs" + model), 1);
  EXPECT_EQ(sample(families, "gpulet_model_extra_headroom_ratio",
                   "gpulet_model_extra_headroom_ratio" + model),
            1.25);
}

TEST(MetricsTest, IncludeTheUsageOfTheMachine) {
  const auto families = parse(metrics_text(
      {}, kContext,
      {.machine = {.cpu = 0.25, .memory_total_bytes = 4096, .memory_used_bytes = 1024}}));
  EXPECT_EQ(sample(families, "nv_cpu_utilization", "nv_cpu_utilization{}"), 0.25);
  EXPECT_EQ(sample(families, "nv_cpu_memory_total_bytes", "nv_cpu_memory_total_bytes{}"), 4096);
  EXPECT_EQ(sample(families, "nv_cpu_memory_used_bytes", "nv_cpu_memory_used_bytes{}"), 1024);
  EXPECT_FALSE(parse(metrics_text({}, kContext)).contains("nv_cpu_utilization"));
}

TEST(MetricsTest, DescribeControlledModelsInSecondsAndCores) {
  serve::FrontendStatus status;
  status.models.resize(2);
  status.models[0].name = "free";
  EXPECT_FALSE(holds(metrics_text(status, kContext), "gpulet_control_"));
  status.models[1].name = "held";
  status.models[1].control = serve::ModelControlStatus{40, 38, 0.75, 2.5, 2, 60, 3, 900, 300, 95};
  status.controlled_nodes = {{{"n0", 1}, 8, 4, 3.5, 0.875}};
  const std::string text = metrics_text(status, kContext);
  EXPECT_FALSE(holds(text, R"(set_point_seconds{model="free")"));
  for (const char* const line :
       {"set_point_seconds@ 0.04", "response_seconds@ 0.038", "cores_asked@ 2.5", "cores_given@ 2",
        "core_seconds_total@ 95", "periods_total@ 60", "violated_periods_total@ 3"}) {
    std::string expected = "gpulet_control_" + std::string(line);
    expected.replace(expected.find('@'), 1, R"({model="held",kind="model"})");
    EXPECT_TRUE(has_line(text, expected));
  }
  const std::string requests =
      R"(gpulet_control_requests_total{model="held",kind="model",device_kind=)";
  EXPECT_TRUE(has_line(text, requests + "\"gpu\"} 900"));
  EXPECT_TRUE(has_line(text, requests + "\"cpu\"} 300"));
  const std::string cpu = R"({node="n0",device="1"} )";
  EXPECT_TRUE(has_line(text, "gpulet_control_node_cores" + cpu + "8"));
  EXPECT_TRUE(has_line(text, "gpulet_control_node_cores_asked" + cpu + "4"));
  EXPECT_TRUE(has_line(text, "gpulet_control_node_cores_given" + cpu + "3.5"));
  EXPECT_TRUE(has_line(text, "gpulet_control_contention_ratio" + cpu + "0.875"));
}

TEST(MetricsTest, DescribeExclusions) {
  serve::FrontendStatus status;
  serve::Exclusion node;
  node.node = "n0";
  node.cause = FailureCause::node_disk;
  serve::Exclusion device;
  device.node = "n1";
  device.device = 2;
  device.cause = FailureCause::hung;
  status.exclusions = {node, device};
  status.failures[FailureCause::node_disk] = 3;
  const auto families = parse(metrics_text(status, kContext));
  EXPECT_EQ(sample(families, "gpulet_exclusions", "gpulet_exclusions{}"), 2);
  EXPECT_EQ(sample(families, "gpulet_excluded",
                   R"(gpulet_excluded{node="n0",device="",cause="node_disk"})"),
            1);
  EXPECT_EQ(
      sample(families, "gpulet_excluded", R"(gpulet_excluded{node="n1",device="2",cause="hung"})"),
      1);
  EXPECT_EQ(sample(families, "gpulet_gpulet_failures_total",
                   R"(gpulet_gpulet_failures_total{cause="node_disk"})"),
            3);
}

TEST(MetricsTest, OmitEmptyFamilies) {
  const auto families = parse(metrics_text({}, kContext));
  EXPECT_TRUE(families.contains("gpulet_devices"));
  EXPECT_FALSE(families.contains("gpulet_requests_total"));
}

// ---- files that refer to metrics

std::set<std::string> matches(const std::string& text, const std::regex& pattern) {
  std::set<std::string> found;
  for (std::sregex_iterator one(text.begin(), text.end(), pattern), end; one != end; ++one)
    found.insert((*one)[1]);
  return found;
}

// Checks that every metric in the queries exists and has the labels that they use. Returns the
// number of metrics.
std::size_t check_queries(const std::string& queries, const std::set<std::string>& labels,
                          const std::map<std::string, std::set<std::string>>& exported) {
  static const std::regex kMetric(R"(\b((?:gpulet|nv)_[a-z0-9_]+))");
  const std::set<std::string> metrics = matches(queries, kMetric);
  for (const std::string& metric : metrics) {
    const auto found = exported.find(metric);
    if (found == exported.end()) {
      ADD_FAILURE() << metric << " is asked for and not exported, in: " << queries;
      continue;
    }
    for (const std::string& label : labels)
      EXPECT_TRUE(found->second.contains(label)) << metric << " has no label " << label;
  }
  return metrics.size();
}

std::set<std::string> grouping_labels(const std::string& query) {
  std::set<std::string> labels;
  for (const std::string& group : matches(query, std::regex(R"(\bby \(([^)]*)\))"))) {
    const std::set<std::string> some = matches(group, std::regex(R"(\b([a-z_]+)\b)"));
    labels.insert(some.begin(), some.end());
  }
  return labels;
}

std::map<std::string, std::set<std::string>> told_names() {
  std::map<std::string, std::set<std::string>> exported;
  for (const auto& [name, family] : parse(metrics_text(served_for_a_while(), kContext))) {
    for (const std::string& sample : names_of(name, family.type)) exported[sample] = family.labels;
  }
  return exported;
}

TEST(MetricsTest, GrafanaDashboardRefersToExistingMetrics) {
  const auto exported = told_names();
  const auto board = nlohmann::json::parse(source_file("docker/grafana/gpulet.json"));
  std::size_t found = 0;
  std::set<int> ids;
  for (const auto& panel : board["panels"]) {
    EXPECT_TRUE(ids.insert(panel["id"].get<int>()).second);
    for (const auto& target : panel.value("targets", nlohmann::json::array())) {
      const std::string query = target["expr"];
      std::set<std::string> labels = grouping_labels(query);
      labels.merge(matches(target["legendFormat"], std::regex(R"(\{\{([a-z_]+)\}\})")));
      const std::size_t metrics = check_queries(query, labels, exported);
      EXPECT_GT(metrics, 0U) << query;
      found += metrics;
    }
  }
  EXPECT_GT(found, 20U);
  const auto& variables = board["templating"]["list"];
  EXPECT_EQ(variables[0]["type"], "datasource");
  EXPECT_GT(check_queries(variables[1]["definition"], {"model"}, exported), 0U);
  EXPECT_GT(check_queries(board["annotations"]["list"][0]["expr"], {}, exported), 0U);
}

TEST(MetricsTest, PrometheusRulesReferToExistingMetrics) {
  const auto exported = told_names();
  EXPECT_TRUE(holds(source_file("docker/prometheus.yml"), "- gpulet-rules.yml"));
  const std::string rules = source_file("docker/gpulet-rules.yml");
  EXPECT_GT(check_queries(rules, {}, exported), 3U);
  EXPECT_EQ(check_queries(source_file("docker/prometheus.yml"), {}, exported), 0U);
  std::size_t grouped = 0;
  static const std::regex kSum(R"(sum by \(([a-z_, ]+)\) \((?:rate\()?([a-z_]+))");
  for (std::sregex_iterator one(rules.begin(), rules.end(), kSum), end; one != end; ++one) {
    const std::string query = one->str();
    grouped += check_queries(query, grouping_labels(query), exported);
  }
  EXPECT_GT(grouped, 3U);
}

class MachineUsageTest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) { folder_.write(name, text); }

  support::TemporaryFolder folder_;
  MachineWatch watch_{folder_.path()};
};

TEST_F(MachineUsageTest, CpuUsageIsSinceTheLastSample) {
  write("stat", "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3\n");
  EXPECT_EQ(watch_.sample().cpu, std::nullopt);
  write("stat", "cpu  120 10 120 740 110 0 0 0 0 0\n");  // 100 more, 50 of them idle
  EXPECT_EQ(watch_.sample().cpu, 0.5);
  EXPECT_EQ(watch_.sample().cpu, 0.5);  // no ticks since then
}

TEST_F(MachineUsageTest, AvailableMemoryIsNotUsed) {
  write("meminfo", "MemTotal:  1000 kB\nMemFree:  100 kB\nMemAvailable:  400 kB\nHugePages: 0\n");
  const MachineUsage usage = watch_.sample();
  EXPECT_EQ(usage.memory_total_bytes, 1000U * 1024);
  EXPECT_EQ(usage.memory_used_bytes, 600U * 1024);
}

TEST_F(MachineUsageTest, OmitsUnreadableFigures) {
  write("stat", "intr 5\n");
  write("meminfo", "MemTotal: many kB\n");
  const MachineUsage usage = watch_.sample();
  EXPECT_EQ(usage.cpu, std::nullopt);
  EXPECT_EQ(usage.memory_total_bytes, std::nullopt);
  EXPECT_EQ(usage.memory_used_bytes, std::nullopt);
}

TEST(MetricsTest, DescribeACluster) {
  serve::FrontendStatus status;
  EXPECT_FALSE(parse(metrics_text(status, kContext)).contains("gpulet_cluster_leads"));
  status.leadership = {true, false, Term{17}, "f1", 4};
  status.forwarding.waiting = 3;
  status.forwarding.sent = 20;
  status.forwarding.answered = 15;
  status.forwarding.failed = 2;
  StatusContext context = kContext;
  context.cluster.emplace();
  context.cluster->members = {{"f0", "a:1"}, {"f1", "b:1"}};
  context.cluster->store = cluster::StoreState::away;
  const auto families = parse(metrics_text(status, context));
  const auto value = [&](const std::string& name, const std::string& labels = "") {
    return sample(families, name, name + "{" + labels + "}");
  };
  EXPECT_EQ(value("gpulet_cluster_leads"), 0);
  EXPECT_EQ(value("gpulet_cluster_term"), 17);
  EXPECT_EQ(value("gpulet_cluster_members"), 2);
  EXPECT_EQ(value("gpulet_cluster_superseded_total"), 4);
  EXPECT_EQ(value("gpulet_cluster_forwards_waiting"), 3);
  EXPECT_EQ(value("gpulet_cluster_forwards_sent_total"), 20);
  EXPECT_EQ(value("gpulet_cluster_forwards_total", "outcome=\"answered\""), 15);
  EXPECT_EQ(value("gpulet_cluster_forwards_total", "outcome=\"failed\""), 2);
  EXPECT_EQ(value("gpulet_cluster_store_state", "state=\"away\""), 1);
  EXPECT_EQ(value("gpulet_cluster_store_state", "state=\"here\""), 0);
}

}  // namespace
}  // namespace gpulet::frontend
