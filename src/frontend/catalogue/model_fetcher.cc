#include "frontend/catalogue/model_fetcher.h"

#include <utility>

namespace gpulet::frontend {

void ModelFetcher::fetch(std::vector<std::string> members, std::vector<std::string> sha256,
                         OnFetched done) {
  jobs_.push_back({std::move(members), std::move(sha256), std::move(done)});
  if (jobs_.size() == 1) request_piece();
}

void ModelFetcher::request_piece() {
  const Job& job = jobs_.front();
  if (job.file == job.files.size()) return finish({});
  if (job.members.empty())
    return finish({StatusCode::unavailable, "no other frontend is connected"});
  owner_.request(job.members[job.member], {job.files[job.file], job.offset},
                 [this](Result<ModelPiece> piece) { on_piece(std::move(piece)); });
}

void ModelFetcher::on_piece(Result<ModelPiece> piece) {
  if (!piece.ok()) return try_next_member(piece.status());
  const Job& job = jobs_.front();
  // The store checks the rest.
  if (piece.value().sha256 != job.files[job.file] || piece.value().offset != job.offset)
    return try_next_member({StatusCode::malformed, "another piece than the one requested"});
  const std::uint64_t end = job.offset + piece.value().data.size();
  owner_.store(std::move(piece).value(),
               [this, end](const Result<bool>& stored) { on_stored(end, stored); });
}

void ModelFetcher::on_stored(std::uint64_t end, const Result<bool>& stored) {
  if (!stored.ok()) return try_next_member(stored.status());
  Job& job = jobs_.front();
  job.offset = end;
  if (stored.value()) {
    ++job.file;
    job.member = 0;
    job.offset = 0;
  }
  request_piece();
}

// The store has dropped what it had of the file, or begins it anew with a piece at offset 0.
void ModelFetcher::try_next_member(const Status& why) {
  Job& job = jobs_.front();
  job.offset = 0;
  if (++job.member < job.members.size()) return request_piece();
  finish(why.within("model file " + job.files[job.file]));
}

void ModelFetcher::finish(const Status& outcome) {
  const Job job = std::move(jobs_.front());
  jobs_.pop_front();
  if (!jobs_.empty()) request_piece();
  job.done(outcome);
}

}  // namespace gpulet::frontend
