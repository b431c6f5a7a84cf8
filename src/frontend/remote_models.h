// RemoteModels: tells the frontend what becomes of the model files that are in remote stores: a new
// version calls for a new catalogue, and progress and errors are the reasons of models.
//
// Calls and callbacks run on the thread of the io_context, which must have stopped before this
// object is destroyed. What depends on the number of models runs on the threads of RemoteFiles.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpulet/config/model_config.h"
#include "gpulet/frontend/setup.h"
#include "gpulet/net/asio.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/serve/frontend_events.h"
#include "gpulet/store/remote/remote_files.h"

namespace gpulet::frontend {

class RemoteModels {
 public:
  struct Owner {
    std::function<void(serve::ModelSources)> tell;  // they differ from those told before
    std::function<void()> reload;                   // a model has a file that its catalogue lacks
  };

  RemoteModels(net::asio::io_context& io, std::shared_ptr<store::remote::RemoteFiles> files,
               Owner owner)
      : io_(io), files_(std::move(files)), owner_(std::move(owner)) {}
  ~RemoteModels() { stop(); }
  RemoteModels(const RemoteModels&) = delete;
  RemoteModels& operator=(const RemoteModels&) = delete;

  void start();
  // No callback follows.
  void stop();
  // The models of the catalogue that is served now.
  void replace(RemoteModelFiles models);
  // Another frontend has told routes. Models of which it has a version that is unknown here have
  // changed in their stores: this frontend does not wait for its next look.
  void on_routes(const SetRoutes& routes);

 private:
  void check();

  net::asio::io_context& io_;
  const std::shared_ptr<store::remote::RemoteFiles> files_;
  const Owner owner_;
  bool stopped_ = false;

  std::mutex mutex_;
  RemoteModelFiles models_;   // guarded by mutex_; `sha256` is the newest that was reported
  serve::ModelSources told_;  // guarded by mutex_
};

}  // namespace gpulet::frontend
