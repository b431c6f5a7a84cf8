// Adoption: brings the changes of models that clients made through other frontends into force here.
// It fetches the model files that this machine lacks. Where that fails, the models stay as they
// were, and it tries again every kRetry. Single-strand.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "frontend/catalogue/catalogue.h"
#include "frontend/catalogue/model_fetcher.h"
#include "frontend/loop/done.h"
#include "gpulet/base/bytes.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/event_loop.h"

namespace gpulet::frontend {

class Adoption {
 public:
  static constexpr Duration kRetry = std::chrono::seconds(5);

  class Owner {
   public:
    // CatalogueService::adopt()
    virtual void read_changes(Bytes text, Missing missing, CatalogueService::OnRead done) = 0;
    // Serves what was read, or reports why it could not be; then calls `done`.
    virtual void apply(Result<LoadedCatalogue> read, Done done) = 0;
    // The members that have files for this frontend.
    [[nodiscard]] virtual std::vector<std::string> members_with_files() const = 0;

   protected:
    ~Owner() = default;
  };

  // `fetcher` and `owner` must outlive it.
  Adoption(net::asio::io_context& io, ModelFetcher& fetcher, Owner& owner);

  // Adopts these changes in place of earlier ones. Calls `done` after the first attempt.
  void adopt(Bytes text, Done done);
  void stop() { retry_.cancel(); }

 private:
  struct Attempt {
    std::uint64_t number = 0;  // of the adoption
    bool first = true;
    Done done;
  };
  void begin(Attempt attempt);
  void fetch(std::vector<std::string> missing, Attempt attempt);
  void conclude(Result<LoadedCatalogue> read, bool complete, const Attempt& attempt);

  ModelFetcher& fetcher_;
  Owner& owner_;
  Bytes text_;
  std::uint64_t number_ = 0;  // of the last adoption
  net::Alarm retry_;
};

}  // namespace gpulet::frontend
