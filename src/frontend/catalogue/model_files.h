// Files of models: which files a client may name, and how backends get their content.
#pragma once

#include <boost/asio/thread_pool.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "frontend/catalogue/model_file.h"
#include "frontend/loop/file_guard.h"
#include "frontend/loop/file_watch.h"
#include "gpulet/base/status.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/config/model_config.h"
#include "gpulet/core/ids.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/protocol/messages.h"

namespace gpulet::frontend {

// The stamp of a file or an open descriptor; empty: unreadable. Blocks on file I/O; any thread.
[[nodiscard]] std::optional<FileStamp> stamp_of(const std::filesystem::path& file);
[[nodiscard]] std::optional<FileStamp> stamp_of(int descriptor);

// Decides which files a client may name when it loads a model. Backends receive the content of
// model files, so a client that may load models must not be able to name any other file of this
// machine. Blocks on file I/O; any thread.
class ModelPathPolicy {
 public:
  // `known`: the models of the models file.
  ModelPathPolicy(const config::FrontendConfig& config,
                  const std::vector<config::ModelConfig>& known);

  // Returns the canonical path of a file that may be named. With a `model_root`, the file must lie
  // below it. Otherwise it must lie in the folder of a known model and be readable by group or
  // others. In both cases it must be a regular file, none of the frontend's keys or tokens, and of
  // the configured `model_format`. Fails with invalid or not_found; the error names the file and
  // the key that decides.
  [[nodiscard]] Result<std::filesystem::path> admit(const std::filesystem::path& file) const {
    return admit(file, config_.model_format);
  }
  // The same rules for a text file of a model, without the check of the format.
  [[nodiscard]] Result<std::filesystem::path> admit_text(const std::filesystem::path& file) const {
    return admit(file, config::ModelFormat::any);
  }

 private:
  [[nodiscard]] Status check_location(const std::filesystem::path& file) const;
  [[nodiscard]] Result<std::filesystem::path> admit(const std::filesystem::path& file,
                                                    config::ModelFormat format) const;
  [[nodiscard]] Status check_contents(const std::filesystem::path& file,
                                      config::ModelFormat format) const;

  config::FrontendConfig config_;
  std::filesystem::path root_;               // empty: not configured
  std::set<std::filesystem::path> folders_;  // folders of the known models
};

// Reads the piece that begins at `offset`. The piece has no data if the file cannot be read or ends
// before `offset`; `changed` is set if the file is not the one that was hashed. Blocks on file I/O.
//
// The file is read, not mapped: truncating a mapped file would end this process with SIGBUS.
[[nodiscard]] ModelPiece read_piece(const std::string& sha256, const ModelFile& file,
                                    std::uint64_t offset, net::BufferPool& buffers);

// Reads pieces of model files on a separate thread, in the order of the calls. A file that does not
// answer yields pieces without data and holds up no other (FileGuard). Calls and callbacks
// run on the thread of the io_context, which must have stopped before this object is destroyed.
class ModelFileReader {
 public:
  using Requester = std::uint64_t;  // identifies a connection of this process
  using OnPiece = std::function<void(ModelPiece)>;
  // Per requester. A well-behaved backend requests at most 32 at a time.
  static constexpr std::size_t kMaxPending = 64;

  explicit ModelFileReader(net::asio::io_context& io);
  ~ModelFileReader();
  ModelFileReader(const ModelFileReader&) = delete;
  ModelFileReader& operator=(const ModelFileReader&) = delete;

  // Returns false, and does nothing, if kMaxPending pieces are pending for the requester.
  [[nodiscard]] bool read(Requester requester, const std::string& sha256, const ModelFile& file,
                          std::uint64_t offset, OnPiece done);

 private:
  net::asio::io_context& io_;
  std::shared_ptr<net::BufferPool> buffers_;  // shared with reads that have not ended
  FileGuard guard_;                           // used on thread_ only
  std::map<Requester, std::size_t> pending_;
  boost::asio::thread_pool thread_{1};  // last: joined before the members it uses are destroyed
};

// The files of served models, which backends and other frontends fetch in pieces. Threads as of
// ModelFileReader.
class ServedFiles {
 public:
  using Requester = ModelFileReader::Requester;

  // `catalogue` is read again when a file differs from the one that was hashed.
  ServedFiles(net::asio::io_context& io, ModelFiles files, Reloadable& catalogue);

  // Replaces the served files. Earlier ones stay available unless a new file has their path.
  void replace(ModelFiles files);
  // Adds files until withdraw(): those of a change that another frontend makes.
  [[nodiscard]] std::uint64_t offer(ModelFiles files);
  void withdraw(std::uint64_t offer) { offered_.erase(offer); }
  // Forgets the earlier files whose SHA-256 is not among these.
  void forget_unknown(const std::unordered_set<std::string_view>& known);

  // Reads the piece that begins at `offset`; `done` gets a piece without data if the file is
  // unknown. Returns false, and does nothing, if too many pieces are pending for the requester.
  [[nodiscard]] bool read(Requester requester, const std::string& sha256, std::uint64_t offset,
                          ModelFileReader::OnPiece done);

 private:
  // Null: unknown.
  [[nodiscard]] const ModelFile* find(const std::string& sha256) const;
  void check(const ModelPiece& piece);

  ModelFiles files_;
  ModelFiles earlier_;  // that files_ lacks: versions that a new one has not replaced yet
  std::map<std::uint64_t, ModelFiles> offered_;
  std::uint64_t last_offer_ = 0;
  Reloadable& catalogue_;
  ModelFileReader reader_;
};

}  // namespace gpulet::frontend
