// Plots over time, with a common cursor. Each has its figures as text for screen readers.
import uPlot from "uplot";
import { make, write } from "./dom";
import { time } from "./format";
import { SECONDS } from "./history";

const MIN_SPAN_S = 60;
const HEIGHT = 170;
const MARK_REACH = 8; // pixels around a mark that react to clicks

/** A reorganisation: when it came into force, and the number of its decision. */
export interface Mark {
  at: number;
  plan: number;
}

/** The data of a group of plots. */
export interface Shown {
  times: number[];
  marks: Mark[];
}

export interface Line<S extends Shown> {
  label: string;
  color: string; // a custom property of the style sheet
  dash?: number[];
  fill?: boolean;
  stepped?: boolean;
  value: (shown: S) => (number | null)[];
}

export interface Kind<S extends Shown> {
  id: string;
  title: (shown: S) => string;
  lines: Line<S>[];
  word: (value: number | null | undefined, shown: S) => string;
  /** The content of the plot as text, for screen readers. */
  words: (shown: S) => string;
}

/** One plot with its title, legend and words. */
class Plot<S extends Shown> {
  readonly figure = make("figure", "plot");
  private readonly title = make("span", "plot-title");
  private readonly words = make("p", "hidden");
  private readonly values: HTMLElement[] = [];
  private readonly canvas = make("div", "canvas");
  private plot: uPlot | undefined;
  private shown: S | undefined;

  constructor(private readonly kind: Kind<S>, private readonly opened: (plan: number) => void) {
    const legend = make("ul", "legend");
    for (const line of kind.lines) {
      const value = make("b");
      this.values.push(value);
      const key = make("i", `key ${line.dash ? "dashed" : ""}`);
      key.style.setProperty("--key", `var(${line.color})`);
      legend.append(make("li", "", "", key, document.createTextNode(line.label + " "), value));
    }
    const caption = make("figcaption", "", "", this.title, legend, this.words);
    this.canvas.setAttribute("aria-hidden", "true");
    this.figure.id = `plot-${kind.id}`;
    this.figure.append(caption, this.canvas);
    new ResizeObserver(() => this.resize()).observe(this.canvas);
  }

  show(shown: S): void {
    const first = !this.shown;
    this.shown = shown;
    write(this.title, this.kind.title(shown));
    write(this.words, this.kind.words(shown));
    if (first) this.restyle();
    this.plot?.setData(this.data(shown));
    this.show_values();
  }

  /** Recreates the plot in the colours of the current theme. */
  restyle(): void {
    if (!this.shown) return;
    this.plot?.destroy();
    this.plot = new uPlot(this.options(), this.data(this.shown), this.canvas);
  }

  private data(shown: S): uPlot.AlignedData {
    return [shown.times, ...this.kind.lines.map((line) => line.value(shown))] as uPlot.AlignedData;
  }

  private resize(): void {
    const width = this.canvas.clientWidth;
    if (this.plot && width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
  }

  /** The values under the cursor; without one the last. */
  private show_values(): void {
    const shown = this.shown;
    if (!shown) return;
    const at = this.plot?.cursor.idx ?? shown.times.length - 1;
    this.kind.lines.forEach((line, index) => write(this.values[index]!, this.kind.word(line.value(shown)[at], shown)));
  }

  private options(): uPlot.Options {
    const styles = getComputedStyle(document.documentElement);
    const color = (name: string): string => styles.getPropertyValue(name).trim();
    const axis = {
      stroke: color("--ink-soft"),
      font: "11px system-ui, sans-serif",
      grid: { stroke: color("--grid"), width: 1 },
      ticks: { stroke: color("--grid"), width: 1, size: 4 },
    };
    return {
      width: this.canvas.clientWidth || 320,
      height: HEIGHT,
      padding: [10, 26, 0, 0],
      legend: { show: false },
      cursor: { sync: { key: "time" }, drag: { x: false, y: false }, y: false },
      scales: {
        x: {
          range: (_plot, least, most) => {
            const length = Math.min(SECONDS, Math.max(MIN_SPAN_S, (most ?? 0) - (least ?? 0)));
            return [(most ?? 0) - length, most ?? 0];
          },
        },
        y: { range: (_plot, _least, most) => [0, Math.max(1, (most ?? 0) * 1.08)] },
      },
      axes: [
        { ...axis, size: 28, space: 70, values: (_plot, splits) => splits.map((at) => time(at)) },
        { ...axis, size: 48, space: 34 },
      ],
      series: [
        {},
        ...this.kind.lines.map((line): uPlot.Series => {
          const stroke = color(line.color);
          const series: uPlot.Series = { stroke, width: 1.75, points: { show: false }, spanGaps: false };
          if (line.dash) series.dash = line.dash;
          if (line.fill) series.fill = stroke + "22";
          if (line.stepped) series.paths = uPlot.paths.stepped!({ align: -1 });
          return series;
        }),
      ],
      hooks: {
        draw: [(plot) => this.draw_marks(plot, color("--mark"))],
        setCursor: [() => this.show_values()],
        init: [(plot) => plot.over.addEventListener("click", (event) => this.open_mark(plot, event.offsetX))],
      },
    };
  }

  /** Opens the mark at the position of a click, if any. */
  private open_mark(plot: uPlot, x: number): void {
    const distance = (mark: Mark): number => Math.abs(plot.valToPos(mark.at, "x") - x);
    const near = (this.shown?.marks ?? []).filter((mark) => distance(mark) <= MARK_REACH);
    near.sort((a, b) => distance(a) - distance(b));
    if (near[0]) this.opened(near[0].plan);
  }

  private draw_marks(plot: uPlot, color: string): void {
    const { ctx, bbox } = plot;
    const size = 5 * devicePixelRatio;
    ctx.save();
    ctx.strokeStyle = color;
    ctx.fillStyle = color;
    ctx.lineWidth = devicePixelRatio;
    for (const mark of this.shown?.marks ?? []) {
      const x = plot.valToPos(mark.at, "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.setLineDash([]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x + size, bbox.top + size);
      ctx.lineTo(x, bbox.top + 2 * size);
      ctx.lineTo(x - size, bbox.top + size);
      ctx.fill();
    }
    ctx.restore();
  }
}

export class Plots<S extends Shown> {
  private readonly plots: Plot<S>[];

  /** `opened`: a mark was clicked. */
  constructor(parent: HTMLElement, kinds: Kind<S>[], opened: (plan: number) => void) {
    this.plots = kinds.map((kind) => new Plot(kind, opened));
    parent.append(...this.plots.map((plot) => plot.figure));
  }
  show(shown: S): void {
    for (const plot of this.plots) plot.show(shown);
  }
  restyle(): void {
    for (const plot of this.plots) plot.restyle();
  }
}
