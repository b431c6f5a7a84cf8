#include "gpulet/config/cluster_config.h"

#include "config/devices.h"
#include "config/loading.h"
#include "gpulet/config/csv.h"

namespace gpulet::config {
namespace {

constexpr int kDefaultSizes[] = {20, 40, 50, 60, 80, 100};  // what the reference measurements have
constexpr std::uint32_t kMostDevices = 4096;
constexpr std::uint32_t kMostPartitions = 100;
constexpr std::uint32_t kHighestCore = 4095;
constexpr std::uint32_t kLargestBatch = 1024;

std::vector<Share> read_sizes(const JsonCursor& cursor) {
  std::vector<Share> sizes;
  for (const JsonCursor& element :
       cursor.elements("a list of percentages: [20,40,60,80,100]", 1, 100)) {
    const Share size{static_cast<int>(element.integer(1, 100))};
    if (!sizes.empty() && size <= sizes.back()) {
      element.fail(std::to_string(size.percent) + " does not exceed the size before it",
                   "write every size once, in ascending order");
    }
    sizes.push_back(size);
  }
  return sizes;
}

std::vector<std::uint32_t> read_cores(const JsonCursor& cursor, const DeviceConfig& device) {
  if (device.partitioning != "cpu_quota") {
    cursor.fail(
        "cores belong to devices partitioned by cpu_quota; this one says " + device.partitioning,
        "take the cores out");
  }
  std::vector<std::uint32_t> cores;
  for (const JsonCursor& element :
       cursor.elements("a list of core numbers: [0,1]", 1, kHighestCore + 1)) {
    cores.push_back(element.count(0, kHighestCore));
  }
  if (device.count != 0 && cores.size() % device.count != 0) {
    cursor.fail(std::to_string(cores.size()) + " cores cannot be dealt out equally to " +
                    std::to_string(device.count) + " devices",
                "write as many cores for every device");
  }
  return cores;
}

DeviceConfig read_device(const JsonCursor& cursor) {
  static const std::vector<std::string_view> partitionings = {"mps", "mig", "green", "cpu_quota",
                                                              "simulated"};
  cursor.allow_keys(
      {"type", "count", "partitioning", "sizes", "max_partitions", "memory_mb", "cores"});
  DeviceConfig device;
  device.type = cursor.required("type").name();
  device.partitioning = partitionings[cursor.required("partitioning").choice(partitionings)];
  if (const auto count = cursor.find("count")) device.count = count->count(1, kMostDevices);
  if (const auto sizes = cursor.find("sizes")) {
    device.sizes = read_sizes(*sizes);
  } else {
    for (const int percent : kDefaultSizes) device.sizes.push_back(Share{percent});
  }
  if (const auto most = cursor.find("max_partitions"))
    device.max_partitions = most->count(1, kMostPartitions);
  if (const auto memory = cursor.find("memory_mb")) device.memory_mb = memory->number(at_least(0));
  if (const auto cores = cursor.find("cores")) device.cores = read_cores(*cores, device);
  return device;
}

NodeConfig read_node(const JsonCursor& cursor) {
  cursor.allow_keys({"name", "devices"});
  NodeConfig node;
  node.name = cursor.required("name").name();
  node.devices = read_devices(cursor.required("devices"));
  return node;
}

DemandConfig read_demand(const JsonCursor& cursor) {
  cursor.allow_keys({"name", "rate", "slo_ms", "max_batch"});
  DemandConfig demand;
  demand.name = cursor.required("name").name();
  demand.rate = cursor.required("rate").number(at_least(0));
  demand.slo_ms = cursor.required("slo_ms").number(above(0));
  if (const auto batch = cursor.find("max_batch"))
    demand.max_batch = batch->count(1, kLargestBatch);
  return demand;
}

}  // namespace

std::vector<DeviceConfig> read_devices(const JsonCursor& cursor) {
  std::vector<DeviceConfig> devices;
  std::set<std::uint32_t> taken;
  for (const JsonCursor& element : cursor.elements("a list of devices", 1)) {
    devices.push_back(read_device(element));
    for (const std::uint32_t core : devices.back().cores) {
      if (!taken.insert(core).second) {
        element.required("cores").fail(
            "core " + std::to_string(core) + " is listed twice in this node",
            "give every core to one device only");
      }
    }
  }
  return devices;
}

Result<std::vector<NodeConfig>> parse_cluster(std::string_view text,
                                              const std::filesystem::path& file) {
  return parse_document(text, file, [](const JsonCursor& root) {
    root.allow_keys({"nodes"});
    std::vector<NodeConfig> nodes;
    UniqueNames names("node");
    for (const JsonCursor& element : root.required("nodes").elements("a list of nodes", 1)) {
      nodes.push_back(read_node(element));
      names.add(nodes.back().name, element.required("name"));
    }
    return nodes;
  });
}

Result<std::vector<DemandConfig>> parse_demand(std::string_view text,
                                               const std::filesystem::path& file) {
  return parse_document(text, file, [](const JsonCursor& root) {
    root.allow_keys({"models"});
    std::vector<DemandConfig> demands;
    UniqueNames names("model");
    for (const JsonCursor& element : root.required("models").elements("a list of models", 1)) {
      demands.push_back(read_demand(element));
      names.add(demands.back().name, element.required("name"));
    }
    return demands;
  });
}

Result<Scenarios> parse_scenarios(std::string_view text, const std::filesystem::path& file) {
  Result<CsvReader> opened = CsvReader::parse(std::string(text), file.string());
  if (!opened.ok()) return opened.status();
  CsvReader& reader = opened.value();
  Scenarios scenarios;
  scenarios.models = reader.columns();
  for (const std::string& model : scenarios.models) {
    if (!is_name(model))
      reader.fail("a column has no model's name: \"" + model + '"', "name one model per column");
  }
  while (reader.next()) {
    std::vector<double>& rates = scenarios.rates.emplace_back();
    for (std::size_t column = 0; column < scenarios.models.size(); ++column) {
      rates.push_back(reader.number(column, at_least(0)));
    }
  }
  if (scenarios.rates.empty()) reader.fail("no row of rates follows", "write one row per scenario");
  if (!reader.status().ok()) return reader.status();
  return scenarios;
}

Result<std::vector<NodeConfig>> load_cluster(const std::filesystem::path& file) {
  return load_file(file, parse_cluster);
}

Result<std::vector<DemandConfig>> load_demand(const std::filesystem::path& file) {
  return load_file(file, parse_demand);
}

Result<Scenarios> load_scenarios(const std::filesystem::path& file) {
  return load_file(file, parse_scenarios);
}

}  // namespace gpulet::config
