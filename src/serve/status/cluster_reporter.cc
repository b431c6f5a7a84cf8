#include "serve/status/cluster_reporter.h"

namespace gpulet::serve {

void ClusterReporter::add_to(FrontendStatus& status) const {
  status.leadership = leadership_.status();
  status.forwarding = forwarder_.status();
  status.owned_gpulets = owned_.gpulets();
  if (leadership_.leads()) {
    status.owners = ownership_.status();
    status.owned_gpulets = in_force_.serving().size();
    for (OwnerStatus& owner : status.owners) {
      if (owner.member.empty()) {
        owner.member = options_.member;
      } else {
        status.owned_gpulets -= owner.gpulets;
      }
    }
  }
}

void ClusterReporter::add_to(ModelStatus& status) const {
  if (!leads()) return;
  const RouteTable& routes = forwarder_.routes();
  status.owner = routes.member_for(status.name);
  if (routes.divided(status.name)) status.owners = routes.owners().at(status.name);
}

}  // namespace gpulet::serve
