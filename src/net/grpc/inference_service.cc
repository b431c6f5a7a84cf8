#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/net/kserve/host.h"
#include "net/grpc/messages.h"
#include "net/grpc/server_state.h"
#include "net/grpc/services.h"

namespace gpulet::net::grpc_api {
namespace {

// Answers a request about the model in `name` and `version`.
template <auto Write>
void about_model(ServerState& state, const auto& request, auto& response, const OnStatus& done) {
  const auto model = find_model(state.host, request.name(), request.version());
  if (model.ok()) Write(*model.value(), response);
  done(model.status());
}

// As with Triton, clients poll this until a model is there: an unknown name is not an error.
void write_ready(ServerState& state, const inference::ModelReadyRequest& request,
                 inference::ModelReadyResponse& response, const OnStatus& done) {
  const auto model = find_model(state.host, request.name(), request.version());
  response.set_ready(model.ok() && kserve::takes_requests(model.value()->state));
  done({});
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

void write_statistics_of(ServerState& state, const inference::ModelStatisticsRequest& query,
                         inference::ModelStatisticsResponse& answer, const OnStatus& done) {
  if (query.name().empty()) return write_all_statistics(state, answer, done);
  const auto model = find_model(state.host, query.name(), query.version());
  if (!model.ok()) return done(model.status());
  state.host.statistics(query.name(),
                        [&answer, done](const kserve::ProtocolHost::Statistics& of_model) {
                          write_statistics(*of_model, answer);
                          done({});
                        });
}

void write_server_metadata(ServerState& state, const inference::ServerMetadataRequest& /*request*/,
                           inference::ServerMetadataResponse& answer, const OnStatus& done) {
  answer.set_name(kserve::kServerName);
  answer.set_version(state.options.version);
  for (std::string& name : kserve::extensions(state.regions.enabled()))
    answer.add_extensions(std::move(name));
  done({});
}

void register_region(ServerState& state, const inference::SystemSharedMemoryRegisterRequest& region,
                     inference::SystemSharedMemoryRegisterResponse& /*answer*/,
                     const OnStatus& done) {
  done(state.regions.add({.name = region.name(),
                          .key = region.key(),
                          .offset = region.offset(),
                          .bytes = region.byte_size()}));
}

// The needs of calls that concern a model or a region.
access::CallNeeds needs_to_load(const inference::RepositoryModelLoadRequest& request) {
  return {access::Right::admin, "model_load", request.model_name()};
}
access::CallNeeds needs_to_unload(const inference::RepositoryModelUnloadRequest& request) {
  return {access::Right::admin, "model_unload", request.model_name()};
}
access::CallNeeds needs_to_register(const auto& request) {
  return {access::Right::admin, "shared_memory_register", {}, request.name()};
}
access::CallNeeds needs_to_unregister(const auto& request) {
  return {access::Right::admin, "shared_memory_unregister", {}, request.name()};
}
access::CallNeeds needs_to_trace(const inference::TraceSettingRequest& request) {
  if (request.settings().empty()) return {access::Right::observe, "observe"};
  return {access::Right::admin, "trace_setting", request.model_name()};
}
access::CallNeeds needs_to_log(const inference::LogSettingsRequest& request) {
  if (request.settings().empty()) return {access::Right::observe, "observe"};
  return {access::Right::admin, "log_settings"};
}

// CUDA shared memory is not supported: refused after the right is checked, and audited.
class CudaRegister final : public CallHandler {
 public:
  CudaRegister(ServerStatePointer state, CallHead head, ResponderPointer responder)
      : state_(std::move(state)), head_(std::move(head)), responder_(std::move(responder)) {}

  void on_message(Bytes message) override { message_ = std::move(message); }
  void on_end() override {
    inference::CudaSharedMemoryRegisterRequest request;
    if (const Status good =
            parse_message(message_.view(), memory_of_request(message_.size()), request);
        !good.ok())
      return responder_->finish(end_of(good));
    const access::CallNeeds needs = needs_to_register(request);
    Authorization caller = authorize(state_, head_, needs);
    if (!caller.status.ok()) return responder_->finish(end_of(caller.status));
    const std::string why = kserve::cuda_memory_refusal(request.name());
    report_to_audit(state_, audited(state_, needs, std::move(caller.peer)),
                    {StatusCode::invalid, why});
    responder_->finish({GrpcCode::unimplemented, why});
  }
  void on_cancel(const Status& /*why*/) override {}

 private:
  const ServerStatePointer state_;
  const CallHead head_;
  const ResponderPointer responder_;
  Bytes message_;
};

CallHandlerPointer start_cuda_register(const ServerStatePointer& state, const CallHead& head,
                                       const ResponderPointer& responder) {
  const Authorization caller =
      authorize(state, head, {access::Right::admin, "shared_memory_register"});
  if (caller.status.ok()) return std::make_shared<CudaRegister>(state, head, responder);
  responder->finish(end_of(caller.status));
  return nullptr;
}

// Adds methods of the inference service by name.
class Adder {
 public:
  Adder(const ServerStatePointer& state, MethodTable& methods) : state_(state), methods_(methods) {}

  template <typename Request, typename Response>
  void add(const char* name, HostMethod<Request, Response> method,
           std::size_t most_bytes = kMaxRequestBytes) {
    add(name, host_method<Request, Response>(state_, method, most_bytes));
  }
  void add(const char* name, Method method) {
    methods_.emplace(std::string("/inference.GRPCInferenceService/") + name, std::move(method));
  }

 private:
  const ServerStatePointer& state_;
  MethodTable& methods_;
};

void add_reading_methods(Adder& adder) {
  using namespace inference;
  adder.add<ServerLiveRequest, ServerLiveResponse>(
      "ServerLive", {[](ServerState&, const auto&, auto& answer, const OnStatus& done) {
        answer.set_live(true);
        done({});
      }});
  adder.add<ServerReadyRequest, ServerReadyResponse>(
      "ServerReady", {[](ServerState& state, const auto&, auto& answer, const OnStatus& done) {
        answer.set_ready(state.host.ready());
        done({});
      }});
  adder.add<ModelReadyRequest, ModelReadyResponse>("ModelReady", {write_ready});
  adder.add<ServerMetadataRequest, ServerMetadataResponse>("ServerMetadata",
                                                           {write_server_metadata});
  adder.add<ModelMetadataRequest, ModelMetadataResponse>("ModelMetadata",
                                                         {about_model<write_metadata>});
  adder.add<ModelConfigRequest, ModelConfigResponse>("ModelConfig", {about_model<write_config>});
  adder.add<RepositoryIndexRequest, RepositoryIndexResponse>("RepositoryIndex",
                                                             {write_repository_index});
  const access::CallNeeds observe{access::Right::observe, "observe"};
  adder.add<ModelStatisticsRequest, ModelStatisticsResponse>("ModelStatistics",
                                                             {write_statistics_of, observe});
  adder.add<SystemSharedMemoryStatusRequest, SystemSharedMemoryStatusResponse>(
      "SystemSharedMemoryStatus", {write_regions, observe});
  adder.add<CudaSharedMemoryStatusRequest, CudaSharedMemoryStatusResponse>(
      "CudaSharedMemoryStatus",
      {[](ServerState&, const auto& query, auto&, const OnStatus& done) {
         done(query.name().empty() ? Status() : kserve::unknown_cuda_region(query.name()));
       },
       observe});
}

void add_changing_methods(Adder& adder) {
  using namespace inference;
  const access::CallNeeds observe{access::Right::observe, "observe"};
  adder.add<RepositoryModelLoadRequest, RepositoryModelLoadResponse>(
      "RepositoryModelLoad", {load_model, {access::Right::admin, "model_load"}, needs_to_load},
      kMaxLoadBytes);
  adder.add<RepositoryModelUnloadRequest, RepositoryModelUnloadResponse>(
      "RepositoryModelUnload",
      {unload_model, {access::Right::admin, "model_unload"}, needs_to_unload});
  adder.add<SystemSharedMemoryRegisterRequest, SystemSharedMemoryRegisterResponse>(
      "SystemSharedMemoryRegister",
      {register_region, {access::Right::admin, "shared_memory_register"}, needs_to_register});
  const access::CallNeeds unregister{access::Right::admin, "shared_memory_unregister"};
  adder.add<SystemSharedMemoryUnregisterRequest, SystemSharedMemoryUnregisterResponse>(
      "SystemSharedMemoryUnregister",
      {[](ServerState& state, const auto& region, auto&, const OnStatus& done) {
         state.regions.remove(region.name());
         done({});
       },
       unregister, needs_to_unregister});
  adder.add<CudaSharedMemoryUnregisterRequest, CudaSharedMemoryUnregisterResponse>(
      "CudaSharedMemoryUnregister",
      {[](ServerState&, const auto&, auto&, const OnStatus& done) { done({}); }, unregister,
       needs_to_unregister});
  adder.add<TraceSettingRequest, TraceSettingResponse>("TraceSetting",
                                                       {change_tracing, observe, needs_to_trace});
  adder.add<LogSettingsRequest, LogSettingsResponse>("LogSettings",
                                                     {change_log, observe, needs_to_log});
}

}  // namespace

void add_inference_methods(const ServerStatePointer& state, MethodTable& methods) {
  Adder adder(state, methods);
  add_reading_methods(adder);
  add_changing_methods(adder);
  const auto with_state = [&state](auto start) {
    return [state, start](const CallHead& head, const ResponderPointer& responder) {
      return start(state, head, responder);
    };
  };
  adder.add("CudaSharedMemoryRegister",
            {.most_bytes = kMaxRequestBytes, .start = with_state(start_cuda_register)});
  adder.add("ModelInfer", {.infers = true, .start = with_state(start_infer)});
  adder.add("ModelStreamInfer",
            {.takes_several = true, .infers = true, .start = with_state(start_stream)});
}

}  // namespace gpulet::net::grpc_api
