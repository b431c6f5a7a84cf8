#include "gpulet/config/cluster_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "config/file_readers.h"
#include "config/reading.h"

namespace gpulet::config {
namespace {

// The default of "sizes": the sizes of the reference profiles.
constexpr Share kDefaultSizes[] = {Share{20}, Share{40}, Share{50},
                                   Share{60}, Share{80}, Share{100}};
constexpr std::uint32_t kMostDevices = 4096;
constexpr std::uint32_t kMostPartitions = 100;
constexpr std::uint32_t kHighestCore = 4095;
constexpr std::uint32_t kHighestGpu = 4095;
constexpr std::string_view kWrite = "write ";
constexpr std::string_view kGpuFix =
    "write its number or its UUID, as `gpulet devices` lists them: 0 or \"GPU-5c3d...\"";
constexpr std::uint32_t kMostProcesses = 8;  // per MIG instance
constexpr std::uint32_t kMostCalls = 64;     // of a request: as many as an application has nodes
constexpr std::uint32_t kMostConcurrency = 65536;
constexpr std::uint32_t kLongestRequest = 1U << 20U;  // of a model with dynamic dimensions

std::vector<Share> read_sizes(const JsonCursor& cursor) {
  std::vector<Share> sizes;
  for (const JsonCursor& element :
       cursor.elements("a list of percentages: [20,40,60,80,100]", 1, 100)) {
    const Share size{static_cast<int>(element.integer(1, 100))};
    if (!sizes.empty() && size <= sizes.back()) {
      element.fail(fmt::format("{} does not exceed the size before it", size.percent),
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
    cursor.fail(fmt::format("{} cores cannot be divided equally among {} devices", cores.size(),
                            device.count),
                "write the same number of cores for every device");
  }
  return cores;
}

double read_core_count(const JsonCursor& cursor, const DeviceConfig& device) {
  if (device.partitioning != "simulated") {
    cursor.fail("core_count belongs to simulated devices; this one says " + device.partitioning,
                device.partitioning == "cpu_quota" ? "write its cores, for example \"cores\":[0,1]"
                                                   : "take the core_count out");
  } else if (device.geometry) {
    cursor.fail("a device that MIG divides has no CPU cores",
                "take the core_count or the geometry out");
  }
  return cursor.number(up_to(kHighestCore + 1));
}

bool names_gpu(const std::string& text) {
  constexpr std::string_view kUuidStart = "GPU-";
  if (text.starts_with(kUuidStart)) return text.size() > kUuidStart.size();
  // One spelling per number, so that a GPU cannot be listed twice.
  const auto number = parse_number<std::uint32_t>(text);
  return number && *number <= kHighestGpu && std::to_string(*number) == text;
}

// As text, also where the file has a number.
std::string read_gpu(const JsonCursor& cursor, const DeviceConfig& device) {
  if (!is_on_gpu(device)) {
    cursor.fail("a gpu belongs to devices partitioned by mps, green or mig; this one says " +
                    device.partitioning,
                "take the gpu out");
  }
  if (device.count != 1) {
    cursor.fail(fmt::format("{} devices cannot be one GPU", device.count),
                "describe each with its own gpu, or take the gpu out");
  }
  if (cursor.type() != JsonCursor::Type::text) return std::to_string(cursor.count(0, kHighestGpu));
  std::string gpu = cursor.text(kGpuFix.substr(kWrite.size()));
  if (!names_gpu(gpu)) cursor.fail(in_quotes(gpu) + " names no GPU", kGpuFix);
  return gpu;
}

std::optional<partition::MigGeometry> find_geometry(const JsonCursor& cursor,
                                                    const DeviceConfig& device) {
  const auto named = cursor.find("geometry");
  if (named && device.partitioning != "mig" && device.partitioning != "simulated") {
    named->fail("a geometry belongs to devices partitioned by mig or simulated; this one says " +
                    device.partitioning,
                "take the geometry out");
  }
  const auto names = partition::MigGeometry::names();
  if (device.partitioning == "mig" && !named) {
    if (auto typed = partition::MigGeometry::of(device.type); typed.ok()) return typed.value();
  } else if (!named) {
    return std::nullopt;
  }
  return partition::MigGeometry::of(names[cursor.required("geometry").choice(names)]).value();
}

void read_instances(const JsonCursor& cursor, DeviceConfig& device) {
  device.geometry = find_geometry(cursor, device);
  const auto beside = cursor.find("allow_3g_beside_4g");
  const auto processes = cursor.find("processes_per_instance");
  if (!device.geometry) {
    constexpr std::string_view kWhat = "applies to MIG instances, and this device has none";
    constexpr std::string_view kFix = "take it out, or name a \"geometry\"";
    if (beside) beside->fail(kWhat, kFix);
    if (processes) processes->fail(kWhat, kFix);
    return;
  }
  if (beside && !beside->boolean()) device.geometry = device.geometry->without_3g_beside_4g();
  if (processes) device.processes_per_instance = processes->count(1, kMostProcesses);
  for (const partition::MigProfile& profile : device.geometry->profiles()) {
    device.sizes.push_back(device.geometry->share_of(profile.slices));
  }
  device.max_partitions = device.geometry->compute_slices() * device.processes_per_instance;
  if (const auto sizes = cursor.find("sizes")) {
    sizes->fail(
        "the sizes of instances are those of the geometry " + std::string(device.geometry->name()),
        "take the sizes out");
  }
}

DeviceConfig read_device(const JsonCursor& cursor) {
  DeviceConfig device;
  const auto partitioning = [&](const JsonCursor& at) {
    choice(device.partitioning, {"mps", "mig", "green", "cpu_quota", "simulated"}).read(at);
    if (at.valid()) read_instances(cursor, device);
  };
  // read_instances() reports a list beside a geometry, which decides the sizes of its instances.
  const auto sizes = [&device](const JsonCursor& at) { device.sizes = read_sizes(at); };
  ObjectReader(cursor)
      .required("type", name(device.type),
                "The type of the device, by which it is found in the profiles.")
      .optional("count", count(device.count, 1, kMostDevices), "How many devices this entry is.")
      .required("partitioning", partitioning, "How the device is divided (docs/gpu.md).")
      .optional(
          "sizes",
          Reader(sizes, as_json(std::vector(std::begin(kDefaultSizes), std::end(kDefaultSizes)))),
          "The sizes that gpulets may have, in percent, ascending. MIG's are those of the "
          "geometry.")
      .optional("max_partitions", count(device.max_partitions, 1, kMostPartitions),
                "Gpulets at a time. Of MIG: as many processes as fit the slices.")
      .optional("memory_mb", number(device.memory_mb, at_least(0)),
                "The memory of the device; 0: not limited. A backend takes a GPU's own where the "
                "key is absent.")
      .optional("cores", elsewhere(),
                "Of `cpu_quota`: the cores, divided among the `count` devices in equal runs. "
                "Required where the node has other devices. Default: all.")
      .optional("core_count", elsewhere(),
                "Of `simulated`: a CPU with so many cores, which controlled model instances share "
                "(docs/control.md). Default: not a CPU.")
      .optional("gpu", elsewhere(kGpuFix.substr(kWrite.size())),
                "Of `mps`, `mig` and `green`: which GPU it is. Required where the node has several "
                "such entries. Default: the machine's GPUs in order.")
      .optional("geometry", elsewhere(),
                "Of `mig` and `simulated`: the instances that MIG can make (docs/mig.md). Default: "
                "that of the `type`, where it is one of these, for `mig`.")
      .optional("allow_3g_beside_4g", elsewhere({}, "true"),
                "With a geometry: `false` excludes 3g beside a 4g, as early drivers do.")
      .optional("processes_per_instance", elsewhere({}, as_json(device.processes_per_instance)),
                "With a geometry: the most processes of one model in an instance, side by side "
                "under MPS.")
      .read();
  if (device.sizes.empty()) device.sizes.assign(std::begin(kDefaultSizes), std::end(kDefaultSizes));
  if (!cursor.required("partitioning").valid()) return device;  // the others depend on it
  if (const auto cores = cursor.find("cores")) device.cores = read_cores(*cores, device);
  if (const auto cores = cursor.find("core_count"))
    device.core_count = read_core_count(*cores, device);
  if (const auto gpu = cursor.find("gpu")) device.gpu = read_gpu(*gpu, device);
  return device;
}

NodeConfig read_node(const JsonCursor& cursor) {
  NodeConfig node;
  ObjectReader(cursor)
      .required("name", name(node.name), "The name of the node.")
      .required("devices", into(node.devices, read_devices), "Its devices.")
      .read();
  return node;
}

// The name of a model, of a bucket (NAME@LENGTH) or of an application.
std::string planned_name(const JsonCursor& cursor) {
  const std::string text =
      cursor.type() == JsonCursor::Type::text ? cursor.text("a name") : std::string();
  return is_planned_name(text) ? text : cursor.name();
}

DemandConfig read_demand(const JsonCursor& cursor) {
  DemandConfig demand;
  ObjectReader(cursor)
      .required("name", into(demand.name, planned_name),
                "The model in the profiles; a bucket of a model with dynamic dimensions is "
                "`NAME@LENGTH`.")
      .required("rate", number(demand.rate, at_least(0)), "Requests per second.")
      .required("slo_ms", number(demand.slo_ms, above(0)),
                "The objective: the time from a request's arrival to its answer.")
      .optional("max_batch", count(demand.max_batch, 1, kLargestBatch),
                "The largest batch that a plan may choose.")
      .read();
  return demand;
}

// The indices of the named nodes, which must be among `before`.
std::vector<std::size_t> resolve_after(const std::vector<JsonCursor>& after,
                                       const std::vector<DemandNode>& before) {
  std::vector<std::size_t> nodes;
  for (const JsonCursor& edge : after) {
    const std::string from = edge.name();
    if (!edge.valid()) continue;
    const auto found = std::find_if(before.begin(), before.end(),
                                    [&](const DemandNode& one) { return one.name == from; });
    const auto index = static_cast<std::size_t>(found - before.begin());
    if (found == before.end()) {
      edge.fail("no node " + in_quotes(from) + " precedes this one",
                "name a node that is listed before it");
    } else if (std::count(nodes.begin(), nodes.end(), index) > 0) {
      edge.fail("the node " + in_quotes(from) + " is named twice", "name it once");
    } else {
      nodes.push_back(index);
    }
  }
  return nodes;
}

std::vector<DemandNode> read_calls(const JsonCursor& list,
                                   const std::vector<DemandConfig>& models) {
  std::vector<DemandNode> nodes;
  UniqueNames names("node");
  std::uint32_t calls = 0;
  for (const JsonCursor& element : list.elements("a list of 1 to 64 nodes", 1, kMostCalls)) {
    DemandNode node;
    ObjectReader(element)
        .required("name", name(node.name), "The name of the node, unique in the application.")
        .required("model", into(node.model, planned_name), "A model of this file.")
        .optional("count", count(node.count, 1, kMostCalls),
                  "How many calls it makes, all at the same time.")
        .optional(
            "after",
            [&](const JsonCursor& at) {
              node.after = resolve_after(
                  at.elements("a list of names of earlier nodes", 1, kMostCalls), nodes);
            },
            "It calls when all calls of these nodes are answered. Default: when the request "
            "arrives.")
        .read();
    names.add(node.name, element.required("name"));
    if (const JsonCursor place = element.required("model"); place.status().ok())
      (void)find_model(place, node.model, models);
    calls += node.count;
    nodes.push_back(std::move(node));
  }
  if (calls > kMostCalls && list.valid()) {
    list.fail(fmt::format("a request makes {} calls, more than {}", calls, kMostCalls),
              "lower the counts");
  }
  return nodes;
}

ApplicationDemand read_demanded_application(const JsonCursor& cursor,
                                            const std::vector<DemandConfig>& models) {
  ApplicationDemand application;
  ObjectReader(cursor)
      .required("name", name(application.name),
                "The name of the application, unique among models and applications.")
      .required("rate", number(application.rate, at_least(0)), "Requests per second.")
      .required("slo_ms", number(application.slo_ms, above(0)),
                "The objective of the whole request.")
      .required(
          "nodes", [&](const JsonCursor& at) { application.nodes = read_calls(at, models); },
          "The calls of one request, 64 at most.")
      .read();
  return application;
}

WorkloadInput read_input(const JsonCursor& cursor) {
  WorkloadInput input;
  ObjectReader(cursor)
      .required("file", path(input.file, "the path of a file of raw inputs"),
                "Raw requests: little endian, the model's inputs in order.")
      .optional("labels", path(input.labels, "the path of a file with one label per line"),
                "One whole number per request, compared with the position of the highest number of "
                "the first output. Default: nothing is compared.")
      .read();
  return input;
}

// An open loop has a rate; a closed loop has a number of requests in flight.
WorkloadModel read_workload_model(const JsonCursor& cursor) {
  WorkloadModel model;
  const auto rate = [&model](const JsonCursor& at) {
    if (model.arrivals != Arrivals::closed) {
      model.rate = at.number(at_least(0));
    } else if (at.type() != JsonCursor::Type::missing) {
      at.fail("a closed loop has no rate: it sends the next request after each response",
              "take it out, or write \"arrivals\":\"poisson\"");
    }
  };
  const auto concurrency = [&model](const JsonCursor& at) {
    if (model.arrivals != Arrivals::closed) {
      at.fail("only a closed loop has a concurrency",
              "take it out, or write \"arrivals\":\"closed\"");
    }
    count(model.concurrency, 1, kMostConcurrency).read(at);
  };
  const auto lengths = [&model](const JsonCursor& at) {
    const auto limits = at.elements("the shortest and the longest length: [8,128]", 2, 2);
    if (!at.valid()) return;
    const std::uint32_t least = limits[0].count(1, kLongestRequest);
    model.lengths.emplace(least, limits[1].count(least, kLongestRequest));
  };
  const auto ranges = [&model](const JsonCursor& at) {
    for (const auto& [input, range] : at.members()) {
      const auto bounds = range.elements("the least and the greatest value: [0,29999]", 2, 2);
      if (!range.valid()) continue;
      model.ranges.emplace(
          input, ValueRange{bounds[0].number(NumberRange{}), bounds[1].number(NumberRange{})});
    }
  };
  ObjectReader(cursor)
      .required("name", into(model.name, planned_name), "The model or application to request.")
      .optional(
          "arrivals", choice(model.arrivals, {"poisson", "uniform", "closed"}),
          "Open loops at `rate` with random or equal distances, or a closed loop, which sends "
          "the next request after each response.")
      .required("rate", rate, "Requests per second of an open loop. A closed loop has none.")
      .required("slo_ms", number(model.slo_ms, above(0)),
                "The objective by which answers are counted as late.")
      .optional("concurrency", Reader(concurrency, as_json(model.concurrency)),
                "Of a closed loop: the requests in flight.")
      .optional("input", into(model.input, read_input),
                "The requests to send. Default: random ones from a seed.")
      .optional("lengths", lengths,
                "Of a model with dynamic dimensions: the shortest and the longest request. All "
                "lengths between them are equally frequent. Default: those of its buckets.")
      .optional("ranges", ranges,
                "By input: the least and the greatest of its random values. Default: 0 to 1 of "
                "floating point, 0 to 999 of integers.")
      .read();
  return model;
}

}  // namespace

bool is_on_gpu(const DeviceConfig& device) {
  return device.partitioning == "mps" || device.partitioning == "green" ||
         device.partitioning == "mig";
}

std::vector<DeviceConfig> read_devices(const JsonCursor& cursor) {
  std::vector<DeviceConfig> devices;
  std::set<std::uint32_t> cores;
  std::set<std::string> gpus;
  for (const JsonCursor& element : cursor.elements("a list of devices", 1)) {
    devices.push_back(read_device(element));
    for (const std::uint32_t core : devices.back().cores) {
      if (!cores.insert(core).second) {
        element.required("cores").fail(fmt::format("core {} is listed twice in this node", core),
                                       "give every core to one device only");
      }
    }
    const std::string& gpu = devices.back().gpu;
    if (!gpu.empty() && !gpus.insert(gpu).second) {
      element.required("gpu").fail("gpu " + in_quotes(gpu) + " is listed twice in this node",
                                   "describe every GPU once");
    }
  }
  return devices;
}

std::vector<NodeConfig> read_nodes(const JsonCursor& root) {
  std::vector<NodeConfig> nodes;
  ObjectReader(root).required("nodes", named(nodes, "node", read_node), "The machines.").read();
  return nodes;
}

DemandFile read_demands(const JsonCursor& root) {
  DemandFile demand;
  const auto read = [&demand](const JsonCursor& element) {
    return read_demanded_application(element, demand.models);
  };
  ObjectReader(root)
      .required("models", named(demand.models, "model", read_demand), "The models to plan for.")
      .optional("applications", named_beside(demand.applications, demand.models, read),
                "Applications that call these models (docs/applications.md). Default: none.")
      .read();
  return demand;
}

std::vector<WorkloadModel> read_workload(const JsonCursor& root) {
  std::vector<WorkloadModel> models;
  ObjectReader(root)
      .required("models", named(models, "model", read_workload_model), "The models to request.")
      .read();
  return models;
}

Result<std::vector<NodeConfig>> parse_cluster(std::string_view text,
                                              const std::filesystem::path& file,
                                              std::vector<Status>* errors) {
  return parse_document(text, file, errors, read_nodes);
}

Result<DemandFile> parse_demand(std::string_view text, const std::filesystem::path& file,
                                std::vector<Status>* errors) {
  return parse_document(text, file, errors, read_demands);
}

Result<Scenarios> parse_scenarios(std::string_view text, const std::filesystem::path& file) {
  GPULET_TRY(CsvReader reader, CsvReader::parse(std::string(text), file.string()));
  Scenarios scenarios;
  scenarios.models = reader.columns();
  for (const std::string& model : scenarios.models) {
    if (!is_planned_name(model))
      reader.fail(fmt::format("a column is not named after a model: \"{}\"", model),
                  "name one model per column");
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

Result<std::vector<WorkloadModel>> parse_workload(std::string_view text,
                                                  const std::filesystem::path& file,
                                                  std::vector<Status>* errors) {
  return parse_document(text, file, errors, read_workload);
}

Result<std::vector<NodeConfig>> load_cluster(const std::filesystem::path& file) {
  return load_file(file, parse_cluster);
}

Result<DemandFile> load_demand(const std::filesystem::path& file) {
  return load_file(file, parse_demand);
}

Result<std::vector<WorkloadModel>> load_workload(const std::filesystem::path& file) {
  return load_file(file, parse_workload);
}

Result<Scenarios> load_scenarios(const std::filesystem::path& file) {
  const Result<std::string> text = read_text(file);
  return text.ok() ? parse_scenarios(text.value(), file) : text.status();
}

}  // namespace gpulet::config
