// Site: a frontend and backends as processes on loopback, with simulated devices unless a backend's
// file names others, in a temporary directory that it removes. A restarted frontend has the same
// ports. One thread.
#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/serve/support/daemon_process.h"
#include "bench/serve/support/status_view.h"
#include "bench/serve/support/traffic.h"
#include "gpulet/config/cluster_config.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/load/call.h"
#include "gpulet/profile/profile.h"
#include "tests/support/certificates/certificates.h"

namespace gpulet::bench {

// A model without a file exists on simulated devices only: a batch of b on p percent takes
// (fixed_ms + b * item_ms) * (100 / p) ms, like a network that keeps its share busy.
struct SiteModel {
  std::string name;
  double fixed_ms = 2;
  double item_ms = 1;
  double slo_ms = 100;
  double rate = 1;  // configured
  std::uint32_t max_batch = 32;
  std::optional<double> memory_mb{};                              // of a simulated device
  std::filesystem::path file{};                                   // a real one, absolute
  std::vector<TensorSpec> inputs{{"x", DataType::uint8, {784}}};  // a small picture
  std::vector<TensorSpec> outputs{{"y", DataType::uint8, {10}}};
};

// The models of a models file, for a site with real models. Throws std::runtime_error.
[[nodiscard]] std::vector<SiteModel> real_models(const std::filesystem::path& models_file);

// Of a simulated device, in percent: the default of a backend's file.
inline constexpr std::array<int, 6> kSizes = {20, 40, 50, 60, 80, 100};

struct SiteOptions {
  std::vector<SiteModel> models;
  std::vector<SiteModel> more_models{};  // not served until Site::serve_more_models()
  std::uint32_t backends = 1;
  std::uint32_t devices_each = 1;
  // Batches on simulated devices take this multiple of what the frontend's profile says.
  double device_pace = 1;
  std::string proxy = "gpulet-proxy-simulated";  // of simulated devices
  // Not empty: real proxies, a device of one core for each backend, whose profile is the only one
  // in that directory.
  std::filesystem::path measured{};
  double period_s = 20;
  std::uint32_t parking_mb = 0;  // of each device; not 0: backends load processes ahead, too
  bool http = false;             // the frontend also has the HTTP endpoint
  bool grpc = false;
  bool metrics = false;
  std::optional<std::uint32_t> io_threads{};  // of the frontend; empty: its default
  bool local_socket = true;                   // off where links between the daemons are cut
  // TLS for all clients, and mutual TLS between frontend and backends.
  bool tls = false;
  std::uint32_t max_connections = 4096;  // of the frontend, all of them from this machine
  double first_message_s = 10;           // until a connection must send a message
  std::filesystem::path programs{};      // directory of gpulet-frontend and the others
  std::filesystem::path keep{};          // a new directory to keep, in place of a temporary one
};

// The inputs of the frontend's plans: the profile of its devices ("card" where they are simulated,
// with batches to 32), and the devices of each backend. Throws std::runtime_error.
[[nodiscard]] profile::Profile profile_of(const SiteOptions& options);
[[nodiscard]] std::vector<config::NodeConfig> nodes_of(const SiteOptions& options);

class Site {
 public:
  // Writes the files and starts the frontend. Throws std::runtime_error.
  explicit Site(SiteOptions options);
  ~Site();
  Site(const Site&) = delete;
  Site& operator=(const Site&) = delete;

  void start_frontend();
  void start_backends();
  // `frontend_port`: where it finds the frontend; 0: the frontend itself.
  void start_backend(std::size_t index, std::uint16_t frontend_port = 0);

  // Waits until `what` holds for the status; on a timeout it throws and names the logs.
  StatusView wait_until(const std::function<bool(const StatusView&)>& what, Duration patience,
                        const std::string& wanted);
  StatusView wait_until_serving(Duration patience = std::chrono::seconds(60));

  [[nodiscard]] load::Target target() const;
  [[nodiscard]] std::uint16_t backend_port() const { return backend_port_; }
  [[nodiscard]] std::uint16_t http_port() const { return http_port_; }
  [[nodiscard]] std::uint16_t grpc_port() const { return grpc_port_; }
  [[nodiscard]] std::uint16_t metrics_port() const { return metrics_port_; }
  // With `tls`: a certificate that the site's authority signed for that name, in the directory.
  [[nodiscard]] config::TlsFiles issue(const std::string& name,
                                       const std::vector<std::string>& names) const;
  [[nodiscard]] DaemonProcess& frontend() { return *frontend_; }
  [[nodiscard]] DaemonProcess& backend(std::size_t index) { return *backends_.at(index); }
  [[nodiscard]] std::size_t backends() const { return backends_.size(); }
  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }
  // NAME=VALUE in the environment of all its processes and their children.
  [[nodiscard]] const std::string& mark() const { return mark_; }

  [[nodiscard]] const std::vector<SiteModel>& models() const { return options_.models; }
  // Edits the models' file, as an operator would: in one step.
  void withdraw_model(const std::string& model) const;
  void serve_more_models() const;
  void restore_models() const { write_models(options_.models); }
  // Of a model without a file of its own: its placeholder file, and the contents of a version. The
  // first version is 0.
  [[nodiscard]] std::filesystem::path model_file(const std::string& model) const;
  [[nodiscard]] static std::string model_text(const std::string& model, std::uint64_t version);
  // Replaces the file by that version, in one step.
  void write_model_file(const std::string& model, std::uint64_t version) const;
  // A backend's model store.
  [[nodiscard]] std::filesystem::path store(std::size_t backend) const;

  // The payload that clients send to a model of the site.
  [[nodiscard]] Stream stream(const std::string& model, std::vector<RateFrom> rates) const;

  // Ends all processes, the frontend first. False if one did not end, or failed.
  bool stop();

 private:
  void make_certificates();
  void write_files() const;
  void write_backend(const config::NodeConfig& node) const;
  void write_models(const std::vector<SiteModel>& models) const;

  SiteOptions options_;
  std::filesystem::path directory_;
  std::string mark_;
  std::uint16_t client_port_ = 0;
  std::uint16_t backend_port_ = 0;
  std::uint16_t http_port_ = 0;
  std::uint16_t grpc_port_ = 0;
  std::uint16_t metrics_port_ = 0;
  std::unique_ptr<testing::Authority> authority_;  // null: no TLS
  net::TlsContextPointer client_tls_;              // null: no TLS
  std::unique_ptr<DaemonProcess> frontend_;
  std::vector<std::unique_ptr<DaemonProcess>> backends_;
};

}  // namespace gpulet::bench
