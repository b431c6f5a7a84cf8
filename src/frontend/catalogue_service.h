// CatalogueService: keeps what a frontend serves in step with its files. Watches them, reads them
// again when they change or somebody asks for a change by hand, and hands over what it read.
// Reading and hashing have a thread of their own; everything else, callbacks included, happens on
// the io_context, which must not run any more when the service is destroyed.
#pragma once

#include <boost/asio/thread_pool.hpp>
#include <functional>
#include <memory>

#include "catalogue_loader.h"
#include "file_watch.h"
#include "gpulet/net/asio.h"

namespace gpulet::frontend {

class CatalogueService {
 public:
  using OnRead = std::function<void(Result<LoadedCatalogue>)>;

  // `changed` hears of every reading that a change of the files caused.
  CatalogueService(net::asio::io_context& io, std::shared_ptr<CatalogueLoader> loader,
                   OnRead changed);
  ~CatalogueService();
  CatalogueService(const CatalogueService&) = delete;
  CatalogueService& operator=(const CatalogueService&) = delete;

  // Begins to watch, and reads once: files may have changed since they were read last.
  void start();
  void change(serve::ModelsChange change, OnRead done);
  // Somebody saw that a file has changed: reads again, as after a change that the watch saw.
  void look_again() { read_again(); }
  void stop();

 private:
  void read_again();
  void watch(const FileWatch::Folders& folders);

  net::asio::io_context& io_;
  std::shared_ptr<CatalogueLoader> loader_;  // touched by the thread alone
  OnRead changed_;
  FileWatch watch_;
  bool reading_ = false;
  bool read_once_more_ = false;
  bool stopped_ = false;
  boost::asio::thread_pool thread_{1};  // last: joined before anything it uses goes
};

}  // namespace gpulet::frontend
