// A dashboard with generated data instead of a frontend, for the tests in a browser:
//
//   gpulet-dashboard-feed DEVICES MODELS [PORT]
//
// Prints "port N" and "costs MICROSECONDS BYTES BYTES" (the time for writing all documents, the
// size of layout and events, the size of a tick). Then executes one command per line of its input:
// load X, violated X, full, reorganise, warn TEXT, repeat TEXT, unavailable MODEL, fail, drain,
// control, stop.
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/streambuf.hpp>
#include <chrono>
#include <iostream>
#include <sstream>

#include "frontend/endpoints/dashboard.h"
#include "frontend/endpoints/dashboard_documents.h"
#include "frontend/endpoints/endpoint_router.h"
#include "frontend/endpoints/http_handlers.h"
#include "gpulet/net/buffer_pool.h"
#include "tests/dashboard/fake_cluster.h"

namespace gpulet::testing {
namespace {

namespace asio = net::asio;

Time now() { return Time(std::chrono::steady_clock::now().time_since_epoch()); }
observe::WallClock wall_clock() {
  return {now(), std::chrono::system_clock::now().time_since_epoch()};
}

class Feed final : private frontend::SnapshotSource, private frontend::MetricsSource {
 public:
  Feed(asio::io_context& io, std::uint32_t devices, std::uint32_t models, std::uint16_t port)
      : cluster_(devices, models), io_(io), handler_(add_services()), input_(io, ::dup(0)) {
    net::http::HttpServerOptions options;
    options.connections.general = 64;
    server_ = net::http::HttpServer::listen(io.get_executor(), "127.0.0.1", port, options, buffers_,
                                            router_)
                  .value();
    std::cout << "port " << server_->port() << std::endl;
    print_costs();
    read();
  }

 private:
  frontend::DashboardHandler& add_services() {
    frontend::SnapshotSource& snapshots = *this;
    frontend::MetricsSource& metrics = *this;
    frontend::DashboardHandler& handler = router_.add(
        std::make_unique<frontend::DashboardHandler>(io_, snapshots, frontend::dashboard_assets()));
    router_.add(std::make_unique<frontend::MetricsHandler>(metrics));
    return handler;
  }
  void snapshot(OnSnapshot done) override {
    asio::post(io_, [done = std::move(done), sample = sample()] { done(sample); });
  }
  void metrics(OnPage done) override { done({}); }

  frontend::StatusSnapshot sample() {
    frontend::TimedStatus timed;
    timed.wall = wall_clock();
    timed.status = cluster_.status(timed.wall.engine);
    timed.context = {.started = started_, .now = timed.wall.engine, .clients = 3};
    return std::make_shared<const frontend::TimedStatus>(std::move(timed));
  }

  void print_costs() {
    const serve::FrontendStatus status = cluster_.status(now());
    frontend::DashboardHistory history;
    history.add(status, now());
    const Time began = now();
    const std::string layout = frontend::layout_document(status);
    const std::string events = frontend::events_document(status, history, wall_clock());
    const std::string tick = frontend::tick_document(status, history, {wall_clock(), {}, 3});
    const auto took = std::chrono::duration_cast<std::chrono::microseconds>(now() - began);
    std::cout << "costs " << took.count() << " " << layout.size() + events.size() << " "
              << tick.size() << std::endl;
  }

  void read() {
    asio::async_read_until(input_, typed_, '\n',
                           [this](const boost::system::error_code& error, std::size_t) {
                             if (error) return stop();
                             std::istream lines(&typed_);
                             std::string line;
                             std::getline(lines, line);
                             execute(line);
                             if (!stopped_) read();
                           });
  }

  void execute(const std::string& line) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    if (what == "load") words >> cluster_.load;
    if (what == "violated") words >> cluster_.violated;
    if (what == "reorganise") cluster_.reorganise(now());
    if (what == "warn") cluster_.warn(now(), line.substr(line.find(' ') + 1));
    if (what == "repeat") cluster_.warn(now(), line.substr(line.find(' ') + 1), 5);
    if (what == "full") cluster_.full = cluster_.only_dropped = true;
    if (what == "unavailable") words >> what, cluster_.unavailable.insert(what);
    if (what == "fail") cluster_.a_gpulet_failed = true;
    if (what == "drain") cluster_.draining = true;
    if (what == "control") cluster_.controlled = true;
    if (what == "stop") stop();
  }

  void stop() {
    stopped_ = true;
    handler_.stop();
    server_.reset();
    boost::system::error_code ignored;
    input_.close(ignored);
  }

  FakeCluster cluster_;
  net::BufferPool buffers_{net::BufferPoolOptions{}};
  Time started_ = now();
  asio::io_context& io_;
  access::Gate gate_;
  frontend::EndpointRouter router_{gate_, frontend::metrics_error};
  frontend::DashboardHandler& handler_;
  std::unique_ptr<net::http::HttpServer> server_;
  asio::posix::stream_descriptor input_;
  asio::streambuf typed_;
  bool stopped_ = false;
};

}  // namespace
}  // namespace gpulet::testing

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const auto number = [argv](int i) { return static_cast<std::uint32_t>(std::stoul(argv[i])); };
  gpulet::net::asio::io_context io(1);
  gpulet::testing::Feed feed(io, number(1), number(2),
                             argc > 3 ? static_cast<std::uint16_t>(number(3)) : std::uint16_t{0});
  io.run();
  return 0;
}
