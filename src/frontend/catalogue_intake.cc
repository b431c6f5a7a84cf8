#include "frontend/catalogue_intake.h"

#include <utility>
#include <vector>

#include "frontend/administration.h"
#include "gpulet/access/gate.h"
#include "gpulet/core/ids.h"
#include "gpulet/serve/values/frontend_events.h"

namespace gpulet::frontend {

CatalogueIntake::CatalogueIntake(net::asio::io_context& io, Setup& setup, Engine& engine,
                                 Ports& ports)
    : io_(io),
      setup_(setup),
      engine_(engine),
      ports_(ports),
      catalogue_(io, setup.loader,
                 [this](Result<LoadedCatalogue> read) { apply(std::move(read), false); }),
      remote_models_(io, setup.remote_files, setup.remote_versions, engine, catalogue_),
      files_(io, std::move(setup.model_files), catalogue_) {}

void CatalogueIntake::start() {
  catalogue_.start();
  remote_models_.replace(std::move(setup_.remote_models));
  remote_models_.start();
}

void CatalogueIntake::stop() {
  catalogue_.stop();
  remote_models_.stop();
}

void CatalogueIntake::follow_leader() {
  const serve::FrontendCore& core = engine_.core();
  remote_models_.follow(core.leading_term() != Term{}, core.models(remote_models_.names()));
}

void CatalogueIntake::apply(Result<LoadedCatalogue> read, bool by_client) {
  if (!read.ok()) {
    engine_.deliver(serve::CatalogueRejected{read.status(), by_client});
    return;
  }
  LoadedCatalogue& loaded = read.value();
  remote_models_.replace(std::move(loaded.remote_models));
  ports_.take_messages_of(loaded.catalogue);
  engine_.deliver(serve::CatalogueChanged{
      std::move(loaded.catalogue), by_client ? loaded.changed_models : std::vector<std::string>()});
  // Posted, because it visits every model. No backend can request a file before it runs.
  net::asio::post(io_, [this, model_files = std::move(loaded.model_files)]() mutable {
    files_.replace(std::move(model_files));
    engine_.when_applied([this] { files_.forget_unknown(engine_.core().known_files()); });
  });
}

void CatalogueIntake::apply_change(Result<LoadedCatalogue> read, Done applied) {
  engine_.when_applied(std::move(applied));
  apply(std::move(read), true);
}

void CatalogueIntake::when_settled(Done done) {
  engine_.when_applied(std::move(done));
  engine_.deliver(serve::Settle{});
}

void CatalogueIntake::on_asked(const std::string& from, const std::string& model,
                               ModelsChange::Kind kind, const Status& outcome) {
  access::AuditRecord record;
  record.peer.certificates = {from};
  record.peer.protocol = "peer";
  record.action = kind == ModelsChange::Kind::load ? "model_load" : "model_unload";
  record.target = model;
  record.result = outcome;
  setup_.audit->record_call(record);
}

}  // namespace gpulet::frontend
