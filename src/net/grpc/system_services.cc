#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "gpulet/net/event_loop.h"
#include "net/grpc/server_state.h"
#include "net/grpc/services.h"

namespace gpulet::net::grpc_api {
// ---- calls without an end

Status LongCalls::add(const std::shared_ptr<LongCall>& call) {
  const std::lock_guard lock(mutex_);
  if (draining_) return stopping();
  std::erase_if(calls_, [](const auto& one) { return one.expired(); });
  if (calls_.size() >= most_) {
    return {StatusCode::overloaded,
            fmt::format("there are {} such calls; end one or retry later", most_)};
  }
  calls_.push_back(call);
  return {};
}

std::vector<std::shared_ptr<LongCall>> LongCalls::calls() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<LongCall>> calls;
  for (const auto& one : calls_) {
    if (auto call = one.lock()) calls.push_back(std::move(call));
  }
  return calls;
}

void LongCalls::drain() {
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
  }
  for (const auto& call : calls()) call->end(stopping());
}

// ---- health

namespace {

using ::grpc::health::v1::HealthCheckRequest;
using ::grpc::health::v1::HealthCheckResponse;
using Health = HealthCheckResponse::ServingStatus;

bool is_known(std::string_view service) {
  return service.empty() || service == inference::GRPCInferenceService::service_full_name();
}

Health health_of(const ServerState& state) {
  return state.host.ready() ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

// gRPC's threads write and end the watch; the executor thread reports the status.
class WatchReactor final : public ::grpc::ServerWriteReactor<HealthCheckResponse>, public LongCall {
 public:
  static std::shared_ptr<WatchReactor> start(bool known) {
    auto reactor = std::make_shared<WatchReactor>(known);
    reactor->self_ = reactor;
    return reactor;
  }
  explicit WatchReactor(bool known) : known_(known) {}

  void report(Health health) {
    const std::lock_guard lock(mutex_);
    if (ending_) return;
    latest_ = known_ ? health : HealthCheckResponse::SERVICE_UNKNOWN;
    write_if_changed();
  }

  void end(const Status& why) override {
    const std::lock_guard lock(mutex_);
    if (!ending_) ending_ = grpc_status(why);
    finish_if_over();
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    if (!ok) return;  // the client disconnected: OnCancel follows
    write_if_changed();
    finish_if_over();
  }
  void OnCancel() override {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(finished_, true)) Finish(grpc_status(cancelled()));
  }
  void OnDone() override { const auto last = std::exchange(self_, nullptr); }

 private:
  // REQUIRES for both: mutex_ is held.
  void write_if_changed() {
    if (writing_ || finished_ || latest_ == sent_) return;
    sent_ = latest_;
    response_.set_status(*latest_);
    writing_ = true;
    StartWrite(&response_);
  }
  void finish_if_over() {
    if (!ending_ || writing_ || finished_) return;
    finished_ = true;
    Finish(*ending_);
  }

  const bool known_;
  std::mutex mutex_;
  HealthCheckResponse response_;  // of the current write
  std::optional<Health> latest_;
  std::optional<Health> sent_;
  std::optional<::grpc::Status> ending_;
  bool writing_ = false;
  bool finished_ = false;
  std::shared_ptr<WatchReactor> self_;
};

}  // namespace

struct HealthService::Watches {
  static constexpr std::size_t kMost = 128;

  explicit Watches(const ServerStatePointer& where) : state(where), alarm(where->executor) {}

  // Executor thread, which owns all members but `calls`.
  static void poll(const std::shared_ptr<Watches>& watches) {
    watches->polling = false;
    const auto calls = watches->calls.calls();
    if (!watches->state->open || calls.empty()) return;
    const Health health = health_of(*watches->state);
    for (const auto& call : calls) static_cast<WatchReactor&>(*call).report(health);
    if (std::exchange(watches->polling, true)) return;
    watches->alarm.set_after(kPollInterval, [again = std::weak_ptr(watches)] {
      if (const auto there = again.lock()) poll(there);
    });
  }

  ServerStatePointer state;
  Alarm alarm;
  bool polling = false;
  LongCalls calls{kMost};
};

HealthService::HealthService(ServerStatePointer state)
    : state_(std::move(state)), watches_(std::make_shared<Watches>(state_)) {}
HealthService::~HealthService() = default;

void HealthService::drain() {
  for (const auto& call : watches_->calls.calls())
    static_cast<WatchReactor&>(*call).report(HealthCheckResponse::NOT_SERVING);
  end_watches();
}

void HealthService::end_watches() { watches_->calls.drain(); }

::grpc::ServerUnaryReactor* HealthService::Check(::grpc::CallbackServerContext* /*context*/,
                                                 const HealthCheckRequest* request,
                                                 HealthCheckResponse* response) {
  return ask_host<HealthCheckRequest, HealthCheckResponse>(
      state_, request, response,
      [](ServerState& state, const auto& query, auto& answer, const OnStatus& done) {
        if (!is_known(query.service()))
          return done({StatusCode::not_found, "no service " + query.service()});
        answer.set_status(health_of(state));
        done({});
      });
}

::grpc::ServerWriteReactor<HealthCheckResponse>* HealthService::Watch(
    ::grpc::CallbackServerContext* /*context*/, const HealthCheckRequest* request) {
  const auto watch = WatchReactor::start(is_known(request->service()));
  if (const Status added = watches_->calls.add(watch); !added.ok()) {
    watch->end(added);
    return watch.get();
  }
  asio::post(state_->executor, [watches = watches_] { Watches::poll(watches); });
  return watch.get();
}

// ---- reflection

namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;
using google::protobuf::FileDescriptorProto;

constexpr std::size_t kLongestName = 512;

std::array<const char*, 4> services() {
  return {inference::GRPCInferenceService::service_full_name(),
          ::grpc::health::v1::Health::service_full_name(),
          ::grpc::reflection::v1::ServerReflection::service_full_name(),
          ::grpc::reflection::v1alpha::ServerReflection::service_full_name()};
}

// The files of the services and their imports, by name. The process has others.
using Files = std::map<std::string, const FileDescriptor*, std::less<>>;

void add(Files& files, const FileDescriptor& file) {
  if (!files.emplace(file.name(), &file).second) return;
  for (int i = 0; i < file.dependency_count(); ++i) add(files, *file.dependency(i));
}

const Files& served_files() {
  static const Files files = [] {
    Files all;
    for (const char* const service : services())
      add(all, *DescriptorPool::generated_pool()->FindServiceByName(service)->file());
    return all;
  }();
  return files;
}

void refuse(Reflection::Response& answer, ::grpc::StatusCode code, std::string why) {
  answer.mutable_error_response()->set_error_code(code);
  answer.mutable_error_response()->set_error_message(std::move(why));
}

void answer_file(const FileDescriptor* file, const std::string& subject,
                 Reflection::Response& answer) {
  if (file == nullptr || !served_files().contains(file->name()))
    return refuse(answer, ::grpc::StatusCode::NOT_FOUND,
                  fmt::format("no {} is served here", subject));
  Files wanted;
  add(wanted, *file);
  wanted.erase(file->name());
  const auto write = [&answer](const FileDescriptor& one) {
    FileDescriptorProto proto;
    one.CopyTo(&proto);
    answer.mutable_file_descriptor_response()->add_file_descriptor_proto(proto.SerializeAsString());
  };
  write(*file);
  for (const auto& [name, imported] : wanted) write(*imported);
}

void answer_extensions(const std::string& type, Reflection::Response& answer) {
  const Descriptor* const message = DescriptorPool::generated_pool()->FindMessageTypeByName(type);
  if (message == nullptr || !served_files().contains(message->file()->name()))
    return refuse(answer, ::grpc::StatusCode::NOT_FOUND,
                  fmt::format("no message {} is served here", type));
  answer.mutable_all_extension_numbers_response()->set_base_type_name(type);
}

void write_answer(const Reflection::Request& request, Reflection::Response& answer) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  answer.Clear();
  if (request.ByteSizeLong() > kLongestName) {
    return refuse(answer, ::grpc::StatusCode::INVALID_ARGUMENT,
                  fmt::format("the request exceeds the limit of {} bytes", kLongestName));
  }
  answer.set_valid_host(request.host());
  *answer.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case Reflection::Request::kListServices:
      for (const char* const service : services())
        answer.mutable_list_services_response()->add_service()->set_name(service);
      return;
    case Reflection::Request::kFileByFilename:
      return answer_file(pool.FindFileByName(request.file_by_filename()),
                         "file " + request.file_by_filename(), answer);
    case Reflection::Request::kFileContainingSymbol:
      return answer_file(pool.FindFileContainingSymbol(request.file_containing_symbol()),
                         "symbol " + request.file_containing_symbol(), answer);
    case Reflection::Request::kAllExtensionNumbersOfType:
      return answer_extensions(request.all_extension_numbers_of_type(), answer);
    case Reflection::Request::kFileContainingExtension:
      return refuse(answer, ::grpc::StatusCode::NOT_FOUND, "no messages here have extensions");
    case Reflection::Request::MESSAGE_REQUEST_NOT_SET:
      break;
  }
  refuse(answer, ::grpc::StatusCode::INVALID_ARGUMENT, "the request has no content");
}

// Reads and answers one request at a time.
class ReflectionReactor final : public Reflection::Reactor, public LongCall {
 public:
  static std::shared_ptr<ReflectionReactor> start() {
    auto reactor = std::make_shared<ReflectionReactor>();
    reactor->self_ = reactor;
    return reactor;
  }
  void begin() { StartRead(&request_); }

  void OnReadDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    if (!ok) return finish(::grpc::Status::OK);
    if (finished_) return;
    write_answer(request_, response_);
    writing_ = true;
    StartWrite(&response_);
  }
  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    if (!ok || finished_) return;  // after a disconnect OnCancel follows
    if (ending_) return finish(*ending_);
    StartRead(&request_);
  }
  void end(const Status& why) override {
    const std::lock_guard lock(mutex_);
    ending_ = grpc_status(why);
    if (!writing_) finish(*ending_);
  }
  void OnCancel() override {
    const std::lock_guard lock(mutex_);
    finish(grpc_status(cancelled()));
  }
  void OnDone() override { const auto last = std::exchange(self_, nullptr); }

 private:
  // REQUIRES: mutex_ is held.
  void finish(const ::grpc::Status& status) {
    if (!std::exchange(finished_, true)) Finish(status);
  }

  std::mutex mutex_;
  Reflection::Request request_;
  Reflection::Response response_;
  std::optional<::grpc::Status> ending_;
  bool writing_ = false;
  bool finished_ = false;
  std::shared_ptr<ReflectionReactor> self_;
};

}  // namespace

Reflection::Reflection(ServerStatePointer state) : state_(std::move(state)) {}

Reflection::Reactor* Reflection::start(::grpc::CallbackServerContext& context) {
  const auto reactor = ReflectionReactor::start();
  Status allowed = authorize(state_, context, {Right::inference, "reflection"}).status;
  if (allowed.ok()) allowed = calls_.add(reactor);
  if (allowed.ok()) {
    reactor->begin();
  } else {
    reactor->end(allowed);
  }
  return reactor.get();
}

}  // namespace gpulet::net::grpc_api
