#include "site.h"

#include "gpulet/net/kserve/http_api.h"

namespace gpulet::net::grpc_api {
namespace {

::grpc::StatusCode code_of(StatusCode code) {
  switch (code) {
    case StatusCode::ok:
      return ::grpc::StatusCode::OK;
    case StatusCode::invalid:
    case StatusCode::malformed:
      return ::grpc::StatusCode::INVALID_ARGUMENT;
    case StatusCode::not_found:
      return ::grpc::StatusCode::NOT_FOUND;
    case StatusCode::unavailable:
      return ::grpc::StatusCode::UNAVAILABLE;
    case StatusCode::overloaded:
      return ::grpc::StatusCode::RESOURCE_EXHAUSTED;
    case StatusCode::too_late:
    case StatusCode::timeout:
      return ::grpc::StatusCode::DEADLINE_EXCEEDED;
    case StatusCode::cancelled:
      return ::grpc::StatusCode::CANCELLED;
    case StatusCode::unauthenticated:
      return ::grpc::StatusCode::UNAUTHENTICATED;
    case StatusCode::internal:
      break;
  }
  return ::grpc::StatusCode::INTERNAL;
}

}  // namespace

::grpc::Status grpc_status(const Status& status) {
  return {code_of(status.code()), status.message()};
}

Status stopping() { return {StatusCode::unavailable, "the server is stopping"}; }

Result<std::shared_ptr<const kserve::Model>> find_model(kserve::ProtocolHost& host,
                                                        const std::string& name,
                                                        const std::string& version) {
  std::shared_ptr<const kserve::Model> model = host.model(name);
  kserve::Route route;
  route.model = name;
  route.version = version;
  if (const Status there = kserve::check_model(model.get(), route); !there.ok()) return there;
  return model;
}

}  // namespace gpulet::net::grpc_api
