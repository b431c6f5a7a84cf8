// RemoteModels: tells the frontend what becomes of the model files that are in remote stores: a new
// version calls for a new catalogue, and progress and errors are the reasons of models.
//
// Calls and events run on the thread of the io_context, which must have stopped before this
// object is destroyed. What depends on the number of models runs on the threads of RemoteFiles.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "frontend/catalogue/model_file.h"
#include "frontend/catalogue/remote_versions.h"
#include "frontend/loop/event_sink.h"
#include "frontend/loop/file_watch.h"
#include "gpulet/config/model_config.h"
#include "gpulet/net/asio.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/serve/values/frontend_events.h"
#include "gpulet/store/remote/remote_files.h"

namespace gpulet::frontend {

class RemoteModels {
 public:
  // Delivers ModelSourcesChanged, and has the catalogue read again when a model has a file that it
  // lacks. Both must outlive it.
  RemoteModels(net::asio::io_context& io, std::shared_ptr<store::remote::RemoteFiles> files,
               std::shared_ptr<RemoteVersions> versions, EventSink& events, Reloadable& catalogue)
      : io_(io),
        files_(std::move(files)),
        versions_(std::move(versions)),
        events_(events),
        catalogue_(catalogue) {}
  ~RemoteModels() { stop(); }
  RemoteModels(const RemoteModels&) = delete;
  RemoteModels& operator=(const RemoteModels&) = delete;

  void start();
  // Nothing follows.
  void stop();
  // The models of the catalogue that is served now.
  void replace(RemoteModelFiles models);
  // Their names.
  [[nodiscard]] std::vector<std::string> names();
  // What the leader says of these models, where this frontend does not lead. It looks at once for
  // versions that the leader has, and takes those that the leader serves.
  void follow(bool leads, const std::vector<ModelInfo>& models);

 private:
  void check();
  void look_for(const std::vector<ModelInfo>& models);

  net::asio::io_context& io_;
  const std::shared_ptr<store::remote::RemoteFiles> files_;
  const std::shared_ptr<RemoteVersions> versions_;
  EventSink& events_;
  Reloadable& catalogue_;
  bool stopped_ = false;
  std::map<std::string, std::string> looked_for_;  // model -> the leader's version

  std::mutex mutex_;
  RemoteModelFiles models_;   // guarded by mutex_; `sha256` is the newest that was reported
  serve::ModelSources told_;  // guarded by mutex_
};

}  // namespace gpulet::frontend
