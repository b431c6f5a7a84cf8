// Adoption: brings the changes of models that clients made through other frontends into force here.
// It fetches the model files that this machine lacks. Where that fails, the models stay as they
// were, and it tries again every kRetry. Single-strand.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "frontend/catalogue/catalogue.h"
#include "frontend/catalogue/model_fetcher.h"
#include "gpulet/base/bytes.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/event_loop.h"

namespace gpulet::frontend {

class Adoption {
 public:
  static constexpr Duration kRetry = std::chrono::seconds(5);

  struct Owner {
    std::function<void(Bytes text, Missing, CatalogueService::OnRead)> read;
    // Serves what was read, or reports why it could not be; then calls `done`.
    std::function<void(Result<LoadedCatalogue>, std::function<void()> done)> apply;
    std::function<std::vector<std::string>()> members;  // that have files for this frontend
  };

  Adoption(net::asio::io_context& io, ModelFetcher& fetcher, Owner owner);

  // Adopts these changes in place of earlier ones. Calls `done` after the first attempt.
  void adopt(Bytes text, std::function<void()> done);
  void stop() { retry_.cancel(); }

 private:
  struct Attempt {
    std::uint64_t number = 0;  // of the adoption
    bool first = true;
    std::function<void()> done;
  };
  void begin(Attempt attempt);
  void fetch(std::vector<std::string> missing, Attempt attempt);
  void conclude(Result<LoadedCatalogue> read, bool complete, const Attempt& attempt);

  ModelFetcher& fetcher_;
  Owner owner_;
  Bytes text_;
  std::uint64_t number_ = 0;  // of the last adoption
  net::Alarm retry_;
};

}  // namespace gpulet::frontend
