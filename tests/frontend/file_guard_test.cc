// Files that do not answer.
#include "frontend/loop/file_guard.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "frontend/catalogue/catalogue.h"
#include "gpulet/profile/store.h"
#include "tests/support/serve/world.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::frontend::file_guard_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A file server that does not answer until it is opened.
class Gate {
 public:
  ~Gate() { open(); }
  void wait() {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [this] { return open_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

using Work = std::function<Result<int>(ReadProgress&)>;

Work blocked(const std::shared_ptr<Gate>& gate) {
  return [gate](ReadProgress&) {
    gate->wait();
    return Result<int>(1);
  };
}
Work quick() {
  return [](ReadProgress&) { return Result<int>(2); };
}

TEST(FileGuard, AFileThatDoesNotAnswerHoldsUpNoOther) {
  const auto gate = std::make_shared<Gate>();
  FileGuard guard(milliseconds(20));
  EXPECT_EQ(guard.run<int>("hung", blocked(gate)).status().code(), StatusCode::timeout);
  EXPECT_TRUE(guard.hangs("hung"));
  EXPECT_EQ(guard.run<int>("other", quick()).value(), 2);
  EXPECT_EQ(guard.run<int>("hung", quick()).status().code(), StatusCode::timeout);
  gate->open();
  const auto deadline = std::chrono::steady_clock::now() + seconds(10);
  while (guard.hangs("hung") && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  EXPECT_EQ(guard.run<int>("hung", quick()).value(), 2);
}

TEST(FileGuard, AFileThatMakesProgressHasItsTime) {
  FileGuard guard(milliseconds(200));
  const auto result = guard.run<int>("slow", [](ReadProgress& progress) {
    const auto end = std::chrono::steady_clock::now() + milliseconds(600);
    while (std::chrono::steady_clock::now() < end) progress.advance();
    return Result<int>(3);
  });
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(result.value(), 3);
}

TEST(FileGuard, FewFilesMayHang) {
  const auto gate = std::make_shared<Gate>();
  FileGuard guard(milliseconds(1));
  for (std::size_t i = 0; i < FileGuard::kMostHanging; ++i)
    EXPECT_FALSE(guard.run<int>(std::to_string(i), blocked(gate)).ok());
  EXPECT_EQ(guard.run<int>("one more", quick()).status().code(), StatusCode::timeout);
}

TEST(FileGuard, TheEndDoesNotWait) {
  const auto gate = std::make_shared<Gate>();
  FileGuard guard(std::chrono::hours(1));
  std::thread ends([&guard] { guard.stop(); });
  EXPECT_EQ(guard.run<int>("hung", blocked(gate)).status().code(), StatusCode::cancelled);
  ends.join();
  EXPECT_EQ(guard.run<int>("other", quick()).status().code(), StatusCode::cancelled);
}

class HungModelFile : public ::testing::Test {
 protected:
  HungModelFile() {
    folder_.write("a.pt", "a");
    folder_.write("b.pt", "b");
    std::filesystem::create_directory(folder_.path() / "profiles");
    folder_.write("models.json", models({"a", "b"}));
    EXPECT_TRUE(profile::write_profile(serve::testing::card_profile({{"a", 4}, {"b", 4}}),
                                       folder_.path() / "profiles")
                    .ok());
    config_.models = folder_.path() / "models.json";
    config_.profiles = folder_.path() / "profiles";
  }

  static std::string models(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) {
      text += std::string(text.empty() ? "" : ",") + R"({"name":")" + name + R"(","file":")" +
              name + R"(.pt","slo_ms":50,)" +
              R"("inputs":[{"name":"x","type":"FP32","shape":[1]}],)" +
              R"("outputs":[{"name":"y","type":"FP32","shape":[1]}]})";
    }
    return R"({"models":[)" + text + "]}";
  }
  // The file of model a does not answer.
  [[nodiscard]] FileReading reading() const {
    return {
        milliseconds(50),
        [gate = gate_](const std::filesystem::path& file, ReadProgress&) -> Result<std::string> {
          if (file.filename() == "a.pt") gate->wait();
          return sha256_of_file(file);
        }};
  }

  const support::TemporaryFolder folder_;
  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  config::FrontendConfig config_;
};

TEST_F(HungModelFile, LeavesTheOthersAlone) {
  CatalogueLoader loader(config_, std::nullopt, {}, reading());
  const auto loaded = loader.load();
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  ASSERT_EQ(loaded.value().catalogue.models.size(), 2U);
  EXPECT_TRUE(loaded.value().catalogue.models[0].sha256.empty());
  EXPECT_FALSE(loaded.value().catalogue.models[1].sha256.empty());
  EXPECT_EQ(loaded.value().catalogue.faults.size(), 1U);
  const auto unloaded = loader.change({ModelsChange::Kind::unload, "b", {}, {}});
  ASSERT_TRUE(unloaded.ok()) << unloaded.status().to_string();
  EXPECT_EQ(unloaded.value().catalogue.models.size(), 1U);
}

TEST_F(HungModelFile, KeepsTheContentThatWasReadBefore) {
  gate_->open();
  CatalogueLoader loader(config_, std::nullopt, {}, reading());
  const auto before = loader.load();
  ASSERT_TRUE(before.ok()) << before.status().to_string();
  // The path is a pipe now, which would never end.
  std::filesystem::remove(folder_.path() / "a.pt");
  ASSERT_EQ(::mkfifo((folder_.path() / "a.pt").c_str(), 0644), 0);
  const auto after = loader.load();
  ASSERT_TRUE(after.ok()) << after.status().to_string();
  EXPECT_EQ(after.value().catalogue.models[0].sha256, before.value().catalogue.models[0].sha256);
  EXPECT_EQ(after.value().catalogue.faults.size(), 1U);
}

TEST_F(HungModelFile, APipeIsRefusedAtTheStart) {
  std::filesystem::remove(folder_.path() / "b.pt");
  ASSERT_EQ(::mkfifo((folder_.path() / "b.pt").c_str(), 0644), 0);
  gate_->open();
  EXPECT_EQ(CatalogueLoader(config_).load().status().code(), StatusCode::invalid);
}

}  // namespace
}  // namespace gpulet::frontend::file_guard_test
