// The page: receives the documents of the frontend and updates the panels once a second.
import "./style.css";
import { connect } from "./connection";
import { ControlPanel } from "./control";
import { Devices } from "./devices";
import type { Events, Layout, Problem, Tick } from "./documents";
import { find, keyed, make, write } from "./dom";
import { open_event, show_events } from "./event_log";
import { counted, duration, percent, rate, time } from "./format";
import { History, violated } from "./history";
import { Models } from "./models";
import { Palette } from "./palette";
import { Plots } from "./plots";
import { show_problems } from "./problems";
import { watch_theme } from "./theme";
import { TRAFFIC } from "./traffic_plots";

const history = new History();
const palette = new Palette();
const plots = new Plots(find("plots"), TRAFFIC, open_event);
const control = new ControlPanel(palette, open_event);
const devices = new Devices(palette);
const chooser = find<HTMLSelectElement>("shown");
const models = new Models(palette, (model) => {
  chooser.value = model;
  show_plots();
  find("traffic-title").scrollIntoView({ block: "nearest" });
});

let layout: Layout | undefined;
let events: Events = { log: [], reorganisations: [] };
let tick: Tick | undefined;
let problems: Problem[] = [];
let lost: Problem | undefined; // the lost connection, which only the page knows

function show_all_problems(): void {
  show_problems(lost ? [lost] : problems, tick !== undefined);
  document.body.classList.toggle("stale", lost !== undefined);
}

function show_plots(): void {
  if (!layout) return;
  const entry = layout.models.find((model) => model.name === chooser.value);
  const samples = entry ? history.of(entry.name) : history.all();
  write(find("traffic-title"), entry?.name ?? "All models");
  if (!samples || history.times.length === 0) return;
  const marks = events.reorganisations.map(([at, , , plan]) => ({ at, plan }));
  plots.show({ model: entry?.name ?? "", slo_ms: entry?.slo_ms ?? 0, times: history.times, samples, marks });
  if (tick) control.show(layout, tick, history, entry?.name ?? "", marks);
}

function show_facts(now: Tick): void {
  const used = layout?.devices.filter((device) => device.gpulets.some((one) => one.in_force)).length ?? 0;
  const all = history.all();
  const facts: [string, string][] = [
    ["Offered", `${rate(all.offered.at(-1))}/s`],
    ["Served", `${rate(all.served.at(-1))}/s`],
    ["Violations, 1 min", percent(violated(all, 60))],
    ["Devices in use", `${used} of ${layout?.devices.length ?? 0}`],
    ["Plan", `${now.epoch}, ${layout?.policy ?? ""}`],
    ["Clients", String(now.clients)],
    ["Up", duration(now.uptime_s)],
  ];
  if (layout?.owners)
    facts.push(["Frontends", layout.owners.map(([name, , planned]) => `${name} ${rate(planned)}/s`).join(", ")]);
  if (layout?.leader) facts.push(["Leader", layout.leader]);
  keyed(find("facts"), facts, ([name]) => name,
    ([name]) => make("div", "", "", make("dt", "", name), make("dd")),
    (element, [, value]) => write(element.lastElementChild!, value));
  const state = find("state");
  write(state, now.reorganising && now.state === "serving" ? "serving, reorganising" : now.state);
  state.className = `pill ${now.state}`;
}

function show(): void {
  if (!layout || !tick || document.hidden) return;
  show_facts(tick);
  show_plots();
  devices.show_tick(tick);
  models.show(layout, tick, history, events.reorganisations.map(([at]) => at));
  show_all_problems();
  // For tests: the time of the tick that is shown.
  document.body.dataset.shownAt = String(tick.at);
}

function load_history(): void {
  fetch("/gpulet/history")
    .then((answer) => (answer.ok ? answer.arrayBuffer() : Promise.reject(new Error(answer.statusText))))
    .then((document) => {
      history.load(document);
      show();
    })
    // Live events do not need the history, which is fetched again with the next connection.
    .catch((error: unknown) => console.warn("cannot load the history:", error));
}

chooser.addEventListener("change", show_plots);
watch_theme(() => {
  plots.restyle();
  control.restyle();
  show();
});
connect({
  opened: () => {
    lost = undefined;
    history.clear();
    load_history();
    show_all_problems();
  },
  lost: (why) => {
    const known = tick ? ` The page shows the state at ${time(tick.at)}.` : "";
    lost ??= { cause: "lost", grave: true, model: "", node: "", text: `${why}${known}`, fix: "The page reconnects automatically." };
    write(find("state"), "not connected");
    find("state").className = "pill lost";
    show_all_problems();
  },
  layout: (document) => {
    layout = document;
    history.set_summed(document.models.filter((model) => model.kind === "model"));
    const names = ["", ...document.models.map((model) => model.name)];
    keyed(chooser, names, (name) => name, (name) => {
      const option = make("option", "", name || "all models");
      option.value = name;
      return option;
    }, () => undefined);
    for (const model of document.models) palette.classes(model.name);
    devices.show_layout(document);
  },
  problems: (document) => {
    problems = document;
  },
  events: (document) => {
    events = document;
    show_events(document);
  },
  tick: (next) => {
    if (!layout || next.models.length !== layout.models.length) return;
    tick = next;
    const names = layout.models.map((model) => model.name);
    const controlled = (next.control?.models ?? []).flatMap((numbers, index) => (numbers ? [[names[index]!, numbers.slice(0, 4)] as const] : []));
    history.add(next.at, new Map(next.models.map((numbers, index) => [names[index]!, numbers.slice(0, 5)])), new Map(controlled));
    document.title = `gpulet: ${counted(layout.models.length, "model")}, ${rate(history.all().served.at(-1))}/s`;
    show();
  },
});
