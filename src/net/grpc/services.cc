#include "services.h"

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "gpulet/net/kserve/names.h"
#include "gpulet/net/kserve/repository.h"
#include "host_reactor.h"
#include "infer_reactors.h"
#include "model_messages.h"
#include "permission.h"

namespace gpulet::net::grpc_api {
namespace {

using Reactor = ::grpc::ServerUnaryReactor;

// What is answered at once and is about one model, named in `name` and `version`.
template <typename Request, typename Response, void (*Write)(const kserve::Model&, Response&)>
void about_model(Site& site, const Request& request, Response& response,
                 const OnAnswered& answered) {
  const auto model = find_model(site.host, request.name(), request.version());
  if (model.ok()) Write(*model.value(), response);
  answered(model.status());
}

Reactor* refused(::grpc::CallbackServerContext& context, const ::grpc::Status& status) {
  Reactor* const reactor = context.DefaultReactor();
  reactor->Finish(status);
  return reactor;
}
Reactor* refused(::grpc::CallbackServerContext& context, const Status& status) {
  return refused(context, grpc_status(status));
}

// The request of an inference as the library holds it, which never reads it again: its tensors can
// be moved out.
inference::ModelInferRequest& taken(::grpc::CallbackServerContext& context) {
  using Messages =
      ::grpc::MessageHolder<inference::ModelInferRequest, inference::ModelInferResponse>;
  return *static_cast<Messages*>(context.GetRpcAllocatorState())->request();
}

// A model that is unloaded is not ready, as with Triton; a name that nobody knows is an error.
void write_ready(Site& site, const inference::ModelReadyRequest& request,
                 inference::ModelReadyResponse& response, const OnAnswered& answered) {
  const auto model = find_model(site.host, request.name(), request.version());
  if (model.ok()) response.set_ready(kserve::takes_requests(model.value()->state));
  const bool known = model.ok() || site.host.is_unloaded(request.name());
  answered(known ? Status() : model.status());
}

void load_model(Site& site, const inference::RepositoryModelLoadRequest& request,
                inference::RepositoryModelLoadResponse& /*response*/, const OnAnswered& answered) {
  const auto finish = [model = request.model_name(), answered](const Status& status) {
    answered(kserve::load_status(model, status));
  };
  std::string config;
  for (const auto& [name, parameter] : request.parameters()) {
    if (const Status known = kserve::check_load_parameter(name); !known.ok()) return finish(known);
    if (!parameter.has_string_param())
      return finish({StatusCode::invalid, "parameter 'config' must be a string"});
    config = parameter.string_param();
  }
  Result<serve::ModelsChange> change = kserve::loading(request.model_name(), std::move(config));
  if (!change.ok()) return finish(change.status());
  site.host.change_models(std::move(change).value(), [finish](const serve::ModelsChanged& changed) {
    finish(changed.status);
  });
}

// `answer` lives as long as `answered`, which may be called on any thread.
void write_all_statistics(Site& site, inference::ModelStatisticsResponse& answer,
                          const OnAnswered& answered) {
  site.host.statistics(
      [&host = site.host, &answer, answered](const kserve::ProtocolHost::Statistics& all) {
        host.in_background(
            [all, &answer, answered] {
              write_statistics(*all, answer);
              answered({});
            },
            [] {});
      });
}

void unload_model(Site& site, const inference::RepositoryModelUnloadRequest& request,
                  inference::RepositoryModelUnloadResponse& /*response*/,
                  const OnAnswered& answered) {
  site.host.change_models(
      kserve::unloading(request.model_name()),
      [answered](const serve::ModelsChanged& changed) { answered(changed.status); });
}

void change_tracing(Site& site, const inference::TraceSettingRequest& request,
                    inference::TraceSettingResponse& response, const OnAnswered& answered) {
  kserve::TraceSampling sampling = site.host.trace_sampling();
  const std::vector<kserve::Setting> settings = settings_of(request);
  if (!request.model_name().empty()) {
    const auto model = find_model(site.host, request.model_name(), {});
    if (!model.ok()) return answered(model.status());
    if (Status same = kserve::check_model_tracing(sampling, settings); !same.ok())
      return answered(same);
  } else if (!settings.empty()) {
    const auto changed = kserve::change_tracing(sampling, settings);
    if (!changed.ok()) return answered(changed.status());
    sampling = changed.value();
    site.host.set_trace_sampling(sampling);
  }
  write_settings(sampling, response);
  answered({});
}

void change_log(Site& site, const inference::LogSettingsRequest& request,
                inference::LogSettingsResponse& response, const OnAnswered& answered) {
  if (!request.settings().empty()) {
    const auto level = kserve::change_log(site.host.log_level(), settings_of(request));
    if (!level.ok()) return answered(level.status());
    site.host.set_log_level(level.value());
  }
  write_settings(site.host.log_level(), response);
  answered({});
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
  return ask_host(site_, request, response, write_ready);
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
  return start_infer(site_, std::move(asked.peer), *context, std::move(taken(*context)), *response);
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
        if (asked.name().empty()) return write_all_statistics(site, answer, answered);
        const auto model = find_model(site.host, asked.name(), asked.version());
        if (model.ok()) write_statistics(site.host.statistics(asked.name()), answer);
        answered(model.status());
      });
}

Reactor* InferenceService::RepositoryIndex(Context* /*context*/,
                                           const inference::RepositoryIndexRequest* request,
                                           inference::RepositoryIndexResponse* response) {
  return ask_host<inference::RepositoryIndexRequest, inference::RepositoryIndexResponse>(
      site_, request, response,
      [](Site& site, const auto& asked, auto& answer, const OnAnswered& answered) {
        site.host.models([&host = site.host, &answer, answered,
                          only_ready = asked.ready()](const kserve::ProtocolHost::Models& models) {
          host.in_background(
              [models, &answer, answered, only_ready] {
                write_index(*models, only_ready, answer);
                answered({});
              },
              [] {});
        });
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

Reactor* InferenceService::CudaSharedMemoryStatus(
    Context* context, const inference::CudaSharedMemoryStatusRequest* request,
    inference::CudaSharedMemoryStatusResponse* response) {
  const Status may = permission(site_, *context, {Right::observe, "observe"}).may;
  if (!may.ok()) return refused(*context, may);
  return ask_host<inference::CudaSharedMemoryStatusRequest,
                  inference::CudaSharedMemoryStatusResponse>(
      site_, request, response, [](Site&, const auto& asked, auto&, const OnAnswered& answered) {
        answered(asked.name().empty() ? Status() : kserve::unknown_cuda_region(asked.name()));
      });
}

Reactor* InferenceService::CudaSharedMemoryRegister(
    Context* context, const inference::CudaSharedMemoryRegisterRequest* request,
    inference::CudaSharedMemoryRegisterResponse* /*response*/) {
  const CallNeeds needs{Right::admin, "shared_memory_register", {}, request->name()};
  Permission asked = permission(site_, *context, needs);
  if (!asked.may.ok()) return refused(*context, asked.may);
  const std::string why = kserve::cuda_memory_refusal(request->name());
  tell_audit(site_, audited(site_, needs, std::move(asked.peer)), {StatusCode::invalid, why});
  return refused(*context, ::grpc::Status(::grpc::StatusCode::UNIMPLEMENTED, why));
}

Reactor* InferenceService::CudaSharedMemoryUnregister(
    Context* context, const inference::CudaSharedMemoryUnregisterRequest* request,
    inference::CudaSharedMemoryUnregisterResponse* response) {
  const CallNeeds needs{Right::admin, "shared_memory_unregister", {}, request->name()};
  Permission asked = permission(site_, *context, needs);
  if (!asked.may.ok()) return refused(*context, asked.may);
  return ask_host<inference::CudaSharedMemoryUnregisterRequest,
                  inference::CudaSharedMemoryUnregisterResponse>(
      site_, request, response,
      [](Site&, const auto&, auto&, const OnAnswered& answered) { answered({}); },
      audited(site_, needs, std::move(asked.peer)));
}

Reactor* InferenceService::TraceSetting(Context* context,
                                        const inference::TraceSettingRequest* request,
                                        inference::TraceSettingResponse* response) {
  const CallNeeds needs = request->settings().empty()
                              ? CallNeeds{Right::observe, "observe"}
                              : CallNeeds{Right::admin, "trace_setting", request->model_name()};
  Permission asked = permission(site_, *context, needs);
  if (!asked.may.ok()) return refused(*context, asked.may);
  return ask_host(
      site_, request, response, change_tracing,
      needs.right == Right::admin ? audited(site_, needs, std::move(asked.peer)) : OnAnswered());
}

Reactor* InferenceService::LogSettings(Context* context,
                                       const inference::LogSettingsRequest* request,
                                       inference::LogSettingsResponse* response) {
  const CallNeeds needs = request->settings().empty() ? CallNeeds{Right::observe, "observe"}
                                                      : CallNeeds{Right::admin, "log_settings"};
  Permission asked = permission(site_, *context, needs);
  if (!asked.may.ok()) return refused(*context, asked.may);
  return ask_host(
      site_, request, response, change_log,
      needs.right == Right::admin ? audited(site_, needs, std::move(asked.peer)) : OnAnswered());
}

::grpc::ServerGenericBidiReactor* UnknownMethods::CreateReactor(
    ::grpc::GenericCallbackServerContext* context) {
  return RefusedStream<::grpc::ByteBuffer, ::grpc::ByteBuffer>::start(
      {::grpc::StatusCode::UNIMPLEMENTED, "this server has no method " + context->method()});
}

}  // namespace gpulet::net::grpc_api
