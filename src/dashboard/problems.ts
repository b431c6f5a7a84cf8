// What is wrong, in words: from what the frontend tells of itself.
import type { Layout, Tick } from "./documents";
import { rate } from "./format";

export interface Problem {
  /** Stays the same while the problem does. */
  key: string;
  text: string;
  grave: boolean;
}

const MOST = 12;

export function problems_of(layout: Layout, tick: Tick): Problem[] {
  const found: Problem[] = [];
  const add = (key: string, text: string, grave = true): void => void found.push({ key, text, grave });

  if (tick.state === "draining") add("draining", "The frontend is stopping: it takes no new requests.");
  if (layout.devices.length === 0) add("no-devices", "No backend is connected, so there is no device to serve on.");
  for (const node of new Set(layout.devices.filter((one) => one.leaving).map((one) => one.node)))
    add(`leaving ${node}`, `Node ${node} is stopping: what it serves moves to others.`, false);
  for (const one of layout.exclusions ?? []) {
    const what = one.device === undefined ? `Node ${one.node}` : `Device ${one.device} of node ${one.node}`;
    add(`excluded ${one.node} ${one.device ?? ""}`, `${what} takes no new gpulets for a while (${one.cause}): ${one.error}.`);
  }
  for (const model of layout.models) {
    const place = layout.models.indexOf(model);
    const has_gpulet = layout.devices.some((device) => device.gpulets.some((one) => one.models.some((occupant) => occupant[0] === place)));
    if (model.kind === "model" && !has_gpulet && model.state !== "idle") {
      add(`model ${model.name}`, `Nothing serves ${model.name}: ${model.reason || "no gpulet has it"}.`);
    } else if (model.state === "unavailable") {
      add(`model ${model.name}`, `Nothing serves ${model.name}: ${model.reason || "the frontend does not say why"}.`);
    } else if (model.unserved > 0) {
      add(`unserved ${model.name}`,
          `No place for ${rate(model.unserved)} of the requests a second to ${model.name}${model.reason ? `: ${model.reason}` : ""}.`);
    } else if (model.reason) {
      add(`reason ${model.name}`, `${model.name}: ${model.reason}.`, false);
    }
  }
  for (const device of layout.devices) {
    for (const gpulet of device.gpulets) {
      if (gpulet.state !== "failed" && gpulet.state !== "restarting") continue;
      const who = gpulet.models.map(([place]) => layout.models[place]?.name ?? "a former model").join(", ");
      const what = gpulet.state === "failed" ? "failed" : "is restarting";
      add(`gpulet ${gpulet.id}`,
          `The gpulet of ${who} on ${device.node}, device ${device.device}, ${what}${gpulet.status ? `: ${gpulet.status}` : ""}.`,
          gpulet.state === "failed");
    }
  }
  const told = found.map((one) => ({ ...one, text: one.text.replace(/\.\.$/, ".") }));
  if (told.length <= MOST) return told;
  const rest = told.length - MOST + 1;
  return [...told.slice(0, MOST - 1), { key: "more", text: `And ${rest} more like these.`, grave: false }];
}
