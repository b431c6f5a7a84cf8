#include "services.h"

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "gpulet/net/kserve/names.h"
#include "gpulet/net/kserve/repository.h"
#include "host_reactor.h"
#include "infer_reactors.h"
#include "model_messages.h"

namespace gpulet::net::grpc_api {
namespace {

using ::grpc::health::v1::HealthCheckRequest;
using ::grpc::health::v1::HealthCheckResponse;
using Reactor = ::grpc::ServerUnaryReactor;

constexpr std::size_t kMostBytes = 64U << 10U;       // of a call that is no inference
constexpr std::size_t kMostBytesOfLoad = 4U << 20U;  // of one that may bring a models file along

// `work` answers on the executor's thread. A request that is too long never gets there.
template <typename Request, typename Response>
Reactor* ask_host(const SitePointer& site, const Request* request, Response* response,
                  typename HostReactor<Request, Response>::Work work, OnAnswered audit = {}) {
  constexpr bool kLoads = std::is_same_v<Request, inference::RepositoryModelLoadRequest>;
  constexpr std::size_t kMost = kLoads ? kMostBytesOfLoad : kMostBytes;
  if (const std::size_t bytes = request->ByteSizeLong(); bytes > kMost) {
    const Status why(StatusCode::overloaded, "a call like this may have " + std::to_string(kMost) +
                                                 " bytes; it has " + std::to_string(bytes));
    if (audit) {
      asio::post(site->executor, [site, audit = std::move(audit), why] {
        if (site->open) audit(why);
      });
    }
    return HostReactor<Request, Response>::refuse(*response, why);
  }
  return HostReactor<Request, Response>::start(site, *request, *response, work, std::move(audit));
}

// The same for what is answered at once and is about one model, named in `name` and `version`.
template <typename Request, typename Response, void (*Write)(const kserve::Model&, Response&)>
void about_model(Site& site, const Request& request, Response& response,
                 const OnAnswered& answered) {
  const auto model = find_model(site.host, request.name(), request.version());
  if (model.ok()) Write(*model.value(), response);
  answered(model.status());
}

// Whether whoever calls may, and who that is. Any thread.
struct Permission {
  Status may;
  PeerIdentity peer{};
};

Permission permission(const SitePointer& site, const ::grpc::CallbackServerContext& context,
                      const CallNeeds& needs) {
  const std::shared_ptr<const Tokens> tokens = site->options.gate->tokens();
  const bool guarded = tokens->guard_any();
  Permission permission;
  permission.peer.protocol = "grpc";
  if (guarded || needs.right == Right::admin || site->options.gate->limits_addresses())
    permission.peer.address = address_of_peer(context.peer());
  if (!guarded) return permission;
  const auto found = context.client_metadata().find("authorization");
  if (found != context.client_metadata().end())
    tokens->identify({found->second.data(), found->second.size()}, permission.peer);
  permission.may = tokens->check(needs.right, permission.peer, needs.model);
  if (permission.may.ok()) return permission;
  asio::post(site->executor, [site, needs, refused = permission] {
    if (site->open) site->options.gate->refuse(needs, refused.peer, refused.may);
  });
  return permission;
}

// Tells the audit log what an administrative call was answered.
OnAnswered audited(const SitePointer& site, CallNeeds needs, PeerIdentity peer) {
  return [site, needs = std::move(needs), peer = std::move(peer)](const Status& result) {
    site->options.gate->called(needs, peer, result);
  };
}

Reactor* refused(::grpc::CallbackServerContext& context, const Status& status) {
  Reactor* const reactor = context.DefaultReactor();
  reactor->Finish(grpc_status(status));
  return reactor;
}

void write_ready(const kserve::Model& model, inference::ModelReadyResponse& response) {
  response.set_ready(kserve::takes_requests(model.state));
}

void load_model(Site& site, const inference::RepositoryModelLoadRequest& request,
                inference::RepositoryModelLoadResponse& /*response*/, const OnAnswered& answered) {
  std::string config;
  for (const auto& [name, parameter] : request.parameters()) {
    if (name != "config") {
      return answered({StatusCode::invalid, "loading takes no parameter '" + name +
                                                "'; a model's file must be on the server"});
    }
    config = parameter.string_param();
  }
  Result<serve::ModelsChange> change = kserve::loading(request.model_name(), std::move(config));
  if (!change.ok()) return answered(change.status());
  site.host.change_models(
      std::move(change).value(),
      [answered](const serve::ModelsChanged& changed) { answered(changed.status); });
}

void unload_model(Site& site, const inference::RepositoryModelUnloadRequest& request,
                  inference::RepositoryModelUnloadResponse& /*response*/,
                  const OnAnswered& answered) {
  site.host.change_models(
      kserve::unloading(request.model_name()),
      [answered](const serve::ModelsChanged& changed) { answered(changed.status); });
}

}  // namespace

Reactor* InferenceService::ServerLive(Context* /*context*/,
                                      const inference::ServerLiveRequest* request,
                                      inference::ServerLiveResponse* response) {
  return ask_host<inference::ServerLiveRequest, inference::ServerLiveResponse>(
      site_, request, response, [](Site&, const auto&, auto& answer, const OnAnswered& answered) {
        answer.set_live(true);
        answered({});
      });
}

Reactor* InferenceService::ServerReady(Context* /*context*/,
                                       const inference::ServerReadyRequest* request,
                                       inference::ServerReadyResponse* response) {
  return ask_host<inference::ServerReadyRequest, inference::ServerReadyResponse>(
      site_, request, response,
      [](Site& site, const auto&, auto& answer, const OnAnswered& answered) {
        answer.set_ready(site.host.ready());
        answered({});
      });
}

Reactor* InferenceService::ModelReady(Context* /*context*/,
                                      const inference::ModelReadyRequest* request,
                                      inference::ModelReadyResponse* response) {
  return ask_host(
      site_, request, response,
      about_model<inference::ModelReadyRequest, inference::ModelReadyResponse, write_ready>);
}

Reactor* InferenceService::ServerMetadata(Context* /*context*/,
                                          const inference::ServerMetadataRequest* request,
                                          inference::ServerMetadataResponse* response) {
  return ask_host<inference::ServerMetadataRequest, inference::ServerMetadataResponse>(
      site_, request, response,
      [](Site& site, const auto&, auto& answer, const OnAnswered& answered) {
        answer.set_name(kserve::kServerName);
        answer.set_version(site.options.version);
        for (std::string& name : kserve::extensions(site.regions.enabled()))
          answer.add_extensions(std::move(name));
        answered({});
      });
}

Reactor* InferenceService::ModelMetadata(Context* /*context*/,
                                         const inference::ModelMetadataRequest* request,
                                         inference::ModelMetadataResponse* response) {
  return ask_host(site_, request, response,
                  about_model<inference::ModelMetadataRequest, inference::ModelMetadataResponse,
                              write_metadata>);
}

Reactor* InferenceService::ModelInfer(Context* context, const inference::ModelInferRequest* request,
                                      inference::ModelInferResponse* response) {
  Permission asked =
      permission(site_, *context, {Right::inference, "infer", request->model_name()});
  if (!asked.may.ok()) return refused(*context, asked.may);
  return start_infer(site_, std::move(asked.peer), *context, *request, *response);
}

::grpc::ServerBidiReactor<inference::ModelInferRequest, inference::ModelStreamInferResponse>*
InferenceService::ModelStreamInfer(Context* context) {
  Permission asked = permission(site_, *context, {Right::inference, "infer"});
  return start_stream(site_, std::move(asked.peer), asked.may);
}

Reactor* InferenceService::ModelConfig(Context* /*context*/,
                                       const inference::ModelConfigRequest* request,
                                       inference::ModelConfigResponse* response) {
  return ask_host(
      site_, request, response,
      about_model<inference::ModelConfigRequest, inference::ModelConfigResponse, write_config>);
}

Reactor* InferenceService::ModelStatistics(Context* context,
                                           const inference::ModelStatisticsRequest* request,
                                           inference::ModelStatisticsResponse* response) {
  const Status may = permission(site_, *context, {Right::observe, "observe"}).may;
  if (!may.ok()) return refused(*context, may);
  return ask_host<inference::ModelStatisticsRequest, inference::ModelStatisticsResponse>(
      site_, request, response,
      [](Site& site, const auto& asked, auto& answer, const OnAnswered& answered) {
        if (!asked.name().empty()) {
          const auto model = find_model(site.host, asked.name(), asked.version());
          if (!model.ok()) return answered(model.status());
        }
        write_statistics(site.host.statistics(asked.name()), answer);
        answered({});
      });
}

Reactor* InferenceService::RepositoryIndex(Context* /*context*/,
                                           const inference::RepositoryIndexRequest* request,
                                           inference::RepositoryIndexResponse* response) {
  return ask_host<inference::RepositoryIndexRequest, inference::RepositoryIndexResponse>(
      site_, request, response,
      [](Site& site, const auto& asked, auto& answer, const OnAnswered& answered) {
        write_index(site.host.models(), asked.ready(), answer);
        answered({});
      });
}

Reactor* InferenceService::RepositoryModelLoad(Context* context,
                                               const inference::RepositoryModelLoadRequest* request,
                                               inference::RepositoryModelLoadResponse* response) {
  const CallNeeds needs{Right::admin, "model_load", request->model_name()};
  Permission asked = permission(site_, *context, needs);
  if (!asked.may.ok()) return refused(*context, asked.may);
  return ask_host(site_, request, response, load_model,
                  audited(site_, needs, std::move(asked.peer)));
}

Reactor* InferenceService::RepositoryModelUnload(
    Context* context, const inference::RepositoryModelUnloadRequest* request,
    inference::RepositoryModelUnloadResponse* response) {
  const CallNeeds needs{Right::admin, "model_unload", request->model_name()};
  Permission asked = permission(site_, *context, needs);
  if (!asked.may.ok()) return refused(*context, asked.may);
  return ask_host(site_, request, response, unload_model,
                  audited(site_, needs, std::move(asked.peer)));
}

Reactor* InferenceService::SystemSharedMemoryStatus(
    Context* context, const inference::SystemSharedMemoryStatusRequest* request,
    inference::SystemSharedMemoryStatusResponse* response) {
  const Status may = permission(site_, *context, {Right::observe, "observe"}).may;
  if (!may.ok()) return refused(*context, may);
  return ask_host<inference::SystemSharedMemoryStatusRequest,
                  inference::SystemSharedMemoryStatusResponse>(
      site_, request, response,
      [](Site& site, const auto& asked, auto& answer, const OnAnswered& answered) {
        for (const kserve::RegionInfo& region : site.regions.regions()) {
          if (asked.name().empty() || asked.name() == region.name) write_region(region, answer);
        }
        if (!asked.name().empty() && answer.regions().empty()) {
          return answered({StatusCode::not_found,
                           "Unable to find system shared memory region: '" + asked.name() + "'"});
        }
        answered({});
      });
}

Reactor* InferenceService::SystemSharedMemoryRegister(
    Context* context, const inference::SystemSharedMemoryRegisterRequest* request,
    inference::SystemSharedMemoryRegisterResponse* response) {
  const CallNeeds needs{Right::admin, "shared_memory_register", {}, request->name()};
  Permission asked = permission(site_, *context, needs);
  if (!asked.may.ok()) return refused(*context, asked.may);
  return ask_host<inference::SystemSharedMemoryRegisterRequest,
                  inference::SystemSharedMemoryRegisterResponse>(
      site_, request, response,
      [](Site& site, const auto& region, auto&, const OnAnswered& answered) {
        answered(site.regions.add({.name = region.name(),
                                   .key = region.key(),
                                   .offset = region.offset(),
                                   .bytes = region.byte_size()}));
      },
      audited(site_, needs, std::move(asked.peer)));
}

Reactor* InferenceService::SystemSharedMemoryUnregister(
    Context* context, const inference::SystemSharedMemoryUnregisterRequest* request,
    inference::SystemSharedMemoryUnregisterResponse* response) {
  const CallNeeds needs{Right::admin, "shared_memory_unregister", {}, request->name()};
  Permission asked = permission(site_, *context, needs);
  if (!asked.may.ok()) return refused(*context, asked.may);
  return ask_host<inference::SystemSharedMemoryUnregisterRequest,
                  inference::SystemSharedMemoryUnregisterResponse>(
      site_, request, response,
      [](Site& site, const auto& region, auto&, const OnAnswered& answered) {
        site.regions.remove(region.name());
        answered({});
      },
      audited(site_, needs, std::move(asked.peer)));
}

Reactor* HealthService::Check(::grpc::CallbackServerContext* /*context*/,
                              const HealthCheckRequest* request, HealthCheckResponse* response) {
  return ask_host<HealthCheckRequest, HealthCheckResponse>(
      site_, request, response,
      [](Site& site, const auto& asked, auto& answer, const OnAnswered& answered) {
        if (!asked.service().empty() &&
            asked.service() != inference::GRPCInferenceService::service_full_name()) {
          return answered({StatusCode::not_found, "no service " + asked.service()});
        }
        answer.set_status(site.host.ready() ? HealthCheckResponse::SERVING
                                            : HealthCheckResponse::NOT_SERVING);
        answered({});
      });
}

}  // namespace gpulet::net::grpc_api
