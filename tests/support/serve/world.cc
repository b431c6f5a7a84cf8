#include "tests/support/serve/world.h"

#include <algorithm>
#include <utility>

#include "gpulet/schedule/policy.h"

namespace gpulet::serve::testing {

profile::Profile card_profile(const std::map<std::string, double>& base_ms) {
  profile::Profile profile;
  profile.name = "card";
  for (const auto& [name, base] : base_ms) {
    std::vector<profile::LatencySample> samples;
    for (const int percent : {14, 20, 40, 50, 60, 80, 100}) {
      for (const std::uint32_t batch : {1U, 2U, 4U, 8U, 16U, 32U}) {
        samples.push_back({batch, Share{percent}, base * (0.5 + 0.5 * batch) * 100 / percent});
      }
    }
    profile.models.emplace(
        name,
        profile::ModelProfile{profile::LatencyTable::create(samples).value(), {}, std::nullopt});
  }
  return profile;
}

ServedModel byte_model(const std::string& name, double slo_ms, double rate) {
  ServedModel model;
  model.name = name;
  model.sha256 = "hash-of-" + name;
  model.inputs = {{"x", DataType::uint8, {1}}};
  model.outputs = {{"y", DataType::uint8, {1}}};
  model.slo_ms = slo_ms;
  model.configured_rate = rate;
  model.max_batch = 16;
  return with_sizes(model).value();
}

namespace {

simulate::Knowledge knowledge_of(const profile::Profile& profile, const schedule::Policy& policy) {
  simulate::Knowledge knowledge;
  knowledge.profiles =
      std::make_shared<const profile::ProfileSet>(profile::ProfileSet{{profile.name, profile}});
  knowledge.believed = std::make_shared<const profile::InterferenceSet>();
  knowledge.simulated = simulate::simulated_interference(*knowledge.profiles);
  knowledge.policy = &policy;
  return knowledge;
}

}  // namespace

World::World(FrontendOptions frontend, std::vector<ServedModel> models,
             const profile::Profile& profile, const simulate::VirtualTimings& options)
    : policy_(schedule::make_policy(frontend.policy).value()),
      knowledge_(knowledge_of(profile, *policy_)),
      world_(options, frontend, {std::move(models), {}}, knowledge_, clients_) {}

void World::change_models_at(Time time, std::vector<ServedModel> models,
                             std::vector<std::string> asked_for,
                             const std::vector<config::ApplicationConfig>& applications) {
  ApplicationList made;
  for (const config::ApplicationConfig& graph : applications)
    made.push_back(make_application(graph, models, *knowledge_.profiles).value());
  world_.change_catalogue_at(
      time, {{std::move(models), knowledge_.profiles, knowledge_.believed, std::move(made)},
             std::move(asked_for)});
}

ModelInfo World::model(const std::string& name) const {
  const std::vector<ModelInfo> models = frontend().models_after("", 100'000).models;
  return *std::find_if(models.begin(), models.end(),
                       [&name](const ModelInfo& model) { return model.name == name; });
}

void World::add_backend(const std::string& node, std::uint32_t devices, double memory_mb) {
  schedule::Device like;
  like.memory_mb = memory_mb;
  for (const int percent : {20, 40, 50, 60, 80, 100}) like.sizes.push_back(Share{percent});
  add_devices(node, devices, like);
}

void World::add_mig_backend(const std::string& node, std::uint32_t devices) {
  schedule::Device like;
  like.mig = partition::MigGeometry::of("a100-80").value();
  like.max_partitions = like.mig->compute_slices();
  for (const partition::MigProfile& profile : like.mig->profiles())
    like.sizes.push_back(like.mig->share_of(profile.slices));
  add_devices(node, devices, like);
}

void World::add_devices(const std::string& node, std::uint32_t devices, schedule::Device like) {
  like.type = "card";
  like.partitioning = "simulated";
  std::vector<schedule::Device> offered(devices, like);
  for (std::uint32_t i = 0; i < devices; ++i) offered[i].key = {node, i};
  world_.add_node(node, offered);
}

void World::request_at(Time time, const std::string& model, std::uint64_t tag, Duration timeout,
                       std::uint32_t priority) {
  InferRequest request;
  request.tag = tag;
  request.model = model;
  request.timeout = timeout;
  request.priority = priority;
  request.inputs = {{"", DataType::uint8, {1}}};
  request.payload = Bytes::own({static_cast<std::byte>(tag & 0xffU)});
  clients_.agenda.emplace(std::max(time, now()), std::move(request));
}

Time World::Clients::next_request() const {
  return agenda.empty() ? kNever : agenda.begin()->first;
}

InferRequest World::Clients::take_request() {
  return std::move(agenda.extract(agenda.begin()).mapped());
}

void World::Clients::answered(InferReply reply, Time now) {
  replies[reply.tag].push_back({now, std::move(reply)});
}

void World::Clients::plan_in_force(const schedule::Plan& /*plan*/, Time /*now*/) {}

}  // namespace gpulet::serve::testing
