// Controlled models against their set points, and the cores of nodes. Hidden if no model is controlled.
import { CONTROL, type Controlled } from "./control_plots";
import type { Control, ControlledNode, Layout, ModelEntry, Tick } from "./documents";
import { find, keyed, label_cells, make, style, write } from "./dom";
import { cores, counted, ms, percent } from "./format";
import type { History } from "./history";
import type { Palette } from "./palette";
import { Plots, type Mark } from "./plots";

const MODEL_HEADS = ["Model", "Objective ms", "Set point ms", "Response ms", "Response / objective", "Cores granted", "Cores requested", "On GPUs", "Periods above objective"];
const NODE_HEADS = ["CPU", "Cores", "Granted", "Requested", "Granted / cores", "Contention"];
const METER = 4; // column, in both tables

interface ControlledModel extends ModelEntry {
  set_point_ms: number;
}
const is_controlled = (model: ModelEntry): model is ControlledModel => model.set_point_ms !== undefined;

export class ControlPanel {
  private readonly panel = find("control");
  private readonly plots: Plots<Controlled>;
  private readonly models = table_body("controlled-models", MODEL_HEADS);
  private readonly nodes = table_body("controlled-nodes", NODE_HEADS);

  /** `opened` is called when a reorganisation in a plot is clicked. */
  constructor(private readonly palette: Palette, opened: (plan: number) => void) {
    this.plots = new Plots(find("control-plots"), CONTROL, opened);
  }

  restyle(): void {
    this.plots.restyle();
  }

  /** Plots `model`, or all models if it is empty or not controlled. */
  show(layout: Layout, tick: Tick, history: History, model: string, marks: Mark[]): void {
    const all = layout.models.filter(is_controlled);
    this.panel.hidden = !tick.control || all.length === 0;
    if (!tick.control || this.panel.hidden) return;
    this.show_models(layout, tick.control);
    this.show_nodes(tick.control.nodes);
    const one = all.find((entry) => entry.name === model);
    write(find("control-title"), `Control of ${one?.name ?? "all models"}`);
    const samples = one ? history.control_of(one.name) : history.all_controlled(all);
    if (!samples) return;
    const worst = Math.max(...all.map((entry) => (100 * entry.set_point_ms) / entry.slo_ms));
    this.plots.show({ times: history.times, marks, samples, model: one?.name ?? "", slo: one?.slo_ms ?? 100, set_point: one?.set_point_ms ?? worst });
  }

  private show_models(layout: Layout, control: Control): void {
    const rows = layout.models.flatMap((model, index) => (is_controlled(model) ? [{ model, numbers: control.models[index] }] : []));
    keyed(this.models, rows, ({ model }) => model.name, ({ model }) => this.create(model), (row, { model, numbers }) => {
      if (!numbers) return;
      const [response, gpu_part, requested, granted, periods, violated] = numbers;
      const part = response == null ? null : response / model.slo_ms;
      fill(row, part, [ms(model.slo_ms), ms(model.set_point_ms), ms(response), cores(granted), cores(requested), percent(gpu_part),
        violated > 0 ? `${violated.toLocaleString("en")} of ${periods.toLocaleString("en")}` : "none"]);
      const meter = row.children[METER] as HTMLElement;
      style(meter, "--aim", `${(100 * model.set_point_ms) / model.slo_ms}%`);
      meter.classList.toggle("over", part != null && part > 1);
    });
    const short = control.nodes.filter(is_short);
    write(find("control-words"), `${counted(rows.length, "model")}, ${counted(control.nodes.length, "CPU")}` +
      (short.length ? `; too few cores on ${short.map(([name]) => name).join(", ")}` : ""));
  }

  private create(model: ModelEntry): HTMLElement {
    const row = row_of(MODEL_HEADS, make("i", `swatch ${this.palette.classes(model.name)}`), make("b", "", model.name));
    row.children[METER]!.classList.add("aimed");
    return row;
  }

  private show_nodes(nodes: ControlledNode[]): void {
    keyed(this.nodes, nodes, ([name]) => name, ([name]) => row_of(NODE_HEADS, make("b", "", name)), (row, node) => {
      const [, all, requested, granted, contention] = node;
      fill(row, granted / all, [cores(all), cores(granted), cores(requested),
        contention > 0 ? `${contention.toFixed(2)}, ${is_short(node) ? "too few" : "enough"}` : "–"]);
      row.lastElementChild!.classList.toggle("over", is_short(node));
    });
  }
}

const is_short = ([, , , , contention]: ControlledNode): boolean => contention > 0 && contention < 1;

function table_body(id: string, heads: string[]): HTMLElement {
  const row = make("tr");
  for (const [index, text] of heads.entries()) {
    const cell = make("th", index > 0 ? "number" : "", text);
    cell.scope = "col";
    row.append(cell);
  }
  find(id).querySelector("thead")!.append(row);
  return find(id).querySelector("tbody")!;
}

function row_of(heads: string[], ...name: Node[]): HTMLElement {
  const head = make("th", "name", "", ...name);
  head.scope = "row";
  const row = make("tr", "", "", head);
  for (let i = 1; i < heads.length; ++i) row.append(make("td", "number"));
  label_cells(row, heads);
  row.children[METER]!.classList.add("meter");
  row.children[METER]!.append(make("i", "track"), make("span"));
  return row;
}

/** `part` is the value of the meter; the texts are the other columns. */
function fill(row: HTMLElement, part: number | null, texts: string[]): void {
  const cells = [...row.children].filter((_cell, index) => index !== 0 && index !== METER);
  texts.forEach((text, index) => write(cells[index]!, text));
  const meter = row.children[METER] as HTMLElement;
  write(meter.lastElementChild!, percent(part));
  style(meter, "--part", `${Math.min(100, 100 * (part ?? 0))}%`);
}
