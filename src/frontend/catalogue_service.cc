#include "catalogue_service.h"

#include <spdlog/spdlog.h>

#include <utility>

namespace gpulet::frontend {

namespace asio = net::asio;

CatalogueService::CatalogueService(asio::io_context& io, std::shared_ptr<CatalogueLoader> loader,
                                   OnRead changed)
    : io_(io),
      loader_(std::move(loader)),
      changed_(std::move(changed)),
      watch_(io, [this] { read_again(); }) {}

CatalogueService::~CatalogueService() { thread_.join(); }

void CatalogueService::start() {
  watch(loader_->watched());
  read_again();
}

void CatalogueService::stop() {
  stopped_ = true;
  watch_.stop();
}

void CatalogueService::watch(const FileWatch::Folders& folders) {
  if (const Status status = watch_.watch(folders); !status.ok())
    spdlog::warn("changes of files may go unseen: {}", status.message());
}

void CatalogueService::read_again() {
  if (stopped_) return;
  if (std::exchange(reading_, true)) {
    read_once_more_ = true;
    return;
  }
  asio::post(thread_, [this] {
    auto read = std::make_shared<Result<LoadedCatalogue>>(loader_->load());
    asio::post(io_, [this, read, folders = loader_->watched()] {
      reading_ = false;
      if (stopped_) return;
      watch(folders);
      changed_(std::move(*read));
      if (std::exchange(read_once_more_, false)) read_again();
    });
  });
}

void CatalogueService::change(serve::ModelsChange change, OnRead done) {
  asio::post(thread_, [this, change = std::move(change), done = std::move(done)] {
    auto read = std::make_shared<Result<LoadedCatalogue>>(loader_->change(change));
    asio::post(io_, [this, read, done, folders = loader_->watched()] {
      if (stopped_) return;
      watch(folders);
      done(std::move(*read));
    });
  });
}

}  // namespace gpulet::frontend
