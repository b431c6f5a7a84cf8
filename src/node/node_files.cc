#include "node/node_files.h"

#include <algorithm>

#include "gpulet/protocol/messages.h"
#include "gpulet/protocol/proxy_messages.h"

namespace gpulet::node {
namespace {

// Requested bytes of one file that are not on the disk yet.
constexpr std::uint64_t kMaxBytesInFlight = 8 * kModelPieceBytes;
// Files requested at a time. With the limit above, this bounds the buffers of the backend module.
constexpr std::size_t kMaxFilesInFlight = 4;

}  // namespace

void NodeFiles::learn(const GpuletRequested& event) {
  for (const auto& model : event.create.models)
    files_.erase(model.sha256);  // the present content of the store counts
  files_.insert(event.stored.begin(), event.stored.end());
  for (const auto& [sha256, bytes] : event.file_bytes) file_bytes_.insert_or_assign(sha256, bytes);
}

std::uint64_t NodeFiles::bytes_of(const HostedGpulet& gpulet) const {
  std::uint64_t bytes = 0;
  for (const auto& model : gpulet.models()) {
    const auto known = file_bytes_.find(model.sha256);
    if (known != file_bytes_.end()) bytes += known->second;
  }
  return bytes;
}

void NodeFiles::request_all(Turn turn) {
  for (const auto& [id, gpulet] : gpulets_.all()) {
    if (gpulet.phase() == GpuletPhase::fetching) request(gpulet, turn);
  }
}

void NodeFiles::start_over(Turn turn) {
  requested_.clear();
  turn.effects.push_back(DropUnfinishedFiles{});
  if (links_.leader()) request_all(turn);
}

void NodeFiles::done(const std::string& sha256, Turn turn) {
  requested_.erase(sha256);
  request_all(turn);
}

void NodeFiles::on_stored(const ModelStored& event) {
  files_.insert_or_assign(event.sha256, event.file);
  file_bytes_.insert_or_assign(event.sha256, event.file_bytes);
}

bool NodeFiles::lacks_any_of(const HostedGpulet& gpulet) const {
  if (devices_.is_simulated(gpulet.device())) return false;  // simulated processes load no files
  return std::any_of(gpulet.models().begin(), gpulet.models().end(),
                     [this](const auto& model) { return !files_.contains(model.sha256); });
}

void NodeFiles::request(const HostedGpulet& gpulet, Turn turn) {
  for (const auto& model : gpulet.models()) {
    if (files_.contains(model.sha256) || !links_.leader()) continue;
    if (requested_.contains(model.sha256)) continue;
    if (requested_.size() >= kMaxFilesInFlight) return;  // done() continues
    requested_.emplace(model.sha256, kModelPieceBytes);
    links_.send(ModelPieceRequest{model.sha256, 0}, turn);
  }
}

LoadModels NodeFiles::load_request(const HostedGpulet& gpulet) const {
  auto load = gpulet.load_request(files_);
  const auto& type = devices_.offer(gpulet.device()).device.type;
  for (std::size_t i = 0; i < load.models.size(); ++i) {
    const auto known = variants_.find({type, version_of(gpulet.models()[i])});
    if (known != variants_.end()) load.models[i].variant = known->second;
  }
  return load;
}

void NodeFiles::remember_variants(const HostedGpulet& gpulet,
                                  const std::vector<std::uint32_t>& variants) {
  const auto& type = devices_.offer(gpulet.device()).device.type;
  for (std::size_t i = 0; i < std::min(variants.size(), gpulet.models().size()); ++i) {
    variants_.insert_or_assign({type, version_of(gpulet.models()[i])}, variants[i]);
  }
}

void NodeFiles::on_progress(const ModelProgress& event, Turn turn) {
  const auto found = requested_.find(event.sha256);
  if (found == requested_.end() || !links_.leader()) return;
  auto& requested = found->second;
  while (requested < event.total_bytes && requested < event.stored_bytes + kMaxBytesInFlight) {
    links_.send(ModelPieceRequest{event.sha256, requested}, turn);
    requested += kModelPieceBytes;
  }
}

}  // namespace gpulet::node
