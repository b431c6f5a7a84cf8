// CatalogueIntake: gives the engine what is to be served: what was read of files, what remote
// stores have, and what clients change. Belongs to the thread of the io_context, which must have
// stopped before it is destroyed.
#pragma once

#include <string>

#include "frontend/catalogue/catalogue.h"
#include "frontend/catalogue/model_files.h"
#include "frontend/catalogue/remote_models.h"
#include "frontend/cluster/model_changes.h"
#include "frontend/engine.h"
#include "frontend/loop/done.h"
#include "frontend/ports.h"
#include "frontend/setup.h"
#include "gpulet/base/status.h"
#include "gpulet/net/asio.h"
#include "gpulet/protocol/messages.h"

namespace gpulet::frontend {

class CatalogueIntake final : public ModelChanges::Host {
 public:
  // Takes the model files of `setup`. The references must outlive this object, but for `ports`,
  // which must live while the io_context runs.
  CatalogueIntake(net::asio::io_context& io, Setup& setup, Engine& engine, Ports& ports);
  CatalogueIntake(const CatalogueIntake&) = delete;
  CatalogueIntake& operator=(const CatalogueIntake&) = delete;

  [[nodiscard]] CatalogueService& catalogue() { return catalogue_; }
  [[nodiscard]] ServedFiles& files() { return files_; }

  // Watches the files and the stores. REQUIRES: all ports are open.
  void start();
  void stop();
  // Reads the files again.
  void reload() { catalogue_.reload(); }
  // Who leads, or what the leader serves, may have changed.
  void follow_leader();

  void apply_change(Result<LoadedCatalogue> read, Done applied) override;
  void when_settled(Done done) override;
  void on_asked(const std::string& from, const std::string& model, ModelsChange::Kind kind,
                const Status& outcome) override;

 private:
  void apply(Result<LoadedCatalogue> read, bool by_client);

  net::asio::io_context& io_;
  Setup& setup_;
  Engine& engine_;
  Ports& ports_;
  CatalogueService catalogue_;
  RemoteModels remote_models_;
  ServedFiles files_;
};

}  // namespace gpulet::frontend
