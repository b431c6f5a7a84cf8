// The table of models: rate, latency against the objective, violations, and the last ten minutes.
import { find, keyed, label_cells, make, style, write } from "./dom";
import type { Layout, ModelEntry, Tick } from "./documents";
import { counted, ms, percent, rate } from "./format";
import { violated, type History, type Samples } from "./history";
import type { Palette } from "./palette";

const HEADS = ["Model", "Offered /s", "Served /s", "Planned /s", "Queued", "p50 ms", "p99 ms", "SLO ms", "p99 / SLO", "Violations, 1 min", "History"];
const NUMBERS = 9; // columns between the name and the picture
const VIOLATION_TARGET = 0.01; // serve::kViolationTarget
const PICTURE = { width: 150, height: 26 };

export class Models {
  private readonly body = find("models").querySelector("tbody")!;
  private readonly seen = new WeakSet<Element>();
  private readonly observer = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) isIntersecting ? this.seen.add(target) : this.seen.delete(target);
  });

  constructor(private readonly palette: Palette, private readonly chosen: (model: string) => void) {
    const row = make("tr");
    for (const [index, text] of HEADS.entries()) {
      const cell = make("th", index > 0 && index <= NUMBERS ? "number" : "", text);
      cell.scope = "col";
      row.append(cell);
    }
    find("models").querySelector("thead")!.append(row);
  }

  show(layout: Layout, tick: Tick, history: History, marks: number[]): void {
    const rows = layout.models.map((model, index) => ({ model, numbers: tick.models[index] }));
    keyed(this.body, rows, ({ model }) => model.name, ({ model }) => this.create(model), (row, { model, numbers }) => {
      if (!numbers) return;
      const [offered, served, , p50, p99, queued] = numbers;
      const samples = history.of(model.name);
      const cells = row.children;
      write(row.querySelector(".state")!, words_of_state(model));
      const drift = row.querySelector(".drift") as HTMLElement;
      write(drift, model.drift);
      drift.hidden = !model.drift;
      const part = p99 == null || model.slo_ms <= 0 ? null : p99 / model.slo_ms;
      const late = violated(samples, 60);
      [rate(offered), rate(served), rate(model.planned), String(queued), ms(p50), ms(p99), ms(model.slo_ms)]
        .forEach((text, column) => write(cells[column + 1]!, text));
      const meter = cells[8] as HTMLElement;
      write(meter.lastElementChild!, percent(part));
      style(meter, "--part", `${Math.min(100, 100 * (part ?? 0))}%`);
      // Latency covers served requests only, so the colour also depends on dropped requests. The objective of a
      // controlled model is for the mean response time, not for p99.
      const violated_too_much = late != null && late > VIOLATION_TARGET;
      meter.classList.toggle("over", violated_too_much || (part != null && part > 1 && model.set_point_ms === undefined));
      const violations = cells[9] as HTMLElement;
      write(violations, percent(late));
      violations.classList.toggle("over", violated_too_much);
      if (this.seen.has(row)) draw(row.querySelector("canvas")!, samples, history.times, marks);
      write(row.querySelector(".picture .hidden")!, picture_in_words(samples));
    });
    write(find("models-words"), counted(layout.models.length, "model"));
  }

  private create(model: ModelEntry): HTMLElement {
    const name = make("button", "model-name", model.name);
    name.type = "button";
    name.title = "Show in the plots";
    name.addEventListener("click", () => this.chosen(model.name));
    const head = make("th", "name", "", make("i", `swatch ${this.palette.classes(model.name)}`), name, make("span", "state"), make("span", "drift"));
    head.scope = "row";
    const row = make("tr", "", "", head);
    for (let i = 0; i < NUMBERS; ++i) row.append(make("td", "number"));
    (row.children[8] as HTMLElement).className = "number meter";
    row.children[8]!.append(make("i", "track"), make("span"));
    const canvas = make("canvas", "", "");
    canvas.setAttribute("aria-hidden", "true");
    row.append(make("td", "picture", "", canvas, make("span", "hidden")));
    label_cells(row, HEADS);
    this.observer.observe(row);
    return row;
  }
}

function words_of_state(model: ModelEntry): string {
  const kind = model.kind === "application" ? "application, " : "";
  return `${kind}${model.state}${model.version ? `, ${model.version}` : ""}`;
}

function picture_in_words(samples: Samples | undefined): string {
  if (!samples) return "";
  const known = samples.offered.filter((value) => value != null);
  const bad = samples.violations.filter((value) => value != null && value > 0).length;
  if (!known.length) return "no data yet";
  return `between ${rate(Math.min(...known))} and ${rate(Math.max(...known))} requests per second, violations in ${counted(bad, "second")}`;
}

/** The rate as an area, seconds with violations below it, reorganisations as lines across. */
function draw(canvas: HTMLCanvasElement, samples: Samples | undefined, times: number[], marks: number[]): void {
  const scale = devicePixelRatio;
  const width = Math.round(PICTURE.width * scale);
  const height = Math.round(PICTURE.height * scale);
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  const pen = canvas.getContext("2d");
  const now = times.at(-1);
  if (!pen || now === undefined || !samples) return;
  const styles = getComputedStyle(canvas);
  const columns = PICTURE.width;
  const length = Math.max(60, now - times[0]!);
  const rates = new Float64Array(columns).fill(-1);
  const bad = new Float64Array(columns);
  let most = 1;
  times.forEach((at, index) => {
    const column = Math.floor(columns * (1 - (now - at) / length)) - 1;
    if (column < 0) return;
    const offered = samples.offered[index];
    if (offered == null) return;
    rates[column] = Math.max(rates[column]!, offered);
    if (offered > 0) bad[column] = Math.max(bad[column]!, Math.min(1, (samples.violations[index] ?? 0) / offered));
    most = Math.max(most, offered);
  });
  // With fewer samples than columns, a sample extends to the next one.
  for (let x = 1; x < columns; ++x) if (rates[x]! < 0) rates[x] = rates[x - 1]!;
  pen.clearRect(0, 0, width, height);
  const floor = height - 1;
  pen.fillStyle = styles.getPropertyValue("--line-served");
  for (let x = 0; x < columns; ++x) {
    const one = rates[x]!;
    if (one >= 0) pen.fillRect(x * scale, floor - (one / most) * (height - 2), scale + 0.5, Math.max(1, (one / most) * (height - 2)));
  }
  pen.fillStyle = styles.getPropertyValue("--line-violations");
  for (let x = 0; x < columns; ++x) {
    const one = bad[x]!;
    if (one > 0) pen.fillRect(x * scale, floor - Math.max(0.15, one) * (height - 2), scale + 0.5, Math.max(0.15, one) * (height - 2));
  }
  pen.fillStyle = styles.getPropertyValue("--mark");
  for (const at of marks) {
    const x = columns * (1 - (now - at) / length);
    if (x >= 0) pen.fillRect(Math.round(x * scale), 0, Math.max(1, scale), height);
  }
}
