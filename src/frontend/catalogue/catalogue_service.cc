// CatalogueService of frontend/catalogue/catalogue.h.
#include <spdlog/spdlog.h>

#include <string_view>
#include <utility>

#include "frontend/catalogue/catalogue.h"
#include "gpulet/net/event_loop.h"

namespace gpulet::frontend {

CatalogueService::CatalogueService(net::asio::io_context& io,
                                   std::shared_ptr<CatalogueLoader> loader, OnRead changed)
    : io_(io), loader_(std::move(loader)), changed_(std::move(changed)), watch_(io, *this) {
  net::asio::post(thread_, [] { net::name_thread("catalogue"); });
}

CatalogueService::~CatalogueService() { thread_.join(); }

void CatalogueService::start() {
  watch(loader_->watched());
  reload();
}

void CatalogueService::stop() {
  stopped_ = true;
  loader_->stop();
  watch_.stop();
}

void CatalogueService::watch(const FileWatch::Folders& folders) {
  if (const Status status = watch_.watch(folders); !status.ok())
    spdlog::warn("changes of files may go unnoticed: {}", status.message());
}

void CatalogueService::reload() {
  if (stopped_) return;
  if (std::exchange(reading_, true)) {
    reload_again_ = true;
    return;
  }
  net::asio::post(thread_, [this] {
    auto read = std::make_shared<Result<LoadedCatalogue>>(loader_->load());
    net::asio::post(io_, [this, read, folders = loader_->watched()] {
      reading_ = false;
      if (stopped_) return;
      watch(folders);
      changed_(std::move(*read));
      if (std::exchange(reload_again_, false)) reload();
    });
  });
}

template <typename How, typename Then>
void CatalogueService::run(How how, Then done) {
  net::asio::post(thread_, [this, how = std::move(how), done = std::move(done)]() mutable {
    auto value = std::make_shared<decltype(how())>(how());
    net::asio::post(io_, [this, value, done = std::move(done)] {
      if (!stopped_) done(std::move(*value));
    });
  });
}

template <typename How>
void CatalogueService::read(How how, OnRead done) {
  using Read = std::pair<Result<LoadedCatalogue>, FileWatch::Folders>;
  run(
      [this, how = std::move(how)]() mutable {
        Result<LoadedCatalogue> read = how();
        return Read(std::move(read), loader_->watched());
      },
      [this, done = std::move(done)](Read read) {
        watch(read.second);
        done(std::move(read.first));
      });
}

void CatalogueService::change(ModelsChange change, std::vector<NamedFile> files, Missing missing,
                              OnRead done) {
  read([this, change = std::move(change), files = std::move(files),
        missing] { return loader_->change(change, files, missing); },
       std::move(done));
}

void CatalogueService::adopt(Bytes client_changes, Missing missing, OnRead done) {
  read(
      [this, bytes = std::move(client_changes), missing] {
        const auto view = bytes.view();
        const std::string_view text(reinterpret_cast<const char*>(view.data()), view.size());
        return loader_->adopt(text, missing);
      },
      std::move(done));
}

void CatalogueService::files_of(ModelsChange change, OnFiles done) {
  run([this, change = std::move(change)] { return loader_->files_of(change); }, std::move(done));
}

void CatalogueService::store(ModelPiece piece, OnStored done) {
  run([this, piece = std::move(piece)] { return loader_->store(piece); }, std::move(done));
}

void CatalogueService::after_changes(Done done) {
  net::asio::post(thread_, [this, done = std::move(done)] {
    net::asio::post(io_, [this, done] {
      if (!stopped_) done();
    });
  });
}

}  // namespace gpulet::frontend
