#include "reflection.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "gpulet/net/gate.h"
#include "health.grpc.pb.h"
#include "kserve.grpc.pb.h"
#include "permission.h"

namespace gpulet::net::grpc_api {
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

// The files of the services and what they import, by name. The process knows of more.
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

void answer_file(const FileDescriptor* file, const std::string& what,
                 Reflection::Response& answer) {
  if (file == nullptr || !served_files().contains(file->name()))
    return refuse(answer, ::grpc::StatusCode::NOT_FOUND, "no " + what + " is served here");
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
    return refuse(answer, ::grpc::StatusCode::NOT_FOUND, "no message " + type + " is served here");
  answer.mutable_all_extension_numbers_response()->set_base_type_name(type);
}

void write_answer(const Reflection::Request& request, Reflection::Response& answer) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  answer.Clear();
  if (request.ByteSizeLong() > kLongestName) {
    return refuse(answer, ::grpc::StatusCode::INVALID_ARGUMENT,
                  "a request may have " + std::to_string(kLongestName) + " bytes");
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
  refuse(answer, ::grpc::StatusCode::INVALID_ARGUMENT, "the request asks for nothing");
}

// Reads a request, answers it, and reads the next.
class ReflectionReactor final : public Reflection::Reactor, public LastingCall {
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
    if (!ok || finished_) return;  // where the client is gone OnCancel follows
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
  // The lock is held.
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

Reflection::Reflection(SitePointer site) : site_(std::move(site)) {}

Reflection::Reactor* Reflection::start(::grpc::CallbackServerContext& context) {
  const auto reactor = ReflectionReactor::start();
  Status may = permission(site_, context, {Right::inference, "reflection"}).may;
  if (may.ok()) may = calls_.add(reactor);
  if (may.ok()) {
    reactor->begin();
  } else {
    reactor->end(may);
  }
  return reactor.get();
}

}  // namespace gpulet::net::grpc_api
