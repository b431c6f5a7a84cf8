// The plots of traffic: rate, latency against the objective, violations.
import { ms, percent, rate, time } from "./format";
import { SECONDS, violated, type Samples } from "./history";
import type { Kind, Shown } from "./plots";

export interface Traffic extends Shown {
  /** Empty: all models together. */
  model: string;
  slo_ms: number;
  samples: Samples;
}

const range_of = (values: (number | null)[]): [number, number] => {
  const known = values.filter((value) => value != null);
  return known.length ? [Math.min(...known), Math.max(...known)] : [0, 0];
};

function marks_in_words(shown: Traffic): string {
  const seen = shown.marks.filter((mark) => mark.at >= (shown.times[0] ?? 0));
  const last = seen.at(-1);
  return last ? ` ${seen.length === 1 ? "One reorganisation" : `${seen.length} reorganisations`}, the last at ${time(last.at)}.` : "";
}

const latency_word = (value: number | null | undefined, shown: Traffic): string =>
  shown.model ? `${ms(value)} ms` : percent(value == null ? value : value / 100);

export const TRAFFIC: Kind<Traffic>[] = [
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
        `; p99 was above the objective in ${over} of ${shown.times.length} seconds.`;
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
