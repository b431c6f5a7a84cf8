#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/net/kserve/model.h"
#include "net/grpc/messages.h"
#include "net/grpc/server_state.h"
#include "net/grpc/services.h"

namespace gpulet::net::grpc_api {
namespace {

using Reactor = ::grpc::ServerUnaryReactor;

// Answers a request about the model in `name` and `version`.
template <auto Write>
void about_model(ServerState& state, const auto& request, auto& response, const OnStatus& done) {
  const auto model = find_model(state.host, request.name(), request.version());
  if (model.ok()) Write(*model.value(), response);
  done(model.status());
}

Reactor* refuse(::grpc::CallbackServerContext& context, const ::grpc::Status& status) {
  Reactor* const reactor = context.DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

// The library's request message, which it does not read again: tensors can be moved out.
inference::ModelInferRequest& library_request(::grpc::CallbackServerContext& context) {
  using Messages =
      ::grpc::MessageHolder<inference::ModelInferRequest, inference::ModelInferResponse>;
  return *static_cast<Messages*>(context.GetRpcAllocatorState())->request();
}

// An unloaded model is not ready, as with Triton; an unknown name is an error.
void write_ready(ServerState& state, const inference::ModelReadyRequest& request,
                 inference::ModelReadyResponse& response, const OnStatus& done) {
  const auto model = find_model(state.host, request.name(), request.version());
  if (model.ok()) response.set_ready(kserve::takes_requests(model.value()->state));
  const bool known = model.ok() || state.host.is_unloaded(request.name());
  done(known ? Status() : model.status());
}

void load_model(ServerState& state, const inference::RepositoryModelLoadRequest& request,
                inference::RepositoryModelLoadResponse& /*response*/, const OnStatus& done) {
  const auto finish = [model = request.model_name(), done](const Status& status) {
    done(kserve::load_status(model, status));
  };
  std::string config;
  for (const auto& [name, parameter] : request.parameters()) {
    if (const Status known = kserve::check_load_parameter(name); !known.ok()) return finish(known);
    if (!parameter.has_string_param())
      return finish({StatusCode::invalid, "parameter 'config' must be a string"});
    config = parameter.string_param();
  }
  Result<ModelsChange> change = kserve::loading(request.model_name(), std::move(config));
  if (!change.ok()) return finish(change.status());
  state.host.change_models(std::move(change).value(),
                           [finish](const ModelsChanged& changed) { finish(changed.status); });
}

// `answer` lives as long as `done`, which may be called on any thread.
void write_all_statistics(ServerState& state, inference::ModelStatisticsResponse& answer,
                          const OnStatus& done) {
  state.host.statistics(
      [&host = state.host, &answer, done](const kserve::ProtocolHost::Statistics& all) {
        host.in_background(
            [all, &answer, done] {
              write_statistics(*all, answer);
              done({});
            },
            [] {});
      });
}

void write_repository_index(ServerState& state, const inference::RepositoryIndexRequest& request,
                            inference::RepositoryIndexResponse& answer, const OnStatus& done) {
  state.host.models([&host = state.host, &answer, done,
                     only_ready = request.ready()](const kserve::ProtocolHost::Models& models) {
    host.in_background(
        [models, &answer, done, only_ready] {
          write_index(*models, only_ready, answer);
          done({});
        },
        [] {});
  });
}

void write_regions(ServerState& state, const inference::SystemSharedMemoryStatusRequest& request,
                   inference::SystemSharedMemoryStatusResponse& answer, const OnStatus& done) {
  for (const kserve::RegionInfo& region : state.regions.regions()) {
    if (request.name().empty() || request.name() == region.name) write_region(region, answer);
  }
  if (request.name().empty() || !answer.regions().empty()) return done({});
  done({StatusCode::not_found,
        fmt::format("Unable to find system shared memory region: '{}'", request.name())});
}

void unload_model(ServerState& state, const inference::RepositoryModelUnloadRequest& request,
                  inference::RepositoryModelUnloadResponse& /*response*/, const OnStatus& done) {
  state.host.change_models(
      kserve::unloading(request.model_name()),
      [done](const ModelsChanged& changed) { done(kserve::unload_status(changed.status)); });
}

void change_tracing(ServerState& state, const inference::TraceSettingRequest& request,
                    inference::TraceSettingResponse& response, const OnStatus& done) {
  kserve::TraceSampling sampling = state.host.trace_sampling();
  const std::vector<kserve::Setting> settings = settings_of(request);
  if (!request.model_name().empty()) {
    const auto model = find_model(state.host, request.model_name(), {});
    if (!model.ok()) return done(model.status());
    if (Status same = kserve::check_model_tracing(sampling, settings); !same.ok())
      return done(same);
  } else if (!settings.empty()) {
    const auto changed = kserve::change_tracing(sampling, settings);
    if (!changed.ok()) return done(changed.status());
    sampling = changed.value();
    state.host.set_trace_sampling(sampling);
  }
  write_settings(sampling, response);
  done({});
}

void change_log(ServerState& state, const inference::LogSettingsRequest& request,
                inference::LogSettingsResponse& response, const OnStatus& done) {
  if (!request.settings().empty()) {
    const auto level = kserve::change_log(state.host.log_level(), settings_of(request));
    if (!level.ok()) return done(level.status());
    state.host.set_log_level(level.value());
  }
  write_settings(state.host.log_level(), response);
  done({});
}

class InferenceService final : public inference::GRPCInferenceService::CallbackService {
 public:
  explicit InferenceService(ServerStatePointer state) : state_(std::move(state)) {}

 private:
  using Context = ::grpc::CallbackServerContext;

  // Runs `work` if the caller has the right. The result of an admin call goes to the audit log.
  template <typename Request, typename Response>
  Reactor* ask(Context& context, const CallNeeds& needs, const Request* request, Response* response,
               typename HostReactor<Request, Response>::Work work) {
    Authorization caller = authorize(state_, context, needs);
    if (!caller.status.ok()) return refuse(context, grpc_status(caller.status));
    OnStatus audit;
    if (needs.right == Right::admin) audit = audited(state_, needs, std::move(caller.peer));
    return ask_host(state_, request, response, work, std::move(audit));
  }

  Reactor* ServerLive(Context* /*context*/, const inference::ServerLiveRequest* request,
                      inference::ServerLiveResponse* response) override {
    return ask_host(state_, request, response,
                    [](ServerState&, const auto&, auto& answer, const OnStatus& done) {
                      answer.set_live(true);
                      done({});
                    });
  }

  Reactor* ServerReady(Context* /*context*/, const inference::ServerReadyRequest* request,
                       inference::ServerReadyResponse* response) override {
    return ask_host(state_, request, response,
                    [](ServerState& state, const auto&, auto& answer, const OnStatus& done) {
                      answer.set_ready(state.host.ready());
                      done({});
                    });
  }

  Reactor* ModelReady(Context* /*context*/, const inference::ModelReadyRequest* request,
                      inference::ModelReadyResponse* response) override {
    return ask_host(state_, request, response, write_ready);
  }

  Reactor* ServerMetadata(Context* /*context*/, const inference::ServerMetadataRequest* request,
                          inference::ServerMetadataResponse* response) override {
    return ask_host(state_, request, response,
                    [](ServerState& state, const auto&, auto& answer, const OnStatus& done) {
                      answer.set_name(kserve::kServerName);
                      answer.set_version(state.options.version);
                      for (std::string& name : kserve::extensions(state.regions.enabled()))
                        answer.add_extensions(std::move(name));
                      done({});
                    });
  }

  Reactor* ModelMetadata(Context* /*context*/, const inference::ModelMetadataRequest* request,
                         inference::ModelMetadataResponse* response) override {
    return ask_host(state_, request, response, about_model<write_metadata>);
  }

  Reactor* ModelInfer(Context* context, const inference::ModelInferRequest* request,
                      inference::ModelInferResponse* response) override {
    Authorization caller =
        authorize(state_, *context, {Right::inference, "infer", request->model_name()});
    if (!caller.status.ok()) return refuse(*context, grpc_status(caller.status));
    return start_infer(state_, std::move(caller.peer), *context,
                       std::move(library_request(*context)), *response);
  }

  ::grpc::ServerBidiReactor<inference::ModelInferRequest, inference::ModelStreamInferResponse>*
  ModelStreamInfer(Context* context) override {
    Authorization caller = authorize(state_, *context, {Right::inference, "infer"});
    return start_stream(state_, std::move(caller.peer), caller.status);
  }

  Reactor* ModelConfig(Context* /*context*/, const inference::ModelConfigRequest* request,
                       inference::ModelConfigResponse* response) override {
    return ask_host(state_, request, response, about_model<write_config>);
  }

  Reactor* ModelStatistics(Context* context, const inference::ModelStatisticsRequest* request,
                           inference::ModelStatisticsResponse* response) override {
    return ask(*context, {Right::observe, "observe"}, request, response,
               [](ServerState& state, const auto& query, auto& answer, const OnStatus& done) {
                 if (query.name().empty()) return write_all_statistics(state, answer, done);
                 const auto model = find_model(state.host, query.name(), query.version());
                 if (!model.ok()) return done(model.status());
                 state.host.statistics(
                     query.name(),
                     [&answer, done](const kserve::ProtocolHost::Statistics& of_model) {
                       write_statistics(*of_model, answer);
                       done({});
                     });
               });
  }

  Reactor* RepositoryIndex(Context* /*context*/, const inference::RepositoryIndexRequest* request,
                           inference::RepositoryIndexResponse* response) override {
    return ask_host(state_, request, response, write_repository_index);
  }

  Reactor* RepositoryModelLoad(Context* context,
                               const inference::RepositoryModelLoadRequest* request,
                               inference::RepositoryModelLoadResponse* response) override {
    return ask(*context, {Right::admin, "model_load", request->model_name()}, request, response,
               load_model);
  }

  Reactor* RepositoryModelUnload(Context* context,
                                 const inference::RepositoryModelUnloadRequest* request,
                                 inference::RepositoryModelUnloadResponse* response) override {
    return ask(*context, {Right::admin, "model_unload", request->model_name()}, request, response,
               unload_model);
  }

  Reactor* SystemSharedMemoryStatus(
      Context* context, const inference::SystemSharedMemoryStatusRequest* request,
      inference::SystemSharedMemoryStatusResponse* response) override {
    return ask(*context, {Right::observe, "observe"}, request, response, write_regions);
  }

  Reactor* SystemSharedMemoryRegister(
      Context* context, const inference::SystemSharedMemoryRegisterRequest* request,
      inference::SystemSharedMemoryRegisterResponse* response) override {
    return ask(*context, {Right::admin, "shared_memory_register", {}, request->name()}, request,
               response, [](ServerState& state, const auto& region, auto&, const OnStatus& done) {
                 done(state.regions.add({.name = region.name(),
                                         .key = region.key(),
                                         .offset = region.offset(),
                                         .bytes = region.byte_size()}));
               });
  }

  Reactor* SystemSharedMemoryUnregister(
      Context* context, const inference::SystemSharedMemoryUnregisterRequest* request,
      inference::SystemSharedMemoryUnregisterResponse* response) override {
    return ask(*context, {Right::admin, "shared_memory_unregister", {}, request->name()}, request,
               response, [](ServerState& state, const auto& region, auto&, const OnStatus& done) {
                 state.regions.remove(region.name());
                 done({});
               });
  }

  Reactor* CudaSharedMemoryStatus(Context* context,
                                  const inference::CudaSharedMemoryStatusRequest* request,
                                  inference::CudaSharedMemoryStatusResponse* response) override {
    return ask(*context, {Right::observe, "observe"}, request, response,
               [](ServerState&, const auto& query, auto&, const OnStatus& done) {
                 done(query.name().empty() ? Status() : kserve::unknown_cuda_region(query.name()));
               });
  }

  Reactor* CudaSharedMemoryRegister(
      Context* context, const inference::CudaSharedMemoryRegisterRequest* request,
      inference::CudaSharedMemoryRegisterResponse* /*response*/) override {
    const CallNeeds needs{Right::admin, "shared_memory_register", {}, request->name()};
    Authorization caller = authorize(state_, *context, needs);
    if (!caller.status.ok()) return refuse(*context, grpc_status(caller.status));
    const std::string why = kserve::cuda_memory_refusal(request->name());
    report_to_audit(state_, audited(state_, needs, std::move(caller.peer)),
                    {StatusCode::invalid, why});
    return refuse(*context, {::grpc::StatusCode::UNIMPLEMENTED, why});
  }

  Reactor* CudaSharedMemoryUnregister(
      Context* context, const inference::CudaSharedMemoryUnregisterRequest* request,
      inference::CudaSharedMemoryUnregisterResponse* response) override {
    return ask(*context, {Right::admin, "shared_memory_unregister", {}, request->name()}, request,
               response, [](ServerState&, const auto&, auto&, const OnStatus& done) { done({}); });
  }

  Reactor* TraceSetting(Context* context, const inference::TraceSettingRequest* request,
                        inference::TraceSettingResponse* response) override {
    const CallNeeds needs = request->settings().empty()
                                ? CallNeeds{Right::observe, "observe"}
                                : CallNeeds{Right::admin, "trace_setting", request->model_name()};
    return ask(*context, needs, request, response, change_tracing);
  }

  Reactor* LogSettings(Context* context, const inference::LogSettingsRequest* request,
                       inference::LogSettingsResponse* response) override {
    const CallNeeds needs = request->settings().empty() ? CallNeeds{Right::observe, "observe"}
                                                        : CallNeeds{Right::admin, "log_settings"};
    return ask(*context, needs, request, response, change_log);
  }

  ServerStatePointer state_;
};

}  // namespace

std::unique_ptr<::grpc::Service> make_inference_service(ServerStatePointer state) {
  return std::make_unique<InferenceService>(std::move(state));
}

}  // namespace gpulet::net::grpc_api
