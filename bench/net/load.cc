// bench_net_load: drives bench_echo_server, bench_frame_server or a frontend, or with --http
// bench_http_echo_server, bench_http_server or a frontend, and prints one line of JSON.
#include <cstdio>
#include <memory>
#include <string>

#include "bench/net/driver.h"
#include "bench/net/exchanges.h"
#include "bench/support/options.h"

using namespace gpulet;

int main(int argc, char** argv) {
  bench::DriveOptions options;
  std::string model;
  std::int64_t bytes = 3136;
  double seconds = 5;
  double warm_up_seconds = 1;
  double timeout_ms = 0;
  bool http = false;
  bool hold = false;
  std::string input_name = "x";
  bench::Options command_line("Load for bench_echo_server, or for a frontend with --model");
  command_line.add("--host", options.host, "numeric address");
  command_line.add("--port", options.port).required();
  command_line.add("--connections", options.connections).positive();
  command_line.add("--depth", options.depth, "requests in flight per connection").positive();
  command_line.add("--bytes", bytes, "input bytes per request, a multiple of 4")
      .in_range(4, 1 << 28);
  command_line.add("--seconds", seconds).positive();
  command_line.add("--warm-up", warm_up_seconds).not_negative();
  command_line.add("--model", model,
                   "a model with one FP32 input of that many bytes; without it: echo");
  command_line.add("--timeout-ms", timeout_ms,
                   "timeout of a request to a model; 0: the model's objective");
  command_line.add_flag("--http", http, "use HTTP, for the echo server or a model; depth 1");
  command_line.add("--input", input_name, "input name of the model, for HTTP");
  command_line.add("--threads", options.threads, "that share the connections").positive();
  command_line.add("--tls-authority", options.authority,
                   "use TLS; file with the authority of the server's certificate");
  command_line.add_flag("--hold", hold, bench::kHoldHelp);
  if (const auto code = command_line.parse(argc, argv)) return *code;
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
  const Status driven = bench::drive(
      options, *exchange, [hold](const bench::DriveResult& result) { print(result, hold); });
  if (driven.ok()) return 0;
  std::fprintf(stderr, "%s\n", driven.to_string().c_str());
  return 1;
}
