#include "tools/serve/serving_files.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>
#include <utility>

#include "gpulet/base/files.h"
#include "gpulet/core/bucket.h"
#include "gpulet/profile/store.h"
#include "tools/serve/serving_devices.h"

namespace gpulet::tools {
namespace {

using Json = nlohmann::ordered_json;

// A model that gets more requests is planned for them within a second.
constexpr double kFirstRate = 1;

std::string text_of(const config::Endpoint& endpoint) { return config::to_string(endpoint); }

Json tensors_of(const std::vector<TensorSpec>& specs) {
  Json tensors = Json::array();
  for (const TensorSpec& spec : specs) {
    tensors.push_back({{"name", spec.name}, {"type", to_string(spec.type)}, {"shape", spec.shape}});
    if (spec.type == DataType::bytes) tensors.back()["max_bytes"] = spec.max_bytes;
  }
  return tensors;
}

const char* format_text(bool channels_last) { return channels_last ? "NHWC" : "NCHW"; }

// The key "from" of an input. `image`: it has formats.
Json from_of(const InputConversion& conversion, bool image) {
  Json from = {{"type", to_string(DataType::uint8)},
               {"scale", conversion.scale},
               {"mean", conversion.mean},
               {"std", conversion.deviation}};
  if (image) from["format"] = format_text(conversion.from_channels_last);
  return from;
}

// As the entry declares it: what the model takes, and how an image becomes that.
Json image_of(const TensorSpec& spec) {
  const image::Preprocessing& image = *spec.image;
  const TensorSpec tensor = model_input(spec);
  Json json = {{"name", spec.name},
               {"type", to_string(tensor.type)},
               {"shape", tensor.shape},
               {"format", format_text(image.layout == image::Layout::nhwc)},
               {"encoded", true},
               {"max_bytes", spec.max_bytes},
               {"max_megapixels", image.max_megapixels}};
  if (image.shorter_side > 0) json["resize"] = image.shorter_side;
  if (tensor.type == DataType::uint8) return json;
  json["scale"] = 1;
  for (std::size_t i = 0; i < image::kChannels; ++i) {
    json["mean"].push_back(image.mean[i]);
    json["std"].push_back(1 / static_cast<double>(image.scale[i]));
  }
  return json;
}

template <typename Number>
Json list_of(std::span<const std::byte> bytes) {
  Json list = Json::array();
  for (; bytes.size() >= sizeof(Number); bytes = bytes.subspan(sizeof(Number))) {
    Number number{};
    std::memcpy(&number, bytes.data(), sizeof(Number));
    list.push_back(number);
  }
  return list;
}

// The numbers of a tensor of a type that an input with a default has.
Json numbers_of(DataType type, std::span<const std::byte> bytes) {
  switch (type) {
    case DataType::int8:
      return list_of<std::int8_t>(bytes);
    case DataType::int16:
      return list_of<std::int16_t>(bytes);
    case DataType::int32:
      return list_of<std::int32_t>(bytes);
    case DataType::int64:
      return list_of<std::int64_t>(bytes);
    case DataType::fp32:
      return list_of<float>(bytes);
    case DataType::fp64:
      return list_of<double>(bytes);
    case DataType::fp16:
    case DataType::bf16:
      return 0;  // the only value that their defaults have
    default:
      return list_of<std::uint8_t>(bytes);
  }
}

Json inputs_of(const config::ModelConfig& model) {
  Json inputs = tensors_of(model_inputs(model.inputs));
  for (std::size_t i = 0; i < model.inputs.size(); ++i) {
    Json& input = inputs[i];
    if (model.inputs[i].image) {
      input = image_of(model.inputs[i]);
      continue;
    }
    const auto& conversion = model.inputs[i].conversion;
    const auto format = model.formats.find(input["name"]);
    const bool image = format != model.formats.end();
    if (image) {
      input["format"] = format_text(conversion ? conversion->to_channels_last
                                               : format->second == config::ImageFormat::nhwc);
    }
    if (conversion) input["from"] = from_of(*conversion, image);
    const auto& range = model.inputs[i].range;
    if (range) input["range"] = {range->least, range->most};
    const auto value = model.defaults.find(input["name"]);
    if (value != model.defaults.end())
      input["default"] = numbers_of(model.inputs[i].type, value->second);
  }
  return inputs;
}

Json outputs_of(const config::ModelConfig& model) {
  Json outputs = tensors_of(model.outputs);
  if (!model.dynamic) return outputs;
  for (Json& output : outputs) {
    const auto lengths = model.dynamic->output_lengths.find(output["name"]);
    if (lengths != model.dynamic->output_lengths.end()) output["lengths"] = lengths->second;
  }
  return outputs;
}

Json measured_of(const config::Measurement& measured) {
  Json cells = Json::array();
  for (const config::MeasuredCell& cell : measured.cells) {
    Json& one = cells.emplace_back(Json{
        {"batch", cell.batch}, {"partition", cell.share.percent}, {"latency_ms", cell.latency_ms}});
    if (cell.length > 0) one["length"] = cell.length;
    if (cell.p99_ms) one["p99_ms"] = *cell.p99_ms;
    if (cell.cv) one["cv"] = *cell.cv;
  }
  Json json = {{"cells", std::move(cells)}};
  if (measured.memory_mb) json["memory_mb"] = *measured.memory_mb;
  return json;
}

Json policy_of(const QueuePolicy& policy) {
  return {{"timeout_action", policy.timeout_action == TimeoutAction::reject ? "reject" : "delay"},
          {"default_timeout_ms", to_ms(policy.default_timeout)},
          {"allow_timeout_override", policy.allow_timeout_override},
          {"max_queue_size", policy.max_queue_size}};
}

Json queue_of(const QueueRules& rules) {
  Json queue = {{"default_policy", policy_of(rules.default_policy)}};
  if (rules.priority_levels == 0) return queue;
  queue["priority_levels"] = rules.priority_levels;
  queue["default_priority_level"] = rules.default_priority_level;
  for (const auto& [level, policy] : rules.level_policies)
    queue["level_policies"][std::to_string(level)] = policy_of(policy);
  return queue;
}

void add_lengths(const config::ModelConfig& model, Json& json) {
  if (model.dynamic->padding.empty()) {
    json["lengths"] = model.dynamic->lengths;
    return;
  }
  json["pad"] = {{"buckets", model.dynamic->lengths}};
  for (std::size_t i = 0; i < model.inputs.size(); ++i) {
    if (is_dynamic(model.inputs[i]))
      json["pad"]["values"][model.inputs[i].name] = model.dynamic->padding[i];
  }
}

Json model_of(const config::ModelConfig& model) {
  Json json = {{"name", model.name},
               {"file", model.file.string()},
               {"inputs", inputs_of(model)},
               {"outputs", outputs_of(model)},
               {"slo_ms", model.slo_ms},
               {"rate", model.rate > 0 ? model.rate : kFirstRate},
               {"max_batch", are_whole(model.inputs) ? 0 : model.max_batch}};
  if (model.dynamic) add_lengths(model, json);
  if (model.memory_mb) json["memory_mb"] = *model.memory_mb;
  if (model.numerics.precision != Precision::full)
    json["precision"] = to_string(model.numerics.precision);
  if (model.numerics.channels_last) json["memory_format"] = "channels_last";
  json["largest_error"] = model.numerics.largest_error;
  for (const auto& [output, file] : model.labels) json["labels"][output] = file.string();
  if (model.queue) json["queue"] = queue_of(*model.queue);
  if (model.version > 0) json["version"] = model.version;
  for (const auto& [type, measured] : model.measured)
    json["measured"][type] = measured_of(measured);
  return json;
}

std::string printed(const Json& document) { return document.dump(1) + '\n'; }

Status write(const std::filesystem::path& file, const std::string& text) {
  std::ofstream out(file);
  out << text;
  out.close();
  if (out) return {};
  return {StatusCode::unavailable, fmt::format("cannot write {}", file.string())};
}

// Whether a listener of that port can be opened; the port is `port`, or a free one for 0.
Result<std::uint16_t> try_port(const std::string& host, std::uint16_t port) {
  const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) {
    return Status(StatusCode::invalid,
                  fmt::format("\"{}\" is not an IPv4 address; write 127.0.0.1 for this machine "
                              "alone, or 0.0.0.0 for all its addresses",
                              host));
  }
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return Status(StatusCode::unavailable,
                  fmt::format("cannot listen on {}:{}: {}", host, port, std::strerror(errno)));
  }
  socklen_t size = sizeof(address);
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

}  // namespace

Result<std::uint16_t> free_port(const std::string& host, std::uint16_t wanted) {
  auto port = try_port(host, wanted);
  return port.ok() || port.status().code() == StatusCode::invalid ? port : try_port(host, 0);
}

Status check_free(const std::string& host, std::uint16_t port) {
  return try_port(host, port).status();
}

std::string models_text(const std::vector<config::ModelConfig>& models,
                        const std::vector<std::string>& applications) {
  Json listed = Json::array();
  for (const config::ModelConfig& model : models) listed.push_back(model_of(model));
  Json document = {{"models", std::move(listed)}};
  for (const std::string& application : applications)
    document["applications"].push_back(Json::parse(application));
  return printed(document);
}

Status rewrite_models(const std::filesystem::path& folder,
                      const std::vector<config::ModelConfig>& models,
                      const std::vector<std::string>& applications,
                      const profile::Profile& profile) {
  if (Status written = profile::write_profile(profile, folder / "profiles"); !written.ok())
    return written;
  // The frontend never sees a part of it.
  const std::filesystem::path next = folder / "models.json.next";
  if (Status written = write(next, models_text(models, applications)); !written.ok())
    return written;
  std::error_code error;
  std::filesystem::rename(next, folder / "models.json", error);
  if (!error) return {};
  return {StatusCode::unavailable,
          fmt::format("cannot replace {}: {}", (folder / "models.json").string(), error.message())};
}

Result<ServingFiles> write_serving_files(const std::filesystem::path& folder,
                                         const std::vector<config::ModelConfig>& models,
                                         const profile::Profile& profile,
                                         const MachineDevices& machine, const ServingPorts& ports,
                                         const ServingSettings& settings) {
  if (Status written = profile::write_profile(profile, folder / "profiles"); !written.ok())
    return written;
  Json frontend = {{"listen", text_of(ports.clients)},
                   {"backend_listen", text_of(ports.backends)},
                   {"http", text_of(ports.http)},
                   {"grpc", text_of(ports.grpc)},
                   {"metrics", text_of(ports.metrics)},
                   {"models", "models.json"},
                   {"profiles", "profiles"},
                   {"idle_after_s", 0},
                   {"drain_grace_s", 0}};
  if (settings.shared_memory) frontend["shared_memory"] = "on";
  if (settings.native_models) frontend["model_format"] = "native";
  Json backend = {{"node", "local"},
                  {"frontend", text_of(ports.backends)},
                  {"model_store", (folder / "store").string()},
                  {"devices", device_entries(machine, profile.name)}};
  if (!settings.proxy.empty()) backend["proxy"] = settings.proxy.string();
  if (settings.native_models) backend["native_models"] = "on";
  if (settings.proxies_as_root) backend["proxy_user"] = "root";
  const ServingFiles files{folder / "frontend.json", folder / "backend.json"};
  Status written = write(folder / "models.json", models_text(models, settings.applications));
  if (written.ok()) written = write(files.frontend, printed(frontend));
  if (written.ok()) written = write(files.backend, printed(backend));
  if (!written.ok()) return written;
  return files;
}

}  // namespace gpulet::tools
