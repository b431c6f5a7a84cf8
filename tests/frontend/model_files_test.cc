#include "frontend/catalogue/model_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "gpulet/base/sha256.h"
#include "gpulet/config/model_config.h"
#include "tests/net/loop.h"
#include "tests/support/onnx_file.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/torchscript_archive.h"

namespace gpulet::frontend {
namespace {

std::string text_in(const Bytes& bytes) {
  const auto view = bytes.view();
  return {reinterpret_cast<const char*>(view.data()), view.size()};
}

class ModelPieceTest : public ::testing::Test {
 protected:
  ModelPieceTest() { hash("the bytes of a model"); }

  void hash(const std::string& text) {
    file_.path = folder_.write("model.pt", text);
    file_.stamp = stamp_of(file_.path).value();
    sha256_ = sha256_of(text);
  }
  ModelPiece read(std::uint64_t offset) { return read_piece(sha256_, file_, offset, buffers_); }

  support::TemporaryFolder folder_;
  ModelFile file_;
  std::string sha256_;
  net::BufferPool buffers_{{}};
};

TEST_F(ModelPieceTest, PieceHasTheMaximumLengthOrEndsWithTheFile) {
  hash(std::string(kModelPieceBytes, 'a') + "rest");
  const ModelPiece first = read(0);
  EXPECT_EQ(text_in(first.data), std::string(kModelPieceBytes, 'a'));
  EXPECT_EQ(first.total_bytes, kModelPieceBytes + 4);
  EXPECT_EQ(first.sha256, sha256_);
  const ModelPiece last = read(kModelPieceBytes);
  EXPECT_EQ(text_in(last.data), "rest");
  EXPECT_EQ(last.offset, kModelPieceBytes);
  EXPECT_FALSE(last.changed);
}

TEST_F(ModelPieceTest, PieceIsEmptyBeyondTheEndAndWithoutAFile) {
  EXPECT_EQ(read(1000).total_bytes, 0U);
  EXPECT_FALSE(read(1000).changed);
  std::filesystem::remove(file_.path);
  EXPECT_EQ(read(0).total_bytes, 0U);
  EXPECT_FALSE(read(0).changed);
}

TEST_F(ModelPieceTest, ReportsAFileThatChangedAfterHashing) {
  std::filesystem::resize_file(file_.path, 5);
  EXPECT_TRUE(read(0).changed) << "truncated";
  EXPECT_TRUE(read(0).data.empty());
  hash("the bytes of a model");
  std::filesystem::last_write_time(
      file_.path, std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_TRUE(read(0).changed) << "rewritten with the same length";
  hash("the bytes of a model");
  const auto time = std::filesystem::last_write_time(file_.path);
  std::filesystem::rename(file_.path, folder_.path() / "old.pt");
  folder_.write("model.pt", "THE BYTES OF A MODEL");
  std::filesystem::last_write_time(file_.path, time);
  EXPECT_TRUE(read(0).changed) << "another file";
}

// Opening a pipe would block until another process writes to it.
TEST_F(ModelPieceTest, DoesNotBlockOnAPipe) {
  std::filesystem::remove(file_.path);
  ASSERT_EQ(::mkfifo(file_.path.c_str(), 0600), 0);
  EXPECT_EQ(read(0).total_bytes, 0U);
}

TEST_F(ModelPieceTest, ReaderDeliversPiecesInOrderOnTheLoop) {
  hash("0123456789");
  net::testing::Loop loop;
  std::vector<std::string> pieces;
  std::vector<std::thread::id> threads;
  ModelFileReader reader(loop.context());
  for (std::uint64_t offset = 0; offset < ModelFileReader::kMaxPending; ++offset) {
    EXPECT_TRUE(reader.read(1, sha256_, file_, offset % 10, [&](ModelPiece piece) {
      pieces.push_back(text_in(piece.data));
      threads.push_back(std::this_thread::get_id());
    }));
  }
  EXPECT_FALSE(reader.read(1, sha256_, file_, 0, [](const ModelPiece&) {})) << "too many pending";
  bool other = false;
  EXPECT_TRUE(reader.read(2, sha256_, file_, 0, [&](const ModelPiece&) { other = true; }))
      << "another requester has its own limit";
  ASSERT_TRUE(loop.run_until([&] { return other; }));
  ASSERT_EQ(pieces.size(), ModelFileReader::kMaxPending);
  EXPECT_EQ(pieces[0], "0123456789");
  EXPECT_EQ(pieces[9], "9");
  EXPECT_EQ(threads[0], std::this_thread::get_id());
  EXPECT_TRUE(reader.read(1, sha256_, file_, 0, [](const ModelPiece&) {}))
      << "nothing is pending any more";
}

using std::filesystem::perms;
using support::archive;
using support::kMembers;

class ModelPathPolicyTest : public ::testing::Test {
 protected:
  ModelPathPolicyTest() {
    std::filesystem::create_directories(folder_.path() / "config");
    std::filesystem::create_directories(folder_.path() / "models/below");
    config_.models = folder_.path() / "config/models.json";
    put("models/known.pt", archive(kMembers, true));
    put("models/other.pt", archive(kMembers, false));
    put("config/frontend.key", "-----BEGIN PRIVATE KEY-----");
    known_.emplace_back().file = folder_.path() / "models/known.pt";
  }
  void put(const std::string& name, const std::string& text) const {
    folder_.write(name, text);
    set_mode(name, 0644);
  }
  void set_mode(const std::string& name, unsigned mode) const {
    std::filesystem::permissions(folder_.path() / name, static_cast<perms>(mode));
  }
  [[nodiscard]] StatusCode admitted(const std::string& name) const {
    return ModelPathPolicy(config_, known_).admit(folder_.path() / name).status().code();
  }

  support::TemporaryFolder folder_;
  config::FrontendConfig config_;
  std::vector<config::ModelConfig> known_;
};

TEST_F(ModelPathPolicyTest, AdmitsAFileBesideAKnownModel) {
  EXPECT_EQ(admitted("models/other.pt"), StatusCode::ok);
  EXPECT_EQ(admitted("config/../models/other.pt"), StatusCode::ok);
  EXPECT_EQ(admitted("models/none.pt"), StatusCode::not_found);
}

TEST_F(ModelPathPolicyTest, RefusesTheFolderOfTheConfiguration) {
  put("config/stray.pt", archive(kMembers, true));
  put("models/below/deep.pt", archive(kMembers, true));
  std::filesystem::create_symlink(folder_.path() / "config/stray.pt",
                                  folder_.path() / "models/link.pt");
  EXPECT_EQ(admitted("config/frontend.key"), StatusCode::invalid);
  EXPECT_EQ(admitted("config/stray.pt"), StatusCode::invalid);
  EXPECT_EQ(admitted("models/link.pt"), StatusCode::invalid);
  EXPECT_EQ(admitted("models/below/deep.pt"), StatusCode::invalid);
}

TEST_F(ModelPathPolicyTest, RefusesAFileThatOnlyItsOwnerMayRead) {
  set_mode("models/other.pt", 0600);
  EXPECT_EQ(admitted("models/other.pt"), StatusCode::invalid);
  set_mode("models/other.pt", 0640);
  EXPECT_EQ(admitted("models/other.pt"), StatusCode::ok);
  // A model_root holds only models, so permissions do not matter there.
  set_mode("models/other.pt", 0600);
  config_.model_root = folder_.path() / "models";
  EXPECT_EQ(admitted("models/other.pt"), StatusCode::ok);
}

TEST_F(ModelPathPolicyTest, RefusesFilesOutsideOfTheModelRoot) {
  put("models/below/deep.pt", archive(kMembers, true));
  config_.model_root = folder_.path() / "models/below";
  EXPECT_EQ(admitted("models/below/deep.pt"), StatusCode::ok);
  EXPECT_EQ(admitted("models/other.pt"), StatusCode::invalid);
  EXPECT_EQ(admitted("models/below/../other.pt"), StatusCode::invalid);
  EXPECT_EQ(admitted("models/below"), StatusCode::invalid);
}

TEST_F(ModelPathPolicyTest, RefusesKeysAndTokens) {
  config_.model_format = config::ModelFormat::any;
  config_.model_root = folder_.path();
  EXPECT_EQ(admitted("config/frontend.key"), StatusCode::ok);
  config_.backend_tls = config::TlsFiles{{}, folder_.path() / "config/frontend.key", {}};
  EXPECT_EQ(admitted("config/frontend.key"), StatusCode::invalid);
  std::filesystem::create_hard_link(folder_.path() / "config/frontend.key",
                                    folder_.path() / "models/hard.pt");
  EXPECT_EQ(admitted("models/hard.pt"), StatusCode::invalid);
  config_.backend_tls.reset();
  for (std::filesystem::path config::TokenFiles::*tokens :
       {&config::TokenFiles::admin, &config::TokenFiles::inference, &config::TokenFiles::observe}) {
    config_.tokens = {};
    EXPECT_EQ(admitted("config/frontend.key"), StatusCode::ok);
    config_.tokens.*tokens = folder_.path() / "config/frontend.key";
    EXPECT_EQ(admitted("config/frontend.key"), StatusCode::invalid);
  }
}

// Every key that names a file: one that is added to the configuration is refused without a further
// line, because the reader of the file collects them.
TEST_F(ModelPathPolicyTest, RefusesWhateverFileTheConfigurationNames) {
  const std::vector<std::string> files{"tls.pem",     "tls.key",     "backend.pem",  "backend.key",
                                       "backend.ca",  "admin",       "inference",    "observe",
                                       "audit.jsonl", "peer.pem",    "peer.key",     "peer.ca",
                                       "password",    "etcd.pem",    "etcd.key",     "etcd.ca",
                                       "stores.ca",   "models.json", "frontend.json"};
  for (const std::string& file : files) put("models/" + file, "secret of " + file);
  const auto parsed = config::parse_frontend(
      R"({"models":"models.json","profiles":".","model_root":".","model_format":"any",
          "tls":{"certificate":"tls.pem","key":"tls.key"},
          "backend_tls":{"certificate":"backend.pem","key":"backend.key","authority":"backend.ca"},
          "tokens":{"admin":"admin","inference":"inference","observe":"observe"},
          "audit_log":"audit.jsonl","remote_stores":{"cache":"cache","authority":"stores.ca"},
          "cluster":{"etcd":["127.0.0.1:2379"],"model_store":"store","user":"u",
                     "password_file":"password",
                     "peer_tls":{"certificate":"peer.pem","key":"peer.key","authority":"peer.ca"},
                     "tls":{"certificate":"etcd.pem","key":"etcd.key","authority":"etcd.ca"}}})",
      folder_.path() / "models/frontend.json");
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  config_ = parsed.value();
  EXPECT_EQ(admitted("models/other.pt"), StatusCode::ok);
  for (const std::string& file : files) {
    EXPECT_EQ(admitted("models/" + file), StatusCode::invalid) << file;
    const auto text = ModelPathPolicy(config_, known_).admit_text(folder_.path() / "models" / file);
    EXPECT_EQ(text.status().code(), StatusCode::invalid) << file;
  }
}

TEST_F(ModelPathPolicyTest, RefusesKeysOfAClusterThatNoFileDescribes) {
  config_.model_format = config::ModelFormat::any;
  config_.model_root = folder_.path();
  const std::filesystem::path key = folder_.path() / "config/frontend.key";
  config_.cluster.emplace();
  EXPECT_EQ(admitted("config/frontend.key"), StatusCode::ok);
  config_.cluster->password_file = key;
  EXPECT_EQ(admitted("config/frontend.key"), StatusCode::invalid);
  config_.cluster->password_file.clear();
  config_.cluster->peer_tls = config::TlsFiles{{}, key, {}};
  EXPECT_EQ(admitted("config/frontend.key"), StatusCode::invalid);
  config_.cluster->peer_tls.reset();
  config_.cluster->tls = config::TlsFiles{{}, key, {}};
  EXPECT_EQ(admitted("config/frontend.key"), StatusCode::invalid);
}

TEST_F(ModelPathPolicyTest, RefusesAFileThatIsNotAnArchive) {
  const std::string good = archive(kMembers, true);
  const std::vector<std::string> wrong{
      "",
      "-----BEGIN PRIVATE KEY-----",
      good.substr(0, good.size() - 1),
      good + "x",
      "x" + good,
      archive({}, true),
      archive({"data.pkl", "code/x.py"}, true),
      archive({"m/data.pkl"}, true),
      archive({"m/code/x.py", "m/constants.pkl"}, false),
      archive({"m/data.pkl", "n/constants.pkl"}, false),
  };
  for (const std::string& text : wrong) {
    put("models/other.pt", text);
    EXPECT_EQ(admitted("models/other.pt"), StatusCode::invalid) << text.size() << " bytes";
  }
  config_.model_format = config::ModelFormat::any;
  EXPECT_EQ(admitted("models/other.pt"), StatusCode::ok);
}

TEST_F(ModelPathPolicyTest, AdmitsOnnxFilesUnlessOnlyTorchscriptIsAllowed) {
  put("models/other.onnx", encode(support::onnx::Model{.inputs = {{"x"}}, .outputs = {{"y"}}}));
  EXPECT_EQ(admitted("models/other.onnx"), StatusCode::ok);
  config_.model_format = config::ModelFormat::torchscript;
  EXPECT_EQ(admitted("models/other.onnx"), StatusCode::invalid);
}

// Arbitrary bytes must not crash the check.
RC_GTEST_PROP(TorchscriptFileTest, AcceptsOrRefusesAnyMutationOfAnArchive, ()) {
  support::TemporaryFolder folder;
  std::string text = archive(kMembers, *rc::gen::arbitrary<bool>());
  const auto changes = *rc::gen::inRange(0, 6);
  for (int i = 0; i < changes; ++i)
    text[*rc::gen::inRange<std::size_t>(0, text.size())] = *rc::gen::arbitrary<char>();
  text.resize(text.size() - *rc::gen::inRange<std::size_t>(0, 40));
  folder.write("m.pt", text);
  const int descriptor = ::open((folder.path() / "m.pt").c_str(), O_RDONLY | O_CLOEXEC);
  RC_ASSERT(descriptor >= 0);
  const Status status = config::check_torchscript(descriptor);
  ::close(descriptor);
  RC_ASSERT(status.ok() || status.code() == StatusCode::invalid);
  if (changes == 0 && text.size() == archive(kMembers, true).size()) RC_ASSERT(status.ok());
}

}  // namespace
}  // namespace gpulet::frontend
