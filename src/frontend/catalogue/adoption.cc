#include "frontend/catalogue/adoption.h"

#include <spdlog/spdlog.h>

#include <utility>

namespace gpulet::frontend {

Adoption::Adoption(net::asio::io_context& io, ModelFetcher& fetcher, Owner& owner)
    : fetcher_(fetcher), owner_(owner), retry_(io) {}

void Adoption::adopt(Bytes text, Done done) {
  retry_.cancel();
  text_ = std::move(text);
  begin({++number_, true, std::move(done)});
}

void Adoption::begin(Attempt attempt) {
  owner_.read_changes(text_, Missing::report,
                      [this, attempt = std::move(attempt)](Result<LoadedCatalogue> read) {
                        if (read.ok() && !read.value().missing.empty())
                          return fetch(std::move(read.value().missing), attempt);
                        conclude(std::move(read), true, attempt);
                      });
}

void Adoption::fetch(std::vector<std::string> missing, Attempt attempt) {
  fetcher_.fetch(owner_.members_with_files(), std::move(missing),
                 [this, attempt = std::move(attempt)](const Status& fetched) {
                   if (!fetched.ok() && attempt.first)
                     spdlog::warn("a file of the cluster is not here: {}", fetched.message());
                   owner_.read_changes(
                       text_, Missing::use_own,
                       [this, attempt, complete = fetched.ok()](Result<LoadedCatalogue> read) {
                         conclude(std::move(read), complete, attempt);
                       });
                 });
}

void Adoption::conclude(Result<LoadedCatalogue> read, bool complete, const Attempt& attempt) {
  if (attempt.number != number_) return attempt.done();  // a later one is on its way
  const bool ok = read.ok();
  // One report of a failure is enough.
  if (ok || attempt.first) {
    owner_.apply(std::move(read), attempt.done);
  } else {
    attempt.done();
  }
  if (ok && complete) return;
  retry_.set_after(kRetry, [this] { begin({number_, false, [] {}}); });
}

}  // namespace gpulet::frontend
