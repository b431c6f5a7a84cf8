// NodeFiles: the model files that the node has, and those that its gpulets lack and are requested
// from the frontend that leads. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "node/frontend_links.h"
#include "node/hosted_gpulets.h"
#include "node/node_devices.h"

namespace gpulet::node {

class NodeFiles {
 public:
  // All outlive it.
  NodeFiles(const NodeDevices& devices, const HostedGpulets& gpulets, FrontendLinks& links)
      : devices_(devices), gpulets_(gpulets), links_(links) {}

  // The store has these of the gpulet's files.
  void learn(const GpuletRequested& event);
  [[nodiscard]] bool lacks_any_of(const HostedGpulet& gpulet) const;
  // Bytes of the gpulet's files, as far as they are known.
  [[nodiscard]] std::uint64_t bytes_of(const HostedGpulet& gpulet) const;

  // ---- transfers

  // Requests the files that the gpulet lacks, some at a time.
  void request(const HostedGpulet& gpulet, Turn turn);
  // Another frontend leads, or none does: requests everything anew.
  void start_over(Turn turn);
  void on_progress(const ModelProgress& event, Turn turn);
  void on_stored(const ModelStored& event);
  // The file is stored or failed: requests further files.
  void done(const std::string& sha256, Turn turn);

  // ---- processes

  [[nodiscard]] LoadModels load_request(const HostedGpulet& gpulet) const;
  // The gpulet's process loaded these variants of its models.
  void remember_variants(const HostedGpulet& gpulet, const std::vector<std::uint32_t>& variants);

 private:
  void request_all(Turn turn);

  const NodeDevices& devices_;
  const HostedGpulets& gpulets_;
  FrontendLinks& links_;
  std::map<std::string, std::string> files_;         // stored files by SHA-256
  std::map<std::string, std::uint64_t> file_bytes_;  // their sizes, of those that are known
  // Files requested from the frontend that leads, and the offset up to which they are.
  std::map<std::string, std::uint64_t> requested_;
  // The last loaded variant by device type and model version.
  std::map<std::pair<std::string, std::string>, std::uint32_t> variants_;
};

}  // namespace gpulet::node
