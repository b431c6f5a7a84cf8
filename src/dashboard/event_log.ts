// The events, newest first. The entry of a reorganisation opens to its plan.
import { find, keyed, make, write } from "./dom";
import type { Events } from "./documents";
import { time } from "./format";
import { load_plan, plan_element } from "./plan";

interface Entry {
  key: string;
  at: number;
  text: string;
  warning: boolean;
  count: number;
  plan: number; // of a reorganisation; 0: another event
}

function reorganisation(entry: Entry): HTMLElement {
  const body = make("div", "decided");
  const details = make("details", "", "", make("summary", "", entry.text), body);
  details.addEventListener("toggle", () => {
    if (!details.open || body.childElementCount > 0) return;
    write(body, "Loading ...");
    load_plan(entry.plan)
      .then((plan) => body.replaceChildren(plan_element(plan)))
      .catch((error: unknown) => write(body, `The plan is not available any more: ${String(error)}`));
  });
  return details;
}

function create(entry: Entry): HTMLElement {
  const item = make("li", entry.plan ? "mark" : entry.warning ? "warning" : "");
  const kind = make("span", "kind", entry.plan ? "◆" : entry.warning ? "Warning" : "");
  const text = entry.plan ? reorganisation(entry) : make("span", "text", entry.text);
  item.append(make("time"), kind, text, make("span", "count"));
  return item;
}

export function show_events(events: Events): void {
  const entries: Entry[] = events.log.map(([at, text, warning, count]) =>
    ({ key: `${warning} ${text}`, at, text, warning, count, plan: 0 }));
  for (const [at, epoch, summary, plan, took_ms] of events.reorganisations) {
    const text = `Reorganisation, epoch ${epoch}: ${summary}. In force after ${Math.round(took_ms)} ms.`;
    entries.push({ key: `plan ${plan} ${epoch}`, at, text, warning: false, count: 1, plan });
  }
  // An event may occur twice, long apart.
  const seen = new Map<string, number>();
  for (const entry of entries) {
    const before = seen.get(entry.key) ?? 0;
    seen.set(entry.key, before + 1);
    if (before) entry.key += ` (${before + 1})`;
  }
  // Events of the same time: the later one comes first.
  entries.reverse();
  entries.sort((a, b) => b.at - a.at);
  keyed(find("events"), entries, (one) => one.key, create, (item, entry) => {
    const when = item.querySelector("time")!;
    write(when, time(entry.at));
    when.dateTime = new Date(entry.at * 1000).toISOString();
    write(item.querySelector(".count")!, entry.count > 1 ? `${entry.count} times` : "");
  });
}

/** Opens the entry of a decision and scrolls to it. */
export function open_event(plan: number): void {
  const item = [...find("events").children].find((one) => (one as HTMLElement).dataset.key?.startsWith(`plan ${plan} `));
  const details = item?.querySelector("details");
  if (!details) return;
  details.open = true;
  details.scrollIntoView({ block: "nearest" });
  details.querySelector("summary")?.focus({ preventScroll: true });
}
