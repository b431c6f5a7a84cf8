// The content of a plan: its gpulets, and the reasons for their sizes and devices.
import type { DecidedGpulet, PlanDocument } from "./documents";
import { make } from "./dom";
import { counted, ms, rate } from "./format";

export async function load_plan(number: number): Promise<PlanDocument> {
  const answer = await fetch(`/gpulet/plans/${number}`);
  if (!answer.ok) throw new Error((await answer.text()).trim() || answer.statusText);
  return (await answer.json()) as PlanDocument;
}

function models_in_words({ models, service }: DecidedGpulet): string {
  return models
    .map((one) => (service === "rounds"
      ? `${one.name}: ${rate(one.rate)}/s in batches of ${one.batch}, ${ms(one.latency_ms)} ms each, SLO ${ms(one.slo_ms)} ms`
      : one.name))
    .join("; ");
}

/** What the policy chose, where spare share has changed it. */
export const chosen = ({ size, policy_size }: { size: number; policy_size?: number }): string =>
  policy_size === undefined || policy_size === size ? "" : ` (policy ${policy_size} %)`;

export function gpulet_element(gpulet: DecidedGpulet): HTMLElement {
  const size = gpulet.service === "controlled" ? "controlled" : `${gpulet.size} %${chosen(gpulet)}${gpulet.instance ? ` ${gpulet.instance}` : ""}`;
  return make("li", "", "",
    make("b", "", `${gpulet.node} / ${gpulet.device}, ${size}${gpulet.created ? ", new" : ""}. `),
    make("span", "", models_in_words(gpulet)), make("p", "why", gpulet.why));
}

export function plan_element(plan: PlanDocument): HTMLElement {
  const created = plan.gpulets.filter((one) => one.created).length;
  const element = make("div", "plan", "",
    make("p", "", `Policy ${plan.policy}: ${counted(plan.gpulets.length, "gpulet")}, ${created} of them new, ${plan.retired} retired.`));
  const list = (title: string, items: HTMLElement[]): void => {
    if (items.length) element.append(make("h3", "", title), make("ul", "", "", ...items));
  };
  list("Not served", plan.unserved.map((one) => make("li", "", `${rate(one.rate)}/s of ${one.model}: ${one.reason}`)));
  list("Notes of the policy", plan.notes.map((note) => make("li", "", note)));
  list("Gpulets and reasons", plan.gpulets.map(gpulet_element));
  return element;
}
