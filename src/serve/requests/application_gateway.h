// ApplicationGateway: serves requests for applications. It checks them, runs them, and sends their
// calls to the models' queues as requests of the engine's own client (kEngine). Pure; one thread at
// a time.
#pragma once

#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/request.h"
#include "gpulet/observe/histogram.h"
#include "gpulet/observe/trace.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/serve/values/application.h"
#include "gpulet/serve/values/frontend_status.h"
#include "serve/requests/admission.h"
#include "serve/requests/application_runner.h"

namespace gpulet::serve {

class ApplicationGateway {
 public:
  // All outlive it.
  ApplicationGateway(const FrontendOptions& options, ApplicationRunner& applications,
                     ModelRegistry& models, Admission& admission, TraceSampler& traces,
                     ResponseWriter& responses)
      : options_(options),
        applications_(applications),
        models_(models),
        admission_(admission),
        traces_(traces),
        responses_(responses) {}

  // Serves these applications from now on. Returns whether they differ from before.
  bool replace(const ApplicationList& applications, Time now);

  // Returns false if the request is not for an application.
  bool on_request(RequestReceived& event, Time now, FrontendEffects& effects);
  void on_client_disconnected(ClientId client, Time now, FrontendEffects& effects);
  void on_step_completed(StepCompleted event, Time now, FrontendEffects& effects);
  // Answers the runs whose time is over.
  void answer_overdue(Time now, FrontendEffects& effects);
  // Gives the runs the answers to their calls, and makes the calls that follow.
  void deliver_call_answers(Time now, FrontendEffects& effects);

 private:
  void carry_out(ApplicationOutput&& output, Time now, FrontendEffects& effects);
  void call(ModelToCall call, Time now, FrontendEffects& effects);

  const FrontendOptions& options_;
  ApplicationRunner& applications_;
  ModelRegistry& models_;
  Admission& admission_;
  TraceSampler& traces_;
  ResponseWriter& responses_;
};

}  // namespace gpulet::serve
