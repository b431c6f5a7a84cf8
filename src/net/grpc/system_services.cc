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
#include "health.pb.h"
#include "net/grpc/server_state.h"
#include "net/grpc/services.h"
#include "reflection_v1.pb.h"
#include "reflection_v1alpha.pb.h"

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

constexpr const char* kInferenceService = "inference.GRPCInferenceService";
constexpr const char* kHealthService = "grpc.health.v1.Health";
constexpr const char* kReflectionV1 = "grpc.reflection.v1.ServerReflection";
constexpr const char* kReflectionV1Alpha = "grpc.reflection.v1alpha.ServerReflection";

bool is_known(std::string_view service) { return service.empty() || service == kInferenceService; }

Health health_of(const ServerState& state) {
  return state.host.ready() ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

}  // namespace

// Written and ended on any thread; the executor thread reports the status.
class HealthService::Watch final : public LongCall {
 public:
  Watch(bool known, ResponderPointer responder) : known_(known), responder_(std::move(responder)) {}

  void report(Health health) {
    const std::lock_guard lock(mutex_);
    if (ending_) return;
    latest_ = known_ ? health : HealthCheckResponse::SERVICE_UNKNOWN;
    send_if_changed();
  }
  void end(const Status& why) override {
    const std::lock_guard lock(mutex_);
    if (!ending_) ending_ = end_of(why);
    finish_if_over();
  }
  void on_sent() {
    const std::lock_guard lock(mutex_);
    sending_ = false;
    send_if_changed();
    finish_if_over();
  }

 private:
  // REQUIRES for both: mutex_ is held.
  void send_if_changed() {
    if (sending_ || finished_ || latest_ == sent_) return;
    sent_ = latest_;
    HealthCheckResponse response;
    response.set_status(*latest_);
    sending_ = true;
    responder_->send(wire_of(response));
  }
  void finish_if_over() {
    if (!ending_ || sending_ || finished_) return;
    finished_ = true;
    responder_->finish(*ending_);
  }

  const bool known_;
  const ResponderPointer responder_;
  std::mutex mutex_;
  std::optional<Health> latest_;
  std::optional<Health> sent_;
  std::optional<CallEnd> ending_;
  bool sending_ = false;
  bool finished_ = false;
};

struct HealthService::Watches {
  static constexpr std::size_t kMost = 128;

  explicit Watches(const ServerStatePointer& where) : state(where), alarm(where->executor) {}

  // Executor thread, which owns all members but `calls`.
  static void poll(const std::shared_ptr<Watches>& watches) {
    watches->polling = false;
    const auto calls = watches->calls.calls();
    if (!watches->state->open || calls.empty()) return;
    const Health health = health_of(*watches->state);
    for (const auto& call : calls) static_cast<Watch&>(*call).report(health);
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

// The call of a watch, which begins with its request.
class HealthService::WatchCall final : public CallHandler {
 public:
  WatchCall(std::shared_ptr<Watches> watches, ResponderPointer responder)
      : watches_(std::move(watches)), responder_(std::move(responder)) {}

  void on_message(Bytes message) override { message_ = std::move(message); }
  void on_end() override {
    HealthCheckRequest request;
    Status good = parse_message(message_.view(), memory_of_request(message_.size()), request);
    if (!good.ok()) return responder_->finish(end_of(good));
    watch_ = std::make_shared<Watch>(is_known(request.service()), responder_);
    if (good = watches_->calls.add(watch_); !good.ok()) return watch_->end(good);
    asio::post(watches_->state->executor, [watches = watches_] { Watches::poll(watches); });
  }
  void on_sent() override { watch_->on_sent(); }
  void on_cancel(const Status& /*why*/) override { watch_.reset(); }

 private:
  const std::shared_ptr<Watches> watches_;
  const ResponderPointer responder_;
  Bytes message_;
  std::shared_ptr<Watch> watch_;  // null before the request
};

HealthService::HealthService(ServerStatePointer state)
    : state_(std::move(state)), watches_(std::make_shared<Watches>(state_)) {}

void HealthService::drain() {
  for (const auto& call : watches_->calls.calls())
    static_cast<Watch&>(*call).report(HealthCheckResponse::NOT_SERVING);
  watches_->calls.drain();
}

void HealthService::add_methods(MethodTable& methods) const {
  const std::string path = std::string("/") + kHealthService;
  methods.emplace(
      path + "/Check",
      host_method<HealthCheckRequest, HealthCheckResponse>(
          state_, {[](ServerState& state, const auto& query, auto& answer, const OnStatus& done) {
            if (!is_known(query.service()))
              return done({StatusCode::not_found, "no service " + query.service()});
            answer.set_status(health_of(state));
            done({});
          }}));
  methods.emplace(path + "/Watch",
                  Method{.most_bytes = kMaxRequestBytes,
                         .start = [watches = watches_](const CallHead& /*head*/,
                                                       const ResponderPointer& responder) {
                           return std::make_shared<WatchCall>(watches, responder);
                         }});
}

// ---- reflection

namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;
using google::protobuf::FileDescriptorProto;

constexpr std::size_t kLongestName = 512;

constexpr std::array<const char*, 4> kServices{kInferenceService, kHealthService, kReflectionV1,
                                               kReflectionV1Alpha};
using ReflectionRequest = ::grpc::reflection::v1alpha::ServerReflectionRequest;
using ReflectionResponse = ::grpc::reflection::v1alpha::ServerReflectionResponse;

// The files of the services and their imports, by name. The process has others.
using Files = std::map<std::string, const FileDescriptor*, std::less<>>;

void add(Files& files, const FileDescriptor& file) {
  if (!files.emplace(file.name(), &file).second) return;
  for (int i = 0; i < file.dependency_count(); ++i) add(files, *file.dependency(i));
}

const Files& served_files() {
  static const Files files = [] {
    Files all;
    for (const char* const service : kServices)
      add(all, *DescriptorPool::generated_pool()->FindServiceByName(service)->file());
    return all;
  }();
  return files;
}

void refuse(ReflectionResponse& answer, GrpcCode code, std::string why) {
  answer.mutable_error_response()->set_error_code(static_cast<int>(code));
  answer.mutable_error_response()->set_error_message(std::move(why));
}

void answer_file(const FileDescriptor* file, const std::string& subject,
                 ReflectionResponse& answer) {
  if (file == nullptr || !served_files().contains(file->name()))
    return refuse(answer, GrpcCode::not_found, fmt::format("no {} is served here", subject));
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

void answer_extensions(const std::string& type, ReflectionResponse& answer) {
  const Descriptor* const message = DescriptorPool::generated_pool()->FindMessageTypeByName(type);
  if (message == nullptr || !served_files().contains(message->file()->name()))
    return refuse(answer, GrpcCode::not_found, fmt::format("no message {} is served here", type));
  answer.mutable_all_extension_numbers_response()->set_base_type_name(type);
}

void write_answer(const ReflectionRequest& request, ReflectionResponse& answer) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  answer.Clear();
  if (request.ByteSizeLong() > kLongestName) {
    return refuse(answer, GrpcCode::invalid_argument,
                  fmt::format("the request exceeds the limit of {} bytes", kLongestName));
  }
  answer.set_valid_host(request.host());
  *answer.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case ReflectionRequest::kListServices:
      for (const char* const service : kServices)
        answer.mutable_list_services_response()->add_service()->set_name(service);
      return;
    case ReflectionRequest::kFileByFilename:
      return answer_file(pool.FindFileByName(request.file_by_filename()),
                         "file " + request.file_by_filename(), answer);
    case ReflectionRequest::kFileContainingSymbol:
      return answer_file(pool.FindFileContainingSymbol(request.file_containing_symbol()),
                         "symbol " + request.file_containing_symbol(), answer);
    case ReflectionRequest::kAllExtensionNumbersOfType:
      return answer_extensions(request.all_extension_numbers_of_type(), answer);
    case ReflectionRequest::kFileContainingExtension:
      return refuse(answer, GrpcCode::not_found, "no messages here have extensions");
    case ReflectionRequest::MESSAGE_REQUEST_NOT_SET:
      break;
  }
  refuse(answer, GrpcCode::invalid_argument, "the request has no content");
}

// Takes and answers one request at a time.
class ReflectionCall final : public CallHandler, public LongCall {
 public:
  explicit ReflectionCall(ResponderPointer responder) : responder_(std::move(responder)) {}

  void on_message(Bytes message) override {
    ReflectionRequest request;
    const Status good = parse_message(message.view(), memory_of_request(message.size()), request);
    const std::lock_guard lock(mutex_);
    if (!good.ok()) return finish(end_of(good));
    ReflectionResponse response;
    write_answer(request, response);
    sending_ = true;
    responder_->send(wire_of(response));
  }
  bool takes_messages() override {
    const std::lock_guard lock(mutex_);
    return !sending_;
  }
  void on_sent() override {
    const std::lock_guard lock(mutex_);
    sending_ = false;
    if (ending_) finish(*ending_);
  }
  // All requests have been answered, because each waits for the answer to the one before.
  void on_end() override {
    const std::lock_guard lock(mutex_);
    ending_ = CallEnd();
    if (!sending_) finish(*ending_);
  }
  void end(const Status& why) override {
    const std::lock_guard lock(mutex_);
    ending_ = end_of(why);
    if (!sending_) finish(*ending_);
  }
  void on_cancel(const Status& /*why*/) override {}

 private:
  // REQUIRES: mutex_ is held.
  void finish(const CallEnd& end) {
    if (!std::exchange(finished_, true)) responder_->finish(end);
  }

  const ResponderPointer responder_;
  std::mutex mutex_;
  std::optional<CallEnd> ending_;
  bool sending_ = false;
  bool finished_ = false;
};

}  // namespace

Reflection::Reflection(ServerStatePointer state) : state_(std::move(state)) {}

void Reflection::add_methods(MethodTable& methods) const {
  const auto start = [state = state_, calls = calls_](
                         const CallHead& head,
                         const ResponderPointer& responder) -> CallHandlerPointer {
    Status allowed = authorize(state, head, {access::Right::inference, "reflection"}).status;
    const auto call = std::make_shared<ReflectionCall>(responder);
    if (allowed.ok()) allowed = calls->add(call);
    if (allowed.ok()) return call;
    responder->finish(end_of(allowed));
    return nullptr;
  };
  for (const char* const service : {kReflectionV1, kReflectionV1Alpha}) {
    methods.emplace(std::string("/") + service + "/ServerReflectionInfo",
                    Method{.takes_several = true, .most_bytes = kMostBytes, .start = start});
  }
}

}  // namespace gpulet::net::grpc_api
