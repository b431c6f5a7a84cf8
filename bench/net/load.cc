// bench_net_load: drives bench_echo_server, bench_frame_server or a frontend, or with --http
// bench_http_echo_server, bench_http_server or a frontend, and prints one line of JSON.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "bench/net/driver.h"
#include "bench/net/exchanges.h"

using namespace gpulet;

int main(int argc, char** argv) {
  bench::DriveOptions options;
  std::string model;
  std::int64_t bytes = 3136;
  double seconds = 5;
  double warm_up_seconds = 1;
  double timeout_ms = 0;
  bool http = false;
  std::string input_name = "x";
  CLI::App app("Load for bench_echo_server, or for a frontend with --model");
  app.add_option("--host", options.host, "numeric address")->capture_default_str();
  app.add_option("--port", options.port)->required();
  app.add_option("--connections", options.connections)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--depth", options.depth, "requests in flight per connection")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--bytes", bytes, "input bytes per request, a multiple of 4")
      ->check(CLI::Range(4, 1 << 28))
      ->capture_default_str();
  app.add_option("--seconds", seconds)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--warm-up", warm_up_seconds)
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--model", model,
                 "a model with one FP32 input of that many bytes; without it: echo");
  app.add_option("--timeout-ms", timeout_ms,
                 "timeout of a request to a model; 0: the model's objective")
      ->capture_default_str();
  app.add_flag("--http", http, "use HTTP, for the echo server or a model; depth 1");
  app.add_option("--input", input_name, "input name of the model, for HTTP")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (http && options.depth != 1) {
    std::fprintf(stderr, "--http needs --depth 1: take more --connections instead\n");
    return 1;
  }
  options.duration = from_seconds(seconds);
  options.warm_up = from_seconds(warm_up_seconds);

  std::unique_ptr<bench::Exchange> exchange;
  if (http) {
    const TensorSpec input{input_name, DataType::fp32, {bytes / 4}};
    exchange = std::make_unique<bench::HttpExchange>(
        model.empty() ? bench::HttpExchange::echo(static_cast<std::size_t>(bytes))
                      : bench::HttpExchange::infer(model, input, from_ms(timeout_ms)));
  } else if (model.empty()) {
    exchange = std::make_unique<bench::EchoExchange>(static_cast<std::size_t>(bytes));
  } else {
    const TensorSpec input{"", DataType::fp32, {bytes / 4}};
    exchange = std::make_unique<bench::InferExchange>(model, std::vector<TensorSpec>{input},
                                                      from_ms(timeout_ms));
  }
  const Result<bench::DriveResult> result = bench::drive(options, *exchange);
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.status().to_string().c_str());
    return 1;
  }
  std::printf("%s\n", to_json(result.value()).c_str());
  return 0;
}
