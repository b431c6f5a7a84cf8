// ModelFetcher: gets model files from the other frontends of a cluster, by content. It requests one
// piece at a time, and one file after another, so that neither side holds more than a piece.
// Single-strand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/protocol/messages.h"

namespace gpulet::frontend {

class ModelFetcher {
 public:
  using OnPiece = std::function<void(Result<ModelPiece>)>;
  using OnStored = std::function<void(Result<bool>)>;
  using OnFetched = std::function<void(Status)>;

  class Owner {
   public:
    // Asks a member for a piece. Fails (unavailable, timeout) without an answer.
    virtual void request(const std::string& member, const ModelPieceRequest& piece,
                         OnPiece done) = 0;
    // CatalogueLoader::store()
    virtual void store(ModelPiece piece, OnStored done) = 0;

   protected:
    ~Owner() = default;
  };

  // `owner` must outlive it.
  explicit ModelFetcher(Owner& owner) : owner_(owner) {}
  ModelFetcher(const ModelFetcher&) = delete;
  ModelFetcher& operator=(const ModelFetcher&) = delete;

  // Stores the files with these SHA-256; each comes from the first of the members that has it.
  // Fails with the last error of the first file that none of them could give.
  void fetch(std::vector<std::string> members, std::vector<std::string> sha256, OnFetched done);

 private:
  struct Job {
    std::vector<std::string> members;
    std::vector<std::string> files;
    OnFetched done;
    std::size_t file = 0;      // index of the file being fetched
    std::size_t member = 0;    // index of the member that is asked
    std::uint64_t offset = 0;  // of the next piece
  };

  void request_piece();
  void on_piece(Result<ModelPiece> piece);
  void on_stored(std::uint64_t end, const Result<bool>& stored);
  void try_next_member(const Status& why);
  void finish(const Status& outcome);

  Owner& owner_;
  std::deque<Job> jobs_;  // the first is in progress
};

}  // namespace gpulet::frontend
