// The commands that connect to a frontend, with simulated devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gpulet/base/random.h"
#include "gpulet/config/cluster_config.h"
#include "tests/support/cluster/cluster.h"
#include "tests/support/names.h"
#include "tests/support/temporary_folder.h"
#include "tests/tools/program_run.h"

namespace gpulet::tools {
namespace {

using support::has_line;
using support::holds;
using support::names;

class LiveProgram : public ::testing::Test {
 protected:
  LiveProgram() : cluster_({{.name = "echo", .slo_ms = 5000, .bytes = 4}}) {
    cluster_.add_backend("n0");
    cluster_.wait_until_serving();
    target_ = "127.0.0.1:" + std::to_string(cluster_.client_port());
  }

  ProgramResult infer(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"infer", "--target", target_});
    return run_gpulet(arguments);
  }

  testing::Cluster cluster_;
  support::TemporaryFolder folder_;
  std::string target_;
};

TEST_F(LiveProgram, InferPrintsTheOutputs) {
  const std::string input = folder_.write("in.json", R"({"x": [1, 2, 3, 4]})");
  const ProgramResult result = infer({"--model", "echo", "--input", input});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const auto answer = nlohmann::json::parse(result.output);
  EXPECT_EQ(answer["model_name"], "echo");
  EXPECT_EQ(answer["outputs"][0]["name"], "y");
  EXPECT_EQ(answer["outputs"][0]["datatype"], "UINT8");
  EXPECT_EQ(answer["outputs"][0]["data"], nlohmann::json({1, 2, 3, 4}));  // simulated: as it came
  EXPECT_GE(answer["batch_size"], 1);

  const ProgramResult top = infer({"--model", "echo", "--input", input, "--top", "2", "--labels",
                                   folder_.write("labels", "cat\ndog\nowl\nbee\n")});
  EXPECT_EQ(top.exit_code, 0) << top.errors;
  EXPECT_TRUE(has_line(top.output, "y UINT8[4]"));
  EXPECT_TRUE(holds(top.output, "    3  4.0000  bee\n    2  3.0000  owl\n"));
}

TEST_F(LiveProgram, InferNamesErrors) {
  const std::string good = folder_.write("in.json", R"({"x": [1, 2, 3, 4]})");
  const std::string bad = folder_.write("bad.json", R"({"x": [1, 2, 3, 400]})");
  const std::string image = folder_.write("image.pgm", "P2 1 1 255 7");
  for (const auto& [arguments, expected] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--model", "other", "--input", good}, "other"},
           {{"--model", "other", "--input", good}, "echo"},
           {{"--model", "echo", "--input", bad}, bad + ": /x/3"},
           {{"--model", "echo"}, "--input"},
           {{"--model", "echo", "--image", image}, "[C,H,W]"}}) {
    const ProgramResult result = infer(arguments);
    EXPECT_EQ(result.exit_code, 2) << expected;
    EXPECT_TRUE(names(result.errors, expected));
    EXPECT_EQ(result.output, "");
  }
  const ProgramResult late = infer({"--model", "echo", "--input", good, "--timeout-ms", "0.001"});
  EXPECT_EQ(late.exit_code, 1);
  EXPECT_TRUE(names(late.errors, "too_late"));
}

TEST_F(LiveProgram, ModelsListShowsErrorsOfTheModelsFile) {
  const auto list = [this](std::vector<std::string> more) {
    more.insert(more.begin(), {"models", "list", "--target", target_});
    return run_gpulet(more);
  };
  const auto problems = [&] { return nlohmann::json::parse(list({"--json"}).output)["problems"]; };
  EXPECT_TRUE(problems().empty());
  const std::filesystem::path file = cluster_.setup().config.models;
  const std::filesystem::path good = file.string() + ".good";
  std::filesystem::rename(file, good);
  std::ofstream(file.string() + ".bad") << "{\"models\": [\n  {\"name\" \"echo\"}]}";
  std::filesystem::rename(file.string() + ".bad", file);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto await = [&](std::size_t count) {
    while (problems().size() != count && std::chrono::steady_clock::now() < deadline) {
    }
    return problems();
  };
  const auto listed = await(1);
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_TRUE(names(listed[0].get<std::string>(), file.string() + ": line 2"));
  EXPECT_TRUE(names(list({}).output, file.string() + ": line 2"));
  std::filesystem::rename(good, file);
  EXPECT_TRUE(await(0).empty());
}

TEST_F(LiveProgram, ModelsLoadFailsIfTheModelCannotMeetItsObjective) {
  const std::filesystem::path file = cluster_.setup().config.models;
  std::ifstream stream(file);
  auto models = nlohmann::json::parse(stream);
  models["models"][0]["slo_ms"] = 0.01;
  std::ofstream(file.string() + ".new") << models.dump();
  std::filesystem::rename(file.string() + ".new", file);
  const ProgramResult result =
      run_gpulet({"models", "load", "echo", "--target", target_, "--timeout", "60"});
  EXPECT_EQ(result.exit_code, 1) << result.output;
  EXPECT_TRUE(names(result.errors, "echo", "0.01 ms"));
}

TEST_F(LiveProgram, TraceWritesTheRequestedFormat) {
  const std::string http = "127.0.0.1:" + std::to_string(cluster_.http_port());
  const auto trace = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {"trace", "--target", target_, "--http", http, "--seconds", "0.2"});
    return run_gpulet(arguments);
  };
  const ProgramResult printed = trace({});
  ASSERT_EQ(printed.exit_code, 0) << printed.errors;
  EXPECT_TRUE(nlohmann::json::parse(printed.output).contains("traceEvents")) << printed.output;

  const std::string file = folder_.path() / "requests.csv";
  const ProgramResult written = trace({"--format", "log", "--out", file, "--json"});
  ASSERT_EQ(written.exit_code, 0) << written.errors;
  const auto document = nlohmann::json::parse(written.output);
  EXPECT_EQ(document["file"], file);
  EXPECT_EQ(document["bytes"], std::filesystem::file_size(file));

  EXPECT_EQ(trace({"--out", folder_.path() / "none" / "file"}).exit_code, 2);
  EXPECT_EQ(trace({"--format", "video"}).exit_code, 2);
  // The port for HTTP in place of the one for clients.
  EXPECT_EQ(run_gpulet({"trace", "--target", http, "--seconds", "0"}).exit_code, 0);
  const ProgramResult nobody = run_gpulet({"trace", "--target", "127.0.0.1:1", "--seconds", "0"});
  EXPECT_EQ(nobody.exit_code, 1);
  EXPECT_TRUE(names(nobody.errors, "127.0.0.1:1"));
}

TEST_F(LiveProgram, WaitEndsOnceReady) {
  for (const std::vector<std::string>& wanted :
       std::vector<std::vector<std::string>>{{}, {"echo"}, {"--all"}}) {
    std::vector<std::string> arguments = {"wait", "--target", target_, "--timeout", "60"};
    arguments.insert(arguments.end(), wanted.begin(), wanted.end());
    const ProgramResult result = run_gpulet(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
  }
  const ProgramResult unknown = run_gpulet({"wait", "--target", target_, "ecko"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_TRUE(names(unknown.errors, "ecko", "echo"));
}

TEST_F(LiveProgram, WaitNamesTheRightPortAtOnce) {
  const std::string wrong = "127.0.0.1:" + std::to_string(cluster_.backend_port());
  const ProgramResult result = run_gpulet({"wait", "--target", wrong});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(names(result.errors, std::to_string(cluster_.client_port())));
}

TEST_F(LiveProgram, LogsPrintEventsWithTheTime) {
  const ProgramResult result = run_gpulet({"logs", "--target", target_});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output,
              ::testing::ContainsRegex("[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}  "));
  const ProgramResult as_json = run_gpulet({"logs", "--target", target_, "--json"});
  const auto first = nlohmann::json::parse(as_json.output.substr(0, as_json.output.find('\n')));
  EXPECT_TRUE(first["unix_s"].is_number());
  EXPECT_NE(first["text"], "");
}

TEST_F(LiveProgram, TopPrintsOneDocumentPerLine) {
  const ProgramResult result =
      run_gpulet({"top", "--target", target_, "--json", "--count", "2", "--interval", "0.1"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  std::istringstream lines(result.output);
  int documents = 0;
  for (std::string line; std::getline(lines, line); ++documents)
    EXPECT_EQ(nlohmann::json::parse(line)["frontend"]["state"], "serving");
  EXPECT_EQ(documents, 2);
}

TEST_F(LiveProgram, StatusShowsTheTimeOfEvents) {
  const ProgramResult result = run_gpulet({"status", "--target", target_});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output, ::testing::ContainsRegex("\n +[0-9]{2}:[0-9]{2}:[0-9]{2}  "));
}

TEST_F(LiveProgram, CompletionAsksTheFrontendForItsModels) {
  const ProgramResult models = run_gpulet({"completion", "models", "--target", target_});
  EXPECT_EQ(models.exit_code, 0) << models.errors;
  EXPECT_EQ(models.output, "echo\n");
  const std::string script =
      folder_.write("completion.bash", run_gpulet({"completion", "bash"}).output);
  // Bash splits words at colons.
  const std::string port = std::to_string(cluster_.client_port());
  const std::string target = "--target 127.0.0.1 : " + port;
  for (const std::string& words :
       {"gpulet infer " + target + " --model ec", "gpulet wait " + target + " e",
        "gpulet models unload " + target + " e"}) {
    EXPECT_EQ(bash_completions(script, words), "echo\n") << words;
  }
}

TEST_F(LiveProgram, TopPrintsOnceWithoutATerminal) {
  const ProgramResult result = run_gpulet({"top", "--target", target_});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_TRUE(names(result.output, "serving"));
  EXPECT_FALSE(holds(result.output, "\033["));
}

// Runs the program on a terminal of its own.
class OnTerminal {
 public:
  explicit OnTerminal(const std::vector<std::string>& arguments) {
    // Built before the fork, because a child of a process with threads may not allocate.
    std::vector<char*> argv = {const_cast<char*>(GPULET_PROGRAM)};
    for (const std::string& argument : arguments)
      argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    const winsize size{24, 80, 0, 0};
    child_ = forkpty(&terminal_, nullptr, nullptr, &size);
    if (child_ == 0) {
      execv(GPULET_PROGRAM, argv.data());
      _exit(127);
    }
  }
  ~OnTerminal() {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
    close(terminal_);
  }
  OnTerminal(const OnTerminal&) = delete;
  OnTerminal& operator=(const OnTerminal&) = delete;

  // Reads until the text was shown that many times since the last call. False after ten seconds.
  bool shows(const std::string& text, int times = 1) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    std::size_t at = 0;
    for (;;) {
      for (at = shown_.find(text); at != std::string::npos; at = shown_.find(text)) {
        shown_.erase(0, at + text.size());
        if (--times == 0) return true;
      }
      pollfd waited{terminal_, POLLIN, 0};
      if (std::chrono::steady_clock::now() > deadline || poll(&waited, 1, 10000) <= 0) return false;
      std::array<char, 4096> buffer{};
      const ssize_t count = read(terminal_, buffer.data(), buffer.size());
      if (count <= 0) return false;
      shown_.append(buffer.data(), static_cast<std::size_t>(count));
    }
  }

  void type(const std::string& keys) {
    ASSERT_EQ(write(terminal_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }

  int end() {
    int status = 0;
    waitpid(child_, &status, 0);
    child_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  // Whether the terminal has a shell's settings: lines, echo and Ctrl-Z.
  [[nodiscard]] bool restored() const {
    termios now{};
    return tcgetattr(terminal_, &now) == 0 && (now.c_lflag & ICANON) != 0 &&
           (now.c_lflag & ECHO) != 0 && now.c_cc[VSUSP] != _POSIX_VDISABLE;
  }

 private:
  int terminal_ = -1;
  pid_t child_ = 0;
  std::string shown_;
};

TEST_F(LiveProgram, TopRefreshesUntilQAndRestoresTheTerminal) {
  for (const std::string& ending : {std::string("q"), std::string("\003")}) {  // q, Ctrl-C
    OnTerminal top({"top", "--target", target_, "--interval", "0.1"});
    EXPECT_TRUE(top.shows("\033[?1049h"));
    EXPECT_TRUE(top.shows("frontend serving", 3));
    EXPECT_FALSE(top.restored());
    top.type(ending);
    EXPECT_TRUE(top.shows("\033[?1049l"));
    EXPECT_TRUE(top.restored());
    EXPECT_EQ(top.end(), 0);
  }
}

TEST_F(LiveProgram, TopReportsThatTheFrontendIsGone) {
  OnTerminal top({"top", "--target", target_, "--interval", "0.1"});
  EXPECT_TRUE(top.shows("frontend serving"));
  cluster_.stop_frontend();
  EXPECT_TRUE(top.shows("no response: showing the latest status"));
  EXPECT_TRUE(top.shows("frontend serving"));
  top.type("q");
  EXPECT_EQ(top.end(), 0);
}

// The number of requests that a simulation of the trace sends, for a demand with some rate.
std::size_t arrivals_in(const config::Trace& trace, const std::string& model, std::uint64_t seed,
                        double seconds) {
  config::TraceArrivals arrivals(trace, model, 1, stream_seed(seed, model));
  std::size_t count = 0;
  while (arrivals.next_s() < seconds) ++count;
  return count;
}

TEST_F(LiveProgram, LoadFollowsATrace) {
  cluster_.spawn_backend("n1");
  const std::string rows = "time_s,model,rate\n0,echo,20\n2,echo,90\n4,echo,0\n";
  const std::string trace = folder_.write("trace.csv", rows);
  const std::string series = folder_.path() / "series.csv";
  const ProgramResult run =
      run_gpulet({"load", "--target", target_, "--trace", trace, "--speed", "2", "--seconds", "3",
                  "--period", "1", "--seed", "5", "--threads", "1", "--series", series, "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.errors;
  const auto document = nlohmann::json::parse(run.output);
  ASSERT_EQ(document["models"].size(), 1U);
  const auto& echo = document["models"][0];
  const config::Trace replayed =
      config::scaled_trace(config::parse_trace(rows, "trace.csv").value(), 2, 2);
  EXPECT_EQ(echo["offered"], arrivals_in(replayed, "echo", 5, 3));
  EXPECT_EQ(echo["slo_ms"], 5000) << "that of the model";
  EXPECT_EQ(echo["served"].get<int>() + echo["dropped"].get<int>() + echo["errors"].get<int>(),
            echo["offered"]);
  ASSERT_EQ(document["series"].size(), 3U);
  EXPECT_EQ(document["series"][0]["offered"], arrivals_in(replayed, "echo", 5, 1));
  EXPECT_EQ(document["series"][2]["offered"], 0);

  std::ifstream file(series);
  std::string header;
  std::getline(file, header);
  EXPECT_TRUE(header.starts_with("time_s,devices,share_percent,offered,violations,echo offered"));
}

TEST_F(LiveProgram, LoadReportsWhatServes) {
  const std::string workload =
      folder_.write("workload.json", R"({"models":[{"name":"echo","rate":20,"slo_ms":5000}]})");
  const ProgramResult run =
      run_gpulet({"load", "--target", target_, "--workload", workload, "--seconds", "2.5",
                  "--series", folder_.path() / "series.csv", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.errors;
  const auto row = nlohmann::json::parse(run.output)["series"][0];
  EXPECT_EQ(row["devices"], 1);
  EXPECT_GT(row["share_percent"], 0);
}

TEST_F(LiveProgram, LoadRefusesTracesThatItCannotFollow) {
  const auto file = [this](const std::string& name, const std::string& text) {
    return folder_.write(name, text);
  };
  const std::string rates = file("rates.csv", "time_s,model,rate\n0,echo,20\n");
  const std::string given = file("given.csv", "time_s,model\n0,echo\n");
  const std::string other = file("other.csv", "time_s,model,rate\n0,other,20\n");
  const std::string bad = file("bad.csv", "time_s,model,rate\n0,echo,-1\n");
  const std::string closed =
      file("closed.json", R"({"models":[{"name":"echo","arrivals":"closed","slo_ms":5000}]})");
  const std::string open =
      file("open.json", R"({"models":[{"name":"echo","rate":20,"slo_ms":5000}]})");
  for (const auto& [arguments, expected] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{}, "--workload"},
           {{"--workload", open, "--speed", "2"}, "--trace"},
           {{"--trace", bad}, bad + ": line 2"},
           {{"--trace", other}, "other"},
           {{"--trace", other, "--workload", open}, open},
           {{"--trace", rates, "--workload", closed}, "echo"},
           {{"--trace", given, "--rate-scale", "2"}, "--rate-scale"},
           {{"--trace", rates, "--series", folder_.path() / "none" / "series.csv"}, "--series"}}) {
    std::vector<std::string> all = {"load", "--target", target_, "--seconds", "1"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const ProgramResult result = run_gpulet(all);
    EXPECT_EQ(result.exit_code, 2) << expected;
    EXPECT_TRUE(names(result.errors, expected));
    EXPECT_EQ(result.output, "");
  }
}

TEST_F(LiveProgram, InterruptedLoadPrintsItsReport) {
  const std::string workload =
      folder_.write("workload.json", R"({"models":[{"name":"echo","rate":20,"slo_ms":5000}]})");
  OnTerminal load({"load", "--target", target_, "--workload", workload, "--seconds", "60"});
  EXPECT_TRUE(load.shows("in flight"));
  load.type("\003");
  EXPECT_TRUE(load.shows("violation of all together"));
  EXPECT_EQ(load.end(), 0);
}

}  // namespace
}  // namespace gpulet::tools
