// The three plots over time: rate, latency against the objective, violations. They share a cursor, and
// each has its numbers in words beside it.
import uPlot from "uplot";
import { make, write } from "./dom";
import { ms, percent, rate, time } from "./format";
import { SECONDS, violated, type Samples } from "./history";

const SHORTEST_S = 60;
const HEIGHT = 170;

export interface Mark {
  at: number;
  epoch: number;
}

export interface Shown {
  /** Empty: all models together. */
  model: string;
  slo_ms: number;
  times: number[];
  samples: Samples;
  marks: Mark[];
}

interface Line {
  label: string;
  color: string; // a custom property of the style sheet
  dash?: number[];
  fill?: boolean;
  stepped?: boolean;
  value: (shown: Shown) => (number | null)[];
}

interface Kind {
  id: string;
  title: (shown: Shown) => string;
  lines: Line[];
  word: (value: number | null | undefined, shown: Shown) => string;
  /** What the plot shows, for those who do not see it. */
  words: (shown: Shown) => string;
}

const range_of = (values: (number | null)[]): [number, number] => {
  const known = values.filter((value) => value != null);
  return known.length ? [Math.min(...known), Math.max(...known)] : [0, 0];
};

function marks_in_words(shown: Shown): string {
  const seen = shown.marks.filter((mark) => mark.at >= (shown.times[0] ?? 0));
  const last = seen.at(-1);
  return last ? ` ${seen.length === 1 ? "One reorganisation" : `${seen.length} reorganisations`}, the last at ${time(last.at)}.` : "";
}

const latency_word = (value: number | null | undefined, shown: Shown): string =>
  shown.model ? `${ms(value)} ms` : percent(value == null ? value : value / 100);

const KINDS: Kind[] = [
  {
    id: "rate",
    title: () => "Requests per second",
    lines: [
      { label: "offered", color: "--line-offered", value: ({ samples }) => samples.offered },
      { label: "served", color: "--line-served", fill: true, dash: [6, 3], value: ({ samples }) => samples.served },
    ],
    word: (value) => rate(value),
    words: (shown) => {
      const [least, most] = range_of(shown.samples.offered);
      return `${rate(shown.samples.offered.at(-1))} offered and ${rate(shown.samples.served.at(-1))} served a second now; ` +
        `offered between ${rate(least)} and ${rate(most)} in the time shown.${marks_in_words(shown)}`;
    },
  },
  {
    id: "latency",
    title: (shown) => (shown.model ? "Latency, milliseconds" : "Latency, % of the objective (worst model)"),
    lines: [
      { label: "p99", color: "--line-p99", value: ({ samples }) => samples.p99 },
      { label: "p50", color: "--line-p50", dash: [6, 3], value: ({ samples }) => samples.p50 },
      { label: "objective", color: "--line-slo", dash: [2, 3], value: (shown) => shown.times.map(() => (shown.model ? shown.slo_ms : 100)) },
    ],
    word: latency_word,
    words: (shown) => {
      const limit = shown.model ? shown.slo_ms : 100;
      const over = shown.samples.p99.filter((value) => value != null && value > limit).length;
      return `p50 ${latency_word(shown.samples.p50.at(-1), shown)}, p99 ${latency_word(shown.samples.p99.at(-1), shown)} now` +
        (shown.model ? `, objective ${ms(limit)} ms` : "") +
        `; p99 was over the objective in ${over} of ${shown.times.length} seconds.`;
    },
  },
  {
    id: "violations",
    title: () => "Violations per second",
    lines: [{ label: "late, dropped or failed", color: "--line-violations", fill: true, stepped: true, value: ({ samples }) => samples.violations }],
    word: (value) => rate(value),
    words: (shown) => {
      const seconds = shown.samples.violations.filter((value) => value != null && value > 0).length;
      return seconds === 0
        ? "None in the time shown."
        : `In ${seconds} of ${shown.times.length} seconds; ${percent(violated(shown.samples, SECONDS))} of all requests in the time shown.`;
    },
  },
];

/** One plot with its title, legend and words. */
class Plot {
  readonly figure = make("figure", "plot");
  private readonly title = make("span", "plot-title");
  private readonly words = make("p", "hidden");
  private readonly values: HTMLElement[] = [];
  private readonly canvas = make("div", "canvas");
  private plot: uPlot | undefined;
  private shown: Shown | undefined;

  constructor(private readonly kind: Kind) {
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

  show(shown: Shown): void {
    const first = !this.shown;
    this.shown = shown;
    write(this.title, this.kind.title(shown));
    write(this.words, this.kind.words(shown));
    if (first) this.restyle();
    this.plot?.setData(this.data(shown));
    this.tell();
  }

  /** Makes the plot anew, in the colours of the theme in force. */
  restyle(): void {
    if (!this.shown) return;
    this.plot?.destroy();
    this.plot = new uPlot(this.options(), this.data(this.shown), this.canvas);
  }

  private data(shown: Shown): uPlot.AlignedData {
    return [shown.times, ...this.kind.lines.map((line) => line.value(shown))] as uPlot.AlignedData;
  }

  private resize(): void {
    const width = this.canvas.clientWidth;
    if (this.plot && width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
  }

  /** The values under the cursor; without one the last. */
  private tell(): void {
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
            const length = Math.min(SECONDS, Math.max(SHORTEST_S, (most ?? 0) - (least ?? 0)));
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
        setCursor: [() => this.tell()],
      },
    };
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

export class Plots {
  private readonly plots = KINDS.map((kind) => new Plot(kind));

  constructor(parent: HTMLElement) {
    parent.append(...this.plots.map((plot) => plot.figure));
  }
  show(shown: Shown): void {
    for (const plot of this.plots) plot.show(shown);
  }
  restyle(): void {
    for (const plot of this.plots) plot.restyle();
  }
}
